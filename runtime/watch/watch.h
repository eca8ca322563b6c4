/* Observation: the trace of a rank's work (--trace), and checks that weights do not change by themselves and that
 * repeated passes give the same bits (--audit). */
#ifndef PD_WATCH_H
#define PD_WATCH_H

#include "optimizers/elements.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trace.c --------------------------------------------------------------------------------- */

/* Collective, no effect without --trace. pd_trace_start, at the end of pd_start, allocates events and compares
 * clocks. pd_trace_finish, before MPI_Finalize, compares clocks again; rank 0 writes the file. */
void pd_trace_start(void);
void pd_trace_finish(void);
/* ---- audit.c --------------------------------------------------------------------------------- */

/* The arrays of a parameter that persist between updates; older versions of the weights follow
 * PD_ARRAY_WEIGHTS. */
enum { PD_ARRAY_MOMENTS, PD_ARRAY_MASTERS = PD_MAX_MOMENTS, PD_ARRAY_AVERAGES, PD_ARRAY_WEIGHTS };
const char *pd_array_name(int array);
/* No effect without --audit. Take and verify checksums of these arrays after `updates` updates; a difference ends
 * the launch. */
void pd_audit_start(void);
void pd_audit_take(int64_t updates);
void pd_audit_verify(int64_t updates);
/* An update that runs twice takes checksums of its own copies, so that no change between check and use is missed:
 * of elements before it overwrites them, and of its results. Thread-safe. first: index of the first element in the
 * parameter, a multiple of PD_TILE from the start of the part. */
struct pd_written;
void pd_audit_before(const struct pd_written *w, const void *copy, int parameter, int64_t first);
void pd_audit_after(const struct pd_written *w, const void *copy, int parameter, int64_t first);
/* After all threads: ends the launch if overwritten elements differ from the previous update's results. */
void pd_audit_settle(int64_t t);

/* ---- twice.c --------------------------------------------------------------------------------- */

/* Collective, no effect without --audit: allocates memory to compare results of passes. */
void pd_twice_start(void);
const int64_t *pd_twice_bytes(void); /* bytes by rank; NULL: none */
/* For pd_begin: before a pass starts; true if the pass must run again. */
void pd_twice_begin(enum pd_work work, int64_t turn);
bool pd_twice_again(void);
/* True if the figure belongs to a pass that runs twice; it is then counted after the comparison. */
bool pd_twice_takes(int figure, const float *elements, int64_t n);
bool pd_runs_twice(void); /* true if the current pass runs twice */
/* Memory of pd_update_copy_bytes() for the copies of update t, if it runs twice; else NULL. */
char *pd_twice_copy(int64_t t);

/* ---- updates_twice.c --------------------------------------------------------------------------- */

/* A difference between two runs: an element, and its bits in both, with this many hexadecimal digits. */
struct pd_difference {
  int64_t element;
  int digits;
  uint32_t first, second;
};
/* Finds the first difference between two arrays on the device, of elements of `size` bytes; `other` is the first
 * run's. False: no difference. */
bool pd_differ(const void *at, const void *other, size_t bytes, size_t size, struct pd_difference *d);

struct pd_written { /* an array that an update writes */
  int array;
  void *at;
  size_t bytes;
  bool bf16;
};
/* Calls `update` twice from the same contents of the n arrays, which then hold the second results. Records a
 * difference for the parameter; element 0 of the arrays is `first_element` of the parameter. copy: memory of the
 * arrays' size. Thread-safe. */
void pd_update_twice(void (*update)(const void *of), const void *of, const struct pd_written *w, int n, char *copy,
                     int parameter, int64_t first_element);
/* True if no difference was recorded since the last call, else false with the first difference in `why`.
 * pd_check_agreement ends the launch instead. */
bool pd_updates_agree(int64_t t, char *why);
void pd_check_agreement(int64_t t);
/* Updates a parameter by a whole-tensor rule, once if copy is NULL, else twice; the second function uses the
 * stage's rule. */
void pd_update_tensor(void (*rule)(const struct pd_tensor_update *x), const struct pd_tensor_update *x,
                      char *copy);
void pd_update_by_tensors(const struct pd_tensor_update *x);

#ifdef __cplusplus
}
#endif

#endif
