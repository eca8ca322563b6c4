/* Private to spill.cu: the offload place of a GPU's blocks, pinned host memory (spill_host.cu) or a file
 * (spill_disk.cu). Requests are enqueued. */
#ifndef PD_SPILL_PLACE_H
#define PD_SPILL_PLACE_H

#include "pd_cuda.h"
#include "offload/spill.h"

/* Events of a block. */
struct pd_spill_events {
  cudaEvent_t used;    /* end of computation with the block, when its offload was requested */
  cudaEvent_t arrived; /* end of the copy to the device */
  cudaEvent_t gone;    /* end of the copy to the offload place */
  cudaEvent_t at_home; /* end of the host's work on the offloaded copy (home.cu); NULL: none yet */
};

struct pd_spill_place {
  bool (*start)(const char *place, int64_t bytes, char *why); /* false after filling `why` */
  void (*finish)();
  /* Copies a block to the device, after `at_home`; records `arrived`. */
  void (*bring)(pd_spill_block *b, const pd_spill_events &events);
  /* Copies a block to the offload place, after `used` and `at_home`; records `gone`. */
  void (*send)(pd_spill_block *b, const pd_spill_events &events);
  bool may_fail;            /* a block is used only after its checksum was verified */
  const char *(*failure)(); /* the first failure, after a wait; NULL: none */
};
extern const pd_spill_place pd_spill_to_host, pd_spill_to_disk;

/* Streams and events of the places. */
cudaStream_t pd_spill_stream();
void pd_spill_record(cudaEvent_t event, cudaStream_t stream);
void pd_spill_order(cudaStream_t stream, cudaEvent_t behind);

/* For a block that is offloaded: its address in pinned memory, for work enqueued in the stream after its copies.
 * pd_spill_end_at_home records `done` after the work; the copy in device memory is then stale. */
char *pd_spill_begin_at_home(pd_spill_block *b, cudaStream_t stream);
void pd_spill_end_at_home(pd_spill_block *b, cudaEvent_t done);
char *pd_spill_pinned(const pd_spill_block *b); /* spill_host.cu */

#endif
