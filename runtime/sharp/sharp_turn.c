/* A model in a launch of several models: it works while it has a rank, and reports its remaining work after each
 * unit. A unit is a part of the model with all microbatches of a batch with offload, else a microbatch. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "run/upward.h"
#include "sharp/turn.h"
#include "sharp/sharp_table.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
  struct pd_sharp_table *table; /* NULL: a launch of one model */
  int me;
  int rank;                   /* rank whose processors the threads use; -1: any */
  bool by_parts;              /* units are parts; spill.c reports their ends */
  double busy_at_first;       /* seconds of work before the first update; -1: not begun */
  double busy_at_update;      /* time of the last update's end */
  int64_t updates_at_measure; /* updates done at that time */
} turn = {.rank = -1, .busy_at_first = -1};

/* ---- how much is left -------------------------------------------------------------------------- */

static double planned_seconds(void) {
  const struct pd_stage *s = pd.stage;
  double seconds = 0;
  for (int c = 0; c < s->chunks; c++) seconds += s->forward_seconds[c] + s->backward_seconds[c];
  return seconds * (double)s->microbatches + s->update_seconds;
}

/* The remaining seconds: remaining updates times the mean of past updates, minus the done part of the current one.
 * Before the first update, and with --emulate, by the plan. */
static double remaining_seconds(struct pd_sharp *s, double busy) {
  if (pd_updates.done > turn.updates_at_measure || turn.busy_at_first < 0) {
    if (turn.busy_at_first < 0) turn.busy_at_first = busy;
    turn.busy_at_update = busy;
    turn.updates_at_measure = pd_updates.done;
  }
  int64_t done = turn.updates_at_measure - pd.first_step, to_do = pd.steps - turn.updates_at_measure;
  double planned = planned_seconds();
  if (!done || pd.emulate) return (double)to_do * planned;
  double each = (turn.busy_at_update - turn.busy_at_first) / (double)done;
  double left = (double)to_do * each - (busy - turn.busy_at_update);
  if (planned > 0) pd_sharp_measure(s, turn.me, each / planned);
  return left > 0 ? left : 0;
}

static double busy_until(const struct pd_sharp *s, double now) {
  const struct pd_sharp_model *m = &s->model[turn.me];
  return m->busy + (m->state == PD_SHARP_RUNS ? now - m->since : 0);
}

/* ---- a rank ------------------------------------------------------------------------------------ */

/* Binds all threads of the process to the rank's processors. */
static void move_to(int to) {
  if (turn.rank == to || !turn.table->bound) return;
  turn.rank = to;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *d; tasks && (d = readdir(tasks));)
    if (*d->d_name != '.') sched_setaffinity(atoi(d->d_name), sizeof *turn.table->cores, &turn.table->cores[to]);
  if (tasks) closedir(tasks);
}

/* Calls read_ahead when the model is expected on a rank that still has another model. */
static void await_rank(void (*read_ahead)(void)) {
  double start = pd_seconds();
  for (bool ahead = false;;) {
    struct pd_sharp_model now = pd_sharp_lock(turn.table)->model[turn.me];
    bool expected = pd_sharp_is_expected(&turn.table->s, turn.me);
    pd_sharp_unlock(turn.table);
    if (now.state == PD_SHARP_RUNS) {
      move_to(now.rank);
      break;
    }
    if (expected && !ahead && read_ahead) {
      read_ahead();
      ahead = true;
      continue;
    }
    pd_sharp_await_change(turn.table, turn.me, now.changes);
  }
  double waited = pd_seconds() - start;
  pd_clock_pause(waited);
  if (!pd.training) pd_evaluation_pause(waited);
}

void pd_sharp_enter(void) {
  const char *given = getenv("PD_SHARP");
  if (!given) return;
  turn.me = atoi(given);
  turn.table = pd_sharp_map(PD_SHARP_FD);
  if (!turn.table) pd_fail("cannot map the launch's shared memory: %s", strerror(errno));
  close(PD_SHARP_FD);
  turn.table->result[turn.me].steps = pd.steps;
  pd_sharp_join(pd_sharp_lock(turn.table), turn.me, (double)pd.steps * planned_seconds(), pd_seconds());
  pd_sharp_unlock(turn.table);
  await_rank(NULL);
}

void pd_sharp_in_parts(void) { turn.by_parts = true; }

bool pd_sharp_goes_on_after(void) {
  if (!turn.table) return true;
  double now = pd_seconds();
  struct pd_sharp *s = pd_sharp_lock(turn.table);
  bool goes_on = pd_sharp_look_ahead(s, turn.me, remaining_seconds(s, busy_until(s, now)), now);
  pd_sharp_unlock(turn.table);
  return goes_on;
}

void pd_sharp_part_ends(void (*read_ahead)(void)) {
  if (!turn.table) return;
  double now = pd_seconds();
  struct pd_sharp *s = pd_sharp_lock(turn.table);
  bool goes_on = pd_sharp_end_unit(s, turn.me, remaining_seconds(s, busy_until(s, now)), now);
  pd_sharp_unlock(turn.table);
  if (!goes_on) await_rank(read_ahead);
}

void pd_sharp_microbatch_ends(void) {
  if (!turn.by_parts) pd_sharp_part_ends(NULL);
}

void pd_sharp_tell(int64_t step, bool validation, double loss) {
  if (!turn.table) return;
  struct pd_sharp_result *r = &turn.table->result[turn.me];
  r->step = step;
  r->steps = pd.steps;
  *(validation ? &r->validation_loss : &r->loss) = loss;
}
