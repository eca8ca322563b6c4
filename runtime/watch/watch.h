/* Looking on: what a rank did when (--trace), whether weights stay as they were and passes write the same twice (--audit). */
#ifndef PD_WATCH_H
#define PD_WATCH_H

#include "optimizers/elements.h"
#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- trace.c --------------------------------------------------------------------------------- */

/* Collective; they do nothing without --trace. At the end of pd_start: room for events, the first comparison of
 * clocks. Just before MPI_Finalize: the second comparison, and the file, which rank 0 writes. */
void pd_trace_start(void);
void pd_trace_finish(void);
/* ---- audit.c --------------------------------------------------------------------------------- */

/* The arrays of a parameter that last from one update to the next; behind PD_ARRAY_WEIGHTS those of older versions. */
enum { PD_ARRAY_MOMENTS, PD_ARRAY_MASTERS = PD_MAX_MOMENTS, PD_ARRAY_AVERAGES, PD_ARRAY_WEIGHTS };
const char *pd_array_name(int array);
/* Nothing without --audit. Checksums of these arrays after so many updates; a difference ends the launch and is named. */
void pd_audit_start(void);
void pd_audit_take(int64_t updates);
void pd_audit_verify(int64_t updates);
/* An update that is run twice gives checksums of its own copies, so that no bit changes unseen between the check and the
 * use: of elements that it is about to overwrite, and of what it left. Any thread's; first: the first element's number
 * within the parameter, a multiple of PD_TILE behind the part's first. */
struct pd_written;
void pd_audit_before(const struct pd_written *w, const void *copy, int parameter, int64_t first);
void pd_audit_after(const struct pd_written *w, const void *copy, int parameter, int64_t first);
/* All threads have ended: what they overwrote was what the update before left; the launch ends otherwise. */
void pd_audit_settle(int64_t t);

/* ---- twice.c --------------------------------------------------------------------------------- */

/* Nothing without --audit. Collective: memory to compare what passes write. */
void pd_twice_start(void);
const int64_t *pd_twice_bytes(void); /* by rank, how much; NULL: none */
/* Of pd_begin: before a pass starts; and whether it is to be run again. */
void pd_twice_begin(enum pd_work work, int64_t turn);
bool pd_twice_again(void);
/* Whether a figure is of a pass that is being run twice: it is counted when both runs have been compared. */
bool pd_twice_takes(int figure, const float *elements, int64_t n);
bool pd_runs_twice(void); /* the pass that has begun */
/* Memory for what update t writes at once, of pd_update_copy_bytes(), when it is to be run twice; else NULL. */
char *pd_twice_copy(int64_t t);

/* ---- updates_twice.c --------------------------------------------------------------------------- */

/* Where two runs differ: an element, and its bits in both, so many hexadecimal digits. */
struct pd_difference {
  int64_t element;
  int digits;
  uint32_t first, second;
};
/* The first of elements of `size` bytes that is not the same at two places of the device, `other` being the first
 * run's; false: there is none. */
bool pd_differ(const void *at, const void *other, size_t bytes, size_t size, struct pd_difference *d);

struct pd_written { /* what an update writes of PD_ARRAY_WEIGHTS, say */
  int array;
  void *at;
  size_t bytes;
  bool bf16;
};
/* Calls `update` twice, the second time from what stood in the n arrays before; they then hold what the second wrote. A
 * difference is noted as one of the parameter, whose element `first_element` is the arrays' first. copy: of as many
 * bytes as the arrays. Any thread's. */
void pd_update_twice(void (*update)(const void *of), const void *of, const struct pd_written *w, int n, char *copy,
                     int parameter, int64_t first_element);
/* Whether nothing was noted since the last call; else why not: the first that differs. The second ends the launch. */
bool pd_updates_agree(int64_t t, char *why);
void pd_check_agreement(int64_t t);
/* A parameter by a rule over whole tensors, once where copy is NULL; by the stage's, as struct pd_rules has it. */
void pd_update_tensor(void (*rule)(const struct pd_tensor_update *x), const struct pd_tensor_update *x,
                      char *copy);
void pd_update_by_tensors(const struct pd_tensor_update *x);

#ifdef __cplusplus
}
#endif

#endif
