# The targets inferlog::inferlog (shared) and inferlog::static.
get_filename_component(_inferlog_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET inferlog::inferlog)
  add_library(inferlog::inferlog SHARED IMPORTED)
  set_target_properties(inferlog::inferlog PROPERTIES
    IMPORTED_LOCATION "${_inferlog_prefix}/lib/libinferlog.so.1"
    IMPORTED_SONAME "libinferlog.so.1"
    INTERFACE_COMPILE_DEFINITIONS "@DEFINITION@"
    INTERFACE_INCLUDE_DIRECTORIES "${_inferlog_prefix}/include")
  add_library(inferlog::static STATIC IMPORTED)
  set_target_properties(inferlog::static PROPERTIES
    IMPORTED_LOCATION "${_inferlog_prefix}/lib/libinferlog.a"
    INTERFACE_COMPILE_DEFINITIONS "@DEFINITION@"
    INTERFACE_INCLUDE_DIRECTORIES "${_inferlog_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
endif()
