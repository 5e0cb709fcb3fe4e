// ONNX Runtime's own log as messages of an application, beside the records of its inferences.
//
//   inferlog::log log;
//   api->CreateEnvWithCustomLogger(inferlog::onnxruntime_logger, inferlog::onnxruntime_parameter(log),
//                                  ORT_LOGGING_LEVEL_INFO, "pipeline", &environment);
//
// The messages have the logger `onnxruntime`, their severity, category and log id, and the place in ONNX Runtime's source.
#pragma once

#include <onnxruntime_c_api.h>

#include <string_view>

#include "../inferlog.hpp"

namespace inferlog {

/// What `onnxruntime_logger` needs as its parameter. The log must be open as long as ONNX Runtime's environment.
inline void* onnxruntime_parameter(const log& log) noexcept { return const_cast<inferlog_log*>(log.get()); }

/// Of the type `OrtLoggingFunction`. Any thread of ONNX Runtime may call it.
inline void ORT_API_CALL onnxruntime_logger(void* parameter, OrtLoggingLevel level, const char* category, const char* id,
                                            const char* location, const char* message) noexcept {
  const auto severity_of = [level]() -> std::uint8_t {
    switch (level) {
      case ORT_LOGGING_LEVEL_VERBOSE: return severity::debug;
      case ORT_LOGGING_LEVEL_INFO: return severity::info;
      case ORT_LOGGING_LEVEL_WARNING: return severity::warn;
      case ORT_LOGGING_LEVEL_ERROR: return severity::error_severity;
      default: return severity::fatal;
    }
  };
  // PATH:LINE FUNCTION
  const std::string_view place(location ? location : "");
  const std::size_t space = place.find(' '), colon = place.substr(0, space).rfind(':');
  inferlog_attribute attributes[5] = {{text_of("onnxruntime.category"), value_of(category)},
                                      {text_of("onnxruntime.log_id"), value_of(id)}, {}, {}, {}};
  std::size_t count = 2;
  if (colon != std::string_view::npos) {
    std::int64_t line = 0;
    for (const char digit : place.substr(colon + 1, space == std::string_view::npos ? space : space - colon - 1))
      if (digit >= '0' && digit <= '9') line = line * 10 + (digit - '0');
    attributes[count++] = {text_of("code.file.path"), value_of(place.substr(0, colon))};
    attributes[count++] = {text_of("code.line.number"), value_of(line)};
    if (space != std::string_view::npos)
      attributes[count++] = {text_of("code.function.name"), value_of(place.substr(space + 1))};
  }
  inferlog_message(static_cast<const inferlog_log*>(parameter), nullptr, severity_of(), text_of("onnxruntime"),
                   text_of(message ? message : ""), attributes, count);
}

}  // namespace inferlog
