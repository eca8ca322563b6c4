/* Each node takes one line:
 *   n12 %14 "q" f32 [b, 128, 64], %15 "k" f32 [b, 128, 64] = split(%11) n=2 scope=4 serves=-1 at 0:12:3-12:20
 * Value numbers increase through all nodes in order; b is the microbatch. */
#include <string.h>

#include "graph/text.h"
#include "ops/op.h"
#include "optimizers/lr_schedule.h"

const TrainField train_fields[] = {{"batch", FIELD_INT, offsetof(Train, batch)},
                                   {"optimizer", FIELD_OPTIMIZER, offsetof(Train, optimizer)},
                                   {"decay_all", FIELD_BOOL, offsetof(Train, decay_all)},
                                   {"lr_schedule", FIELD_LR_SCHEDULE, offsetof(Train, lr_schedule)},
                                   {"clip_norm", FIELD_REAL, offsetof(Train, clip_norm)},
                                   {"pipeline", FIELD_NAME, offsetof(Train, pipeline)},
                                   {"vertical_sync", FIELD_BOOL, offsetof(Train, vertical_sync)},
                                   {"chunks", FIELD_INT, offsetof(Train, chunks)},
                                   {NULL, 0, 0}};
const char *const origin_names[] = {"file",          "image",      "lengths", "present", "counted",
                                    "shifted",       "segments",   "masked",  "chosen",  "normal_noise",
                                    "uniform_noise", "random_int", NULL};
const char *const init_names[] = {"zeros", "ones", "constant", "uniform", "normal", NULL};

typedef struct Dump {
  const Graph *g;
  FILE *out;
  Ints files; /* span file numbers in order of appearance: the dump's own numbers */
} Dump;

static void put_quoted(Dump *d, const char *text) {
  fputc('"', d->out);
  for (const char *c = text ? text : ""; *c; c++) {
    if ((unsigned char)*c < 32 || *c == '"' || *c == '\\')
      fprintf(d->out, "\\%02x", (unsigned char)*c);
    else
      fputc(*c, d->out);
  }
  fputc('"', d->out);
}

static int file_number(Dump *d, int file) {
  for (int i = 0; i < d->files.n; i++)
    if (d->files.at[i] == file)
      return i;
  push(&d->files, file);
  return d->files.n - 1;
}

static void put_span(Dump *d, Span s) {
  if (s.file < 0)
    return;
  fprintf(d->out, " at %d:%d:%d-%d:%d", file_number(d, s.file), s.line, s.column, s.end_line, s.end_column);
}

static void put_shape(Dump *d, const Shape *s) {
  fprintf(d->out, "[%s", s->batched ? "b" : "");
  for (int i = 0; i < s->rank; i++)
    fprintf(d->out, "%s%lld", i || s->batched ? ", " : "", (long long)s->dim[i]);
  fputs("]", d->out);
}

static void put_ints(Dump *d, const char *label, const Ints *v) {
  fprintf(d->out, " %s [", label);
  for (int i = 0; i < v->n; i++)
    fprintf(d->out, "%s%d", i ? ", " : "", v->at[i]);
  fputs("]", d->out);
}

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.line == b.line && a.column == b.column && a.end_line == b.end_line &&
         a.end_column == b.end_column;
}

static void put_attributes(Dump *d, const Node *n) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++) {
    const Attr *a = &n->attr[i];
    fprintf(d->out, " %s=", n->op->attr[i].name);
    switch (n->op->attr[i].kind) {
    case ATTR_NUMBER:
    case ATTR_INT:
    case ATTR_BOOL: fprintf(d->out, "%.17g", a->number); break;
    case ATTR_TEXT: put_quoted(d, a->text); break;
    case ATTR_LIST:
    case ATTR_PAIR:
      fputs("[", d->out);
      for (int k = 0; k < a->n; k++)
        fprintf(d->out, "%s%lld", k ? ", " : "", (long long)a->list[k]);
      fputs("]", d->out);
    }
  }
}

static void put_node(Dump *d, int index) {
  const Node *n = &d->g->nodes.at[index];
  fprintf(d->out, "n%d", index);
  for (int i = 0; i < n->n_out; i++) {
    const Value *v = &d->g->values.at[n->out[i]];
    fprintf(d->out, "%s%%%d ", i ? ", " : " ", n->out[i]);
    put_quoted(d, v->name);
    if (v->type == TYPE_TOKEN)
      fprintf(d->out, " token(%lld) ", (long long)v->classes);
    else
      fputs(v->bf16 ? " bf16 " : " f32 ", d->out);
    put_shape(d, &v->shape);
    if (!same_span(v->span, n->span))
      put_span(d, v->span);
  }
  fprintf(d->out, " = %s(", n->op->name);
  for (int i = 0; i < n->n_in; i++)
    fprintf(d->out, "%s%%%d", i ? ", " : "", n->in[i]);
  fputs(")", d->out);
  put_attributes(d, n);
  fprintf(d->out, " scope=%d serves=%d", n->scope, n->serves);
  put_span(d, n->span);
  fputs("\n", d->out);
}

/* Prints nothing for an input read without conversion. */
static void put_origin(Dump *d, const Input *in) {
  if (in->origin == ORIGIN_FILE)
    return;
  fprintf(d->out, " %s %d [", origin_names[in->origin], in->from);
  for (int i = 0; i < in->numbers.n; i++)
    fprintf(d->out, "%s%.17g", i ? ", " : "", in->numbers.at[i]);
  fputs("]", d->out);
}

static void put_arguments(Dump *d, const Optimizer *o, double lr, const double *number) {
  fprintf(d->out, " lr=%.17g", lr);
  for (int i = 0; i < optimizer_n_numbers(o); i++)
    fprintf(d->out, " %s=%.17g", optimizer_field(o, i), number[i]);
}

static void put_optimizer(Dump *d, const Train *t) {
  fputs(t->optimizer->name, d->out);
  put_arguments(d, t->optimizer, t->lr, t->number);
}

static void put_average(Dump *d, const Train *t) {
  if (t->ema > 0)
    fprintf(d->out, "ema %.17g\n", t->ema);
}

static void put_correction(Dump *d, DelayCorrection c) {
  if (c.ahead > 0 || c.damping > 0)
    fprintf(d->out, "delay_correction %.17g %.17g %d\n", c.ahead, c.damping, c.automatic);
}

static void put_groups(Dump *d, const Train *t) {
  for (int i = 0; i < t->groups.n; i++) {
    const ParameterGroup *group = &t->groups.at[i];
    fputs("group ", d->out);
    put_quoted(d, group->pattern);
    put_arguments(d, t->optimizer, group->lr, group->number);
    fprintf(d->out, " decay_all=%d", group->decay_all);
    put_span(d, group->span);
    fputs("\n", d->out);
  }
}

static void put_lr_schedule(Dump *d, const Train *t) {
  fputs(t->lr_schedule->name, d->out);
  for (int i = 0; i < lr_schedule_n_arguments(t->lr_schedule); i++)
    fprintf(d->out, " lr_%s=%.17g", t->lr_schedule->argument[i].name, t->lr_number[i]);
}

static void put_train(Dump *d, const Train *t) {
  fputs("train", d->out);
  for (const TrainField *f = train_fields; f->name; f++) {
    const void *at = (const char *)t + f->offset;
    fprintf(d->out, " %s=", f->name);
    switch (f->kind) {
    case FIELD_REAL: fprintf(d->out, "%.17g", *(const double *)at); break;
    case FIELD_INT: fprintf(d->out, "%lld", (long long)*(const int64_t *)at); break;
    case FIELD_BOOL: fprintf(d->out, "%d", *(const bool *)at); break;
    case FIELD_NAME: put_quoted(d, *(const Name *)at); break;
    case FIELD_OPTIMIZER: put_optimizer(d, t); break;
    case FIELD_LR_SCHEDULE: put_lr_schedule(d, t); break;
    }
  }
  put_span(d, t->span);
  fputs(" pipeline", d->out);
  put_span(d, t->pipeline_span);
  fputs("\n", d->out);
  put_average(d, t);
  put_correction(d, t->correction);
  put_groups(d, t);
}

static void put_scopes(Dump *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->scopes.n; i++) {
    const Scope *s = &g->scopes.at[i];
    fprintf(d->out, "scope %d ", i);
    put_quoted(d, s->path);
    fputs(" ", d->out);
    put_quoted(d, s->layer);
    fprintf(d->out, " parent %d", s->parent);
    put_span(d, s->span);
    fputs("\n", d->out);
  }
}

static void put_params(Dump *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->params.n; i++) {
    const Param *p = &g->params.at[i];
    fprintf(d->out, "%s %d ", p->buffer ? "buffer" : p->frozen ? "frozen" : "param", i);
    put_quoted(d, p->name);
    fputs(" ", d->out);
    put_shape(d, &p->shape);
    fprintf(d->out, " %%%d %s %.17g %s", p->value, init_names[p->init], p->init_value,
            p->stored_in_out ? "in_out" : "out_in");
    if (p->zero_row >= 0)
      fprintf(d->out, " zero_row %lld", (long long)p->zero_row);
    if (p->group)
      fprintf(d->out, " group %d", p->group);
    if (p->hidden)
      fputs(" hidden", d->out);
    if (p->layout.kind == LAYOUT_SPLIT)
      fprintf(d->out, " split %d %lld", p->layout.axis, (long long)p->layout.blocks);
    if (p->surplus)
      fprintf(d->out, " surplus %lld", (long long)p->surplus);
    if (p->padding)
      fprintf(d->out, " padding %lld", (long long)p->padding);
    put_ints(d, "uses", &p->uses);
    put_ints(d, "gradients", &p->gradients);
    put_span(d, p->span);
    fputs("\n", d->out);
  }
}

static void put_inputs(Dump *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->inputs.n; i++) {
    fprintf(d->out, "%s %d ", g->inputs.at[i].target ? "target" : "input", i);
    put_quoted(d, g->inputs.at[i].name);
    fprintf(d->out, " %%%d", g->inputs.at[i].value);
    put_origin(d, &g->inputs.at[i]);
    put_span(d, g->inputs.at[i].span);
    fputs("\n", d->out);
  }
}

static void put_figures(Dump *d) {
  const Graph *g = d->g;
  for (int i = 0; i < g->figures.n; i++) {
    const Figure *f = &g->figures.at[i];
    fprintf(d->out, "%s %%%d", f->metric ? "metric" : f->output ? "output" : "loss", f->value);
    if (f->output) {
      fputs(" ", d->out);
      put_quoted(d, f->output);
    }
    if (f->metric) {
      fputs(" ", d->out);
      put_quoted(d, f->metric);
      fputs(" of_mean ", d->out);
      put_quoted(d, f->of_mean);
    }
    put_span(d, f->span);
    fputs("\n", d->out);
  }
}

static void put_generation(const Generation *x, FILE *out) {
  fprintf(out, "generation context %lld samples %lld tokens %d position %d sequence %d%s", (long long)x->context,
          (long long)x->samples, x->tokens, x->position, x->sequence, x->state ? " state" : "");
  if (x->encoder)
    fprintf(out, " source %d start %lld pad %lld", x->source, (long long)x->start, (long long)x->pad);
  fputs("\n", out);
}

static void put_loop(Dump *d, const ScanLoop *l) {
  if (l->steps)
    fprintf(d->out, "loop steps %lld reverse %d again %d scanned %d states %d stacked %d zeros %llu%s\n",
            (long long)l->steps, l->reverse, l->again, l->scanned, l->states, l->stacked,
            (unsigned long long)l->zeros, l->cached ? " cached" : "");
}

static void put_graph(Dump *d) {
  const Graph *g = d->g;
  FILE *out = d->out;
  fputs("graph ", out);
  put_quoted(d, g->name);
  fputs(" ", out);
  put_quoted(d, g->file);
  fprintf(out, " forward %d%s\n", g->n_forward, g->inference ? " inference" : "");
  if (g->shards)
    fprintf(out, "shards %d flops %.17g%s\n", g->shards, g->whole_flops, g->spread ? " spread" : "");
  if (g->generation.context)
    put_generation(&g->generation, out);
  put_loop(d, &g->loop);
  put_train(d, &g->train);
  put_scopes(d);
  put_params(d);
  put_inputs(d);
  put_figures(d);
  for (int i = 0; i < g->nodes.n; i++)
    put_node(d, i);
  for (int v = 0; v < g->values.n; v++)
    if (g->values.at[v].uses.n) {
      fprintf(out, "value %%%d", v);
      put_ints(d, "uses", &g->values.at[v].uses);
      put_ints(d, "gradients", &g->values.at[v].gradients);
      fputs("\n", out);
    }
}

/* Bodies of scans stand before the sources, each as "body", its own lines and "end body". */
void graph_dump(const Graph *g, FILE *out) {
  Dump d = {.g = g, .out = out};
  put_graph(&d);
  for (int i = 0; i < g->bodies->n; i++) {
    fputs("body ", out);
    d.g = g->bodies->at[i];
    put_graph(&d);
    fputs("end body\n", out);
  }
  for (int i = 0; i < d.files.n; i++) {
    fprintf(out, "source %d ", i);
    put_quoted(&d, source_path(d.files.at[i]));
    fputs("\n", out);
  }
  fputs("end\n", out);
}
