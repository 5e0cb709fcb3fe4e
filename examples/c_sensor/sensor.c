/* A sensor that logs each reading: 128 bytes an entry, by write(2) and by libinferlog, and how many times faster that is.
 *
 *   cc -O2 sensor.c $(pkg-config --cflags --libs inferlog) -o sensor
 *   INFERENCE_LOGGING_QUEUE_BYTES=256MiB ./sensor [COUNT] [FILE]
 *
 * COUNT entries (1,000,000) go to FILE (readings.log) with one system call each, as an embedded program writes that may
 * lose none when it dies. Then as many go into the queue, whose entries survive the program as well; the listener writes
 * them. 256 MiB have room for all of them; in a smaller queue the sensor waits where it is full.
 */

#include <fcntl.h>
#include <inferlog.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ENTRY_BYTES = 128, NUMBER_DIGITS = 10, SAMPLES = ENTRY_BYTES - NUMBER_DIGITS - 2, DEADLINE_MS = 120000 };

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What the sensor has measured; it differs from reading to reading. */
static void measure(char *samples, uint64_t number) {
  for (size_t at = 0; at < SAMPLES; at += 29) samples[at] = (char)('a' + (number + at) % 26);
}

/* Number, samples and line break: 128 bytes. Returns seconds, or -1. */
static double by_write(const char *path, uint64_t count, char *samples) {
  const int file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return -1;
  char line[ENTRY_BYTES];
  const double begun = now_s();
  for (uint64_t number = 0; number < count; number++) {
    measure(samples, number);
    uint64_t rest = number;
    for (int at = NUMBER_DIGITS; at-- > 0; rest /= 10) line[at] = (char)('0' + rest % 10);
    line[NUMBER_DIGITS] = ' ';
    memcpy(line + NUMBER_DIGITS + 1, samples, SAMPLES);
    line[ENTRY_BYTES - 1] = '\n';
    if (write(file, line, sizeof line) != (ssize_t)sizeof line) return -1;
  }
  const double took = now_s() - begun;
  return close(file) ? -1 : took;
}

/* The same entries. Returns seconds until the last call returns; counts the waits for room. */
static double by_inferlog(const inferlog_log *log, inferlog_event reading, uint64_t count, char *samples,
                          uint64_t *waits) {
  const struct timespec pause = {0, 100000};
  const double begun = now_s();
  for (uint64_t number = 0; number < count; number++) {
    measure(samples, number);
    const inferlog_value values[] = {inferlog_uint(number), inferlog_bytes(samples, SAMPLES)};
    while (!inferlog_emit(log, reading, 9, values, 2)) {
      ++*waits;
      nanosleep(&pause, NULL);
    }
  }
  return now_s() - begun;
}

int main(int arguments, char **argument) {
  static const char *const fields[] = {"number", "samples"};
  const uint64_t count = arguments > 1 ? strtoull(argument[1], NULL, 10) : 1000000;
  const char *path = arguments > 2 ? argument[2] : "readings.log";
  char samples[SAMPLES];
  memset(samples, '.', sizeof samples);

  const inferlog_log *log = inferlog_open(INFERLOG_ABI_VERSION, NULL);
  const inferlog_event reading = inferlog_register(log, "sensor.reading", fields, 2, false);
  if (!reading.id) {
    fprintf(stderr, "%s\n", inferlog_last_error());
    return 1;
  }
  const double written_s = by_write(path, count, samples);
  if (written_s < 0) {
    perror(path);
    return 1;
  }
  uint64_t waits = 0;
  const double begun = now_s();
  const double queued_s = by_inferlog(log, reading, count, samples, &waits);
  const bool is_written = inferlog_close(log, DEADLINE_MS);
  const double settled_s = now_s() - begun;

  printf("%" PRIu64 " entries of %d bytes\n", count, ENTRY_BYTES);
  printf("write:    %8.1f ms\n", 1e3 * written_s);
  printf("inferlog: %8.1f ms, %" PRIu64 " waits for room; %.1f ms until all is in the segments\n", 1e3 * queued_s, waits,
         1e3 * settled_s);
  printf("write / inferlog: %.1f\n", written_s / queued_s);
  if (!is_written) fprintf(stderr, "%s\n", inferlog_last_error());
  return is_written ? 0 : 1;
}
