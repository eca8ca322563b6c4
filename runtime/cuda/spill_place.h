/* Private to spill.cu: where blocks are that the GPU has no memory for. Pinned memory of the host (spill_host.cu), or a file
 * (spill_disk.cu); what is asked of it is enqueued. */
#ifndef PD_SPILL_PLACE_H
#define PD_SPILL_PLACE_H

#include "pd_cuda.h"
#include "offload/spill.h"

/* Of a block. */
struct pd_spill_events {
  cudaEvent_t used;    /* by computation, as it was told to leave */
  cudaEvent_t arrived; /* a copy to the device */
  cudaEvent_t gone;    /* a copy home */
  cudaEvent_t at_home; /* what the host has had to do with it there (home.cu); NULL: nothing yet */
};

struct pd_spill_place {
  bool (*start)(const char *place, int64_t bytes, char *why); /* false after filling `why` */
  void (*finish)();
  /* Copies a block to its place on the device, behind `at_home`; `arrived` has happened when it is there. */
  void (*bring)(pd_spill_block *b, const pd_spill_events &events);
  /* Copies it home, behind `used` and `at_home`; `gone` has happened when it is there. */
  void (*send)(pd_spill_block *b, const pd_spill_events &events);
  bool may_fail;            /* nothing is computed with a block before it is known to be what went home */
  const char *(*failure)(); /* what could not be done, as those know who have waited for it; NULL: nothing */
};
extern const pd_spill_place pd_spill_to_host, pd_spill_to_disk;

/* Their streams and events. */
cudaStream_t pd_spill_stream();
void pd_spill_record(cudaEvent_t event, cudaStream_t stream);
void pd_spill_order(cudaStream_t stream, cudaEvent_t behind);

/* Of a block that has been told to leave, or never came: where it is in pinned memory, for work that is enqueued in the stream
 * behind its copies; then `done` is recorded behind that, and what is still in the device's memory counts no more. */
char *pd_spill_begin_at_home(pd_spill_block *b, cudaStream_t stream);
void pd_spill_end_at_home(pd_spill_block *b, cudaEvent_t done);
char *pd_spill_pinned(const pd_spill_block *b); /* spill_host.cu */

#endif
