// Calls the logger for TensorRT as TensorRT does: by its interface, from several threads.
//
//   tensorrt severities CONFIGURATION    one message of each severity
//   tensorrt threads CONFIGURATION       four threads with 1,000 messages each

#include <inferlog/tensorrt_logger.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

void severities(nvinfer1::ILogger& logger) {
  using Severity = nvinfer1::ILogger::Severity;
  for (const Severity severity :
       {Severity::kINTERNAL_ERROR, Severity::kERROR, Severity::kWARNING, Severity::kINFO, Severity::kVERBOSE})
    logger.log(severity, ("severity " + std::to_string(static_cast<int>(severity))).c_str());
}

void threads(nvinfer1::ILogger& logger) {
  std::vector<std::thread> running;
  for (int thread = 0; thread < 4; thread++)
    running.emplace_back([&logger, thread] {
      for (int number = 0; number < 1000; number++)
        logger.log(nvinfer1::ILogger::Severity::kINFO, (std::to_string(thread) + " " + std::to_string(number)).c_str());
    });
  for (auto& thread : running) thread.join();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return 2;
  const inferlog::log log = inferlog::log::from_file(arguments[2]);
  inferlog::tensorrt_logger logger(log);
  inferlog::tensorrt_logger named(log, "engine");
  if (std::string(arguments[1]) == "threads") {
    threads(logger);
    return 0;
  }
  severities(logger);
  static_cast<nvinfer1::ILogger&>(named).log(nvinfer1::ILogger::Severity::kINFO, nullptr);
  return 0;
}
