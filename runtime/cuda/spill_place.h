/* Private to spill.cu: where blocks are that the GPU has no memory for. Pinned memory of the host (spill_host.cu), or a file
 * (spill_disk.cu); what is asked of it is enqueued. */
#ifndef PD_SPILL_PLACE_H
#define PD_SPILL_PLACE_H

#include "pd_cuda.h"
#include "spill.h"

struct pd_spill_place {
  bool (*start)(const char *place, int64_t bytes, char *why); /* false after filling `why` */
  void (*finish)();
  /* Copies a block to its place on the device; `arrived` has happened when it is there. */
  void (*bring)(pd_spill_block *b, cudaEvent_t arrived);
  /* Copies it home, once `used` has happened; `gone` has when it is there. */
  void (*send)(pd_spill_block *b, cudaEvent_t used, cudaEvent_t gone);
  bool may_fail;            /* nothing is computed with a block before it is known to be what went home */
  const char *(*failure)(); /* what could not be done, as those know who have waited for it; NULL: nothing */
};
extern const pd_spill_place pd_spill_to_host, pd_spill_to_disk;

/* Their streams and events. */
cudaStream_t pd_spill_stream();
void pd_spill_record(cudaEvent_t event, cudaStream_t stream);
void pd_spill_order(cudaStream_t stream, cudaEvent_t behind);

#endif
