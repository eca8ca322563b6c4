/* The mean loss over a held-out file with the weights of one update. Every sample's elements are added
 * in order and in double on the one stage that computes the loss: the partition leaves no trace. */
#include "internal.h"

#include <math.h>
#include <string.h>

static double *sums, *all_sums; /* [loss statement] */
static double started;

static int64_t microbatches(void) {
  int64_t b = pd.stage->microbatch;
  return (pd_dataset_samples(pd_validation_data) + b - 1) / b;
}

/* All ranks learn the sums, so that none runs ahead and the figures can be logged in order. */
static void finish(void) {
  const struct pd_stage *s = pd.stage;
  double loss = 0;
  MPI_Request request;
  MPI_Iallreduce(sums, all_sums, s->n_losses, MPI_DOUBLE, MPI_SUM, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to validate", -1, NULL, -1);
  int64_t samples = pd_dataset_samples(pd_validation_data);
  for (int i = 0; i < s->n_losses; i++) loss += all_sums[i] / ((double)samples * (double)s->loss_elements[i]);
  int64_t t = pd_updates_done() - 1;
  if (!isfinite(loss)) {
    if (pd.rank) pd_leave_to_others();
    pd_fail("step %lld: the validation loss is not finite", (long long)(t + 1));
  }
  pd.training = true;
  double seconds = pd_seconds() - started;
  pd_log_validation(t, loss, samples, seconds);
  pd_clock_pause(seconds);
}

bool pd_validation_next(int64_t v) {
  if (v == 1) {
    const struct pd_stage *s = pd.stage;
    if (!sums) {
      sums = pd_allocate(sizeof *sums * (size_t)s->n_losses);
      all_sums = pd_allocate(sizeof *sums * (size_t)s->n_losses);
    }
    memset(sums, 0, sizeof *sums * (size_t)s->n_losses);
    pd_train_catch_up();
    started = pd_seconds();
    pd.training = false;
  }
  if (v <= microbatches()) return true;
  finish();
  return false;
}

void pd_validation_load(int input, int64_t v, void *to) {
  int64_t b = pd.stage->microbatch, first = (v - 1) * b, samples = pd_dataset_samples(pd_validation_data);
  for (int64_t i = 0; i < b; i++) {
    int64_t sample = first + i < samples ? first + i : first;
    pd_dataset_read(pd_validation_data, input, sample, (char *)to + i * pd.stage->inputs[input].elements * 4);
  }
}

void pd_validation_loss(int loss, int64_t v, const float *elements, int64_t n) {
  int64_t b = pd.stage->microbatch, left = pd_dataset_samples(pd_validation_data) - (v - 1) * b;
  if (left < b) n = n / b * left;
  for (int64_t i = 0; i < n; i++) sums[loss] += (double)elements[i];
}
