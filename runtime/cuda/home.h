/* Groups of parameters whose squares and update are the host's, where blocks are at home in pinned memory (docs/guide/offload.md):
 * what sums.cu and optimizer.cu ask of home.cu. */
#ifndef PD_HOME_H
#define PD_HOME_H

#include <functional>

#include "pd_cuda.h"
#include "shared/spilled.h"

typedef std::function<void(int tile)> pd_home_work;

/* Starts what it takes, where groups are the host's. False after filling `why`: blocks are not in its memory. */
bool pd_home_start(bool pinned, char *why);
void pd_home_finish();

/* Enqueues that for the tiles of parameters [first, end), a group's, behind what is on its way to or from the blocks that such a
 * step uses at home, and behind all that was enqueued here before. */
void pd_home_tiles(enum pd_step_kind kind, int first, int end, const pd_home_work &work);
void pd_home_then(const std::function<void()> &work); /* once, behind all that */
void pd_home_after(cudaEvent_t event);                /* what follows is behind the event, too */
void pd_home_record(cudaEvent_t event);               /* it has happened when all that is done */

/* For work that is enqueued, where what has this address in the arena is at home. */
char *pd_home_at(const void *at);
template <class T> inline T *pd_home(T *at) { return reinterpret_cast<T *>(pd_home_at(at)); }
/* Where the copy of a gradient is that stays in the device's memory, for other stages are sent it; NULL: it does not. */
float *pd_home_copy(int parameter);

#endif
