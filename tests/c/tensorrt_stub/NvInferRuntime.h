// A stub of what inferlog/tensorrt_logger.hpp needs of TensorRT: the interface of its logger, as TensorRT 8 to 10 have it.
#pragma once

#include <cstdint>

namespace nvinfer1 {

using AsciiChar = char;

class ILogger {
 public:
  enum class Severity : std::int32_t { kINTERNAL_ERROR = 0, kERROR = 1, kWARNING = 2, kINFO = 3, kVERBOSE = 4 };

  virtual void log(Severity severity, AsciiChar const* msg) noexcept = 0;

  ILogger() = default;
  virtual ~ILogger() = default;

 protected:
  ILogger(ILogger const&) = default;
  ILogger(ILogger&&) = default;
  ILogger& operator=(ILogger const&) & = default;
  ILogger& operator=(ILogger&&) & = default;
};

}  // namespace nvinfer1
