/* Runs the passes of the table, and prints their results. */
#include "compile/compile.h"

#include <string.h>

#include "tensor/tensor.h"

const Pass *find_pass(const Passes *passes, const char *name) {
  for (int i = 0; i < passes->n; i++)
    if (!strcmp(passes->at[i].name, name))
      return &passes->at[i];
  return NULL;
}

/* Prints a pass's line of --time-passes and the planner's time by phase. `before`: stage timings before the
 * pass. */
static void print_times(const Compilation *c, const Pass *p, double seconds, const StagesWatch *before) {
  fprintf(stderr, "%-10s %8.3f ms", p->name, 1e3 * seconds);
  StagesWatch now = c->stages ? stages_watch(c->stages) : (StagesWatch){0};
  if (p->run == pass_fuse)
    watch_print_runs(stderr, now.fuse.runs - before->fuse.runs, "part", now.fuse.cached - before->fuse.cached);
  fprintf(stderr, "\n");
  if (p->run != pass_plan)
    return;
  Watch schedule = {.runs = now.schedule.runs + c->planned.schedule.runs,
                    .seconds = now.schedule.seconds + c->planned.schedule.seconds};
  watch_print(stderr, "sign", now.sign, "rank");
  watch_print(stderr, "fuse", now.fuse, "part");
  watch_print(stderr, "lower", now.lower, "stage");
  watch_print(stderr, "schedule", schedule, "plan");
  watch_print(stderr, "simulate", c->planned.simulate, "plan");
  watch_print(stderr, "allocate", now.allocate, "stage");
}

static bool run_pass(Compilation *c, const Pass *p) {
  const Options *o = &c->options;
  double start = seconds_now();
  StagesWatch before = c->stages ? stages_watch(c->stages) : (StagesWatch){0};
  bool good = p->run(c);
  if (good && p->verify && (p->always || o->verify_each))
    p->verify(c);
  if (o->time_passes)
    print_times(c, p, seconds_now() - start, &before);
  if (good && p->dump && o->dump && strchr(o->dump, p->letter))
    p->dump(c, stderr);
  return good && error_count() == 0;
}

/* --emit: prints the pass's dump; a schedule is drawn. */
static void print_emitted(Compilation *c, const Pass *p) {
  int n = c->plan ? n_stages(c) : 0;
  switch (c->options.emit) {
  case EMIT_SHARDING: sharding_print(c->graph, stdout); break;
  case EMIT_SCHEDULE: schedule_text(c->programs, n, stdout); break;
  case EMIT_SCHEDULE_SVG:
    schedule_svg(format("%s on %d stages", c->plan->pipeline.schedule, n), c->programs, n, stdout);
    break;
  default: p->dump(c, stdout);
  }
}

/* Whether --emit prints the result of this pass. The ranks' common settings come with the plan, even if it lacks
 * memory. */
static bool is_emitted(const Compilation *c, const Pass *p) {
  switch (c->options.emit) {
  case EMIT_NOTHING: return false;
  case EMIT_SHARDING: return p->run == (c->graph && c->graph->shards ? pass_plan : pass_tensor);
  case EMIT_SCHEDULE_SVG: return p->emits == EMIT_SCHEDULE;
  default: return p->emits == c->options.emit;
  }
}

void compilation_start(Compilation *c, const Passes *passes, const Options *options) {
  *c = (Compilation){.passes = *passes, .options = *options, .request = options->plan};
  c->division.degree = options->plan.tensor == TENSOR_AUTO ? 0 : options->plan.tensor;
}

bool compile(Compilation *c, const char *last) {
  const Options *o = &c->options;
  for (int i = 0; i < c->passes.n; i++) {
    const Pass *p = &c->passes.at[i];
    if (!run_pass(c, p))
      return false;
    bool emits = is_emitted(c, p);
    if (emits)
      print_emitted(c, p);
    if (emits || !strcmp(p->name, last) || (o->stop_after && !strcmp(p->name, o->stop_after)))
      return true;
  }
  return true;
}
