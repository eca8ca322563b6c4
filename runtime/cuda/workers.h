/* Threads of a GPU's host that share work: updates of parameters at home (home.cu), a microbatch's images (load.cu). */
#ifndef PD_WORKERS_H
#define PD_WORKERS_H

#include <functional>

/* Number `i` of what is shared; `worker`, from 0 to before pd_workers(), is another for each thread that has a part of it. */
typedef std::function<void(int i, int worker)> pd_shared_work;

void pd_workers_start(); /* makes them, the first time */
void pd_workers_finish();
int pd_workers(); /* with the thread that has work to share; 1: none were made */
/* Calls work(i, worker) for the numbers from `first` to before `end`, in any order, on all of them; returns when that is done.
 * Where they are busy with what another thread shares, the caller does it alone, as worker 0. */
void pd_workers_share(int first, int end, const pd_shared_work &work);

#endif
