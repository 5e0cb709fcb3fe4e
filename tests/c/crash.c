/* A producer of the crash tests: what tests/crash/producing.py does, in C.
 *
 *   crash CONFIGURATION JOURNAL LIFE THREADS ALPHABET
 *
 * JOURNAL is an inherited descriptor; ALPHABET a file of code points, 32 bits each.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inferlog.h"

enum { ACCEPTED = 0, REFUSED = 1, MOST_CHARACTERS = 16384 };

static const inferlog_log *log_;
static inferlog_event event;
static int journal;
static uint32_t life, alphabet[1 << 20];
static size_t letters;

static void report(uint16_t thread, uint16_t kind, uint32_t number) {
  struct {
    uint32_t life;
    uint16_t thread, kind;
    uint32_t number;
  } entry = {life, thread, kind, number};
  if (write(journal, &entry, sizeof entry) != sizeof entry) _exit(1);
}

static size_t put(char *to, uint32_t point) {
  if (point < 0x80) {
    to[0] = (char)point;
    return 1;
  }
  size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
  for (size_t at = length - 1; at > 0; at--, point >>= 6) to[at] = (char)(0x80 | (point & 0x3f));
  to[0] = (char)(point | (length == 2 ? 0xc0 : length == 3 ? 0xe0 : 0xf0));
  return length;
}

/* Writes the text that this record must have. */
static size_t text(char *to, uint16_t thread, uint32_t number) {
  size_t at = ((size_t)life * 7919 + (size_t)thread * 31 + number) % 997;
  size_t length = number % 61 == 60 ? 4000 + at * 10 : at % 200;
  size_t written = (size_t)sprintf(to, "%u.%u.%u:", life, thread, number);
  for (size_t letter = at; letter < at + length && letter < letters; letter++)
    written += put(to + written, alphabet[letter]);
  return written;
}

static bool emit(uint16_t thread, uint32_t number, const char *content, size_t length) {
  inferlog_value values[] = {inferlog_uint(life), inferlog_uint(thread), inferlog_uint(number),
                             inferlog_bytes(content, length)};
  if (number % 8 == 5) {
    inferlog_record record;
    inferlog_record_begin(&record, log_, event, 9);
    for (size_t at = 0; at < 4; at++) inferlog_push(&record, values[at]);
    return inferlog_record_commit(&record);
  }
  if (number % 4 < 3) return inferlog_emit(log_, event, 9, values, 4);
  inferlog_attribute attributes[] = {{inferlog_text_of("life"), values[0]},
                                     {inferlog_text_of("thread"), values[1]},
                                     {inferlog_text_of("n"), values[2]},
                                     {inferlog_text_of("text"), values[3]}};
  return inferlog_message(log_, NULL, 13, inferlog_text_of("crash"), inferlog_text_of("crash"), attributes, 4);
}

static void *emit_for_ever(void *argument) {
  uint16_t thread = (uint16_t)(uintptr_t)argument;
  char *content = malloc(MOST_CHARACTERS * 4);
  if (!content) _exit(1);
  for (uint32_t number = 0;;) {
    size_t length = text(content, thread, number);
    if (emit(thread, number, content, length)) {
      report(thread, ACCEPTED, number++);
    } else {
      if (number % 4 < 3) report(thread, REFUSED, number);
      usleep(500);
    }
  }
  return NULL;
}

int main(int arguments, char **argument) {
  static const char *const fields[] = {"life", "thread", "n", "text"};
  if (arguments != 6) return 2;
  journal = atoi(argument[2]);
  life = (uint32_t)strtoul(argument[3], NULL, 10);
  FILE *file = fopen(argument[5], "rb");
  if (!file) return 1;
  letters = fread(alphabet, sizeof alphabet[0], sizeof alphabet / sizeof alphabet[0], file);
  fclose(file);
  log_ = inferlog_open_file(INFERLOG_ABI_VERSION, argument[1]);
  if (log_) event = inferlog_register(log_, "crash", fields, 4, false);
  if (!log_ || !event.id) {
    fprintf(stderr, "%s\n", inferlog_last_error());
    return 1;
  }
  pthread_t started;
  for (uintptr_t thread = 0; thread < strtoul(argument[4], NULL, 10); thread++)
    if (pthread_create(&started, NULL, emit_for_ever, (void *)thread)) return 1;
  for (;;) pause();
}
