/* Streams and events, between stream.cpp and graph.cpp. */
#ifndef CUDA_HOST_STREAM_H
#define CUDA_HOST_STREAM_H

#include "host.h"

#include <deque>
#include <vector>

/* What cudaEventRecord leaves in a stream; waiting is for this, however often the event is recorded again. */
struct cuda_host_record {
  bool done = false;
  double seconds = 0;
  cuda_host_stream *stream;
};
typedef std::shared_ptr<cuda_host_record> Record;

struct Queued {
  cuda_host_operation operation;
  Record after = {}; /* runs when this is done, too */
};

/* What a capture has taken: operations with those that each follows. */
struct Node {
  cuda_host_operation operation;
  std::vector<int> after;
};
struct cuda_host_graph {
  std::vector<Node> nodes = {};
  cuda_host_stream *origin = nullptr;
};

struct cuda_host_stream {
  bool blocking; /* meets cudaMemcpy and cudaMemset, which are on the legacy default stream */
  int number;
  std::deque<Queued> queue = {};
  cuda_host_graph *capture = nullptr; /* what is enqueued goes there, */
  std::vector<int> last = {};         /* after these nodes */
};

struct cuda_host_event {
  bool timed;
  Record record = nullptr;            /* NULL: never recorded */
  cuda_host_graph *capture = nullptr; /* recorded while a stream was captured, */
  std::vector<int> nodes = {};        /* after these nodes */
  cuda_host_shared_event *shared = nullptr;
  bool imported = false; /* another process records it */
};

cuda_host_stream *cuda_host_valid(cudaStream_t s, const char *what); /* dies for stream 0 and what is no stream */
const std::vector<cuda_host_stream *> &cuda_host_streams();
/* Puts an operation at the end of a stream that is not captured. */
void cuda_host_append(cuda_host_stream *s, Queued q);
void cuda_host_capture(cuda_host_stream *s, cuda_host_operation operation);
bool cuda_host_capturing(); /* some stream is */
cuda_host_event *cuda_host_valid_event(cudaEvent_t e, const char *what);
cudaEvent_t cuda_host_import_event(cuda_host_shared_event *shared);

#endif
