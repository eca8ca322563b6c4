/* Sums of losses and metrics over a microbatch's elements, in double and in order. A device may be behind:
 * elements are fetched, and added up when they arrive, in the order of the calls. */
#include "messages/messages.h"
#include "update/update.h"

static struct {
  struct pending {
    const float *elements;
    int64_t n, k, batch;
    int figure;
    pd_take_sum *take;
  } queue[PD_FETCHES];
  int first, n_pending; /* index into the ring `queue` */
  bool taking;          /* a non-finite sum is reported first, which advances messages */
} sums;

static bool first_has_come(void *unused) {
  (void)unused;
  return !sums.n_pending || pd_fetched(sums.queue[sums.first].elements);
}

static void take_first(void) {
  struct pending p = sums.queue[sums.first];
  double sum = 0;
  for (int64_t i = 0; i < p.n; i++) sum += (double)p.elements[i];
  sums.first = (sums.first + 1) % PD_FETCHES;
  sums.n_pending--;
  sums.taking = true;
  p.take(p.figure, p.k, sum);
  sums.taking = false;
}

static void await_first(void) {
  pd_wait_until(first_has_come, NULL, "the device's figures of microbatch", pd_number(sums.queue[sums.first].k),
                "of", -1);
  if (sums.n_pending) take_first(); /* the wait may have taken all of them */
}

void pd_add_up(int figure, int64_t batch, int64_t k, const float *elements, int64_t n, pd_take_sum *take) {
  while (sums.n_pending == PD_FETCHES) await_first();
  sums.queue[(sums.first + sums.n_pending) % PD_FETCHES] =
      (struct pending){pd_fetch(elements, n), n, k, batch, figure, take};
  sums.n_pending++;
  pd_figures_are_known(batch);
}

bool pd_figures_are_known(int64_t batch) {
  while (!sums.taking && sums.n_pending && first_has_come(NULL)) take_first();
  return !sums.n_pending || sums.queue[sums.first].batch > batch;
}

void pd_figures_fold(int64_t batch) {
  while (!pd_figures_are_known(batch)) await_first();
}
