/* Squares and updates of parameter groups by the host, on offloaded blocks in pinned memory
 * (docs/guide/offload.md): the interface of home.cu for sums.cu and optimizer.cu. */
#ifndef PD_HOME_H
#define PD_HOME_H

#include <functional>

#include "pd_cuda.h"
#include "shared/spilled.h"

typedef std::function<void(int tile)> pd_home_work;

/* Starts the host's workers, if it updates groups. False after filling `why`: blocks are not in host memory. */
bool pd_home_start(bool pinned, char *why);
void pd_home_finish();

/* Enqueues `work` for the tiles of a group's parameters [first, end), after pending copies of the blocks that such
 * a step uses and after earlier work of these functions. */
void pd_home_tiles(enum pd_step_kind kind, int first, int end, const pd_home_work &work);
void pd_home_then(const std::function<void()> &work); /* enqueues work once, after all earlier work */
void pd_home_after(cudaEvent_t event);                /* later work also waits for the event */
void pd_home_record(cudaEvent_t event);               /* records the event after all earlier work */

/* For enqueued work: the offloaded copy of an address in the arena. */
char *pd_home_at(const void *at);
template <class T> inline T *pd_home(T *at) { return reinterpret_cast<T *>(pd_home_at(at)); }
/* The host copy of a gradient that is resident on the device because other stages receive it; NULL: not
 * resident. */
float *pd_home_copy(int parameter);

#endif
