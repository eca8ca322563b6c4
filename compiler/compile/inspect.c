/* Dumps (-d, --emit) and checks (--verify-each) of the results of passes. */
#include "compile/compile.h"

void dump_ast(Compilation *c, FILE *out) { ast_print(c->model.ast, out); }
void dump_graph(Compilation *c, FILE *out) { graph_dump(c->graph, out); }
void dump_pieces(Compilation *c, FILE *out) { pieces_dump(c->graph, &c->pieces, out); }
void dump_plan(Compilation *c, FILE *out) { fputs(plan_json(c->graph, &c->pieces, c->plan), out); }

void dump_kernels(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    kernels_dump(c->kernels[i], out);
}

void dump_lowered(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    lowered_dump(c->lowered[i], out);
}

void dump_programs(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    program_dump(&c->programs[i], out);
}

void dump_allocations(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    allocation_dump(c->kernels[i], c->allocations[i], out);
}

void dump_sources(Compilation *c, FILE *out) {
  for (int i = 0; i < n_stages(c); i++)
    fputs(c->sources[i], out);
}

void verify_graph(Compilation *c) { graph_verify(c->graph); }
void verify_pieces(Compilation *c) { pieces_verify(c->graph, &c->pieces); }
void verify_plan(Compilation *c) { plan_verify(c->graph, &c->pieces, c->plan); }

void verify_kernels(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    kernels_verify(c->kernels[i]);
}

void verify_lowered(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    lowered_verify(c->lowered[i]);
}

/* Enough batches for every stage to reach its steady state and for every weight version to be replaced. */
static int64_t batches_to_verify(const Compilation *c) {
  enum { BATCHES = 4 };
  int64_t more = 0;
  for (int i = 0; i < n_stages(c); i++) {
    const Program *p = &c->programs[i];
    int64_t held = p->delay + ((p->in_flight + p->lag) * p->replicas - 1) / p->period;
    more = held > more ? held : more;
  }
  return BATCHES + more;
}

void verify_programs(Compilation *c) {
  char *why;
  if (!verify_schedule(c->programs, n_stages(c), batches_to_verify(c), &why))
    BUG("schedule '%s': %s", c->plan->pipeline.schedule, why);
}

void verify_allocations(Compilation *c) {
  for (int i = 0; i < n_stages(c); i++)
    allocation_verify(c->kernels[i], &c->programs[i], c->allocations[i]);
}
