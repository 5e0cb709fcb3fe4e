// inferlog.hpp: the C++17 face of inferlog.h. Objects close and end what they hold; event fields are checked by the
// compiler: their names, their number and their types.
//
//   INFERLOG_EVENT(inference, "pipeline.inference", inferlog::field<std::string_view>{"model"},
//                  inferlog::field<double>{"latency_ms"}, inferlog::field<std::uint64_t>{"tokens"});
//
//   inferlog::log log;                    // parameters from the environment; throws inferlog::error
//   inference done(log);                  // registers the event
//   done.emit(inferlog::info, "resnet50", 4.2, 1u);
//
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "inferlog.h"

namespace inferlog {

/// OpenTelemetry's severity numbers.
enum severity : std::uint8_t { trace = 1, debug = 5, info = 9, warn = 13, error_severity = 17, fatal = 21 };

/// What the library refuses: the text names parameter and value.
class error : public std::runtime_error {
 public:
  error() : std::runtime_error(inferlog_last_error() ? inferlog_last_error() : "inferlog") {}
};

/// The text with its length.
inline inferlog_text text_of(std::string_view text) noexcept { return {text.data(), text.size()}; }

/// The value of a field: absent, a truth value, a text or a number.
inline inferlog_value value_of(std::nullopt_t) noexcept { return inferlog_absent(); }
inline inferlog_value value_of(bool is_true) noexcept { return inferlog_bool(is_true); }
inline inferlog_value value_of(std::string_view text) noexcept { return inferlog_bytes(text.data(), text.size()); }
inline inferlog_value value_of(const char* text) noexcept { return inferlog_string(text); }

template <typename T>
std::enable_if_t<std::is_arithmetic_v<T>, inferlog_value> value_of(T number) noexcept {
  if constexpr (std::is_floating_point_v<T>)
    return inferlog_double(static_cast<double>(number));
  else if constexpr (std::is_signed_v<T>)
    return inferlog_int(number);
  else
    return inferlog_uint(number);
}

template <typename T>
inferlog_value value_of(const std::optional<T>& value) noexcept {
  return value ? value_of(*value) : inferlog_absent();
}

/// An open log. Its end waits until everything is written, at most as long as `deadline`.
class log {
 public:
  /// Opens it with parameters, as `inferlog_open` reads them; null: with those of the environment. Throws `error`.
  explicit log(const char* configuration = nullptr, std::chrono::milliseconds deadline = std::chrono::seconds(10))
      : log(inferlog_open(INFERLOG_ABI_VERSION, configuration), deadline) {}

  /// Opens it with the parameters of a file. Throws `error`.
  static log from_file(const std::string& path, std::chrono::milliseconds deadline = std::chrono::seconds(10)) {
    return log(inferlog_open_file(INFERLOG_ABI_VERSION, path.c_str()), deadline);
  }

  log(log&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), deadline_(other.deadline_) {}
  log& operator=(log&&) = delete;
  ~log() {
    if (handle_) inferlog_close(handle_, static_cast<std::uint64_t>(deadline_.count()));
  }

  /// The handle of inferlog.h.
  const inferlog_log* get() const noexcept { return handle_; }

  /// Waits until everything accepted before is written; returns whether it is.
  bool flush(std::chrono::milliseconds deadline) const {
    return inferlog_flush(handle_, static_cast<std::uint64_t>(deadline.count()));
  }

  /// Reads the counts. Throws `error` in a forked child that has not logged yet.
  inferlog_stats_t stats() const {
    inferlog_stats_t found{};
    if (!inferlog_stats(handle_, &found)) throw error();
    return found;
  }

  /// Records a message of the application `logger`; see `inferlog_message`.
  bool message(std::uint8_t severity, std::string_view logger, std::string_view text) const noexcept {
    return inferlog_message(handle_, nullptr, severity, text_of(logger), text_of(text), nullptr, 0);
  }

 private:
  log(const inferlog_log* handle, std::chrono::milliseconds deadline) : handle_(handle), deadline_(deadline) {
    if (!handle_) throw error();
  }

  const inferlog_log* handle_;
  std::chrono::milliseconds deadline_;
};

#ifdef INFERLOG_REQUESTS
/// A request under way. Without an end of its own, it ends as failed with `abandoned`.
class request {
 public:
  request(const log& log, const inferlog_request_start& start) : handle_(inferlog_request_begin(log.get(), &start)) {}
  request(request&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  request& operator=(request&&) = delete;
  ~request() { end(INFERLOG_END_FAILED, "abandoned"); }

  inferlog_request* get() const noexcept { return handle_; }
  /// These five are `inferlog_request_header`, `_body`, `_answer`, `_chunk` and `_disconnect`.
  void header(std::string_view name, std::string_view value) const noexcept {
    inferlog_request_header(handle_, text_of(name), text_of(value));
  }
  void body(std::string_view bytes) const noexcept { inferlog_request_body(handle_, text_of(bytes)); }
  void answer(std::uint16_t status, std::string_view content_type = {}) const noexcept {
    inferlog_request_answer(handle_, status, text_of(content_type));
  }
  void chunk(std::string_view bytes, bool more) const noexcept { inferlog_request_chunk(handle_, text_of(bytes), more); }
  void disconnect() const noexcept { inferlog_request_disconnect(handle_); }
  /// Of a request that a model serves; null leaves those of an earlier call.
  void tensors(const inferlog_tensor* inputs, std::size_t input_count, const inferlog_tensor* outputs,
               std::size_t output_count) const noexcept {
    inferlog_request_tensors(handle_, inputs, input_count, outputs, output_count);
  }
  void end(inferlog_end how = INFERLOG_END_RETURNED, std::string_view error_type = {}) noexcept {
    inferlog_request_end(std::exchange(handle_, nullptr), how, text_of(error_type));
  }

 private:
  inferlog_request* handle_;
};
#endif

/// A field of an event: its type and its name. `std::optional<T>` may be absent.
template <typename T>
struct field {
  using type = T;
  const char* name;
};

namespace detail {

template <typename T>
struct bare {
  using type = T;
};
template <typename T>
struct bare<std::optional<T>> {
  using type = T;
};

/// Whether a value of type U is one of type T, and nothing of it is lost.
template <typename T, typename U>
constexpr bool fits() {
  using To = typename bare<T>::type;
  using From = std::decay_t<U>;
  if constexpr (!std::is_same_v<To, T> && (std::is_same_v<From, std::nullopt_t> || std::is_same_v<From, T>))
    return true;
  else if constexpr (std::is_same_v<To, bool> || std::is_same_v<From, bool>)
    return std::is_same_v<To, From>;
  else if constexpr (std::is_integral_v<To>)
    return std::is_integral_v<From> && sizeof(From) <= sizeof(To) &&
           (std::is_signed_v<To> == std::is_signed_v<From> || (std::is_signed_v<To> && sizeof(From) < sizeof(To)));
  else if constexpr (std::is_floating_point_v<To>)
    return std::is_floating_point_v<From> && sizeof(From) <= sizeof(To);
  else
    return std::is_convertible_v<U, To>;
}

constexpr bool is_same_name(const char* one, const char* other) {
  for (; *one && *one == *other; one++, other++) {
  }
  return *one == *other;
}

constexpr std::size_t length_of(const char* name) {
  std::size_t length = 0;
  while (name[length]) length++;
  return length;
}

template <typename Fields, std::size_t... At>
constexpr bool are_names(const Fields& fields, std::index_sequence<At...>) {
  const char* const names[] = {std::get<At>(fields).name...};
  for (std::size_t one = 0; one < sizeof...(At); one++) {
    if (length_of(names[one]) < 1 || length_of(names[one]) > 128) return false;
    for (std::size_t other = 0; other < one; other++)
      if (is_same_name(names[one], names[other])) return false;
  }
  return true;
}

}  // namespace detail

/// The base of what `INFERLOG_EVENT` defines.
template <typename Definition, typename Fields>
class event;

template <typename Definition, typename... T>
class event<Definition, std::tuple<field<T>...>> {
 public:
  /// Registers it. Throws `error`.
  explicit event(const log& log, bool in_request = false) : log_(log.get()) {
    static_assert(detail::are_names(Definition::fields, std::index_sequence_for<T...>{}),
                  "each field has a name of its own, of 1 to 128 bytes");
    registered_ = std::apply(
        [&](const auto&... fields) {
          const char* const names[] = {fields.name...};
          return inferlog_register(log_, Definition::event_name, names, sizeof...(T), in_request);
        },
        Definition::fields);
    if (!registered_.id) throw error();
  }

  /// Emits a record with one value for each field; returns whether it was accepted.
  template <typename... U>
  bool emit(std::uint8_t severity, const U&... values) const noexcept {
    check<U...>();
    const inferlog_value all[] = {value_of(values)...};
    return inferlog_emit(log_, registered_, severity, all, sizeof...(U));
  }

#ifdef INFERLOG_REQUESTS
  /// The same with the ids of a request.
  template <typename... U>
  bool emit(const request& request, std::uint8_t severity, const U&... values) const noexcept {
    check<U...>();
    const inferlog_value all[] = {value_of(values)...};
    return inferlog_request_emit(request.get(), registered_, severity, all, sizeof...(U));
  }
#endif

 private:
  template <typename... U>
  static constexpr void check() {
    static_assert(sizeof...(U) == sizeof...(T), "one value for each field of the event");
    static_assert((detail::fits<T, U>() && ...), "a value is not of its field's type");
  }

  const inferlog_log* log_;
  inferlog_event registered_{};
};

}  // namespace inferlog

/// Defines the class `type` for an event: its name, then its fields.
#define INFERLOG_EVENT(type, name_of_event, ...)                                                      \
  struct type##_fields {                                                                              \
    static constexpr const char* event_name = name_of_event;                                          \
    static constexpr auto fields = std::make_tuple(__VA_ARGS__);                                      \
  };                                                                                                  \
  struct type : ::inferlog::event<type##_fields, std::decay_t<decltype(type##_fields::fields)>> {     \
    using ::inferlog::event<type##_fields, std::decay_t<decltype(type##_fields::fields)>>::event;     \
  }
