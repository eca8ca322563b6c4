/* Worker threads of a GPU's host, for updates of offloaded parameters (home.cu) and loading of images
 * (load.cu). */
#ifndef PD_WORKERS_H
#define PD_WORKERS_H

#include <functional>

/* Piece `i` of the work; `worker`, in [0, pd_workers()), differs between concurrent threads. */
typedef std::function<void(int i, int worker)> pd_shared_work;

void pd_workers_start(); /* creates the threads on the first call */
void pd_workers_finish();
int pd_workers(); /* including the calling thread; 1: no worker threads */
/* Calls work(i, worker) for i in [first, end), in any order, on all threads, and waits for the end. If the threads
 * work for another caller, this thread does all pieces as worker 0. */
void pd_workers_share(int first, int end, const pd_shared_work &work);

#endif
