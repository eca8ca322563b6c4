/* What a schedule takes, and how it looks: both from running it. */
#include "schedule/program.h"

#include <string.h>

typedef struct Updates {
  int64_t from, to;    /* batches whose updates are timed, at stage 0 */
  double from_time, to_time;
} Updates;

static void time_update(void *context, const Event *e) {
  Updates *u = context;
  if (e->stage != 0 || e->step.action != DO_UPDATE)
    return;
  if (e->step.number == u->from)
    u->from_time = e->end;
  if (e->step.number == u->to)
    u->to_time = e->end;
}

/* The pipeline is full after 2 n_0 microbatches and starts to empty n_0 before the end. */
double simulate_schedule(const Program *programs, const StageTimes *times, int n_stages) {
  enum { TIMED = 4 };
  int64_t filled = 2 + 2 * programs->in_flight / programs->period;
  Updates u = {.from = filled, .to = filled + TIMED};
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, u.to + filled, time_update, &u, &why))
    BUG("schedule: %s", why);
  return (u.to_time - u.from_time) / TIMED;
}

typedef struct Diagram {
  const Program *programs;
  int n_stages, rows, room;
  char **cell; /* [row * n_stages + stage]; NULL: idle */
} Diagram;

static char **cell_at(Diagram *d, int row, int stage) {
  while (row >= d->room) {
    int room = d->room ? 2 * d->room : 64;
    char **cell = alloc((size_t)room * (size_t)d->n_stages * sizeof *cell);
    if (d->room)
      memcpy(cell, d->cell, (size_t)d->room * (size_t)d->n_stages * sizeof *cell);
    d->cell = cell;
    d->room = room;
  }
  if (row >= d->rows)
    d->rows = row + 1;
  return &d->cell[row * d->n_stages + stage];
}

/* A unit of time is a forward, a backward or a recomputation; an update stands beside the backward before it. */
static void draw(void *context, const Event *e) {
  Diagram *d = context;
  int stage = e->stage;
  double start = e->start, end = e->end;
  long long k = (long long)e->step.number, version = (long long)e->version;
  switch (e->step.action) {
  case DO_FORWARD: *cell_at(d, (int)start, stage) = format("F%lld.%lld", k, version); break;
  case DO_RECOMPUTE: *cell_at(d, (int)start, stage) = format("R%lld.%lld", k, version); break;
  case DO_BACKWARD: *cell_at(d, (int)start, stage) = format("B%lld.%lld", k, version); break;
  case DO_UPDATE: {
    char **cell = cell_at(d, end > 0 ? (int)end - 1 : 0, stage);
    *cell = *cell ? format("%s W%lld", *cell, k + 1) : format("W%lld", k + 1);
    break;
  }
  default: break;
  }
}

void schedule_table(const Program *programs, int n_stages, int64_t batches, FILE *out) {
  Diagram d = {.programs = programs, .n_stages = n_stages};
  StageTimes *times = alloc((size_t)n_stages * sizeof *times);
  for (int i = 0; i < n_stages; i++)
    times[i] = (StageTimes){.forward = 1, .backward = 1, .recompute = 1};
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, batches, draw, &d, &why))
    BUG("schedule: %s", why);
  fprintf(out, "# F forward, R recomputation, B backward: microbatch.version of the weights; W: that version is made\n");
  fprintf(out, "%5s", "time");
  for (int i = 0; i < n_stages; i++)
    fprintf(out, i + 1 < n_stages ? "  stage %-8d" : "  stage %d\n", i);
  for (int row = 0; row < d.rows; row++) {
    int last = n_stages - 1;
    while (last >= 0 && !*cell_at(&d, row, last))
      last--;
    fprintf(out, "%5d", row);
    for (int i = 0; i <= last; i++) {
      const char *text = *cell_at(&d, row, i);
      fprintf(out, i < last ? "  %-14s" : "  %s", text ? text : "");
    }
    fputc('\n', out);
  }
}
