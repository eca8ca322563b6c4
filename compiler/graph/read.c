/* Reads the output of dump.c, possibly edited. The first syntax error is reported with its place; graph_verify
 * then checks the content. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/text.h"
#include "ops/op.h"
#include "optimizers/lr_schedule.h"

typedef struct Reader {
  Graph *g;
  const char *text, *at, *line_start;
  int file, line;
  bool failed;
  Ints files; /* maps the dump's file numbers to ours */
} Reader;

/* ---- words --------------------------------------------------------------------------------------- */

static void fail(Reader *r, const char *expected) {
  if (r->failed)
    return;
  int column = (int)(r->at - r->line_start) + 1;
  Span here = {r->file, r->line, column, r->line, column + 1};
  const char *what = strcmp(expected, "'\n'") ? expected : "the end of the line";
  error_at(here, "PD0610", "this is not a graph written by pdc: expected %s", what);
  r->failed = true;
}

static void skip_spaces(Reader *r) {
  while (*r->at == ' ')
    r->at++;
}

static bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool accept(Reader *r, const char *word) {
  skip_spaces(r);
  size_t n = strlen(word);
  if (strncmp(r->at, word, n) || (in_word(word[n - 1]) && in_word(r->at[n])))
    return false;
  r->at += n;
  return true;
}

static void expect(Reader *r, const char *word) {
  if (!accept(r, word))
    fail(r, format("'%s'", word));
}

static double read_real(Reader *r) {
  char *end;
  skip_spaces(r);
  double x = strtod(r->at, &end);
  if (end == r->at)
    fail(r, "a number");
  r->at = end;
  return x;
}

static int64_t read_long(Reader *r) {
  char *end;
  skip_spaces(r);
  long long x = strtoll(r->at, &end, 10);
  if (end == r->at)
    fail(r, "a whole number");
  r->at = end;
  return x;
}

static int read_int(Reader *r) {
  int64_t x = read_long(r);
  if (x < INT32_MIN || x > INT32_MAX)
    fail(r, "a smaller number");
  return (int)x;
}

static int read_value(Reader *r) {
  expect(r, "%");
  return read_int(r);
}

static Name read_quoted(Reader *r) {
  Text t = {0};
  expect(r, "\"");
  text_add(&t, "%s", "");
  while (*r->at && *r->at != '"' && *r->at != '\n' && !r->failed) {
    if (*r->at != '\\') {
      text_add(&t, "%c", *r->at++);
      continue;
    }
    char hex[3] = {0};
    strncpy(hex, r->at + 1, 2);
    if (!isxdigit((unsigned char)hex[0]) || !isxdigit((unsigned char)hex[1])) {
      fail(r, "two hexadecimal digits");
      break;
    }
    text_add(&t, "%c", (char)strtol(hex, NULL, 16));
    r->at += 3;
  }
  expect(r, "\"");
  return intern(t.at);
}

/* The index of the next word in a NULL-ended list. */
static int read_choice(Reader *r, const char *const *names) {
  for (int i = 0; names[i]; i++)
    if (accept(r, names[i]))
      return i;
  fail(r, format("'%s' or a similar word", names[0]));
  return 0;
}

static void read_ints(Reader *r, const char *label, Ints *v) {
  expect(r, label);
  expect(r, "[");
  while (!r->failed && !accept(r, "]")) {
    if (v->n)
      expect(r, ",");
    push(v, read_int(r));
  }
}

static Span read_span(Reader *r) {
  if (!accept(r, "at"))
    return NO_SPAN;
  Span s = {.file = read_int(r)};
  expect(r, ":");
  s.line = read_int(r);
  expect(r, ":");
  s.column = read_int(r);
  expect(r, "-");
  s.end_line = read_int(r);
  expect(r, ":");
  s.end_column = read_int(r);
  if (s.file < 0 || s.file >= r->files.n) {
    fail(r, "the number of one of the sources at the end");
    return NO_SPAN;
  }
  s.file = r->files.at[s.file];
  return s;
}

static Shape read_shape(Reader *r) {
  Shape s = {0};
  expect(r, "[");
  s.batched = accept(r, "b");
  while (!r->failed && !accept(r, "]")) {
    if (s.rank || s.batched)
      expect(r, ",");
    if (s.rank == MAX_RANK)
      fail(r, "fewer axes");
    else
      s.dim[s.rank++] = read_long(r);
  }
  return s;
}

/* ---- lines ---------------------------------------------------------------------------------------- */

static void read_arguments(Reader *r, const Optimizer *o, double *lr, double *number) {
  expect(r, "lr");
  expect(r, "=");
  *lr = read_real(r);
  for (int i = 0; i < optimizer_n_numbers(o); i++) {
    expect(r, optimizer_field(o, i));
    expect(r, "=");
    number[i] = read_real(r);
  }
}

static void read_optimizer(Reader *r, Train *t) {
  t->optimizer = NULL;
  for (int i = 0; all_optimizers[i] && !t->optimizer; i++)
    if (accept(r, all_optimizers[i]->name))
      t->optimizer = all_optimizers[i];
  if (!t->optimizer) {
    fail(r, "an optimizer");
    return;
  }
  read_arguments(r, t->optimizer, &t->lr, t->number);
}

static void read_group(Reader *r) {
  Train *t = &r->g->train;
  ParameterGroup group = {.pattern = read_quoted(r)};
  if (!t->optimizer) {
    fail(r, "groups behind 'train'");
    return;
  }
  read_arguments(r, t->optimizer, &group.lr, group.number);
  expect(r, "decay_all");
  expect(r, "=");
  group.decay_all = read_int(r) != 0;
  group.span = read_span(r);
  push(&t->groups, group);
}

static void read_lr_schedule(Reader *r, Train *t) {
  t->lr_schedule = NULL;
  for (int i = 0; all_lr_schedules[i] && !t->lr_schedule; i++)
    if (accept(r, all_lr_schedules[i]->name))
      t->lr_schedule = all_lr_schedules[i];
  if (!t->lr_schedule) {
    fail(r, "a schedule of the learning rate");
    return;
  }
  for (int i = 0; i < lr_schedule_n_arguments(t->lr_schedule); i++) {
    expect(r, format("lr_%s", t->lr_schedule->argument[i].name));
    expect(r, "=");
    t->lr_number[i] = read_real(r);
  }
}

static void read_train(Reader *r) {
  Train *t = &r->g->train;
  for (const TrainField *f = train_fields; f->name; f++) {
    void *at = (char *)t + f->offset;
    expect(r, f->name);
    expect(r, "=");
    switch (f->kind) {
    case FIELD_REAL: *(double *)at = read_real(r); break;
    case FIELD_INT: *(int64_t *)at = read_long(r); break;
    case FIELD_BOOL: *(bool *)at = read_int(r) != 0; break;
    case FIELD_NAME: *(Name *)at = read_quoted(r); break;
    case FIELD_OPTIMIZER: read_optimizer(r, t); break;
    case FIELD_LR_SCHEDULE: read_lr_schedule(r, t); break;
    }
  }
  t->span = read_span(r);
  expect(r, "pipeline");
  t->pipeline_span = read_span(r);
}

static void read_scope(Reader *r) {
  Scope s = {0};
  read_int(r);
  s.path = read_quoted(r);
  s.layer = read_quoted(r);
  expect(r, "parent");
  s.parent = read_int(r);
  s.span = read_span(r);
  push(&r->g->scopes, s);
}

static void read_param(Reader *r, Param p) {
  read_int(r);
  p.name = read_quoted(r);
  p.shape = read_shape(r);
  p.value = read_value(r);
  p.init = (InitKind)read_choice(r, init_names);
  p.init_value = read_real(r);
  p.stored_in_out = accept(r, "in_out");
  if (!p.stored_in_out)
    expect(r, "out_in");
  p.zero_row = accept(r, "zero_row") ? read_int(r) : -1;
  if (accept(r, "group"))
    p.group = read_int(r);
  p.hidden = accept(r, "hidden");
  if (accept(r, "split")) {
    p.layout.kind = LAYOUT_SPLIT;
    p.layout.axis = read_int(r);
    p.layout.blocks = read_int(r);
  }
  if (accept(r, "surplus"))
    p.surplus = read_int(r);
  if (accept(r, "padding"))
    p.padding = read_int(r);
  read_ints(r, "uses", &p.uses);
  read_ints(r, "gradients", &p.gradients);
  p.span = read_span(r);
  push(&r->g->params, p);
}

static void read_origin(Reader *r, Input *in) {
  in->from = -1;
  for (int i = ORIGIN_IMAGE; origin_names[i]; i++) {
    if (!accept(r, origin_names[i]))
      continue;
    in->origin = (OriginKind)i;
    in->from = read_int(r);
    expect(r, "[");
    while (!r->failed && !accept(r, "]")) {
      if (in->numbers.n)
        expect(r, ",");
      push(&in->numbers, read_real(r));
    }
  }
}

static void read_input(Reader *r, bool target) {
  Input in = {.target = target};
  read_int(r);
  in.name = read_quoted(r);
  in.value = read_value(r);
  read_origin(r, &in);
  in.span = read_span(r);
  push(&r->g->inputs, in);
}

static void read_outputs(Reader *r, Node *n, Ints *own_span) {
  Ints out = {0};
  do {
    Value v = {.node = r->g->nodes.n, .output = out.n};
    if (read_value(r) != r->g->values.n)
      fail(r, "values in order");
    v.name = read_quoted(r);
    if (accept(r, "token")) {
      v.type = TYPE_TOKEN;
      expect(r, "(");
      v.classes = read_long(r);
      expect(r, ")");
    } else {
      v.bf16 = accept(r, "bf16");
      if (!v.bf16)
        expect(r, "f32");
    }
    v.shape = read_shape(r);
    v.span = read_span(r);
    push(own_span, v.span.file >= 0);
    push(&out, r->g->values.n);
    push(&r->g->values, v);
  } while (!r->failed && accept(r, ","));
  n->n_out = out.n;
  n->out = out.at;
}

static void read_attributes(Reader *r, Node *n) {
  n->attr = alloc(MAX_ATTR * sizeof *n->attr);
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name && !r->failed; i++) {
    Attr *a = &n->attr[i];
    expect(r, n->op->attr[i].name);
    expect(r, "=");
    AttrKind kind = n->op->attr[i].kind;
    if (kind == ATTR_TEXT) {
      a->text = read_quoted(r);
    } else if (kind == ATTR_LIST || kind == ATTR_PAIR) {
      Vec(int64_t) list = {0};
      expect(r, "[");
      while (!r->failed && !accept(r, "]")) {
        if (list.n)
          expect(r, ",");
        push(&list, read_long(r));
      }
      a->n = list.n;
      a->list = list.at;
    } else {
      a->number = read_real(r);
    }
  }
}

static void read_node(Reader *r) {
  Node n = {0};
  Ints in = {0}, own_span = {0};
  if (read_int(r) != r->g->nodes.n)
    fail(r, "nodes in order");
  read_outputs(r, &n, &own_span);
  expect(r, "=");
  skip_spaces(r);
  const char *name = r->at;
  while (isalnum((unsigned char)*r->at) || *r->at == '_')
    r->at++;
  n.op = op_find(intern_n(name, (size_t)(r->at - name)));
  if (!n.op) {
    fail(r, "an operation");
    return;
  }
  expect(r, "(");
  while (!r->failed && !accept(r, ")")) {
    if (in.n)
      expect(r, ",");
    push(&in, read_value(r));
  }
  n.n_in = in.n;
  n.in = in.at;
  read_attributes(r, &n);
  expect(r, "scope=");
  n.scope = read_int(r);
  expect(r, "serves=");
  n.serves = read_int(r);
  n.span = read_span(r);
  for (int i = 0; i < n.n_out; i++)
    if (!own_span.at[i])
      r->g->values.at[n.out[i]].span = n.span;
  push(&r->g->nodes, n);
}

static void read_uses(Reader *r) {
  int value = read_value(r);
  if (value < 0 || value >= r->g->values.n) {
    fail(r, "a value above");
    return;
  }
  Value *v = &r->g->values.at[value];
  read_ints(r, "uses", &v->uses);
  read_ints(r, "gradients", &v->gradients);
}

static void read_metric(Reader *r) {
  int value = read_value(r);
  Name name = read_quoted(r);
  expect(r, "of_mean");
  Name of_mean = read_quoted(r);
  graph_metric(r->g, name, *of_mean ? of_mean : NULL, value, read_span(r));
}

/* "name 7" */
static int read_member(Reader *r, const char *name) {
  expect(r, name);
  return read_int(r);
}

static void read_generation(Reader *r) {
  Generation *x = &r->g->generation;
  x->context = read_member(r, "context");
  x->samples = read_member(r, "samples");
  x->tokens = read_member(r, "tokens");
  x->position = read_member(r, "position");
  x->sequence = read_member(r, "sequence");
  x->state = accept(r, "state");
  x->encoder = accept(r, "source");
  if (!x->encoder)
    return;
  x->source = read_int(r);
  x->start = read_member(r, "start");
  x->pad = read_member(r, "pad");
}

static void read_loop(Reader *r) {
  ScanLoop *l = &r->g->loop;
  expect(r, "steps");
  l->steps = read_long(r);
  l->reverse = read_member(r, "reverse") != 0;
  l->again = read_member(r, "again") != 0;
  l->scanned = read_member(r, "scanned");
  l->states = read_member(r, "states");
  l->stacked = read_member(r, "stacked");
  expect(r, "zeros");
  l->zeros = (uint64_t)read_long(r);
  l->cached = accept(r, "cached");
}

static void read_body(Reader *r);

static void read_line(Reader *r) {
  if (accept(r, "body"))
    read_body(r);
  else if (accept(r, "loop"))
    read_loop(r);
  else if (accept(r, "scope"))
    read_scope(r);
  else if (accept(r, "param"))
    read_param(r, (Param){0});
  else if (accept(r, "buffer"))
    read_param(r, (Param){.buffer = true});
  else if (accept(r, "frozen"))
    read_param(r, (Param){.frozen = true});
  else if (accept(r, "ema"))
    r->g->train.ema = read_real(r);
  else if (accept(r, "delay_correction")) {
    r->g->train.correction.ahead = read_real(r);
    r->g->train.correction.damping = read_real(r);
    r->g->train.correction.automatic = read_int(r) != 0;
  } else if (accept(r, "group"))
    read_group(r);
  else if (accept(r, "input"))
    read_input(r, false);
  else if (accept(r, "target"))
    read_input(r, true);
  else if (accept(r, "shards")) {
    r->g->shards = read_int(r);
    expect(r, "flops");
    r->g->whole_flops = read_real(r);
    r->g->spread = accept(r, "spread");
  } else if (accept(r, "generation"))
    read_generation(r);
  else if (accept(r, "train"))
    read_train(r);
  else if (accept(r, "value"))
    read_uses(r);
  else if (accept(r, "loss")) {
    int value = read_value(r);
    graph_loss(r->g, value, read_span(r));
  } else if (accept(r, "metric"))
    read_metric(r);
  else if (accept(r, "output")) {
    int value = read_value(r);
    Name name = read_quoted(r);
    graph_output_figure(r->g, name, value, read_span(r));
  } else if (*r->at == 'n') {
    r->at++;
    read_node(r);
  } else
    fail(r,
         "a line that starts with 'scope', 'param', 'frozen', 'buffer', 'input', 'target', 'generation', 'train', "
         "'ema', 'delay_correction', 'group', 'value', 'loss', 'metric', 'output' or a node");
}

/* Sources come last in the dump, but every span needs them. */
static void read_sources(Reader *r) {
  const char *line = r->text;
  while (line) {
    if (!strncmp(line, "source ", 7)) {
      r->at = r->line_start = line;
      expect(r, "source");
      read_int(r);
      Name path = read_quoted(r);
      size_t length;
      char *text = read_file(path, &length);
      push(&r->files, source_add(path, text ? text : ""));
    }
    line = strchr(line, '\n');
    line = line ? line + 1 : NULL;
  }
}

static void read_head(Reader *r) {
  expect(r, "graph");
  r->g->name = read_quoted(r);
  r->g->file = read_quoted(r);
  expect(r, "forward");
  r->g->n_forward = read_int(r);
  r->g->inference = accept(r, "inference");
}

/* Reads lines up to `end`. */
static void read_lines(Reader *r, const char *end) {
  while (!r->failed) {
    expect(r, "\n");
    r->line_start = r->at;
    r->line++;
    if (r->failed || accept(r, end))
      break;
    if (!strncmp(r->at, "source ", 7))
      r->at += strcspn(r->at, "\n");
    else
      read_line(r);
  }
}

static void read_body(Reader *r) {
  Graph *outer = r->g, *body = graph_new(NULL);
  body->bodies = outer->bodies;
  push(outer->bodies, body);
  r->g = body;
  read_head(r);
  read_lines(r, "end body");
  if (!r->failed && !body->loop.steps)
    fail(r, "a body with a line that starts with 'loop'");
  r->g = outer;
}

Graph *graph_read(const char *path, const char *text) {
  Reader r = {.g = graph_new(NULL), .text = text, .at = text, .line_start = text, .line = 1};
  r.file = source_add(path, text);
  read_sources(&r);
  r.at = r.line_start = text;
  read_head(&r);
  read_lines(&r, "end\n");
  return r.failed ? NULL : r.g;
}
