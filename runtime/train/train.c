/* A stage program's calls for an update: figures per microbatch, the gradient scale, the log line, validation and
 * checkpoint. Communication between ranks is in exchange.c. */
#include "update/clip.h"
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "train/train.h"
#include "update/update.h"
#include "watch/watch.h"
#include "transfer.h"

#include <math.h>
#include <stdio.h>

static struct {
  int under_way;   /* largest number of updates that wait for their log line */
  double *seconds; /* seconds of update t on this rank: [t % under_way] */
  double *means;   /* by figure, of the update being logged */
  double clock_start;
  int64_t checkpoint_at; /* the last one's updates */
} training = {.checkpoint_at = -1};

void pd_train_start(void) {
  training.under_way = pd_exchange_start();
  pd_audit_start();
  pd_audit_take(pd.first_step);
  training.seconds = pd_allocate(sizeof *training.seconds * (size_t)training.under_way);
  training.means = pd_allocate(sizeof *training.means * (size_t)pd.stage->n_figures);
  training.clock_start = pd_seconds();
}

void pd_clock_pause(double paused) { training.clock_start += paused; }

/* ---- losses and metrics ---------------------------------------------------------------------- */

static bool all_finite(const void *at, int64_t n, bool bf16) {
  return pd_first_not_finite(pd_view(at, n, bf16), n) < 0;
}

const char *pd_first_non_finite(int64_t k, bool evaluation) {
  static char text[512];
  const struct pd_stage *s = pd.stage;
  for (int i = 0; i < s->n_inputs; i++) {
    int64_t row = pd_first_bad_row(i, k, evaluation);
    if (row < 0) continue;
    snprintf(text, sizeof text, "input '%s', row %lld of its file", s->inputs[i].name, (long long)row);
    return text;
  }
  for (int v = 0; v < s->versions; v++)
    for (int i = 0; i < s->n_parameters; i++) {
      const struct pd_parameter *p = &s->parameters[i];
      if (all_finite(pd_weights_at(p, v), p->elements, p->bf16)) continue;
      snprintf(text, sizeof text, "parameter '%s'", p->name);
      return text;
    }
  for (int i = 0; i < s->n_tensors; i++) {
    const struct pd_tensor *x = &s->tensors[i];
    const char *at = pd.arena + x->offset + (size_t)(k % (x->slots ? x->slots : 1)) * x->stride;
    if (x->rewritten || all_finite(at, x->elements, x->bf16)) continue;
    snprintf(text, sizeof text, "'%s'", x->name);
    return text;
  }
  return "the loss itself";
}

static int64_t batch_of(int64_t k) { return (k - 1) / pd_own_microbatches(); }

/* Waits until the figures of all updates before `end` have arrived. */
static void await_figures(int64_t end) {
  for (int64_t t = pd_updates.logged; t < end; t++) pd_exchange_await(t, true);
  pd_log_known();
}

/* An earlier non-finite gradient is the cause to report. This batch's update may already be in the device's queue,
 * but is known only with all losses of the batch. */
static void take_sum(int figure, int64_t k, double sum) {
  if (!isfinite(sum) && figure < pd.stage->n_losses) {
    await_figures(batch_of(k) < pd_updates.done ? batch_of(k) : pd_updates.done);
    pd_fail("step %lld: the loss of microbatch %lld is non-finite; first non-finite tensor: %s",
            (long long)(batch_of(k) + 1), (long long)pd_number(k), pd_first_non_finite(k, false));
  }
  pd_add_figure(figure, batch_of(k), (k - 1) % pd_own_microbatches() == 0, sum);
}

void pd_figure(int figure, int64_t k, const float *elements, int64_t n) {
  if (!pd_twice_takes(figure, elements, n)) pd_add_up(figure, batch_of(k), k, elements, n, take_sum);
}

void pd_log_known(void) {
  const struct pd_stage *s = pd.stage;
  for (int64_t t; (t = pd_updates.logged) < pd_updates.done && pd_exchange_known(t); pd_exchange_forget(t)) {
    for (int i = 0; i < s->n_figures; i++)
      training.means[i] = pd_figure_sum(i, t) / ((double)s->batch * (double)s->figures[i].elements);
    pd_log_update(t, training.means, pd_gradient_norm(t), pd_learning_rate(s, t),
                  training.seconds[t % training.under_way]);
  }
}

/* ---- updates --------------------------------------------------------------------------------- */

double pd_loss_elements(void) { return (double)pd.stage->batch * (double)pd.stage->figures[0].elements; }

float pd_gradient_scale(int64_t t) {
  const struct pd_stage *s = pd.stage;
  const bool clips = s->clip_norm > 0 && !pd_sums_clip();
  pd_exchange(t);
  pd_exchange_await(t, clips);
  pd_audit_verify(t);
  return clips ? pd_clipped_scale(pd_gradient_norm(t), pd_loss_elements(), s->clip_norm)
               : (float)(1 / pd_loss_elements());
}

/* After every `every` updates and after the last; every 0: after the last only. */
static bool is_due(int64_t t, int64_t every) { return t + 1 == pd.steps || (every && (t + 1) % every == 0); }

/* A stop by a signal adds no validation. */
static bool is_validated(int64_t t) {
  return pd_evaluation_data && is_due(t, pd_options.validate_every) &&
         (!pd_stopped_by() || (pd_options.validate_every && (t + 1) % pd_options.validate_every == 0));
}

static void write_checkpoint(void) {
  double now = pd_seconds();
  pd_train_catch_up(); /* no checkpoint after a non-finite gradient */
  training.checkpoint_at = pd_updates.done;
  pd_checkpoint_write(training.checkpoint_at);
  double end = pd_seconds();
  pd_trace(PD_CHECKPOINT, training.checkpoint_at - 1, -1, now, end);
  pd_clock_pause(end - now);
}

void pd_checkpoint_last(void) {
  if (pd_options.checkpoint && training.checkpoint_at != pd_updates.done) write_checkpoint();
}

bool pd_updated(int64_t t) {
  double now = pd_seconds();
  training.seconds[t % training.under_way] = now - training.clock_start;
  training.clock_start = now;
  pd_updates.done = t + 1;
  pd_audit_take(t + 1);
  pd_memory_sample();
  pd_exchange_progress();
  pd_log_known();
  pd_checkpoint_progress();
  bool asked = pd_signals_at_update(t);
  if (pd_options.checkpoint && (asked || is_due(t, pd_options.checkpoint_every))) write_checkpoint();
  return is_validated(t);
}

void pd_train_catch_up(void) {
  pd_await_weights(pd_updates.done);
  await_figures(pd_updates.done);
}
