// TensorRT's log as messages of an application, beside the records of its inferences.
//
//   inferlog::log log;
//   inferlog::tensorrt_logger logger(log);
//   nvinfer1::IRuntime* runtime = nvinfer1::createInferRuntime(logger);
//
// The messages have the logger `tensorrt`, unless another name is given, and TensorRT's severity: an internal error is
// FATAL, a verbose message DEBUG. TensorRT formats each message before it asks the logger, also those that `level` leaves
// out.
#pragma once

#include <NvInferRuntime.h>

#include <string>
#include <string_view>
#include <utility>

#include "../inferlog.hpp"

namespace inferlog {

/// Any thread of TensorRT may call it: it takes no lock. It must live, and the log be open, as long as what was made with it.
class tensorrt_logger final : public nvinfer1::ILogger {
 public:
  explicit tensorrt_logger(const ::inferlog::log& log, std::string name = "tensorrt") noexcept
      : log_(log.get()), name_(std::move(name)) {}

  void log(Severity severity, const char* message) noexcept override {
    inferlog_message(log_, nullptr, severity_of(severity), text_of(name_), text_of(std::string_view(message ? message : "")),
                     nullptr, 0);
  }

 private:
  static std::uint8_t severity_of(Severity severity) noexcept {
    switch (severity) {
      case Severity::kINTERNAL_ERROR: return ::inferlog::severity::fatal;
      case Severity::kERROR: return ::inferlog::severity::error_severity;
      case Severity::kWARNING: return ::inferlog::severity::warn;
      case Severity::kVERBOSE: return ::inferlog::severity::debug;
      default: return ::inferlog::severity::info;
    }
  }

  const inferlog_log* log_;
  std::string name_;
};

}  // namespace inferlog
