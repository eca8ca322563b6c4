/* Where a stage's arena is and who works on it. Two folders implement this, and a program links one of them:
 *   host/ the arena is this process's memory, and work is done when the call that asks for it returns;
 *   cuda/ the arena is a device's memory, which the host cannot touch, and work is enqueued on a stream.
 * Everywhere else addresses in the arena are numbers to hand on: the host reads and writes there by the functions
 * below alone. `bf16`: what stands in the arena are bfloat16 numbers; the host always sees floats. */
#ifndef PD_DEVICE_H
#define PD_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets environment variables that must be set before anything, MPI too, opens the device. */
void pd_device_prepare(void);

/* Collective: this rank's device and, in pd.arena, the stage's arena_bytes on it. Its moments are zero; of the
 * rest nothing is known. False after filling `why`. */
bool pd_device_start(char *why);
void pd_device_finish(void);      /* frees both; no message is under way */
const char *pd_device_name(void); /* for the log; NULL: the host */
const char *
pd_device_library(void);     /* that makes bits, with its version, for checkpoints to say; NULL: none is said */
int pd_device_threads(void); /* of this process, that share the work */
int pd_host_threads(void);   /* of this process, that may share work of the host's own */

/* The processors that this rank is bound to, "0-27,56-83", and by whom: "pd" (to those beside its device) or "launcher". */
struct pd_binding {
  const char *processors, *by;
};
const struct pd_binding *pd_device_binding(void); /* NULL: it is bound to none, or the device is the processors */

/* Waits until the work asked for so far is done, while messages move on; `what` is for --timeout. */
void pd_device_wait(const char *what);

/* While work is recorded to be launched later: nothing is to be asked of the device, nor can messages move on. */
bool pd_device_recording(void);

/* ---- the host reads and writes ------------------------------------------------------------------- */
/* These wait for the work asked for before: at start and end, for checkpoints and reports. */

/* n numbers at an address in the arena, to be read before the next call of pd_view or pd_fill. */
const float *pd_view(const void *at, int64_t n, bool bf16);
/* Room for n floats; once they are written pd_filled puts them at the address, rounded where bf16, as was said. */
float *pd_fill(void *at, int64_t n, bool bf16);
void pd_filled(void *at, int64_t n, bool bf16);
/* n floats of the arena to another place there, rounded where bf16. */
void pd_round(void *to, const float *from, int64_t n, bool bf16);

/* ---- the host keeps ahead of the work ------------------------------------------------------------- */

/* Writes sample i of a microbatch to `to`: floats, or int32_t of tokens, whatever memory holds. `worker`, from 0 to before
 * pd_load_workers(), is another number for each thread that loads at a time. */
typedef void pd_load_sample(const void *context, int64_t i, int worker, void *to);
/* Loads a microbatch of input number `input`, which work that is asked for afterwards finds at `to`: calls `load` for each
 * sample, in any order, on several threads where `shared` allows it. */
void pd_load_samples(int input, void *to, bool shared, pd_load_sample *load, const void *context);
int pd_load_workers(void);

/* A copy of n floats of the arena as the work asked for before leaves them, to be read once pd_fetched says so.
 * Copies come in their order, and the last PD_FETCHES stay. */
enum { PD_FETCHES = 64 };
const float *pd_fetch(const float *from, int64_t n);
bool pd_fetched(const float *fetch);

/* ---- two runs of the same work, for --audit --------------------------------------------------------- */
/* Bytes of the arena and of room beside it, which is kept until the end. What is asked for stands in the work's order. */

char *pd_copy_room(size_t bytes);
void pd_copy_bytes(void *to, const void *from, size_t bytes);
void pd_exchange_bytes(void *a, void *b, size_t bytes);
/* These wait for the work. The second copies to the host. */
bool pd_same_bytes(const void *a, const void *b, size_t bytes);
void pd_read_bytes(void *to, const void *from, size_t bytes);

/* ---- for profilers ------------------------------------------------------------------------------------ */

bool pd_device_profiled(void); /* a profiler looks on; without one the two below are not called */
/* The host's work from a range's begin to its end has this name; ranges nest. */
void pd_device_range_begin(const char *name);
void pd_device_range_end(void);

/* ---- what is slower than it was meant to be -------------------------------------------------------- */

/* A kind of such work, by the log's name for it, and how often it was met since the start. */
enum { PD_DEVICE_COUNTS = 9 };
struct pd_device_count {
  const char *name;
  int64_t n;
};
/* Fills `to` with all kinds that this device has, in one order; returns how many: none on processors. */
int pd_device_counts(struct pd_device_count to[PD_DEVICE_COUNTS]);

/* ---- memory.c, peak.c ------------------------------------------------------------------------------ */

void pd_memory_sample(void);
int64_t pd_memory_peak(void); /* bytes, the most that any sample saw */
double pd_measure_peak(void); /* operations a second of this rank, by matrix products */

#ifdef __cplusplus
}
#endif

#endif
