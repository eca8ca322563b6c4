/* The device that holds a stage's arena and works on it. Two folders implement this interface; a program links one
 * of them:
 *   host/ the arena is memory of this process, and work is complete when its call returns;
 *   cuda/ the arena is device memory, inaccessible to the host, and work is enqueued on a stream.
 * All other code treats addresses in the arena as opaque: the host reads and writes the arena only by the
 * functions below. `bf16`: the arena holds bfloat16; the host always sees floats. */
#ifndef PD_DEVICE_H
#define PD_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets environment variables that the device needs before MPI or any library opens it. */
void pd_device_prepare(void);

/* Collective. Opens this rank's device and allocates the stage's arena_bytes in pd.arena. Moments are zero; the
 * other contents are undefined. False after filling `why`. */
bool pd_device_start(char *why);
void pd_device_finish(void);      /* frees both; no message may be in flight */
const char *pd_device_name(void); /* for the log; NULL: the host */
const char *
pd_device_library(void);     /* library and version that determine bits, recorded in checkpoints; NULL: none */
int pd_device_threads(void); /* threads of this process that share the work */
int pd_host_threads(void);   /* threads of this process for work of the host */

/* The processors that this rank is bound to, such as "0-27,56-83", and the binder: "pd" (processors near the
 * device) or "launcher". */
struct pd_binding {
  const char *processors, *by;
};
const struct pd_binding *pd_device_binding(void); /* NULL: not bound, or a CPU program */

/* Waits until all enqueued work is done, and advances messages meanwhile; `what` is for --timeout's message. */
void pd_device_wait(const char *what);

/* True while work is recorded for a later launch: device queries and messages are then forbidden. */
bool pd_device_recording(void);

/* ---- the host reads and writes ------------------------------------------------------------------- */
/* These wait for enqueued work; they are for start, end, checkpoints and reports. */

/* n numbers at an address in the arena, valid until the next call of pd_view or pd_fill. */
const float *pd_view(const void *at, int64_t n, bool bf16);
/* pd_fill returns room for n floats; pd_filled then stores them at the address, rounded if bf16. Same arguments in
 * both. */
float *pd_fill(void *at, int64_t n, bool bf16);
void pd_filled(void *at, int64_t n, bool bf16);
/* Copies n floats within the arena, rounded if bf16. */
void pd_round(void *to, const float *from, int64_t n, bool bf16);

/* ---- the host runs ahead of the device ------------------------------------------------------------- */

/* Writes sample i of a microbatch to `to`, as floats or int32_t tokens. `worker`, in [0, pd_load_workers()),
 * differs between concurrent threads. */
typedef void pd_load_sample(const void *context, int64_t i, int worker, void *to);
/* Loads a microbatch of input `input` to `to`, for work enqueued afterwards: calls `load` for each sample, in any
 * order, on several threads if `shared`. */
void pd_load_samples(int input, void *to, bool shared, pd_load_sample *load, const void *context);
int pd_load_workers(void);

/* Copies n floats of the arena after the work enqueued so far; readable once pd_fetched returns true. Copies
 * complete in order; the last PD_FETCHES stay valid. */
enum { PD_FETCHES = 64 };
const float *pd_fetch(const float *from, int64_t n);
bool pd_fetched(const float *fetch);

/* ---- copies for work that runs twice (--audit) --------------------------------------------------------- */
/* Operate on bytes of the arena and of extra memory, kept until the end, in the order of enqueued work. */

char *pd_copy_room(size_t bytes);
void pd_copy_bytes(void *to, const void *from, size_t bytes);
void pd_exchange_bytes(void *a, void *b, size_t bytes);
/* These wait for the work; pd_read_bytes copies to the host. */
bool pd_same_bytes(const void *a, const void *b, size_t bytes);
void pd_read_bytes(void *to, const void *from, size_t bytes);

/* ---- generation (generate.c) ----------------------------------------------------------------------------- */

/* Work enqueued from now on needs only the first `rows` rows of the microbatch; 0: all. */
void pd_device_use_rows(int64_t rows);

/* ---- for profilers ------------------------------------------------------------------------------------ */

bool pd_device_profiled(void); /* a profiler is attached; otherwise the functions below are not called */
/* Name the host's work between begin and end; ranges nest. */
void pd_device_range_begin(const char *name);
void pd_device_range_end(void);

/* ---- fallbacks to slower kernels -------------------------------------------------------- */

/* A kind of fallback, by its name in the log, and its count since the start. */
enum { PD_DEVICE_COUNTS = 9 };
struct pd_device_count {
  const char *name;
  int64_t n;
};
/* Fills `to` with all kinds of this device, in a fixed order; returns their number, 0 on processors. */
int pd_device_counts(struct pd_device_count to[PD_DEVICE_COUNTS]);

/* ---- memory.c, peak.c ------------------------------------------------------------------------------ */

void pd_memory_sample(void);
int64_t pd_memory_peak(void); /* bytes, the maximum of all samples */
double pd_measure_peak(void); /* operations per second of this rank in matrix products */

#ifdef __cplusplus
}
#endif

#endif
