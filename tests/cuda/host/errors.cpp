/* Errors: those a device would report are returned, those it would not survive end the program with a message. */
#include "fiber.h"
#include "host.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

const char *cuda_host_doing;

void cuda_host_die(const char *format, ...) {
  char text[2048], line[3072];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  const char *where = cuda_host_where();
  fflush(stdout);
  int n = snprintf(line, sizeof line, "cuda_host: %s%s%s\n", where ? where : "", where ? ": " : "", text);
  if (write(2, line, (size_t)n) < 0 || getenv("CUDA_HOST_ABORT")) abort();
  _exit(3);
}

static cudaError_t last_error = cudaSuccess;

cudaError_t cuda_host_error(cudaError_t e) { return e == cudaSuccess ? e : last_error = e; }

cudaError_t cudaGetLastError() {
  cudaError_t e = last_error;
  last_error = cudaSuccess;
  return e;
}

cudaError_t cudaPeekAtLastError() { return last_error; }

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevicePointer, "cudaErrorInvalidDevicePointer", "invalid device pointer"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorMapBufferObjectFailed, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "capture was not ended in the same stream as it began"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
};

const char *cudaGetErrorName(cudaError_t e) {
  for (auto &known : errors)
    if (known.error == e) return known.name;
  return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t e) {
  for (auto &known : errors)
    if (known.error == e) return known.text;
  return "unknown error";
}

/* ---- signals ------------------------------------------------------------------------------------- */

static void on_fault(int signal, siginfo_t *info, void *) {
  struct sigaction plain = {};
  plain.sa_handler = SIG_DFL;
  sigaction(signal, &plain, nullptr);
  if (fiber_overflowed(info->si_addr))
    cuda_host_die("a thread's stack of %zu KiB has overflowed", FIBER_STACK >> 10);
  size_t bytes;
  if (ptrdiff_t at = cuda_host_in_shared(info->si_addr, &bytes); at >= 0)
    cuda_host_die("touches byte %td of %zu bytes of dynamic shared memory", at, bytes);
  if (const char *what = cuda_host_describe(info->si_addr)) cuda_host_die("touches %s", what);
  if (cuda_host_where()) cuda_host_die("touches address %p, which is nobody's", info->si_addr);
  /* The instruction runs again and ends the program as if this handler had not been. */
}

[[gnu::constructor]] static void watch_faults() {
  static char stack[64 << 10];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
}

/* ---- checks that the compiler inserts (-fsanitize=array-bounds,alignment) ------------------------- */

struct Place {
  const char *file;
  unsigned line, column;
};
struct Type {
  unsigned short kind, info;
  char name[];
};

extern "C" void __ubsan_handle_out_of_bounds_abort(void *data, uintptr_t index) {
  struct Data {
    Place place;
    const Type *array, *index;
  };
  const Data *d = (const Data *)data;
  cuda_host_die("%s:%u:%u: index %lld of an array %s is out of bounds", d->place.file, d->place.line,
                d->place.column, (long long)index, d->array->name);
}

extern "C" void __ubsan_handle_type_mismatch_v1_abort(void *data, uintptr_t at) {
  struct Data {
    Place place;
    const Type *type;
    unsigned char log2_alignment, kind;
  };
  const Data *d = (const Data *)data;
  cuda_host_die("%s:%u:%u: an access of %s at address 0x%llx is misaligned: it must be a multiple of %u",
                d->place.file, d->place.line, d->place.column, d->type->name, (unsigned long long)at,
                1u << d->log2_alignment);
}
