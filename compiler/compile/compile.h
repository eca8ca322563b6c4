/* One compilation: the results of the passes in main.c's table, the passes themselves, and the commands that run
 * them. */
#ifndef PDC_COMPILE_H
#define PDC_COMPILE_H

#include "build/build.h"
#include "front/front.h"
#include "graph/identity.h"
#include "show/show.h"
#include "stage/stages.h"

typedef struct Compilation Compilation;

/* A row of the table. The functions of a pass read results of earlier rows. */
typedef struct Pass {
  char letter; /* of -d */
  const char *name;
  bool (*run)(Compilation *c); /* false after diagnostics */
  void (*dump)(Compilation *c, FILE *out);
  void (*verify)(Compilation *c);
  bool always;    /* verified on every compilation, not only with --verify-each */
  EmitWhat emits; /* output that --emit prints after the pass */
} Pass;

typedef struct Passes {
  const Pass *at;
  int n;
} Passes;

enum { N_RUNNERS_UP = 3 };

/* The results of the passes, in pass order. */
struct Compilation {
  Passes passes;
  Options options;
  TensorDivision division; /* the decision about --tensor */
  PlanRequest request;     /* options.plan, completed by passes; under a division its ranks are shard groups */
  FrontModel model;        /* as read by a front end */
  Graph *graph;
  Identity *identity; /* identity and outline: of the graph as elaborated */
  Outline outline;    /* of the model view */
  Pieces pieces;
  Stages *stages; /* shared by plan, fuse, lower, schedule and allocate */
  PlanWatch planned;
  Plan *plan, *runners_up[N_RUNNERS_UP];
  StageKernels **kernels; /* by stage, as are the next four fields */
  LoweredStage **lowered;
  Program *programs;
  Allocation **allocations;
  char **sources;
  ModelLibrary library; /* of pdc library */
  char *plan_json;
  TensorDegrees degrees; /* degrees that --tensor auto tried */
};

static inline int n_stages(const Compilation *c) { return c->plan->pipeline.n_stages; }

/* ---- compile.c ------------------------------------------------------------------------------- */

const Pass *find_pass(const Passes *passes, const char *name); /* NULL: unknown name */
/* Gives the compilation what it starts with; `auto` of --tensor becomes 0 until choose_degree(). */
void compilation_start(Compilation *c, const Passes *passes, const Options *options);
/* Runs the passes up to and including `last`; false after diagnostics. */
bool compile(Compilation *c, const char *last);

/* ---- passes.c, build.c: the passes ----------------------------------------------------------- */

bool pass_parse(Compilation *c);
bool pass_elaborate(Compilation *c);
bool pass_decode(Compilation *c);
bool pass_layout(Compilation *c);
bool pass_autodiff(Compilation *c);
bool pass_simplify(Compilation *c);
bool pass_tensor(Compilation *c);
bool pass_residual(Compilation *c);
bool pass_biases(Compilation *c);
bool pass_cut(Compilation *c);
bool pass_plan(Compilation *c);
bool pass_fuse(Compilation *c);
bool pass_lower(Compilation *c);
bool pass_schedule(Compilation *c);
bool pass_allocate(Compilation *c);
bool pass_emit(Compilation *c);
bool pass_build(Compilation *c);

/* Completes the request with facts of this machine and of the pieces. */
void prepare_request(Compilation *c);
/* Plans the graph under its division; false after diagnostics. */
bool plan_divided(Compilation *c);
/* Sets the peaks of the chosen plan, equal to those of pass_allocate. */
bool exact_peaks(Compilation *c);

/* ---- inspect.c: dumps and checks ------------------------------------------------------------- */

void dump_ast(Compilation *c, FILE *out);
void dump_graph(Compilation *c, FILE *out);
void dump_pieces(Compilation *c, FILE *out);
void dump_plan(Compilation *c, FILE *out);
void dump_kernels(Compilation *c, FILE *out);
void dump_lowered(Compilation *c, FILE *out);
void dump_programs(Compilation *c, FILE *out);
void dump_allocations(Compilation *c, FILE *out);
void dump_sources(Compilation *c, FILE *out);

void verify_graph(Compilation *c);
void verify_pieces(Compilation *c);
void verify_plan(Compilation *c);
void verify_kernels(Compilation *c);
void verify_lowered(Compilation *c);
void verify_programs(Compilation *c);
void verify_allocations(Compilation *c);

enum { TABLE_DEPTH = 2, PICTURE_DEPTH = 1 };
/* The model and its plan, if it has one, as text or picture. */
Show what_to_show(Compilation *c, int depth);

/* ---- division.c: --tensor -------------------------------------------------------------------- */

/* Replaces `auto` by a degree. If no degree has a plan, the passes report the diagnostics of degree 1. */
bool choose_degree(Compilation *c);
/* Compiles again with activations split by positions. If the plan is better, the new results replace those of `c`.
 * Of both compilations, the diagnostics of the plan that stays are reported; those of `c` are since the mark. */
void spread_if_better(Compilation *c, int mark);

/* ---- commands.c: false after diagnostics ------------------------------------------------------ */

bool build_command(Compilation *c);
bool plan_command(Compilation *c);
bool profile_command(Compilation *c);
bool show_command(Compilation *c);

#endif
