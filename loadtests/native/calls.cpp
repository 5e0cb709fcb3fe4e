// What one call costs: ours, spdlog, quill and write(2), in one process by turns. See bench_native.py.
//
//   calls latency CONFIGURATION DIRECTORY ROUNDS CALLS   percentiles of each round as JSON lines
//   calls entries CONFIGURATION DIRECTORY LOGGER COUNT   seconds for COUNT entries of 128 bytes, until they are written
//   calls forever CONFIGURATION DIRECTORY LOGGER         logs until it is killed; DIRECTORY/returned counts the calls

#include <fcntl.h>
#include <spdlog/async.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef WITH_QUILL
#define QUILL_DISABLE_NON_PREFIXED_MACROS
#include <quill/Backend.h>
#include <quill/Frontend.h>
#include <quill/LogMacros.h>
#include <quill/Logger.h>
#include <quill/sinks/FileSink.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "inferlog.hpp"
#include "inferlog/spdlog_sink.hpp"

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t deadline_ms = 120000;
constexpr size_t spdlog_queue = 1 << 16;

[[noreturn]] void fail(const char* what) {
  const char* why = inferlog_last_error();
  std::fprintf(stderr, "%s: %s\n", what, why ? why : "");
  std::exit(1);
}

// A way of logging: a call with eight fields, an entry of 128 bytes, a wait until all of it is written, and what has to run
// before, if anything.
struct Logger {
  std::string name;
  std::function<bool(uint64_t number)> call;
  std::function<bool(uint64_t number)> entry;
  std::function<void()> settle;
  std::function<void()> begin = [] {};
};

const std::string request_id = "7f3a9c1e5b1a4f0e", model = "llama-3.1-8b-instruct", route = "/v1/chat/completions";
constexpr const char* pattern = "%Y-%m-%dT%H:%M:%S.%f %l %v";
// With the number, and what stands around it in a line, an entry has 128 bytes.
const std::string padding(100, 'x');

Logger ours(const char* configuration) {
  const inferlog_log* log = inferlog_open_file(INFERLOG_ABI_VERSION, configuration);
  if (!log) fail("inferlog_open_file");
  static const char* const fields[] = {"request_id", "model", "route", "status", "tokens", "waiting", "latency_s", "ok"};
  static const char* const entry_fields[] = {"number", "padding"};
  const inferlog_event event = inferlog_register(log, "bench.call", fields, 8, false);
  const inferlog_event entry = inferlog_register(log, "bench.entry", entry_fields, 2, false);
  if (!event.id || !entry.id) fail("inferlog_register");
  return {"ours",
          [=](uint64_t number) {
            const inferlog_value values[] = {inferlog_bytes(request_id.data(), request_id.size()),
                                             inferlog_bytes(model.data(), model.size()),
                                             inferlog_bytes(route.data(), route.size()),
                                             inferlog_int(200),
                                             inferlog_uint(number),
                                             inferlog_int(3),
                                             inferlog_double(0.0625),
                                             inferlog_bool(true)};
            return inferlog_emit(log, event, 9, values, 8);
          },
          [=](uint64_t number) {
            const inferlog_value values[] = {inferlog_uint(number), inferlog_bytes(padding.data(), padding.size())};
            return inferlog_emit(log, entry, 9, values, 2);
          },
          [=] {
            if (!inferlog_flush(log, deadline_ms)) fail("inferlog_flush");
          }};
}

Logger of_spdlog(const char* name, std::shared_ptr<spdlog::logger> logger, std::function<void()> settle) {
  return {name,
          [logger](uint64_t number) {
            logger->info("request_id={} model={} route={} status={} tokens={} waiting={} latency_s={} ok={}", request_id,
                         model, route, 200, number, 3, 0.0625, true);
            return true;
          },
          [logger](uint64_t number) {
            logger->info("{} {}", number, padding);
            return true;
          },
          std::move(settle)};
}

// One worker thread writes; the same log call as below. A full queue blocks the caller, as is its default.
Logger spdlog_async(const std::string& directory) {
  auto pool = std::make_shared<spdlog::details::thread_pool>(spdlog_queue, 1);
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory + "/spdlog_async.log", true);
  auto logger = std::make_shared<spdlog::async_logger>("async", sink, pool, spdlog::async_overflow_policy::block);
  logger->set_pattern(pattern);
  return of_spdlog("spdlog_async", logger, [pool, logger] {
    while (pool->queue_size()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    logger->flush();
    while (pool->queue_size()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
}

Logger spdlog_sync(const std::string& directory) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(directory + "/spdlog_sync.log", true);
  auto logger = std::make_shared<spdlog::logger>("sync", sink);
  logger->set_pattern(pattern);
  return of_spdlog("spdlog_sync", logger, [logger] { logger->flush(); });
}

#ifdef WITH_QUILL
// Defaults, but that a thread's queue has room for a round from the start: one that grows allocates in the call.
struct QuillOptions : quill::FrontendOptions {
  static constexpr size_t initial_queue_capacity = 8 << 20;
};
using QuillFrontend = quill::FrontendImpl<QuillOptions>;

Logger by_quill(const std::string& directory) {
  auto sink = QuillFrontend::create_or_get_sink<quill::FileSink>(directory + "/quill.log", [] {
    quill::FileSinkConfig config;
    config.set_open_mode('w');
    return config;
  }());
  const quill::PatternFormatterOptions lines{"%(time) %(log_level) %(message)", "%Y-%m-%dT%H:%M:%S.%Qus"};
  auto* logger = QuillFrontend::create_or_get_logger("quill", std::move(sink), lines);
  return {"quill",
          [logger](uint64_t number) {
            QUILL_LOG_INFO(logger, "request_id={} model={} route={} status={} tokens={} waiting={} latency_s={} ok={}",
                           request_id, model, route, 200, number, 3, 0.0625, true);
            return true;
          },
          [logger](uint64_t number) {
            QUILL_LOG_INFO(logger, "{} {}", number, padding);
            return true;
          },
          // Its thread wakes every 0.1 ms, so it runs in quill's turns only.
          [logger] {
            logger->flush_log();
            quill::Backend::stop();
          },
          [] {
            quill::BackendOptions quiet;
            quiet.error_notifier = [](const std::string&) {};  // it reports each queue that grows
            quill::Backend::start(quiet);
          }};
}
#endif

// The same calls into our queue.
Logger spdlog_ours(const char* configuration) {
  auto log = std::make_shared<inferlog::log>(inferlog::log::from_file(configuration));
  auto logger = std::make_shared<spdlog::logger>("ours", inferlog::spdlog_sink(log));
  return of_spdlog("spdlog_ours", logger, [logger] { logger->flush(); });
}

Logger by_write(const std::string& directory) {
  const int file = open((directory + "/write.log").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) fail("open");
  const auto put = [file](char* line, int length) { return write(file, line, size_t(length)) == length; };
  return {"write",
          [put](uint64_t number) {
            char line[256];
            return put(line, std::snprintf(line, sizeof line,
                                           "request_id=%s model=%s route=%s status=%d tokens=%" PRIu64
                                           " waiting=%d latency_s=%g ok=%s\n",
                                           request_id.c_str(), model.c_str(), route.c_str(), 200, number, 3, 0.0625,
                                           "true"));
          },
          [put](uint64_t number) {
            char line[160];
            return put(line, std::snprintf(line, sizeof line, "%" PRIu64 " %-27s%s\n", number, "", padding.c_str()));
          },
          [] {}};
}

// Does nothing: what the reading of the clock takes.
Logger nothing() {
  return {"nothing", [](uint64_t) { return true; }, [](uint64_t) { return true; }, [] {}};
}

void round_of(const Logger& logger, unsigned threads, size_t calls) {
  std::vector<std::vector<int64_t>> taken(threads);
  std::atomic<unsigned> ready{0};
  std::atomic<uint64_t> refused{0};
  logger.begin();
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; thread++) {
    running.emplace_back([&, thread] {
      auto& mine = taken[thread];
      mine.reserve(calls);
      (void)logger.call(0);  // what a logger sets up for a new thread is not counted
      ready++;
      while (ready <= threads) std::this_thread::yield();
      for (size_t number = 0; number < calls; number++) {
        const auto before = Clock::now();
        const bool is_accepted = logger.call(number);
        const auto after = Clock::now();
        mine.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(after - before).count());
        if (!is_accepted) refused++;
      }
    });
  }
  while (ready < threads) std::this_thread::yield();
  const auto began = Clock::now();
  ready++;
  for (auto& thread : running) thread.join();
  logger.settle();
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  std::vector<int64_t> all;
  for (const auto& mine : taken) all.insert(all.end(), mine.begin(), mine.end());
  std::sort(all.begin(), all.end());
  const auto at = [&](double share) { return all[std::min(all.size() - 1, size_t(share * double(all.size())))]; };
  std::printf("{\"logger\": \"%s\", \"threads\": %u, \"p50\": %" PRId64 ", \"p99\": %" PRId64 ", \"p999\": %" PRId64
              ", \"max\": %" PRId64 ", \"records_per_s\": %.0f, \"refused\": %" PRIu64 "}\n",
              logger.name.c_str(), threads, at(0.5), at(0.99), at(0.999), all.back(), double(all.size()) / seconds,
              refused.load());
}

// A number in a file, which outlives the process.
std::atomic<uint64_t>* counter(const std::string& path) {
  const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, sizeof(uint64_t))) fail("counter");
  void* page = mmap(nullptr, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) fail("mmap");
  return new (page) std::atomic<uint64_t>(0);
}

Logger named(const std::string& name, const char* configuration, const std::string& directory) {
  if (name == "ours") return ours(configuration);
  if (name == "spdlog_async") return spdlog_async(directory);
  if (name == "spdlog_sync") return spdlog_sync(directory);
  if (name == "write") return by_write(directory);
#ifdef WITH_QUILL
  if (name == "quill") return by_quill(directory);
#endif
  fail("unknown logger");
}

}  // namespace

int main(int arguments, char** argument) {
  if (arguments < 5) return 2;
  const std::string command = argument[1], directory = argument[3];
  const char* configuration = argument[2];
  if (command == "latency") {
    const int rounds = std::atoi(argument[4]);
    const size_t calls = size_t(std::atoll(argument[5]));
    std::vector<Logger> loggers = {nothing(),
                                   ours(configuration),
                                   spdlog_ours(configuration),
                                   spdlog_async(directory),
                                   spdlog_sync(directory),
                                   by_write(directory)};
#ifdef WITH_QUILL
    loggers.push_back(by_quill(directory));
#endif
    std::mt19937 order(0);
    for (int round = -1; round < rounds; round++) {
      std::shuffle(loggers.begin(), loggers.end(), order);
      for (const auto& logger : loggers)
        for (unsigned threads : {1u, 4u})
          if (round < 0)
            (void)logger.call(0);  // the first round warms up
          else
            round_of(logger, threads, calls / threads);
    }
    return 0;
  }
  const Logger logger = named(argument[4], configuration, directory);
  logger.begin();
  if (command == "entries") {
    const uint64_t count = uint64_t(std::atoll(argument[5]));
    const auto began = Clock::now();
    for (uint64_t number = 0; number < count; number++)
      while (!logger.entry(number)) std::this_thread::sleep_for(std::chrono::microseconds(50));
    const auto called = Clock::now();
    logger.settle();
    const auto written = Clock::now();
    std::printf("{\"called_s\": %.6f, \"written_s\": %.6f}\n", std::chrono::duration<double>(called - began).count(),
                std::chrono::duration<double>(written - began).count());
    return 0;
  }
  if (command == "forever") {
    std::atomic<uint64_t>& returned = *counter(directory + "/returned");
    for (uint64_t number = 0;; returned.store(++number, std::memory_order_relaxed))
      while (!logger.entry(number)) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return 2;
}
