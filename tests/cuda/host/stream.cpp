/* Streams: operations wait in queues until the host waits or asks, and then run in any order that streams and
 * events allow. The seed chooses, also how eager the device is: it may begin with an operation as soon as it is
 * enqueued. */
#include "stream.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <unistd.h>

/* These outlive static objects: the check at the program's end looks at them. */
static auto &streams = *new std::vector<cuda_host_stream *>;
static auto &legacy = *new cuda_host_stream{true, 0}; /* cudaMemcpy and cudaMemset */
static bool running;                                  /* an operation runs */
static bool open;                                     /* device memory, from a call's first operation to its end */

const std::vector<cuda_host_stream *> &cuda_host_streams() { return streams; }

static double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

cuda_host_stream *cuda_host_valid(cudaStream_t s, const char *what) {
  if (!s) cuda_host_die("%s on the default stream (0): name a stream", what);
  if (std::find(streams.begin(), streams.end(), s) == streams.end())
    cuda_host_die("%s on a stream that does not exist or has been destroyed", what);
  return s;
}

/* ---- running ------------------------------------------------------------------------------------- */

static bool held(const Queued &q) { return q.after && !q.after->done; } /* by an event */

static bool can_run(cuda_host_stream *s) {
  if (s->queue.empty() || held(s->queue.front())) return false;
  const auto &ready = s->queue.front().operation.ready;
  return !ready || ready();
}

static void run_first(cuda_host_stream *s) {
  static const bool trace = getenv("CUDA_HOST_TRACE");
  Queued q = std::move(s->queue.front());
  s->queue.pop_front();
  if (trace) fprintf(stderr, "cuda_host: stream %d: %s\n", s->number, q.operation.name);
  if (!open) cuda_host_open_memory();
  open = true;
  const char *before = cuda_host_doing;
  cuda_host_doing = q.operation.name;
  running = true;
  if (q.operation.run) q.operation.run();
  running = false;
  cuda_host_doing = before;
}

/* One operation of any stream but `except`, all that can run being as likely; false: none can. */
static bool run_any(const cuda_host_stream *except = nullptr) {
  static std::vector<cuda_host_stream *> ready;
  ready.clear();
  for (size_t i = 0; i <= streams.size(); i++) {
    cuda_host_stream *s = i < streams.size() ? streams[i] : &legacy;
    if (s != except && can_run(s)) ready.push_back(s);
  }
  if (ready.empty()) return false;
  run_first(ready[cuda_host_random_below(ready.size())]);
  return true;
}

/* One operation that the first of `s` waits for, or itself. */
static bool run_towards(cuda_host_stream *s) {
  while (!s->queue.empty() && held(s->queue.front())) s = s->queue.front().after->stream;
  if (!can_run(s)) return false;
  run_first(s);
  return true;
}

/* The end of a call that may have run something: the host goes on. */
static void to_host() {
  if (open) cuda_host_close_memory();
  open = false;
}

static void run_some(uint64_t most) {
  uint64_t n = cuda_host_seed() ? cuda_host_random_below(most + 1) : UINT64_MAX;
  for (; n > 0 && run_any(); n--)
    ;
  to_host();
}

[[noreturn]] static void stuck(const char *why) {
  std::string text;
  for (cuda_host_stream *s : streams)
    if (!s->queue.empty()) {
      const Queued &q = s->queue.front();
      text += "; stream " + std::to_string(s->number) + " (" + std::to_string(s->queue.size()) +
              " operations): " + q.operation.name +
              (held(q) ? " for stream " + std::to_string(q.after->stream->number) : "");
    }
  cuda_host_die("%s%s", why, text.c_str());
}

/* Nothing can run here: perhaps other processes move on. */
static void wait_outside(double since) {
  static const double patience = getenv("CUDA_HOST_TIMEOUT") ? atof(getenv("CUDA_HOST_TIMEOUT")) : 120;
  bool outside = std::any_of(streams.begin(), streams.end(),
                             [](cuda_host_stream *s) { return !s->queue.empty() && !held(s->queue.front()); });
  if (!outside) stuck("nothing can run");
  double waited = seconds() - since;
  if (waited > patience) stuck("nothing has come from outside");
  usleep(waited < 1e-3 ? 20 : 200); /* the others have the processors meanwhile */
}

/* Runs operations until done(), those that `s` needs, perhaps all others first, or any. */
template <class Done> static void run_until(cuda_host_stream *s, Done done) {
  enum { NEEDED, OTHERS_FIRST, ANY };
  uint64_t how = cuda_host_random_below(3);
  double since = seconds();
  while (how == OTHERS_FIRST && run_any(s))
    ;
  while (!done()) {
    if ((how != ANY && run_towards(s)) || run_any())
      since = seconds();
    else
      wait_outside(since);
  }
  run_some(2);
}

static void drain(cuda_host_stream *s) {
  run_until(s, [s] { return s->queue.empty(); });
}

/* ---- enqueueing ---------------------------------------------------------------------------------- */

void cuda_host_append(cuda_host_stream *s, Queued q) {
  enum { LAZY = 2 /* of four */, SOMETIMES, PROMPT };
  static const uint64_t eagerness = cuda_host_seed() ? cuda_host_seed() >> 20 & 3 : (uint64_t)PROMPT;
  if (running) cuda_host_die("%s is enqueued by an operation", q.operation.name);
  s->queue.push_back(std::move(q));
  if (eagerness == PROMPT) {
    while (run_any())
      ;
    to_host();
  } else if (eagerness == SOMETIMES && cuda_host_random_below(4) == 0) {
    run_some(3);
  }
}

void cuda_host_enqueue(cudaStream_t stream, cuda_host_operation operation) {
  cuda_host_stream *s = cuda_host_valid(stream, operation.name);
  if (s->capture) {
    cuda_host_capture(s, std::move(operation));
    return;
  }
  Record after;
  if (s->blocking && !legacy.queue.empty()) {
    after = std::make_shared<cuda_host_record>();
    after->stream = &legacy;
    legacy.queue.push_back({{"cudaMemcpy's end", [after] { after->done = true; }}});
  }
  cuda_host_append(s, {std::move(operation), after});
}

size_t cuda_host_queued() {
  size_t n = legacy.queue.size();
  for (cuda_host_stream *s : streams) n += s->queue.size();
  return n;
}

/* ---- streams ------------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
  static int number;
  *s = new cuda_host_stream{flags != cudaStreamNonBlocking, ++number};
  streams.push_back(*s);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *s) { return cudaStreamCreateWithFlags(s, cudaStreamDefault); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int) {
  return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamDestroy");
  if (s->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  drain(s);
  streams.erase(std::find(streams.begin(), streams.end(), s));
  delete s;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamSynchronize");
  if (s->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  drain(s);
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamQuery");
  if (s->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  run_some(3);
  return s->queue.empty() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (cuda_host_capturing()) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  for (size_t i = 0; i < streams.size(); i++) drain(streams[i]);
  drain(&legacy);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) {
  cuda_host_enqueue(s, {"cudaLaunchHostFunc", [f, data] {
                          cuda_host_close_memory();
                          f(data);
                          cuda_host_open_memory();
                        }});
  return cudaSuccess;
}

/* ---- events -------------------------------------------------------------------------------------- */

static std::vector<cuda_host_event *> events;

cuda_host_event *cuda_host_valid_event(cudaEvent_t e, const char *what) {
  if (std::find(events.begin(), events.end(), e) == events.end())
    cuda_host_die("%s of an event that does not exist or has been destroyed", what);
  return e;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
  bool shared = flags & cudaEventInterprocess, timed = !(flags & cudaEventDisableTiming);
  if (shared && timed) return cuda_host_error(cudaErrorInvalidValue);
  *e = new cuda_host_event{timed};
  if (shared) (*e)->shared = cuda_host_new_shared_event();
  events.push_back(*e);
  return cudaSuccess;
}

cudaEvent_t cuda_host_import_event(cuda_host_shared_event *shared) {
  cudaEvent_t e = new cuda_host_event{false};
  e->shared = shared;
  e->imported = true;
  events.push_back(e);
  return e;
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
  cuda_host_valid_event(e, "cudaEventDestroy");
  events.erase(std::find(events.begin(), events.end(), e));
  if (e->shared) cuda_host_end_shared_event(e->shared);
  delete e;
  return cudaSuccess;
}

static double spent; /* on a device, beyond what it took here */
void cuda_host_spend(double seconds) { spent += seconds; }

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
  cuda_host_valid_event(e, "cudaEventRecord");
  cuda_host_stream *s = cuda_host_valid(stream, "cudaEventRecord");
  if (e->imported) cuda_host_die("cudaEventRecord of another process's event: CUDA can, this cannot");
  if (s->capture) {
    e->capture = s->capture;
    e->nodes = s->last;
    return cudaSuccess;
  }
  Record record = std::make_shared<cuda_host_record>();
  record->stream = s;
  e->record = record;
  e->capture = nullptr;
  cuda_host_shared_event *shared = e->shared;
  uint64_t number = shared ? cuda_host_record_shared(shared) : 0;
  cuda_host_enqueue(s, {"cudaEventRecord", [record, shared, number] {
                          record->done = true;
                          record->seconds = seconds() + spent;
                          if (shared) cuda_host_happens(shared, number);
                        }});
  return cudaSuccess;
}

/* For what the other process has recorded last; if nothing, there is no wait. */
static void wait_for_other(cuda_host_stream *s, cuda_host_shared_event *e) {
  uint64_t record = cuda_host_recorded(e);
  if (s->capture) cuda_host_die("another process's event in a capture: CUDA can, this cannot");
  if (!cuda_host_has_happened(e, record))
    cuda_host_append(s, {{"cudaStreamWaitEvent of another process's", nullptr,
                          [e, record] { return cuda_host_has_happened(e, record); }}});
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
  cuda_host_valid_event(e, "cudaStreamWaitEvent");
  cuda_host_stream *s = cuda_host_valid(stream, "cudaStreamWaitEvent");
  if (e->imported) {
    wait_for_other(s, e->shared);
    return cudaSuccess;
  }
  if (e->capture) {
    if (s->capture && s->capture != e->capture) return cuda_host_error(cudaErrorStreamCaptureIsolation);
    if (!s->capture) s->last.clear();
    s->capture = e->capture;
    s->last.insert(s->last.end(), e->nodes.begin(), e->nodes.end());
    return cudaSuccess;
  }
  if (s->capture && e->record) return cuda_host_error(cudaErrorStreamCaptureIsolation);
  if (e->record && !e->record->done && e->record->stream != s)
    cuda_host_append(s, {{"cudaStreamWaitEvent", nullptr}, e->record});
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
  cuda_host_valid_event(e, "cudaEventQuery");
  if (e->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  run_some(3);
  if (e->imported)
    return cuda_host_has_happened(e->shared, cuda_host_recorded(e->shared)) ? cudaSuccess : cudaErrorNotReady;
  return !e->record || e->record->done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  cuda_host_valid_event(e, "cudaEventSynchronize");
  if (e->capture) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  Record record = e->record;
  if (record) run_until(record->stream, [record] { return record->done; });
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  for (cudaEvent_t e : {start, end}) {
    cuda_host_valid_event(e, "cudaEventElapsedTime");
    if (!e->timed || !e->record) return cuda_host_error(cudaErrorInvalidResourceHandle);
    if (!e->record->done) return cuda_host_error(cudaErrorNotReady);
  }
  *milliseconds = (float)(1e3 * (end->record->seconds - start->record->seconds));
  return cudaSuccess;
}

/* ---- copies -------------------------------------------------------------------------------------- */

static cudaMemcpyKind kind_of(const void *to, const void *from) {
  bool up = cuda_host_is_device(to, 1), down = cuda_host_is_device(from, 1);
  return up ? (down ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
            : (down ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
}

/* The kind, once both ends are what it says. */
static cudaMemcpyKind check_copy(const char *what, void *to, const void *from, size_t to_bytes, size_t from_bytes,
                                 cudaMemcpyKind kind) {
  if (kind == cudaMemcpyDefault) kind = kind_of(to, from);
  cuda_host_doing = what;
  if (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice)
    cuda_host_must_be_device(to, to_bytes, "the destination");
  else if (cuda_host_is_device(to, 1))
    cuda_host_die("the destination is device memory, but is said not to be");
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice)
    cuda_host_must_be_device(from, from_bytes, "the source");
  else if (cuda_host_is_device(from, 1))
    cuda_host_die("the source is device memory, but is said not to be");
  cuda_host_doing = nullptr;
  return kind;
}

static void copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                      size_t height) {
  for (size_t i = 0; i < height; i++)
    memmove((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
}

static const char *const copy_names[] = {"copy from host to host", "copy from host to device",
                                         "copy from device to host", "copy from device to device"};

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  cuda_host_stream *s = cuda_host_valid(stream, "cudaMemcpyAsync");
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > to_pitch || width > from_pitch) return cuda_host_error(cudaErrorInvalidValue);
  size_t to_bytes = (height - 1) * to_pitch + width, from_bytes = (height - 1) * from_pitch + width;
  kind = check_copy("cudaMemcpyAsync", to, from, to_bytes, from_bytes, kind);
  if (cuda_host_is_blind(to)) return cudaSuccess;
  bool from_host = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
  bool to_host = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
  if (from_host && !s->capture && !cuda_host_is_pinned(from, from_bytes)) {
    std::shared_ptr<char[]> staged(new char[from_bytes]);
    memcpy(staged.get(), from, from_bytes);
    cuda_host_enqueue(s, {copy_names[kind],
                          [=] { copy_rows(to, to_pitch, staged.get(), from_pitch, width, height); }});
  } else {
    cuda_host_enqueue(s, {copy_names[kind], [=] { copy_rows(to, to_pitch, from, from_pitch, width, height); }});
  }
  if (to_host && !s->capture && !cuda_host_is_pinned(to, to_bytes))
    drain(s); /* the call returns when pageable memory has been written */
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind, cudaStream_t s) {
  return cudaMemcpy2DAsync(to, bytes, from, bytes, bytes, 1, kind, s);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s) {
  cuda_host_doing = "cudaMemsetAsync";
  cuda_host_must_be_device(p, bytes, "what is set");
  cuda_host_doing = nullptr;
  cuda_host_enqueue(s, {"cudaMemsetAsync", [=] { memset(p, value, bytes); }});
  return cudaSuccess;
}

/* The legacy default stream's work follows what blocking streams hold, and they follow it; non-blocking streams
 * neither. */
static void after_blocking_streams() {
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i]->blocking) drain(streams[i]);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  if (cuda_host_capturing()) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  if (bytes == 0) return cudaSuccess;
  kind = check_copy("cudaMemcpy", to, from, bytes, bytes, kind);
  after_blocking_streams();
  if (kind == cudaMemcpyHostToDevice && !cuda_host_is_pinned(from, bytes)) {
    /* Returns when the bytes have left pageable memory; they reach the device some time later. */
    std::shared_ptr<char[]> staged(new char[bytes]);
    memcpy(staged.get(), from, bytes);
    cuda_host_append(&legacy, {{"cudaMemcpy", [=] { memcpy(to, staged.get(), bytes); }}});
    return cudaSuccess;
  }
  cuda_host_append(&legacy, {{"cudaMemcpy", [=] { memmove(to, from, bytes); }}});
  if (kind != cudaMemcpyDeviceToDevice) drain(&legacy);
  return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes) {
  if (cuda_host_capturing()) return cuda_host_error(cudaErrorStreamCaptureUnsupported);
  cuda_host_doing = "cudaMemset";
  cuda_host_must_be_device(p, bytes, "what is set");
  cuda_host_doing = nullptr;
  after_blocking_streams();
  cuda_host_append(&legacy, {{"cudaMemset", [=] { memset(p, value, bytes); }}});
  return cudaSuccess;
}
