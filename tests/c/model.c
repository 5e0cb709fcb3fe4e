/* Requests that a model serves: an answer in one piece, a stream, a failure, and one that the process does not survive. */

#include <inferlog.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const int64_t shape[] = {1, 64};

static inferlog_tensor tensor(const char *name, const char *datatype, size_t rank, uint64_t bytes) {
  inferlog_tensor made;
  memset(&made, 0, sizeof made);
  made.name = inferlog_text_of(name);
  made.datatype = inferlog_text_of(datatype);
  made.shape = rank ? shape : NULL;
  made.rank = rank;
  made.bytes = bytes;
  return made;
}

static inferlog_request *begin(const inferlog_log *log, const char *name) {
  inferlog_model model;
  memset(&model, 0, sizeof model);
  model.name = inferlog_text_of(name);
  model.version = inferlog_text_of("7");
  model.instance = inferlog_text_of("session 0");
  model.batch_size = 4;
  model.batch_position = 3;
  model.correlation_id = inferlog_text_of("camera-2");
  inferlog_request_start start;
  memset(&start, 0, sizeof start);
  start.traceparent = inferlog_text_of("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  start.x_request_id = inferlog_text_of(name);
  start.content_type = inferlog_text_of("application/json");
  start.model = &model;
  return inferlog_request_begin(log, &start);
}

int main(int count, char **arguments) {
  const inferlog_log *log = inferlog_open_file(INFERLOG_ABI_VERSION, count > 2 ? arguments[2] : NULL);
  if (!log) return fprintf(stderr, "%s\n", inferlog_last_error()), 1;
  if (!strcmp(arguments[1], "died")) {
    if (!begin(log, "dying")) return 1;
    return raise(SIGKILL);
  }
  inferlog_request *request = begin(log, "whole");
  inferlog_tensor inputs[] = {tensor("image \"1\"", "FP32", 2, 256), tensor("scale", "FP64", 0, 8)};
  inferlog_tensor output = tensor("class", "INT64", 1, 8);
  inferlog_request_tensors(request, inputs, 2, NULL, 0);
  inferlog_request_tensors(request, NULL, 0, &output, 1);
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));

  request = begin(log, "stream");
  inferlog_request_chunk(request, inferlog_text_of(NULL), true);
  inferlog_request_chunk(request, inferlog_text_of(NULL), true);
  inferlog_request_chunk(request, inferlog_text_of(NULL), false);
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));

  request = begin(log, "broken stream");
  inferlog_request_chunk(request, inferlog_text_of(NULL), true);
  inferlog_request_end(request, INFERLOG_END_RETURNED, inferlog_text_of(NULL));

  char name[200];
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  request = begin(log, name);
  inferlog_tensor many[64];
  for (size_t at = 0; at < 64; at++) many[at] = tensor("one of many", "FP32", 2, 256);
  inferlog_request_tensors(request, many, 64, NULL, 0);
  inferlog_request_end(request, INFERLOG_END_FAILED, inferlog_text_of("OUT_OF_MEMORY"));
  inferlog_request_tensors(NULL, inputs, 2, NULL, 0);
  return inferlog_close(log, 60000) ? 0 : 1;
}
