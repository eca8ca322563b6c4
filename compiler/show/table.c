/* Prints the model's instances as a table. */
#include <string.h>

#include "ops/op.h"
#include "show/show.h"

enum { COLUMNS = 7, INDENT = 2 };
static const char *const heads[COLUMNS] = {"instance",   "layer", "output", "parameters",
                                           "operations", "kept",  "stage"};
static const bool to_the_left[COLUMNS] = {[0] = true, [1] = true, [2] = true};

typedef struct Row {
  const char *cell[COLUMNS];
} Row;

/* By scope; the first three fields include inner scopes. */
typedef struct Counts {
  double *operations, *own_operations, *kept;
  int *first_stage, *last_stage; /* -1: executes nothing */
} Counts;

/* "1.21 G" */
static const char *engineering(double x) {
  static const char *const prefix[] = {"", " k", " M", " G", " T", " P"};
  int i = 0;
  while (x >= 999.5 && i < 5)
    x /= 1000, i++;
  return format(i == 0 ? "%.0f%s" : x < 9.995 ? "%.2f%s" : x < 99.95 ? "%.1f%s" : "%.0f%s", x, prefix[i]);
}

static double products(const Graph *g, int node) {
  const Op *op = g->nodes.at[node].op;
  return op->cost && op->kind != OP_SOURCE && op->kind != OP_VIEW ? op->cost(g, node).matmul_flops : 0;
}

static int part_of_node(const Show *s, int node) {
  for (int i = plan_parts(s->plan) - 1; i > 0; i--)
    if (node >= s->p->at[s->plan->stage[i].first_piece].first)
      return i;
  return 0;
}

static void note_stage(const Graph *g, Counts *c, int scope, int stage) {
  for (; scope >= 0; scope = g->scopes.at[scope].parent) {
    c->first_stage[scope] =
        c->first_stage[scope] < 0 || stage < c->first_stage[scope] ? stage : c->first_stage[scope];
    c->last_stage[scope] = stage > c->last_stage[scope] ? stage : c->last_stage[scope];
  }
}

/* Stages of computed values; an instance that only provides a parameter counts at its first use. */
static void count_stages(const Show *s, Counts *c) {
  const Graph *g = s->g;
  for (int i = 0; i < g->scopes.n; i++)
    c->first_stage[i] = c->last_stage[i] = -1;
  for (int i = 0; s->plan && i < g->n_forward; i++)
    if (g->nodes.at[i].op->kind != OP_SOURCE)
      note_stage(g, c, g->nodes.at[i].scope, plan_stage_of(s->plan, part_of_node(s, i)));
  for (int part = 0; s->plan && part < plan_parts(s->plan); part++)
    for (int k = s->plan->stage[part].first_piece; k < s->plan->stage[part].end_piece; k++)
      for (int m = 0; m < s->p->at[k].params.n; m++) {
        int scope = g->nodes.at[g->values.at[g->params.at[s->p->at[k].params.at[m]].value].node].scope;
        if (c->first_stage[scope] < 0)
          note_stage(g, c, scope, plan_stage_of(s->plan, part));
      }
}

static Counts count(const Show *s) {
  const Graph *g = s->g;
  size_t n = (size_t)g->scopes.n;
  Counts c = {alloc(n * sizeof(double)), alloc(n * sizeof(double)), alloc(n * sizeof(double)),
              alloc(n * sizeof(int)), alloc(n * sizeof(int))};
  for (int i = 0; i < g->n_forward; i++)
    c.own_operations[g->nodes.at[i].scope] += products(g, i);
  memcpy(c.operations, c.own_operations, n * sizeof(double));
  for (int i = 0; i < s->whole->buffers.n; i++) {
    const Buffer *b = &s->whole->buffers.at[i];
    if (b->kind == BUFFER_SAVED || b->kind == BUFFER_KEPT)
      c.kept[g->nodes.at[g->values.at[b->value].node].scope] += (double)(b->elements * element_bytes(b));
  }
  outline_add_up(g, c.operations);
  outline_add_up(g, c.kept);
  count_stages(s, &c);
  return c;
}

/* The name within the enclosing instance: "attn" of "h.0.attn". */
static const char *own_name(const Graph *g, int scope) {
  const Scope *s = &g->scopes.at[scope];
  const char *above = s->parent >= 0 ? g->scopes.at[s->parent].path : "";
  size_t n = strlen(above);
  if (s->parent < 0)
    return g->name;
  return n && !strncmp(s->path, above, n) && s->path[n] == '.' ? s->path + n + 1 : s->path;
}

static Row row_of(const Show *s, const Counts *c, int scope) {
  const Outlined *o = &s->outline->at[scope];
  const Elements *e = &o->declared;
  int64_t parameters = e->trained + e->frozen;
  int first = c->first_stage[scope], last = c->last_stage[scope];
  return (Row){{format("%*s%s", INDENT * o->depth, "", own_name(s->g, scope)),
                scope ? s->g->scopes.at[scope].layer : "", o->output, parameters ? with_commas(parameters) : "-",
                c->operations[scope] > 0 ? engineering(c->operations[scope]) : "-",
                c->kept[scope] > 0 ? bytes_text((int64_t)c->kept[scope]) : "-",
                first < 0      ? "-"
                : first < last ? format("%d-%d", first, last)
                               : format("%d", first)}};
}

/* Matrix products directly in an instance that also has inner instances, such as `x @ wte.weight.T` in a model. */
static Row own_row(const Show *s, const Counts *c, int scope) {
  return (Row){{format("%*s(its own products)", INDENT * (s->outline->at[scope].depth + 1), ""), "", "", "-",
                engineering(c->own_operations[scope]), "", ""}};
}

typedef Vec(Row) Rows;

static void print_rows(const Rows *rows, const bool *left_out, FILE *out) {
  int width[COLUMNS] = {0};
  for (int r = 0; r < rows->n; r++)
    for (int c = 0; c < COLUMNS; c++) {
      int n = (int)strlen(rows->at[r].cell[c]);
      width[c] = n > width[c] ? n : width[c];
    }
  for (int r = 0; r < rows->n; r++) {
    Text line = {0};
    for (int c = 0; c < COLUMNS; c++)
      if (!left_out[c])
        text_add(&line, to_the_left[c] ? "%s%-*s" : "%s%*s", c ? "  " : "", width[c], rows->at[r].cell[c]);
    while (line.n && line.at[line.n - 1] == ' ')
      line.at[--line.n] = 0;
    fprintf(out, "%s\n", line.at);
  }
}

static void print_totals(const Show *s, const Counts *c, FILE *out) {
  const Graph *g = s->g;
  const Elements *e = &s->outline->at[0].declared;
  double back = 0;
  for (int i = g->n_forward; i < g->nodes.n; i++)
    back += products(g, i);
  fprintf(out, "parameters: %s, %s in f32", with_commas(e->trained + e->frozen),
          bytes_text(4 * (e->trained + e->frozen)));
  if (e->frozen)
    fprintf(out, "; %s of them frozen", with_commas(e->frozen));
  if (e->buffers)
    fprintf(out, "; and %s numbers in buffers", with_commas(e->buffers));
  fprintf(out, "\noperations: %s of a sample forward", engineering(c->operations[0]));
  if (back > 0)
    fprintf(out, ", %s backward", engineering(back));
  fprintf(out, "; multiplies and adds of products\n");
  if (!g->inference)
    fprintf(out, "kept: %s of a sample from forward to backward, without recomputation\n",
            bytes_text((int64_t)c->kept[0]));
}

static void print_stages(const Show *s, FILE *out) {
  const Plan *plan = s->plan;
  for (int i = 0; i < plan_parts(plan); i++) {
    const StagePlan *stage = &plan->stage[i];
    Name first = s->p->at[stage->first_piece].name, last = piece_last_instance(s->g, s->p, stage->end_piece - 1);
    int number = plan_stage_of(plan, i);
    const char *name = plan->pipeline.chunks > 1 ? format("%d.%d", number, pipeline_chunk(&plan->pipeline, i))
                                                 : format("%d", number);
    fprintf(out, "stage %s: %s%s%s, %s parameters", name, first, first == last ? "" : " .. ",
            first == last ? "" : last, with_commas(stage_parameters(s->g, s->p, stage)));
    if (part_recomputes(plan, i))
      fprintf(out, ", recomputes%s", plan_recomputes(plan, i) ? "" : " layers");
    if (i > 0) {
      double down, up;
      crossing_bytes(s, i, &down, &up);
      fprintf(out, "; receives %s a microbatch of %lld", bytes_text((int64_t)down),
              (long long)plan->pipeline.microbatch);
      if (up > 0)
        fprintf(out, ", sends back %s", bytes_text((int64_t)up));
    }
    fputc('\n', out);
  }
}

void show_table(const Show *s, FILE *out) {
  Counts c = count(s);
  Rows rows = {0};
  Row head;
  memcpy(head.cell, heads, sizeof heads);
  push(&rows, head);
  for (int i = 0; i < s->g->scopes.n; i++) {
    const Outlined *o = &s->outline->at[i];
    if (o->empty || scope_shown(s->g, s->outline, i, s->depth) != i)
      continue;
    push(&rows, row_of(s, &c, i));
    if (c.own_operations[i] > 0 && o->depth < s->depth && !o->leaf)
      push(&rows, own_row(s, &c, i));
  }
  const bool left_out[COLUMNS] = {[5] = s->g->inference, [6] = !s->plan};
  print_rows(&rows, left_out, out);
  fputc('\n', out);
  print_totals(s, &c, out);
  if (s->plan)
    print_stages(s, out);
}
