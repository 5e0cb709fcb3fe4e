// A sink for spdlog, whose messages become records of the event `log`, like those of Python's get_logger.
//
//   auto log = std::make_shared<inferlog::log>();
//   spdlog::set_default_logger(std::make_shared<spdlog::logger>("pipeline", inferlog::spdlog_sink(log)));
//
// The record has the logger's name, the severity, the message without a pattern, the thread, and the source location where
// a macro such as SPDLOG_INFO gives it. A pattern that is set for the sink formats the message. A flush of the logger waits
// until everything is written.
#pragma once

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

#include "../inferlog.hpp"

namespace inferlog {

/// Takes no lock for a message: the queue needs none. Only a pattern has one, since formatters have state.
class spdlog_message_sink final : public spdlog::sinks::sink {
 public:
  explicit spdlog_message_sink(std::shared_ptr<const ::inferlog::log> log) : log_(std::move(log)) {}

  void log(const spdlog::details::log_msg& message) override {
    if (!has_pattern_.load(std::memory_order_acquire)) {
      put(message, {message.payload.data(), message.payload.size()});
      return;
    }
    spdlog::memory_buf_t formatted;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      formatter_->format(message, formatted);
    }
    std::size_t length = formatted.size();
    while (length && (formatted.data()[length - 1] == '\n' || formatted.data()[length - 1] == '\r')) length--;
    put(message, {formatted.data(), length});
  }

  void flush() override { log_->flush(std::chrono::seconds(10)); }

  void set_pattern(const std::string& pattern) override {
    set_formatter(spdlog::details::make_unique<spdlog::pattern_formatter>(pattern));
  }

  void set_formatter(std::unique_ptr<spdlog::formatter> formatter) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    formatter_ = std::move(formatter);
    has_pattern_.store(true, std::memory_order_release);
  }

 private:
  static std::uint8_t severity_of(spdlog::level::level_enum level) noexcept {
    switch (level) {
      case spdlog::level::trace: return severity::trace;
      case spdlog::level::debug: return severity::debug;
      case spdlog::level::warn: return severity::warn;
      case spdlog::level::err: return severity::error_severity;
      case spdlog::level::critical: return severity::fatal;
      default: return severity::info;
    }
  }

  void put(const spdlog::details::log_msg& message, std::string_view text) const noexcept {
    inferlog_attribute attributes[4] = {{text_of("thread.id"), value_of(std::uint64_t{message.thread_id})}, {}, {}, {}};
    std::size_t count = 1;
    if (!message.source.empty()) {
      attributes[count++] = {text_of("code.file.path"), value_of(message.source.filename)};
      attributes[count++] = {text_of("code.line.number"), value_of(message.source.line)};
      attributes[count++] = {text_of("code.function.name"), value_of(message.source.funcname)};
    }
    inferlog_message(log_->get(), nullptr, severity_of(message.level),
                     {message.logger_name.data(), message.logger_name.size()}, text_of(text), attributes, count);
  }

  std::shared_ptr<const ::inferlog::log> log_;
  std::atomic<bool> has_pattern_{false};
  std::mutex mutex_;
  std::unique_ptr<spdlog::formatter> formatter_;
};

/// Makes the sink.
inline std::shared_ptr<spdlog_message_sink> spdlog_sink(std::shared_ptr<const log> log) {
  return std::make_shared<spdlog_message_sink>(std::move(log));
}

}  // namespace inferlog
