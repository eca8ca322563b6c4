/* pdc: a model's description in, one C or CUDA program per pipeline stage out. The whole compiler is the table of
 * passes below; each is one function from one structure to the next. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "allocate/layout.h"
#include "autodiff/autodiff.h"
#include "build/build.h"
#include "cut/cut.h"
#include "elaborate/elaborate.h"
#include "emit/emit.h"
#include "layout/permutes.h"
#include "lower/lower.h"
#include "measure/measure.h"
#include "report/report.h"
#include "simplify/simplify.h"

/* Everything the passes make, in the order they make it. */
typedef struct Compilation {
  Options options;
  Ast *ast;
  Graph *graph;
  Pieces pieces;
  Plan *plan, *runners_up[3];
  StageKernels **kernels; /* by stage, here and below */
  LoweredStage **lowered;
  Program *programs;
  Layout **layouts;
  char **sources;
  char *plan_json;
} Compilation;

enum { N_RUNNERS_UP = 3 };

/* ---- the peak memory of a planned stage, which the planner asks for -------------------------- */

typedef struct Fused {
  int first_piece, end_piece, stage, n_stages;
  Target target;
  int64_t microbatch;
  bool recompute, split;
  StageKernels *kernels;
} Fused;

/* fuse(), memoised: plans share most of their stages. */
static StageKernels *fuse_part(const Compilation *c, const Plan *plan, int stage, bool split) {
  static Vec(Fused) known;
  const StagePlan *s = &plan->stage[stage];
  int n_stages = plan_parts(plan);
  bool recompute = plan_recomputes(plan, stage);
  for (int i = 0; i < known.n; i++) {
    const Fused *f = &known.at[i];
    if (f->first_piece == s->first_piece && f->end_piece == s->end_piece && f->stage == stage &&
        f->n_stages == n_stages && f->target.threads == plan->target.threads &&
        f->microbatch == plan->pipeline.microbatch &&
        f->recompute == recompute && f->split == split)
      return f->kernels;
  }
  StageKernels *k = fuse(c->graph, &c->pieces, s->first_piece, s->end_piece, stage, n_stages,
                         plan->pipeline.microbatch, recompute, split, plan->target);
  push(&known, (Fused){s->first_piece, s->end_piece, stage, n_stages, plan->target,
                       plan->pipeline.microbatch, recompute, split, k});
  return k;
}

/* What a rank runs: one part of the model, or its chunks. */
static StageKernels *fuse_stage(const Compilation *c, const Plan *plan, const Program *programs, int stage) {
  StageKernels *chunk[MAX_CHUNKS];
  for (int i = 0; i < plan->pipeline.chunks; i++)
    chunk[i] = fuse_part(c, plan, plan_part_of(plan, stage, i), programs[stage].split_backward);
  return join_chunks(chunk, plan->pipeline.chunks);
}

static Program *schedule_plan(const Compilation *c, const Plan *plan) {
  return schedule(&plan->pipeline, plan_exchanges(c->graph, &c->pieces, plan), c->graph->train.pipeline_span);
}

static int64_t stage_peak(void *context, const Plan *plan, int stage) {
  const Compilation *c = context;
  Program *programs = schedule_plan(c, plan);
  if (!programs)
    return INT64_MAX;
  return allocate(lower(fuse_stage(c, plan, programs, stage)), &programs[stage], &c->graph->train)->bytes;
}

/* ---- the passes: false after diagnostics ----------------------------------------------------- */

static bool run_parse(Compilation *c) {
  c->ast = parse_file(c->options.input);
  return c->ast != NULL;
}

static bool run_elaborate(Compilation *c) {
  const Options *o = &c->options;
  ElaborateOptions options = {o->include.at, o->include.n, o->define.at, o->define.n};
  c->graph = elaborate(c->ast, &options);
  return c->graph != NULL;
}

static bool run_layout(Compilation *c) {
  move_permutes(c->graph);
  return true;
}

static bool run_autodiff(Compilation *c) {
  autodiff(c->graph);
  return true;
}

static bool run_simplify(Compilation *c) {
  simplify(c->graph);
  return true;
}

static bool run_cut(Compilation *c) {
  c->pieces = cut(c->graph);
  return true;
}

static bool run_plan(Compilation *c) {
  PlanRequest *request = &c->options.plan;
  request->arch = c->options.arch;
  request->peak = stage_peak;
  request->peak_context = c;
  if (request->profile && !(request->compiler = cc_version(&c->options)))
    return false;
  int wanted = c->options.command == COMMAND_PLAN ? N_RUNNERS_UP : 0;
  c->plan = plan_make(c->graph, &c->pieces, request, c->runners_up, wanted);
  return c->plan != NULL;
}

static bool make_kernels(Compilation *c) {
  const Program *programs = schedule_plan(c, c->plan); /* which say what kernels are for */
  if (!programs)
    return false;
  c->kernels = alloc((size_t)c->plan->pipeline.n_stages * sizeof *c->kernels);
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    c->kernels[i] = fuse_stage(c, c->plan, programs, i);
  return true;
}

static bool run_lower(Compilation *c) {
  c->lowered = alloc((size_t)c->plan->pipeline.n_stages * sizeof *c->lowered);
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    c->lowered[i] = lower(c->kernels[i]);
  return true;
}

static bool make_schedule(Compilation *c) {
  c->programs = schedule_plan(c, c->plan);
  return c->programs != NULL;
}

static bool run_allocate(Compilation *c) {
  c->layouts = alloc((size_t)c->plan->pipeline.n_stages * sizeof *c->layouts);
  for (int i = 0; i < c->plan->pipeline.n_stages; i++) {
    c->layouts[i] = allocate(c->lowered[i], &c->programs[i], &c->graph->train);
    for (int part = i; part < plan_parts(c->plan); part += c->plan->pipeline.n_stages)
      c->plan->stage[part].peak_bytes = c->layouts[i]->bytes;
  }
  c->plan_json = plan_json(c->graph, &c->pieces, c->plan);
  return true;
}

/* All stages hold one hash, of the plan and of all their programs, and compare it when they start. It takes
 * the place of a mark, which the hashed texts still have. */
static bool run_emit(Compilation *c) {
  static const char mark[] = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@";
  Text all = {0};
  text_add(&all, "%s", c->plan_json);
  c->sources = alloc((size_t)c->plan->pipeline.n_stages * sizeof *c->sources);
  for (int i = 0; i < c->plan->pipeline.n_stages; i++) {
    c->sources[i] =
        emit_stage(c->graph, &c->pieces, c->plan, c->lowered[i], &c->programs[i], c->layouts[i], mark);
    text_add(&all, "%s", c->sources[i]);
  }
  const char *hash = sha256_hex(all.at, strlen(all.at));
  for (int i = 0; i < c->plan->pipeline.n_stages; i++) memcpy(strstr(c->sources[i], mark), hash, strlen(hash));
  return true;
}

static bool run_build(Compilation *c) {
  const Options *o = &c->options;
  int n = c->plan->pipeline.n_stages, *replicas = alloc((size_t)n * sizeof *replicas);
  for (int i = 0; i < n; i++)
    replicas[i] = c->programs[i].replicas;
  Output out = {output_directory(o), base_name(o->input), backend_of(c->plan->target.kind)->toolchain, n, replicas,
                c->sources, c->plan_json};
  if (!o->dry_run && !output_write(o, &out))
    return false;
  return o->sources_only || cc_stages(o, &out);
}

/* ---- dumps and checks ------------------------------------------------------------------------ */

static void dump_ast(Compilation *c, FILE *out) { ast_print(c->ast, out); }
static void dump_graph(Compilation *c, FILE *out) { graph_dump(c->graph, out); }
static void dump_pieces(Compilation *c, FILE *out) { pieces_dump(c->graph, &c->pieces, out); }
static void dump_plan(Compilation *c, FILE *out) { fputs(plan_json(c->graph, &c->pieces, c->plan), out); }

static void dump_kernels(Compilation *c, FILE *out) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    kernels_dump(c->kernels[i], out);
}

static void dump_lowered(Compilation *c, FILE *out) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    lowered_dump(c->lowered[i], out);
}

static void dump_programs(Compilation *c, FILE *out) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    program_dump(&c->programs[i], out);
}

static void dump_layouts(Compilation *c, FILE *out) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    layout_dump(c->kernels[i], c->layouts[i], out);
}

static void dump_sources(Compilation *c, FILE *out) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    fputs(c->sources[i], out);
}

static void verify_graph(Compilation *c) { graph_verify(c->graph); }
static void verify_pieces(Compilation *c) { pieces_verify(c->graph, &c->pieces); }
static void verify_plan(Compilation *c) { plan_verify(c->graph, &c->pieces, c->plan); }

static void verify_kernels(Compilation *c) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    kernels_verify(c->kernels[i]);
}

static void verify_lowered(Compilation *c) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    lowered_verify(c->lowered[i]);
}

/* Enough batches for every stage to come to its steady state and every version to be replaced. */
static int64_t batches_to_verify(const Compilation *c) {
  enum { BATCHES = 4 };
  int64_t more = 0;
  for (int i = 0; i < c->plan->pipeline.n_stages; i++) {
    const Program *p = &c->programs[i];
    int64_t held = p->delay + ((p->in_flight + p->lag) * p->replicas - 1) / p->period;
    more = held > more ? held : more;
  }
  return BATCHES + more;
}

static void verify_programs(Compilation *c) {
  char *why;
  if (!verify_schedule(c->programs, c->plan->pipeline.n_stages, batches_to_verify(c), &why))
    BUG("schedule '%s': %s", c->plan->pipeline.schedule, why);
}

static void verify_layouts(Compilation *c) {
  for (int i = 0; i < c->plan->pipeline.n_stages; i++)
    layout_verify(c->kernels[i], &c->programs[i], c->layouts[i]);
}

/* ---- the table of passes --------------------------------------------------------------------- */

static const struct Pass {
  char letter; /* of -d */
  const char *name;
  bool (*run)(Compilation *c);
  void (*dump)(Compilation *c, FILE *out);
  void (*verify)(Compilation *c);
  bool always; /* verified on every compilation, not only with --verify-each */
  EmitWhat emits; /* what --emit prints after it */
} passes[] = {
  {'p', "parse", run_parse, dump_ast, NULL, false, EMIT_AST},
  {'e', "elaborate", run_elaborate, dump_graph, verify_graph, false, EMIT_NOTHING},
  {'y', "layout", run_layout, dump_graph, verify_graph, false, EMIT_NOTHING},
  {'a', "autodiff", run_autodiff, dump_graph, verify_graph, false, EMIT_NOTHING},
  {'s', "simplify", run_simplify, dump_graph, verify_graph, false, EMIT_GRAPH},
  {'c', "cut", run_cut, dump_pieces, verify_pieces, false, EMIT_NOTHING},
  {'l', "plan", run_plan, dump_plan, verify_plan, true, EMIT_PLAN},
  {'f', "fuse", make_kernels, dump_kernels, verify_kernels, false, EMIT_KERNELS},
  {'w', "lower", run_lower, dump_lowered, verify_lowered, false, EMIT_NOTHING},
  {'t', "schedule", make_schedule, dump_programs, verify_programs, true, EMIT_SCHEDULE},
  {'m', "allocate", run_allocate, dump_layouts, verify_layouts, true, EMIT_NOTHING},
  {'o', "emit", run_emit, dump_sources, NULL, false, EMIT_SOURCE},
  {'b', "build", run_build, NULL, NULL, false, EMIT_NOTHING},
};
enum { N_PASSES = sizeof passes / sizeof *passes };

static double seconds_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct Pass *find_pass(const char *name) {
  for (int i = 0; i < N_PASSES; i++)
    if (!strcmp(passes[i].name, name))
      return &passes[i];
  return NULL;
}

static bool run_pass(Compilation *c, const struct Pass *p) {
  const Options *o = &c->options;
  double start = seconds_now();
  bool good = p->run(c);
  if (good && p->verify && (p->always || o->verify_each))
    p->verify(c);
  if (o->time_passes)
    fprintf(stderr, "%-10s %8.3f ms\n", p->name, 1e3 * (seconds_now() - start));
  if (good && p->dump && o->dump && strchr(o->dump, p->letter))
    p->dump(c, stderr);
  return good && error_count() == 0;
}

/* --emit: the dump of the pass that makes it; a schedule as a picture. */
static void print_emitted(Compilation *c, const struct Pass *p) {
  int n = c->plan ? c->plan->pipeline.n_stages : 0;
  switch (c->options.emit) {
  case EMIT_SCHEDULE: schedule_text(c->programs, n, stdout); break;
  case EMIT_SCHEDULE_SVG:
    schedule_svg(format("%s on %d stages", c->plan->pipeline.schedule, n), c->programs, n, stdout);
    break;
  default: p->dump(c, stdout);
  }
}

/* Runs the passes up to and including `last`; false after diagnostics. */
static bool run_passes(Compilation *c, const char *last) {
  const Options *o = &c->options;
  for (int i = 0; i < N_PASSES; i++) {
    const struct Pass *p = &passes[i];
    if (!run_pass(c, p))
      return false;
    bool emits = o->emit != EMIT_NOTHING && p->emits == (o->emit == EMIT_SCHEDULE_SVG ? EMIT_SCHEDULE : o->emit);
    if (emits)
      print_emitted(c, p);
    if (emits || !strcmp(p->name, last) || (o->stop_after && !strcmp(p->name, o->stop_after)))
      return true;
  }
  return true;
}

/* ---- commands -------------------------------------------------------------------------------- */

static char *run_profile_program(void *context, const char *text) {
  const Compilation *c = context;
  return cc_run(&c->options, text);
}

/* -S: only the program that would measure. */
static bool write_profile_program(Compilation *c) {
  const Options *o = &c->options;
  const char *path = o->output ? o->output : format("%s.profile.%s", base_name(o->input), toolchain_of(o)->suffix);
  char *text = profile_program(c->graph, &c->pieces, &o->plan);
  if (!text)
    return false;
  if (write_file(path, text, strlen(text)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

static bool profile(Compilation *c) {
  const Options *o = &c->options;
  PlanRequest *request = &c->options.plan;
  request->arch = o->arch;
  if (!run_passes(c, "cut"))
    return false;
  if (o->sources_only)
    return write_profile_program(c);
  if (!(request->compiler = cc_version(o)))
    return false;
  const char *path = o->output ? o->output : format("%s.profile.json", base_name(o->input));
  return profile_make(c->graph, &c->pieces, request, path, run_profile_program, c);
}

static bool print_plans(Compilation *c) {
  if (!run_passes(c, "allocate"))
    return false;
  if (c->options.emit != EMIT_NOTHING || c->options.stop_after)
    return true;
  plan_table(c->graph, &c->pieces, c->plan, stdout);
  for (int i = 0; i < N_RUNNERS_UP; i++)
    if (c->runners_up[i])
      plan_runner_up(&c->pieces, c->plan, c->runners_up[i], stdout);
  return true;
}

static bool explain_code(const Options *o) {
  if (explain(o->input, stdout))
    return true;
  error_at(NO_SPAN, "PD0608", "there is no diagnostic '%s'", o->input);
  return false;
}

static bool run_command(Compilation *c) {
  const Options *o = &c->options;
  switch (o->command) {
  case COMMAND_EXPLAIN: return explain_code(o);
  case COMMAND_REPORT: return report(o->input, o->output);
  case COMMAND_PROFILE: return profile(c);
  case COMMAND_PLAN: return print_plans(c);
  case COMMAND_BUILD: break;
  }
  return run_passes(c, o->syntax_only ? "elaborate" : "build");
}

int main(int argc, char **argv) {
  static Compilation c;
  options_read(&c.options, argc, argv);
  const Options *o = &c.options;
  if (o->stop_after && !find_pass(o->stop_after)) {
    fprintf(stderr, "pdc: error: --stop-after: there is no pass '%s'\n", o->stop_after);
    return 2;
  }
  bool good = error_count() == 0 && run_command(&c);
  diagnostics_flush();
  if (fflush(stdout) != 0 || ferror(stdout)) {
    fprintf(stderr, "pdc: error: cannot write to standard output: %s\n", strerror(errno));
    return 1;
  }
  return good && error_count() == 0 ? 0 : 1;
}
