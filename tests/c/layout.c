/* Reads a queue file as a program of another build does: by the numbers of its layout, version 3, and nothing else.
 *
 *   layout CONFIGURATION QUEUES
 *
 * The numbers stand in the comments of native/queue/src/layout.rs, native/ring/src and native/request/src/in_flight. Two
 * records are put into the queue and a request is begun; nobody may read the queue meanwhile. Each byte that is not as
 * expected is reported on stderr.
 */

#include <dirent.h>
#include <fcntl.h>
#include <inferlog.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  VERSION = 3,
  HEAD = 128,
  TAIL = 256,
  SCHEMAS_LEN = 384,
  IN_FLIGHT = 504,
  DROPPED = 512,
  DROPPED_BYTES = 8 * 6 * 8,
  SCHEMAS = 4096,
  SLOTS = 65536,
  SLOT_BYTES = 2048,
  PAGE_BYTES = 44,
  COMMITTED = 2
};

static const unsigned char *file;
static size_t file_bytes;
static int wrong;

static void check(size_t offset, const void *expected, size_t length, const char *what) {
  if (offset + length <= file_bytes && memcmp(file + offset, expected, length) == 0) return;
  fprintf(stderr, "%s at %zu:", what, offset);
  for (size_t at = 0; at < length && offset + at < file_bytes; at++) fprintf(stderr, " %02x", file[offset + at]);
  fprintf(stderr, "\n");
  wrong = 1;
}

/* Little-endian, whatever this machine is. */
static uint64_t number(size_t offset, size_t length) {
  uint64_t read = 0;
  for (size_t at = length; at-- > 0;) read = read << 8 | (offset + at < file_bytes ? file[offset + at] : 0);
  return read;
}

static void equal(size_t offset, size_t length, uint64_t expected, const char *what) {
  const uint64_t found = number(offset, length);
  if (found == expected) return;
  fprintf(stderr, "%s at %zu: %" PRIu64 ", not %" PRIu64 "\n", what, offset, found, expected);
  wrong = 1;
}

/* Maps the only queue file of the directory, and checks its name against the id in it. */
static int map(const char *directory) {
  char path[4096] = "";
  DIR *entries = opendir(directory);
  if (!entries) return 1;
  for (struct dirent *entry; (entry = readdir(entries));) {
    const size_t length = strlen(entry->d_name);
    if (length != 22 || strcmp(entry->d_name + 16, ".queue")) continue;
    if (*path) return fprintf(stderr, "more than one queue\n"), 1;
    snprintf(path, sizeof path, "%s/%s", directory, entry->d_name);
  }
  closedir(entries);
  const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  struct stat status;
  if (descriptor < 0 || fstat(descriptor, &status)) return perror(path), 1;
  file_bytes = (size_t)status.st_size;
  void *mapped = mmap(NULL, file_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (mapped == MAP_FAILED) return perror(path), 1;
  file = mapped;
  char name[32];
  snprintf(name, sizeof name, "/%016" PRIx64 ".queue", number(24, 8));
  if (!strstr(path, name)) return fprintf(stderr, "%s holds the id %s\n", path, name), 1;
  return 0;
}

static size_t data_offset(uint64_t slots) {
  const uint64_t page = number(PAGE_BYTES, 4);
  return SLOTS + (slots * SLOT_BYTES + page - 1) / page * page;
}

static void check_header(uint64_t before_nano) {
  check(0, "INFLOGQ", 8, "magic");
  equal(8, 4, VERSION, "version");
  equal(12, 4, (uint64_t)getpid(), "pid");
  const uint64_t data_bytes = number(16, 8), slots = number(40, 4);
  if (data_bytes < 65536 || data_bytes & (data_bytes - 1)) equal(16, 8, 65536, "data_bytes");
  equal(PAGE_BYTES, 4, (uint64_t)sysconf(_SC_PAGESIZE), "page_bytes");
  equal(16, 8, file_bytes - data_offset(slots), "data_bytes");
  if (number(32, 8) < before_nano) equal(32, 8, before_nano, "created");
  equal(TAIL, 8, 0, "tail");
  equal(IN_FLIGHT, 8, 1, "requests in flight");
}

static void check_schema(void) {
  static const char schema[] = "\6golden\x08\0\6absent\4null\3yes\3int\4uint\6double\4text\4json";
  size_t at = SCHEMAS, end = SCHEMAS + (size_t)number(SCHEMAS_LEN, 8);
  /* id:16, then the name and its length, the number of fields:16, and their names and lengths */
  while (at < end && memcmp(file + at + 2, schema, 7)) {
    size_t fields = (size_t)number(at + 3 + file[at + 2], 2);
    for (at += 5 + file[at + 2]; fields > 0 && at < end; fields--) at += 1 + file[at];
  }
  check(at + 2, schema, sizeof schema - 1, "schema");
}

static void check_records(const inferlog_event *event, uint64_t before_nano) {
  static const unsigned char values[] = {0,    1,    3,                                              /* absent, null, true */
                                         4,    0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,       /* -2 */
                                         13,   0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,       /* 2^64 - 1 */
                                         5,    0,    0,    0,    0,    0,    0,    0xf8, 0x3f,       /* 1.5 */
                                         7,    3,    0,    0,    0,    'h',  0xc3, 0xa9,             /* a text */
                                         8,    3,    0,    0,    0,    '[',  '1',  ']', 0,    0};    /* JSON; padding */
  const size_t payload = sizeof values - 2, words = 3 + (payload + 7) / 8, data = data_offset(number(40, 4));
  equal(HEAD, 4, 2 * words, "head's position");
  equal(HEAD + 4, 4, 2, "head's sequence");
  for (uint64_t sequence = 0; sequence < 2; sequence++) {
    const size_t at = data + (size_t)sequence * words * 8;
    equal(at, 4, payload, "payload bytes");
    equal(at + 4, 2, event->id, "event");
    equal(at + 6, 1, sequence ? 17 : 9, "severity");
    equal(at + 7, 1, COMMITTED, "state");
    if (number(at + 8, 8) < before_nano) equal(at + 8, 8, before_nano, "time");
    equal(at + 16, 8, sequence, "sequence");
    check(at + 24, values, sizeof values, "values");
  }
  equal(data + 2 * words * 8, 8, 0, "what follows the last record");
}

/* Returns the place of the only open slot. */
static size_t check_slot(const char *request_id) {
  static const unsigned char trace_id[] = {0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd,
                                           0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c};
  static const unsigned char parent[] = {0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31};
  size_t slot = SLOTS;
  while (slot < data_offset(number(40, 4)) && memcmp(file + slot, "\0\0\0\0OPEN", 8)) slot += SLOT_BYTES;
  check(slot, "\0\0\0\0OPEN", 8, "state of a slot");
  check(slot + 88, trace_id, 16, "trace id");
  check(slot + 112, parent, 8, "parent span id");
  char own[17] = "";
  for (size_t at = 0; at < 8; at++) snprintf(own + 2 * at, 3, "%02x", file[slot + 120 + at]);
  if (strcmp(own, request_id)) check(slot + 120, request_id, 8, "request id");
  static const unsigned char lengths[] = {4, 6, 4, 0, 0, 0, 9 << 2 | 3};
  check(slot + 128, lengths, sizeof lengths, "lengths");
  check(slot + 144, "1.1\0\0\0\0", 8, "version of HTTP");
  check(slot + 152, "192.0.2.7", 9, "client's address");
  check(slot + 192, "POST", 4, "method");
  check(slot + 208, "client", 6, "client's id");
  check(slot + 336, "/v1/", 4, "path");
  return slot;
}

int main(int count, char **arguments) {
  static const char *const fields[] = {"absent", "null", "yes", "int", "uint", "double", "text", "json"};
  if (count < 3) return 2;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  /* The clock of the library may be read in a coarser way. */
  const uint64_t before_nano = ((uint64_t)now.tv_sec - 1) * 1000000000;

  const inferlog_log *log = inferlog_open_file(INFERLOG_ABI_VERSION, arguments[1]);
  const inferlog_event event = inferlog_register(log, "golden", fields, 8, false);
  if (!event.id) return fprintf(stderr, "%s\n", inferlog_last_error()), 1;
  inferlog_value values[] = {inferlog_absent(),        inferlog_value_of(INFERLOG_KIND_NULL),
                             inferlog_bool(true),      inferlog_int(-2),
                             inferlog_uint(UINT64_MAX), inferlog_double(1.5),
                             inferlog_string("h\xc3\xa9"), inferlog_string("[1]")};
  values[7].kind = INFERLOG_KIND_JSON;
  if (!inferlog_emit(log, event, 9, values, 8) || !inferlog_emit(log, event, 17, values, 8)) return 1;
  inferlog_request_start start;
  memset(&start, 0, sizeof start);
  start.method = inferlog_text_of("POST");
  start.path = inferlog_text_of("/v1/");
  start.protocol_version = inferlog_text_of("1.1");
  start.client_address = inferlog_text_of("192.0.2.7");
  start.traceparent = inferlog_text_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  start.x_request_id = inferlog_text_of("client");
  inferlog_request *request = inferlog_request_begin(log, &start);
  inferlog_ids ids;
  if (!inferlog_request_ids(request, &ids) || map(arguments[2])) return 1;

  check_header(before_nano);
  check_schema();
  check_records(&event, before_nano);
  const size_t slot = check_slot(ids.request_id);

  values[0] = inferlog_bool(true);
  if (inferlog_emit(log, event, 9, values, 7)) return 1;
  equal(DROPPED + (7 * 6 + 2) * 8, 8, 1, "dropped[serialize_error][INFO]");
  for (size_t at = 0; at < DROPPED_BYTES; at += 8)
    if (at != (7 * 6 + 2) * 8) equal(DROPPED + at, 8, 0, "dropped");
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));
  equal(slot, 8, 0, "state of a free slot");
  equal(IN_FLIGHT, 8, 0, "requests in flight");
  equal(HEAD + 4, 4, 3, "head's sequence");
  return wrong;
}
