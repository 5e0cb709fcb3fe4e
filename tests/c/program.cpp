// The C++ program of test_c.py: one command, with the configuration in a file.

#include <inferlog.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#ifdef WITH_SPDLOG
#include <inferlog/spdlog_sink.hpp>
#endif

namespace {

INFERLOG_EVENT(inference, "cpp.inference", inferlog::field<std::string_view>{"model"},
               inferlog::field<double>{"latency_ms"}, inferlog::field<std::uint64_t>{"tokens"},
               inferlog::field<std::int64_t>{"delta"}, inferlog::field<bool>{"ok"},
               inferlog::field<std::optional<std::string_view>>{"error"});

int events(const char* configuration) {
  const inferlog::log log = inferlog::log::from_file(configuration);
  const inference plain(log), inside(log);
  if (!plain.emit(inferlog::info, "resnet50", 4.25, 7u, -1, true, std::nullopt)) return 1;
  if (!inside.emit(inferlog::warn, std::string("long"), 0.5f, std::uint64_t{1} << 63, 2, false, "late")) return 1;
  if (!log.message(inferlog::info, "pipeline", "loaded")) return 1;
  if (log.message(inferlog::debug, "pipeline", "below the level")) return 1;
  if (!log.flush(std::chrono::seconds(60))) return 1;
  return log.stats().written == 3 ? 0 : 1;
}

int requests(const char* configuration) {
  const inferlog::log log = inferlog::log::from_file(configuration);
  inferlog_request_start start{};
  start.method = inferlog::text_of("GET");
  start.path = inferlog::text_of("/done");
  inferlog::request done(log, start);
  done.answer(204);
  done.chunk("", false);
  done.end();
  done.end(INFERLOG_END_FAILED, "twice");
  start.path = inferlog::text_of("/abandoned");
  const inferlog::request abandoned(log, start);
  return 0;
}

int wrong(const char* configuration) {
  try {
    const inferlog::log log(configuration);
  } catch (const inferlog::error& error) {
    std::puts(error.what());
    return 0;
  }
  return 1;
}

#ifdef WITH_SPDLOG
int spdlogs(const char* configuration) {
  auto log = std::make_shared<inferlog::log>(inferlog::log::from_file(configuration));
  auto sink = inferlog::spdlog_sink(log);
  spdlog::logger logger("pipeline", sink);
  SPDLOG_LOGGER_INFO(&logger, "loaded {} in {} ms", "resnet50", 12);
  logger.debug("below the level");
  logger.critical("a \"quoted\"\nend");
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; thread++)
    threads.emplace_back([&logger, thread] {
      for (int number = 0; number < 1000; number++) logger.warn("{} {}", thread, number);
    });
  for (auto& thread : threads) thread.join();
  logger.set_pattern("<%l> %v");
  logger.error("last");
  logger.flush();
  return log->stats().written == 4003 ? 0 : 1;
}
#endif

}  // namespace

int main(int arguments, char** argument) {
  if (arguments != 3) return 2;
  if (!std::strcmp(argument[1], "events")) return events(argument[2]);
  if (!std::strcmp(argument[1], "requests")) return requests(argument[2]);
  if (!std::strcmp(argument[1], "wrong")) return wrong(argument[2]);
#ifdef WITH_SPDLOG
  if (!std::strcmp(argument[1], "spdlogs")) return spdlogs(argument[2]);
#endif
  return 2;
}
