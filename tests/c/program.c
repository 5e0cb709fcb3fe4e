/* The program of test_c.py: one command, with the configuration in a file. */

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inferlog.h"

#define DEADLINE_MS 60000
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static const inferlog_log *opened;

static int fail(const char *what) {
  const char *why = inferlog_last_error();
  fprintf(stderr, "%s: %s\n", what, why ? why : "no error text");
  return 1;
}

static int finish(void) {
  inferlog_stats_t stats;
  if (!inferlog_flush(opened, DEADLINE_MS)) return fail("flush");
  if (!inferlog_stats(opened, &stats)) return fail("stats");
  printf("%llu %llu %llu\n", (unsigned long long)stats.accepted, (unsigned long long)stats.written,
         (unsigned long long)stats.dropped);
  return inferlog_close(opened, DEADLINE_MS) ? 0 : fail("close");
}

static int kinds(void) {
  static const char *const names[] = {"nothing", "null", "yes",  "int",     "uint", "double",
                                      "text",    "json", "lines", "no_json", "unknown"};
  inferlog_event event = inferlog_register(opened, "c.kinds", names, COUNT(names), false);
  if (!event.id) return fail("register");
  inferlog_value null = inferlog_absent(), json = inferlog_string("{\"a\":[1,2]}"), unknown = inferlog_int(1);
  inferlog_value lines = inferlog_string("{\n}"), no_json = inferlog_string("{\"a\":");
  null.kind = INFERLOG_KIND_NULL;
  json.kind = lines.kind = no_json.kind = INFERLOG_KIND_JSON;
  unknown.kind = 99;
  inferlog_value values[] = {inferlog_string(NULL),
                             null,
                             inferlog_bool(true),
                             inferlog_int(-5),
                             inferlog_uint(UINT64_MAX),
                             inferlog_double(0.25),
                             inferlog_bytes("a\"\n\xff", 4),
                             json,
                             lines,
                             no_json,
                             unknown};
  if (!inferlog_emit(opened, event, 9, values, COUNT(values))) return 1;
  inferlog_record record;
  inferlog_record_begin(&record, opened, event, 17);
  for (size_t at = 0; at < COUNT(values); at++) inferlog_push(&record, values[at]);
  if (!inferlog_record_commit(&record)) return 1;
  /* Each of these is refused and counted. */
  if (inferlog_emit(opened, event, 9, values, COUNT(values) - 1)) return 1;
  inferlog_record_begin(&record, opened, event, 9);
  inferlog_push(&record, values[0]);
  if (inferlog_record_commit(&record)) return 1;
  inferlog_event none = inferlog_register(opened, "c.kinds", names, 1, false);
  if (none.id || inferlog_emit(opened, none, 9, values, 1)) return 1;
  puts(inferlog_last_error());
  return finish();
}

static inferlog_event counted(void) {
  static const char *const names[] = {"thread", "number", "padding"};
  return inferlog_register(opened, "c.counted", names, COUNT(names), false);
}

static bool count(inferlog_event event, int64_t thread, int64_t number) {
  inferlog_value values[] = {inferlog_int(thread), inferlog_int(number), inferlog_string("0123456789012345678901234")};
  return inferlog_emit(opened, event, 9, values, COUNT(values));
}

static inferlog_event shared_event;

static void *counting(void *thread) {
  for (int64_t number = 0; number < 5000; number++)
    while (!count(shared_event, (int64_t)(intptr_t)thread, number)) usleep(100);
  return NULL;
}

static int threads(void) {
  pthread_t ids[4];
  shared_event = counted();
  for (size_t at = 0; at < COUNT(ids); at++) pthread_create(&ids[at], NULL, counting, (void *)(intptr_t)at);
  for (size_t at = 0; at < COUNT(ids); at++) pthread_join(ids[at], NULL);
  return finish();
}

static volatile sig_atomic_t handled;

static void on_alarm(int signal) {
  (void)signal;
  if (count(shared_event, 1, handled)) handled++;
}

/* Emits in a signal handler, which interrupts the thread that emits. */
static int signals(void) {
  struct sigaction action;
  struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  shared_event = counted();
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &every, NULL);
  for (int64_t number = 0; number < 50000 || handled < 100; number++)
    while (!count(shared_event, 0, number)) usleep(100);
  setitimer(ITIMER_REAL, &never, NULL);
  signal(SIGALRM, SIG_IGN);
  printf("%d\n", (int)handled);
  return finish();
}

static int forks(void) {
  inferlog_event event = counted();
  if (!count(event, 0, 0)) return 1;
  pid_t child = fork();
  if (child == 0) {
    if (!count(event, 1, 0)) _exit(1);
    if (!inferlog_close(opened, DEADLINE_MS)) _exit(fail("close"));
    _exit(0);
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status != 0) return 1;
  if (!count(event, 0, 1)) return 1;
  return finish();
}

static inferlog_request *begin(const char *id) {
  inferlog_request_start start;
  memset(&start, 0, sizeof start);
  start.method = inferlog_text_of("POST");
  start.path = inferlog_text_of("/v1/models/7");
  start.route = inferlog_text_of("/v1/models/{id}");
  start.protocol_version = inferlog_text_of("1.1");
  start.client_address = inferlog_text_of("192.0.2.7");
  start.traceparent = inferlog_text_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  start.x_request_id = inferlog_text_of(id);
  start.content_type = inferlog_text_of("application/json");
  return inferlog_request_begin(opened, &start);
}

static int requests(void) {
  static const char *const names[] = {"step"};
  inferlog_event event = inferlog_register(opened, "c.step", names, 1, true);
  inferlog_request *request = begin("whole");
  inferlog_ids ids;
  if (!inferlog_request_ids(request, &ids)) return fail("ids");
  printf("%s %s %s\n", ids.trace_id, ids.span_id, ids.request_id);
  inferlog_request_header(request, inferlog_text_of("X-Tenant"), inferlog_text_of("acme"));
  inferlog_request_header(request, inferlog_text_of("x-team"), inferlog_text_of("search"));
  inferlog_request_header(request, inferlog_text_of("x-other"), inferlog_text_of("no"));
  inferlog_request_header(request, inferlog_text_of("Authorization"), inferlog_text_of("Bearer sk-canary0123456789"));
  inferlog_request_body(request, inferlog_text_of("{\"model\":\"tiny\",\"max_tokens\":5}"));
  inferlog_value step = inferlog_string("decode");
  if (!inferlog_request_emit(request, event, 9, &step, 1) || !inferlog_emit(opened, event, 9, &step, 1)) return 1;
  inferlog_request_answer(request, 200, inferlog_text_of("text/event-stream"));
  inferlog_request_chunk(request, inferlog_text_of("data: a\n\n"), true);
  inferlog_request_chunk(request, inferlog_text_of("data: b\n\n"), true);
  inferlog_request_chunk(request, inferlog_text_of(""), false);
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));
  request = begin("failed");
  inferlog_request_end(request, INFERLOG_END_FAILED, inferlog_text_of("std::bad_alloc"));
  request = begin("left");
  inferlog_request_answer(request, 200, inferlog_text_of(NULL));
  inferlog_request_chunk(request, inferlog_text_of("half"), true);
  inferlog_request_disconnect(request);
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));
  inferlog_request_end(NULL, INFERLOG_END_RETURNED, inferlog_text_of(NULL));
  return finish();
}

/* Emits until it is killed, with one request under way; a line on stdout says how many records were accepted before. */
static int forever(void) {
  inferlog_event event = counted();
  if (!begin("open")) return 1;
  for (int64_t number = 0;;) {
    if (!count(event, 0, number)) {
      usleep(100);
      continue;
    }
    if (++number % 64 == 0) {
      printf("%lld\n", (long long)number);
      fflush(stdout);
    }
  }
}

/* Logs without a listener, which another process runs. */
static int produce(void) {
  inferlog_event event = counted();
  for (int64_t number = 0; number < 1000; number++)
    while (!count(event, 0, number)) usleep(100);
  return finish();
}

int main(int arguments, char **argument) {
  static const struct {
    const char *name;
    int (*run)(void);
  } commands[] = {{"kinds", kinds},       {"threads", threads}, {"forks", forks}, {"signals", signals},
                  {"requests", requests}, {"forever", forever}, {"produce", produce}};
  if (arguments != 3) return 2;
  if (!strcmp(argument[1], "wrong")) {
    if (inferlog_open(INFERLOG_ABI_VERSION + 1, NULL)) return 1;
    puts(inferlog_last_error());
    if (inferlog_open(INFERLOG_ABI_VERSION, argument[2])) return 1;
    puts(inferlog_last_error());
    if (inferlog_flush(NULL, 0) || inferlog_close(NULL, 0) || inferlog_request_begin(NULL, NULL)) return 1;
    puts(inferlog_last_error());
    return 0;
  }
  opened = inferlog_open_file(INFERLOG_ABI_VERSION, argument[2]);
  if (!opened) return fail("open");
  for (size_t at = 0; at < COUNT(commands); at++)
    if (!strcmp(argument[1], commands[at].name)) return commands[at].run();
  return 2;
}
