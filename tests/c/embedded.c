/* The program of test_c_embedded.py: a sensor with little memory, and a listener in another process. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define INFERLOG_PRODUCER_ONLY
#include "inferlog.h"

static int fail(const char *what) {
  const char *why = inferlog_last_error();
  fprintf(stderr, "%s: %s\n", what, why ? why : "no error text");
  return 1;
}

/* The kernel's account of this process, mapping by mapping: copied to the standard output, without memory for it. */
static void print_memory(void) {
  static char part[1024];
  const int file = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
  ssize_t length;
  while (file >= 0 && (length = read(file, part, sizeof part)) > 0) fwrite(part, 1, (size_t)length, stdout);
  if (file >= 0) close(file);
}

static void pause_briefly(void) {
  const struct timespec millisecond = {0, 1000000};
  nanosleep(&millisecond, NULL);
}

int main(int count, char **arguments) {
  if (count != 4) return 2;
  const unsigned long long wanted = strtoull(arguments[3], NULL, 10);
  const inferlog_log *log = inferlog_open_file(INFERLOG_ABI_VERSION, arguments[2]);
  if (!log) return fail("open");

  static const char *const fields[] = {"number", "celsius", "place", "parts"};
  const inferlog_event event = inferlog_register(log, "sensor.reading", fields, 4, false);
  if (!event.id) return fail("register");

  const int waits = strcmp(arguments[1], "listened") == 0, is_endless = strcmp(arguments[1], "forever") == 0;
  for (unsigned long long number = 0; is_endless || number < wanted; number++) {
    inferlog_value parts = inferlog_string("[1,{\"a\":null}]");
    parts.kind = INFERLOG_KIND_JSON;
    const inferlog_value values[] = {inferlog_uint(number), inferlog_double((double)number / 8),
                                     inferlog_string("hall 7"), parts};
    while (!inferlog_emit(log, event, 17, values, 4)) {
      if (!waits && !is_endless) return fail("emit");
      pause_briefly();
    }
    if (is_endless && number % 100 == 99) {
      printf("%llu\n", number + 1);
      fflush(stdout);
    }
  }
  if (waits) print_memory();

  /* Without a listener beside it, everything stays in the queue. */
  inferlog_stats_t stats;
  const bool is_written = inferlog_close(log, waits ? 60000 : 0);
  if (!inferlog_stats(log, &stats)) return fail("stats");
  printf("%llu %llu %llu %llu\n", (unsigned long long)stats.accepted, (unsigned long long)stats.written,
         (unsigned long long)stats.in_queue, (unsigned long long)stats.left);
  return is_written == (waits != 0) ? 0 : fail("close");
}
