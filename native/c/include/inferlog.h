/* inferlog.h: records of a C or C++ program, into the same queue, segments and books as those of a Python server.
 *
 * Written by cbindgen from native/c; a test compares the two.
 *
 * All functions but those of a record or request under construction may be called from any thread. Texts are UTF-8 with
 * a length and need no end; what is not UTF-8 is replaced in the line. A function that fails returns NULL, 0 or false;
 * inferlog_last_error() says why.
 */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define INFERLOG_ZERO {}
#else
#define INFERLOG_ZERO {0}
#endif

/* Define INFERLOG_PRODUCER_ONLY for the library of small machines: it has no listener, and no requests. */
#ifndef INFERLOG_PRODUCER_ONLY
#define INFERLOG_REQUESTS
#endif

/* A request under way. One thread uses it at a time. */
typedef struct inferlog_request inferlog_request;


/*
 The version of the functions and structures in this header.
 */
#define INFERLOG_ABI_VERSION 1

/*
 The kind of a value. An absent value leaves its key out of the line. A JSON value becomes a part of the line; what is
 not valid JSON, or has line breaks, is recorded as text.
 */
typedef enum {
  INFERLOG_KIND_ABSENT = 0,
  INFERLOG_KIND_NULL = 1,
  INFERLOG_KIND_BOOL = 2,
  INFERLOG_KIND_INT = 3,
  INFERLOG_KIND_UINT = 4,
  INFERLOG_KIND_DOUBLE = 5,
  INFERLOG_KIND_TEXT = 6,
  INFERLOG_KIND_JSON = 7,
} inferlog_kind;

#if defined(INFERLOG_REQUESTS)
/*
 How a request ends.
 */
typedef enum {
  /*
   The handler returned; the answer decides the outcome.
   */
  INFERLOG_END_RETURNED = 0,
  /*
   The handler failed.
   */
  INFERLOG_END_FAILED = 1,
  INFERLOG_END_TIMED_OUT = 2,
  /*
   The client is gone.
   */
  INFERLOG_END_DISCONNECTED = 3,
  /*
   The server stops.
   */
  INFERLOG_END_CANCELLED = 4,
} inferlog_end;
#endif

/*
 An open log. It is never freed.
 */
typedef struct inferlog_log inferlog_log;

/*
 A registered event. `id` is 0 if it could not be registered. No log accepts records of an event that it has not
 registered, so a handle must not be changed.
 */
typedef struct {
  uint16_t id;
  /*
   The number of values of a record.
   */
  uint16_t fields;
  /*
   Its records also carry the ids of a request: 0 or 1.
   */
  uint8_t in_request;
} inferlog_event;

/*
 A text of `length` bytes, without an end of its own. NULL with length 0: there is none.
 */
typedef struct {
  const char *data;
  size_t length;
} inferlog_text;

/*
 The content of a value, by its kind: `sint`, `uint` (also for a bool: 0 or 1), `real`, or `text`.
 */
typedef union {
  int64_t sint;
  uint64_t uint;
  double real;
  inferlog_text text;
} inferlog_scalar;

/*
 One value of a record.
 */
typedef struct {
  /*
   One of `inferlog_kind`; any other counts as absent.
   */
  uint32_t kind;
  inferlog_scalar of;
} inferlog_value;

/*
 A record under construction, in memory of the caller's. One thread uses it at a time.
 */
typedef struct {
  /*
   The library's own.
   */
  uint64_t opaque[272];
} inferlog_record;

/*
 Counts of one process since it opened the log. accepted = written + in_queue + what the listener could not read.
 */
typedef struct {
  /*
   Records that the queue took.
   */
  uint64_t accepted;
  /*
   Records that the sink took.
   */
  uint64_t written;
  /*
   Records that wait in the queue.
   */
  uint64_t in_queue;
  /*
   Records that were refused, since the queue was full or closed, or that could not be read.
   */
  uint64_t dropped;
  /*
   Requests that sampling left out. They are not lost, and not accepted.
   */
  uint64_t sampled_out;
  /*
   Records that are still in the queue after a close whose deadline has passed. The next listener writes them.
   */
  uint64_t left;
} inferlog_stats_t;

/*
 A field of a message.
 */
typedef struct {
  inferlog_text name;
  inferlog_value value;
} inferlog_attribute;

#if defined(INFERLOG_REQUESTS)
/*
 The model that serves a request. A text that is not known is empty; each is cut to 96 bytes.
 */
typedef struct {
  inferlog_text name;
  inferlog_text version;
  /*
   The session or execution context that runs it.
   */
  inferlog_text instance;
  /*
   Requests of the batch; 0 counts as 1.
   */
  uint64_t batch_size;
  /*
   Place in the batch, from 0.
   */
  uint64_t batch_position;
  /*
   The id of a sequence of requests.
   */
  inferlog_text correlation_id;
} inferlog_model;

/*
 What is known of a request at its beginning. A text that is not known is empty.
 */
typedef struct {
  inferlog_text method;
  inferlog_text path;
  /*
   The path's template.
   */
  inferlog_text route;
  /*
   Of HTTP: `1.1`.
   */
  inferlog_text protocol_version;
  inferlog_text client_address;
  /*
   The headers of these names.
   */
  inferlog_text traceparent;
  inferlog_text tracestate;
  inferlog_text x_request_id;
  /*
   The type of the request's body. Of a JSON body the model and its parameters are recorded.
   */
  inferlog_text content_type;
  /*
   The model that serves the request; NULL for a request of a server. Of the members before, only the path and the
   headers count with it: without a path, the sampler sees `/v2/models/NAME/versions/VERSION/infer`.
   */
  const inferlog_model *model;
  /*
   The client forbids storing texts of its request, such as by the header of `capture_opt_out_header`.
   */
  bool is_private;
} inferlog_request_start;

/*
 The ids of a request as texts that end with a zero byte, in lowercase hex digits.
 */
typedef struct {
  char trace_id[33];
  char span_id[17];
  char request_id[17];
} inferlog_ids;

/*
 What is recorded of a tensor. Its content is not.
 */
typedef struct {
  inferlog_text name;
  /*
   The type of an element, such as `FP32`.
   */
  inferlog_text datatype;
  /*
   The size of each of the `rank` dimensions.
   */
  const int64_t *shape;
  size_t rank;
  /*
   The bytes of all elements.
   */
  uint64_t bytes;
} inferlog_tensor;
#endif

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Registers an event: its name, and the names of its fields in the order of their values. The same name with the same
 fields gives the same event. With `in_request`, its records can carry the ids of a request. Takes a lock and allocates:
 call it once, before the first record.

 Requires:
 `log` is NULL or an open log; `name` is a text that ends with a zero byte, and so are the `count` texts of `fields`.
 */
inferlog_event inferlog_register(const inferlog_log *log,
                                 const char *name,
                                 const char *const *fields,
                                 size_t count,
                                 bool in_request);

/*
 Puts one record into the queue: as many values as the event has fields. `severity` is OpenTelemetry's number, 1 to 24
 (9: info, 13: warn, 17: error). Returns whether it was accepted; never blocks. A refused record is counted.

 Requires:
 `log` is NULL or an open log; there are `count` values, whose texts live during the call.
 */
bool inferlog_emit(const inferlog_log *log,
                   inferlog_event event,
                   uint8_t severity,
                   const inferlog_value *values,
                   size_t count);

/*
 Begins a record: `inferlog_push` follows for each of the event's fields, then `inferlog_record_commit`. A record that is
 given up needs nothing, unless it has more than 2,048 bytes: then its memory is lost.

 Requires:
 `log` is NULL or an open log; `record` can be written, and stays where it is.
 */
void inferlog_record_begin(inferlog_record *record,
                           const inferlog_log *log,
                           inferlog_event event,
                           uint8_t severity);

/*
 Appends the value of the next field.

 Requires:
 `record` was begun and not committed; a text of the value lives during the call.
 */
void inferlog_push(inferlog_record *record, inferlog_value value);

/*
 Puts the record into the queue, as `inferlog_emit` does. It must be begun anew before it is used again.

 Requires:
 `record` was begun and not committed.
 */
bool inferlog_record_commit(inferlog_record *record);

/*
 Returns why the last function that failed in this thread did so, one sentence a line; NULL: none has failed. The text
 stays until the next function fails in this thread. `inferlog_emit`, `inferlog_record_commit` and
 `inferlog_request_emit` leave no text: what they refuse is counted, see `inferlog_stats`.
 */
const char *inferlog_last_error(void);

/*
 Returns the version of the library's functions and structures.
 */
uint32_t inferlog_abi_version(void);

/*
 Opens a log. `abi_version` is `INFERLOG_ABI_VERSION`; `configuration` has the parameters of docs/parameters.md: lines of a
 name, a colon, a space and a value; or one JSON object, which the library of small machines does not read. NULL: the
 parameters come from the environment (`INFERENCE_LOGGING_...`) and from the file that it names.

 Returns NULL for another ABI version, for a parameter that is unknown or wrong, and if the queue, the sink or the
 listener is not available. The listener is a thread of this process, unless `listener` is `external`.

 Requires:
 `configuration` is NULL or a text that ends with a zero byte.
 */
const inferlog_log *inferlog_open(uint32_t abi_version,
                                  const char *configuration);

/*
 As `inferlog_open`, with the parameters of a file over those of the environment.

 Requires:
 `path` is a text that ends with a zero byte.
 */
const inferlog_log *inferlog_open_file(uint32_t abi_version, const char *path);

/*
 Waits until everything that was accepted before is written, at most `deadline_ms` milliseconds. Returns whether it is.

 Requires:
 `log` is NULL or an open log.
 */
bool inferlog_flush(const inferlog_log *log, uint64_t deadline_ms);

/*
 Ends the requests in flight, refuses records from now on, writes what is queued within `deadline_ms` milliseconds, and
 ends the listener. Returns whether everything is written; records that are left stay in the queue file, where the next
 listener finds them. A second call does nothing.

 Requires:
 `log` is NULL or an open log.
 */
bool inferlog_close(const inferlog_log *log, uint64_t deadline_ms);

/*
 Reads the counts. Returns false if there are none: in a forked child that has not logged yet.

 Requires:
 `log` is NULL or an open log; `stats` is NULL or can be written.
 */
bool inferlog_stats(const inferlog_log *log, inferlog_stats_t *stats);

/*
 Puts a message of an application into the queue, as Python's `get_logger` does: the name of its logger, its text, and any
 number of fields. With `request`, it carries the request's ids. Returns whether it was accepted; false also if `severity`
 is below the parameter `level`. Of a name that is not UTF-8 the field is left out.

 Requires:
 `log` is NULL or an open log; `request` is NULL or under way; there are `count` attributes, and all texts live during
 the call.
 */
bool inferlog_message(const inferlog_log *log,
                      const inferlog_request *request,
                      uint8_t severity,
                      inferlog_text logger,
                      inferlog_text message,
                      const inferlog_attribute *attributes,
                      size_t count);

#if defined(INFERLOG_REQUESTS)
/*
 Begins a request: ids, the sampler's decision, and a slot of the flight recorder, so that a request that the process
 does not survive is on record. Returns NULL if logging is switched off; the other functions take NULL and do nothing.

 Requires:
 `log` is NULL or an open log; the texts live during the call.
 */
inferlog_request *inferlog_request_begin(const inferlog_log *log, const inferlog_request_start *start);

/*
 Writes the ids of the request. Returns false for NULL.

 Requires:
 `request` is NULL or under way; `ids` can be written.
 */
bool inferlog_request_ids(const inferlog_request *request, inferlog_ids *ids);

/*
 Takes note of a header of the request, of which those are recorded that `record_headers` names. Of a request that a model
 serves none is.

 Requires:
 `request` is NULL or under way; the texts live during the call.
 */
void inferlog_request_header(inferlog_request *request,
                             inferlog_text name,
                             inferlog_text value);

/*
 Takes note of the next bytes of the request's body.

 Requires:
 `request` is NULL or under way; the text lives during the call.
 */
void inferlog_request_body(inferlog_request *request, inferlog_text bytes);

/*
 Takes note of the beginning of the answer: its status, and the type of its body.

 Requires:
 `request` is NULL or under way; the text lives during the call.
 */
void inferlog_request_answer(inferlog_request *request, uint16_t status, inferlog_text content_type);

/*
 Takes note of the next part of the answer's body. `more`: others follow. An answer without a body ends with an empty
 part. A model's answer in one piece needs no call.

 Requires:
 `request` is NULL or under way; the text lives during the call.
 */
void inferlog_request_chunk(inferlog_request *request, inferlog_text bytes, bool more);

/*
 Takes note of the tensors of a request that a model serves: names, types, shapes and bytes. NULL leaves those of an
 earlier call. The list of inputs, and that of outputs, has at most 1,280 bytes as JSON; what is beyond is left out.

 Requires:
 `request` is NULL or under way; `inputs` is NULL or points to `input_count` tensors, `outputs` to `output_count`; their
 texts and shapes live during the call.
 */
void inferlog_request_tensors(inferlog_request *request,
                              const inferlog_tensor *inputs,
                              size_t input_count,
                              const inferlog_tensor *outputs,
                              size_t output_count);

/*
 Takes note that the client is gone before the whole answer.

 Requires:
 `request` is NULL or under way.
 */
void inferlog_request_disconnect(inferlog_request *request);

/*
 As `inferlog_emit`, with the ids of the request where the event is registered with `in_request`.

 Requires:
 `request` is NULL or under way; there are `count` values, whose texts live during the call.
 */
bool inferlog_request_emit(const inferlog_request *request,
                           inferlog_event event,
                           uint8_t severity,
                           const inferlog_value *values,
                           size_t count);

/*
 Ends a request with its record, and frees it. `how` is one of `inferlog_end`; `error_type` names the failure, where the handler did not return.

 Requires:
 `request` is NULL or under way, and not used afterwards; the text lives during the call.
 */
void inferlog_request_end(inferlog_request *request,
                          uint32_t how,
                          inferlog_text error_type);
#endif

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

/* Values for an event's fields. */

static inline inferlog_text inferlog_text_of(const char *text) {
  inferlog_text found = INFERLOG_ZERO;
  found.data = text;
  while (text && text[found.length]) found.length++;
  return found;
}

static inline inferlog_value inferlog_value_of(inferlog_kind kind) {
  inferlog_value value = INFERLOG_ZERO;
  value.kind = kind;
  return value;
}

static inline inferlog_value inferlog_absent(void) { return inferlog_value_of(INFERLOG_KIND_ABSENT); }

static inline inferlog_value inferlog_bool(bool is_true) {
  inferlog_value value = inferlog_value_of(INFERLOG_KIND_BOOL);
  value.of.uint = is_true;
  return value;
}

static inline inferlog_value inferlog_int(int64_t number) {
  inferlog_value value = inferlog_value_of(INFERLOG_KIND_INT);
  value.of.sint = number;
  return value;
}

static inline inferlog_value inferlog_uint(uint64_t number) {
  inferlog_value value = inferlog_value_of(INFERLOG_KIND_UINT);
  value.of.uint = number;
  return value;
}

static inline inferlog_value inferlog_double(double number) {
  inferlog_value value = inferlog_value_of(INFERLOG_KIND_DOUBLE);
  value.of.real = number;
  return value;
}

static inline inferlog_value inferlog_bytes(const char *data, size_t length) {
  inferlog_value value = inferlog_value_of(INFERLOG_KIND_TEXT);
  value.of.text.data = data;
  value.of.text.length = length;
  return value;
}

/* A text that ends with a zero byte; NULL is an absent value. */
static inline inferlog_value inferlog_string(const char *text) {
  inferlog_value value = inferlog_value_of(text ? INFERLOG_KIND_TEXT : INFERLOG_KIND_ABSENT);
  value.of.text = inferlog_text_of(text);
  return value;
}
