/* --stop-when: after each validation all ranks evaluate the same rule over the same numbers. If the rule holds,
 * they agree on the last update: this one or, in a pipeline, the last update whose batch or messages any rank has
 * begun. */
#include "messages/messages.h"
#include "train/train.h"
#include "update/update.h"
#include "train/rule.h"

#include <stdio.h>
#include <string.h>

enum { OWN = 5, MOST = 64 };

static struct {
  struct pd_named_number numbers[MOST];
  char names[MOST][64];
  int n_numbers;
  bool stopped;
} stopping = {
    .numbers = {{"step", 0}, {"validation_loss", 0}, {"best", 0}, {"since_best", 0}, {"validations", 0}}};

bool pd_stopped_by_rule(void) { return stopping.stopped; }

/* Names the numbers of metrics "validation_METRIC", after the numbers of every model. */
static void name_numbers(void) {
  const struct pd_stage *s = pd.stage;
  stopping.n_numbers = OWN;
  for (int i = s->n_losses; i < s->n_figures && stopping.n_numbers < MOST; i++, stopping.n_numbers++) {
    snprintf(stopping.names[stopping.n_numbers], sizeof *stopping.names, "validation_%s", s->figures[i].metric);
    stopping.numbers[stopping.n_numbers].name = stopping.names[stopping.n_numbers];
  }
}

bool pd_stop_check(char *why) {
  bool holds;
  if (!pd_options.stop_when) return true;
  name_numbers();
  if (pd_rule(pd_options.stop_when, stopping.numbers, stopping.n_numbers, &holds, why)) return true;
  char text[PD_WHY];
  int n = snprintf(text, sizeof text, "--stop-when: %s; numbers are", why);
  for (int i = 0; i < stopping.n_numbers && n < (int)sizeof text; i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s %s", i ? "," : "", stopping.numbers[i].name);
  *why = 0;
  return pd_refuse(why, "%s", text);
}

static void take_figures(const double *mean) {
  const struct pd_stage *s = pd.stage;
  double loss = pd_model_loss(mean);
  bool best = !stopping.numbers[4].value || loss < stopping.numbers[2].value;
  stopping.numbers[0].value = (double)pd_updates.done;
  stopping.numbers[1].value = loss;
  if (best) stopping.numbers[2].value = loss;
  stopping.numbers[3].value = best ? 0 : stopping.numbers[3].value + 1;
  stopping.numbers[4].value++;
  for (int i = OWN; i < stopping.n_numbers; i++)
    stopping.numbers[i].value = pd_metric_value(s->n_losses + i - OWN, mean);
}

void pd_stop_if_rule_holds(const double *mean) {
  bool holds;
  if (!pd_options.stop_when || stopping.stopped) return;
  take_figures(mean);
  if (!pd_rule(pd_options.stop_when, stopping.numbers, stopping.n_numbers, &holds, NULL) || !holds) return;
  int64_t mine = pd_updates_begun(), last = mine;
  MPI_Request request;
  MPI_Iallreduce(&mine, &last, 1, MPI_INT64_T, MPI_MAX, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to agree on where to stop", -1, NULL, -1);
  if (last >= pd.steps) return;
  stopping.stopped = true;
  pd.steps = last;
  pd_note("step %lld: %s: stopping after update %lld", (long long)pd_updates.done, pd_options.stop_when,
          (long long)pd.steps);
  if (pd.steps == pd_updates.done) pd_checkpoint_last();
}
