/* Mean losses and metrics over files with the weights of one update, for validation and evaluation runs. Replicas
 * take microbatches as in training. The computing rank adds a microbatch's elements in order and in double; every
 * rank then adds the microbatches' sums in order. Results are bit-identical for any number of stages and
 * replicas. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "sharp/turn.h"
#include "train/train.h"
#include "update/update.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct {
  double *sums, *all_sums; /* [microbatch][figure] */
  double *means;           /* by figure */
  double started;
} validation;

void pd_evaluation_pause(double paused) { validation.started += paused; }

static int n_sums(void) { return (int)pd_evaluations() * pd.stage->n_figures; }

/* The mean of a figure over all samples. */
static double mean(int figure) {
  double sum = 0;
  for (int64_t i = 0; i < pd_evaluations(); i++) sum += validation.all_sums[i * pd.stage->n_figures + figure];
  double samples = (double)pd_dataset_samples(pd_evaluation_data);
  return sum / (samples * (double)pd.stage->figures[figure].elements);
}

/* All ranks get the sums, so that no rank runs ahead and figures are logged in order. Each sum has one
 * contributor; all other ranks add zero. */
static void know_means(void) {
  MPI_Request request;
  pd_figures_fold(INT64_MAX);
  MPI_Iallreduce(validation.sums, validation.all_sums, n_sums(), MPI_DOUBLE, MPI_SUM, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to evaluate", -1, NULL, -1);
  for (int i = 0; i < pd.stage->n_figures; i++) validation.means[i] = mean(i);
}

/* Training programs do not trace passes of validation; inference programs trace their passes. */
static void finish_evaluation(void) {
  double end = pd_seconds();
  if (!pd.stage->inference) pd_trace(PD_VALIDATE, pd_updates.done - 1, -1, validation.started, end);
  pd_log_evaluation(validation.means, pd_dataset_samples(pd_evaluation_data), end - validation.started);
}

static void finish_validation(void) {
  int64_t t = pd_updates.done - 1;
  if (!isfinite(pd_model_loss(validation.means))) {
    if (pd.rank) pd_leave_to_others();
    pd_fail("step %lld: the validation loss is non-finite", (long long)(t + 1));
  }
  double end = pd_seconds();
  pd_trace(PD_VALIDATE, t, -1, validation.started, end);
  pd_log_validation(t, validation.means, pd_dataset_samples(pd_evaluation_data), end - validation.started);
  pd_keep_validated(t + 1, pd_model_loss(validation.means));
  pd_clock_pause(pd_seconds() - validation.started);
  pd_stop_if_rule_holds(validation.means);
}

bool pd_evaluation_next(int64_t v) {
  if (v == 1) {
    if (!validation.sums) {
      validation.sums = pd_allocate(sizeof *validation.sums * (size_t)n_sums());
      validation.all_sums = pd_allocate(sizeof *validation.sums * (size_t)n_sums());
      validation.means = pd_allocate(sizeof *validation.means * (size_t)pd.stage->n_figures);
    }
    memset(validation.sums, 0, sizeof *validation.sums * (size_t)n_sums());
    pd_train_catch_up();
    validation.started = pd_seconds();
    pd.training = pd.stage->inference; /* its passes are in the trace */
    pd_read_averages(pd_updates.done, true);
  }
  if (v > 1) pd_sharp_microbatch_ends();
  if (pd_number(v) <= pd_evaluations()) return true;
  if (pd_without_targets || !pd.stage->n_figures) return false;
  know_means();
  pd.training = true;
  pd_read_averages(pd_updates.done, false);
  if (pd_only_evaluates())
    finish_evaluation();
  else
    finish_validation();
  return false;
}

struct evaluation_samples {
  int input;
  int64_t v;
  const float *ready; /* of pd_evaluation_ahead */
};

static void load_evaluation_sample(const void *of, int64_t i, int worker, void *to) {
  const struct evaluation_samples *s = of;
  const struct pd_input *in = &pd.stage->inputs[s->input];
  const size_t elements = (size_t)in->elements;
  if (s->ready)
    memcpy(to, s->ready + (size_t)i * elements, elements * sizeof(float));
  else if (pd_without_targets && !in->predicts)
    memset(to, 0, elements * sizeof(float));
  else
    pd_load_evaluation_sample(s->input, pd_evaluation_sample(s->v, i), worker, to);
}

void pd_evaluation_load(int input, int64_t v, void *to) {
  const struct evaluation_samples s = {input, v, pd_evaluation_ahead(input, v)};
  pd_load_samples(input, to, pd_is_image(&pd.stage->inputs[input]), load_evaluation_sample, &s);
  if (s.ready) pd_tell_broken();
}

static void take_sum(int figure, int64_t v, double sum) {
  char at[64] = "";
  if (!pd_only_evaluates()) snprintf(at, sizeof at, "step %lld: validation: ", (long long)pd_updates.done);
  if (figure < pd.stage->n_losses && !isfinite(sum))
    pd_fail("%sthe loss of microbatch %lld is non-finite; first non-finite tensor: %s", at,
            (long long)pd_number(v), pd_first_non_finite(v, true));
  validation.sums[(pd_number(v) - 1) * pd.stage->n_figures + figure] = sum;
}

void pd_evaluation_figure(int figure, int64_t v, const float *elements, int64_t n) {
  if (pd_without_targets) return;
  int64_t b = pd.stage->microbatch, left = pd_dataset_samples(pd_evaluation_data) - (pd_number(v) - 1) * b;
  pd_add_up(figure, INT64_MAX, v, elements, left < b ? n / b * left : n, take_sum);
}
