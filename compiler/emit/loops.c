/* Kernels of kind LOOP as static C functions: constant bounds, restrict pointers, and sums over a row in
 * LANES lanes that C compilers vectorise as they stand. kernel.h says what the loops mean. */
#include "emit/print.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

enum {
  PARALLEL_ELEMENTS = 32768, /* below this a second thread costs more than it saves */
  TASK_ELEMENTS = 16384,     /* of one thread's share, at least */
  STACK_FLOATS = 4096        /* partial sums up to this many live on the stack */
};

typedef struct Printer {
  Text *out;
  const StageKernels *k;
  const Kernel *kernel;
  KernelCall call;
  Names taken;
  Name *parameter;    /* parallel to call.buffers */
  Name *key;          /* parallel to call.keys */
  Name *term;         /* by term: its C name */
  Name *sum;          /* by store: its partial sums, or NULL */
  Name index[MAX_DIM];
  bool *live;         /* by term: some store depends on it */
  bool *needed;       /* by term: the pass being printed needs it */
  int indent;
  bool reads_column;  /* the index along the last dim was printed */
} Printer;

__attribute__((format(printf, 2, 3))) static void line(Printer *p, const char *format_, ...) {
  char text[4096];
  va_list args;
  va_start(args, format_);
  int n = vsnprintf(text, sizeof text, format_, args);
  va_end(args);
  ensure(n >= 0 && n < (int)sizeof text);
  text_add(p->out, "%*s%s\n", p->indent, "", text);
}

/* ---- shape of the iteration ----------------------------------------------------------------------- */

static int64_t product(const int64_t *dim, int from, int end) {
  int64_t n = 1;
  for (int i = from; i < end; i++)
    n *= dim[i];
  return n;
}

static int64_t columns(const Kernel *k) { return k->n_dims ? k->dim[k->n_dims - 1] : 1; }
static int row_dims(const Kernel *k) { return k->n_dims ? k->n_dims - 1 : 0; }

/* A store of one value a row. */
static bool store_scalar(const Kernel *k, const Store *s) {
  return k->terms.at[s->term].scalar && (columns(k) == 1 || s->place.stride[k->n_dims - 1] == 0);
}

static bool accumulates(const Kernel *k) {
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].accumulate)
      return true;
  return false;
}

/* How many leading dims are dealt out: without accumulation, all row dims. */
static int parallel_dims(const Kernel *k) { return accumulates(k) ? k->parallel : row_dims(k); }

/* Whether a store adds up several rows of one group. */
static bool sums_rows(const Kernel *k, const Store *s) {
  if (!s->accumulate)
    return false;
  for (int i = parallel_dims(k); i < row_dims(k); i++)
    if (s->place.stride[i] == 0 && k->dim[i] > 1)
      return true;
  return false;
}

/* Elements of a store's partial sums: the dims after the parallel ones along which it moves. */
static int64_t sum_extent(const Kernel *k, const Store *s) {
  int64_t n = store_scalar(k, s) ? 1 : columns(k);
  for (int i = parallel_dims(k); i < row_dims(k); i++)
    if (s->place.stride[i] != 0)
      n *= k->dim[i];
  return n;
}

/* Floats of all partial sums of one group; each store's begin at a multiple of LANES. */
static int64_t sums_extent(const Kernel *k) {
  int64_t n = 0;
  for (int i = 0; i < k->stores.n; i++)
    if (sums_rows(k, &k->stores.at[i]))
      n += (sum_extent(k, &k->stores.at[i]) + LANES - 1) / LANES * LANES;
  return n;
}

static bool chunked(const Kernel *k) {
  return parallel_dims(k) == 0 && k->chunks > 1 && sums_extent(k) > 0;
}

static int64_t groups(const Kernel *k) { return product(k->dim, 0, parallel_dims(k)); }

/* One row of pointwise work: its elements can be dealt out instead of rows. */
static bool flat(const Kernel *k) {
  return k->n_dims == 1 && k->phases == 1 && sums_extent(k) == 0 && columns(k) >= PARALLEL_ELEMENTS &&
         k->terms.n > 0;
}

static bool has_reduce(const Kernel *k) {
  for (int i = 0; i < k->terms.n; i++)
    if (k->terms.at[i].kind == TERM_REDUCE)
      return true;
  return false;
}

/* Printed as a function over a range of rows and one that deals ranges to threads. */
static bool is_split(const Kernel *k) {
  if (chunked(k))
    return true;
  if (k->n_dims == 0 || product(k->dim, 0, k->n_dims) < PARALLEL_ELEMENTS)
    return false;
  if (k->n_dims == 1)
    return flat(k) && !has_reduce(k);
  return groups(k) > 1;
}

static bool sums_in_scratch(const Kernel *k) { return chunked(k) || sums_extent(k) > STACK_FLOATS; }

int64_t loop_scratch(const Kernel *k) {
  if (k->kind != KERNEL_LOOP || sums_extent(k) == 0 || !sums_in_scratch(k))
    return 0;
  int64_t copies = chunked(k) ? k->chunks : groups(k);
  return copies * sums_extent(k) * 4;
}

/* ---- what the function is called with -------------------------------------------------------------- */

static void add_buffer(Ints *buffers, int buffer) {
  for (int i = 0; i < buffers->n; i++)
    if (buffers->at[i] == buffer)
      return;
  push(buffers, buffer);
}

static void mark(const Kernel *k, bool *live, int term) {
  if (live[term])
    return;
  live[term] = true;
  for (int i = 0; i < k->terms.at[term].n_in; i++)
    mark(k, live, k->terms.at[term].in[i]);
}

static bool *live_terms(const Kernel *k) {
  bool *live = alloc((size_t)k->terms.n + 1);
  for (int i = 0; i < k->stores.n; i++)
    mark(k, live, k->stores.at[i].term);
  return live;
}

static bool stores_to(const Kernel *k, int buffer) {
  for (int i = 0; i < k->stores.n; i++)
    if (k->stores.at[i].place.buffer == buffer)
      return true;
  return false;
}

/* Whether an expression has "$word". */
static bool has_word(const char *expression, const char *word) {
  size_t n = strlen(word);
  for (const char *c = expression; c && (c = strchr(c, '$')); c++)
    if (!strncmp(c + 1, word, n) && !islower((unsigned char)c[1 + n]))
      return true;
  return false;
}

KernelCall loop_call(const StageKernels *stage, const Kernel *k) {
  KernelCall c = {0};
  bool *live = live_terms(k);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (live[i] && t->kind == TERM_LOAD)
      add_buffer(&c.buffers, t->place.buffer);
    if (live[i] && t->kind == TERM_OP && has_word(t->op->expression, "s"))
      c.samples = true;
    if (live[i] && t->kind == TERM_OP && has_word(t->op->expression, "scope"))
      push(&c.keys, i);
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    add_buffer(&c.buffers, s->place.buffer);
    if (s->accumulate && stage->buffers.at[s->place.buffer].kind == BUFFER_ACCUMULATOR)
      c.first = true;
  }
  c.scratch = loop_scratch(k) > 0;
  return c;
}

bool kernel_writes(const Kernel *k, int buffer) {
  for (int i = 0; i < k->out.n; i++)
    if (k->out.at[i].buffer == buffer)
      return true;
  return stores_to(k, buffer);
}

KernelCall kernel_call(const StageKernels *stage, const Kernel *k) {
  return k->kind == KERNEL_LOOP ? loop_call(stage, k) : call_buffers(stage, k);
}

static Name parameter_of(const Printer *p, int buffer) {
  for (int i = 0; i < p->call.buffers.n; i++)
    if (p->call.buffers.at[i] == buffer)
      return p->parameter[i];
  BUG("a kernel has no parameter for buffer %d", buffer);
}

/* ---- indices ---------------------------------------------------------------------------------------- */

/* sum of index * stride over dims [from, end). */
static char *index_sum(Printer *p, int64_t offset, const int64_t *stride, int from, int end) {
  Text out = {0};
  for (int i = from; i < end; i++) {
    if (stride[i] == 0 || p->kernel->dim[i] == 1)
      continue;
    text_add(&out, "%s%s", out.n ? " + " : "", p->index[i]);
    p->reads_column |= i == row_dims(p->kernel);
    if (stride[i] != 1)
      text_add(&out, " * %" PRId64, stride[i]);
  }
  if (offset != 0 || out.n == 0)
    text_add(&out, "%s%" PRId64, out.n ? " + " : "", offset);
  return out.at;
}

static char *element(Printer *p, const Place *place) {
  return format("%s[%s]", parameter_of(p, place->buffer),
                index_sum(p, place->offset, place->stride, 0, p->kernel->n_dims));
}

/* An element of a store's partial sums: dense over the dims it moves along. */
static char *sum_element(Printer *p, int store) {
  const Kernel *k = p->kernel;
  const Store *s = &k->stores.at[store];
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= parallel_dims(k); i--) {
    bool moves = i == row_dims(k) ? !store_scalar(k, s) : s->place.stride[i] != 0;
    stride[i] = moves ? size : 0;
    size *= moves ? k->dim[i] : 1;
  }
  return format("%s[%s]", p->sum[store], index_sum(p, 0, stride, 0, k->n_dims));
}

/* ---- expressions ------------------------------------------------------------------------------------- */

static Name operand(const Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->kind != TERM_CONSTANT)
    return p->term[term];
  char *literal = float_literal(t->constant);
  return literal[0] == '-' ? internf("(%s)", literal) : intern(literal);
}

static char *attribute(const Term *t, const char *name) {
  for (int i = 0; i < MAX_ATTR && t->op->attr[i].name; i++)
    if (!strcmp(t->op->attr[i].name, name)) {
      double x = t->node->attr[i].number;
      if (t->op == &op_dropout) /* validation drops nothing */
        return format("(pd.training ? %s : 0.0f)", float_literal(x));
      if (t->op->attr[i].kind == ATTR_NUMBER)
        return float_literal(x);
      return format("%" PRId64, (int64_t)x);
    }
  BUG("op '%s' has no attribute '%s'", t->op->name, name);
}

/* Row-major index over the kernel's dims from `from` on; of a row alone for scalars. */
static char *linear(Printer *p, const Term *t, int from) {
  const Kernel *k = p->kernel;
  int64_t stride[MAX_DIM] = {0}, size = 1;
  for (int i = k->n_dims - 1; i >= from; i--) {
    stride[i] = t->scalar && i == row_dims(k) ? 0 : size;
    size *= t->scalar && i == row_dims(k) ? 1 : k->dim[i];
  }
  return index_sum(p, 0, stride, from, k->n_dims);
}

static char *counter(Printer *p, const Term *t, const char *word) {
  const Kernel *k = p->kernel;
  p->reads_column |= !strcmp(word, "j");
  if (!strcmp(word, "j"))
    return format("%s", t->scalar || columns(k) == 1 ? "0" : p->index[row_dims(k)]);
  if (!strcmp(word, "i"))
    return format("(%s)", linear(p, t, k->samples ? 1 : 0));
  if (!strcmp(word, "s"))
    return k->samples && k->dim[0] > 1 ? format("(first_sample + %s)", p->index[0]) : format("first_sample");
  if (!strcmp(word, "seed"))
    return format("pd.seed");
  if (!strcmp(word, "training"))
    return format("pd.training");
  if (!strcmp(word, "scope"))
    for (int i = 0; i < p->call.keys.n; i++)
      if (&k->terms.at[p->call.keys.at[i]] == t)
        return format("%s", p->key[i]);
  BUG("op '%s': '$%s' in its expression", t->op->name, word);
}

static char *expand(Printer *p, const Term *t) {
  Text out = {0};
  ensure(t->op->expression);
  for (const char *c = t->op->expression; *c;) {
    if (*c != '$') {
      text_add(&out, "%c", *c++);
    } else if (isdigit((unsigned char)*++c)) {
      int i = *c++ - '0';
      ensure(i < t->n_in);
      text_add(&out, "%s", operand(p, t->in[i]));
    } else if (*c == '{') {
      size_t n = strcspn(++c, "}");
      text_add(&out, "%s", attribute(t, intern_n(c, n)));
      c += n + 1;
    } else {
      size_t n = 0;
      while (islower((unsigned char)c[n]))
        n++;
      text_add(&out, "%s", counter(p, t, intern_n(c, n)));
      c += n;
    }
  }
  return out.at;
}

static const char *type_of(const Printer *p, const Term *t) {
  if (t->kind == TERM_LOAD)
    return p->k->buffers.at[t->place.buffer].type == TYPE_TOKEN ? "int32_t" : "float";
  if (t->kind == TERM_OP && p->k->graph->values.at[t->node->out[0]].type == TYPE_TOKEN)
    return "int32_t";
  return "float";
}

static void term_line(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  line(p, "const %s %s = %s;", type_of(p, t), p->term[term],
       t->kind == TERM_LOAD ? element(p, &t->place) : expand(p, t));
}

/* ---- a row ---------------------------------------------------------------------------------------------- */

/* Before which pass a scalar is known; phases: after the last. */
static int scalar_slot(const Kernel *k, int term) {
  const Term *t = &k->terms.at[term];
  if (t->kind == TERM_REDUCE)
    return t->phase + 1;
  int slot = t->kind == TERM_CONSTANT ? 0 : t->phase;
  for (int i = 0; i < t->n_in; i++) {
    int in = scalar_slot(k, t->in[i]);
    if (in > slot)
      slot = in;
  }
  return slot;
}

static void store_line(Printer *p, int store) {
  const Store *s = &p->kernel->stores.at[store];
  Name value = operand(p, s->term);
  if (p->sum[store])
    line(p, "%s += %s;", sum_element(p, store), value);
  else if (s->accumulate && p->k->buffers.at[s->place.buffer].kind == BUFFER_ACCUMULATOR)
    line(p, "%s = first ? %s : %s + %s;", element(p, &s->place), value, element(p, &s->place), value);
  else
    line(p, "%s = %s;", element(p, &s->place), value);
}

static void scalar_lines(Printer *p, int slot) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || !t->scalar || t->kind == TERM_CONSTANT || scalar_slot(k, i) != slot)
      continue;
    if (t->kind == TERM_REDUCE)
      line(p, "const float %s = pd_lanes_%s(%s_lanes);", p->term[i], t->op == &op_max ? "max" : "sum", p->term[i]);
    else
      term_line(p, i);
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!store_scalar(k, s))
      continue;
    int known = scalar_slot(k, s->term);
    if ((known > s->phase ? known : s->phase) == slot)
      store_line(p, i);
  }
}

/* Marks what pass `phase` must load, compute or read back to have `term`. */
static void need(Printer *p, int term, int phase) {
  const Term *t = &p->kernel->terms.at[term];
  if (t->scalar || t->kind == TERM_CONSTANT || p->needed[term])
    return;
  p->needed[term] = true;
  if (t->row_buffer && phase > t->phase)
    return;
  for (int i = 0; i < t->n_in; i++)
    need(p, t->in[i], phase);
}

/* Finds what a pass needs; whether there is anything to do in it, and in lanes. */
static bool pass_needs(Printer *p, int phase, bool *lanes) {
  const Kernel *k = p->kernel;
  bool any = false;
  *lanes = false;
  memset(p->needed, 0, (size_t)k->terms.n);
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (p->live[i] && t->kind == TERM_REDUCE && t->phase == phase) {
      any = *lanes = true;
      need(p, t->in[0], phase);
    } else if (p->live[i] && t->row_buffer && t->phase == phase) {
      any = true;
      need(p, i, phase);
    }
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!store_scalar(k, s) && s->phase == phase) {
      any = true;
      need(p, s->term, phase);
    }
  }
  return any;
}

static void pass_body(Printer *p, int phase, const char *lane) {
  const Kernel *k = p->kernel;
  const char *j = p->index[row_dims(k)];
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->needed[i])
      continue;
    if (t->row_buffer && t->phase < phase) {
      p->reads_column = true;
      line(p, "const float %s = %s_row[%s];", p->term[i], p->term[i], columns(k) > 1 ? j : "0");
      continue;
    }
    term_line(p, i);
    p->reads_column |= t->row_buffer;
    if (t->row_buffer)
      line(p, "%s_row[%s] = %s;", p->term[i], columns(k) > 1 ? j : "0", p->term[i]);
  }
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    Name x = operand(p, t->in[0]);
    if (t->op == &op_max)
      line(p, "%s_lanes[%s] = pd_max(%s_lanes[%s], %s);", p->term[i], lane, p->term[i], lane, x);
    else
      line(p, "%s_lanes[%s] += %s;", p->term[i], lane, x);
  }
  for (int i = 0; i < k->stores.n; i++)
    if (!store_scalar(k, &k->stores.at[i]) && k->stores.at[i].phase == phase)
      store_line(p, i);
}

static void lanes_pass(Printer *p, int phase) {
  const Kernel *k = p->kernel;
  int64_t n = columns(k), whole = n / LANES * LANES;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    if (t->op == &op_max) {
      line(p, "float %s_lanes[PD_LANES];", p->term[i]);
      line(p, "for (int l = 0; l < PD_LANES; l++) %s_lanes[l] = -INFINITY;", p->term[i]);
    } else {
      line(p, "float %s_lanes[PD_LANES] = {0};", p->term[i]);
    }
  }
  const char *j = p->index[row_dims(k)];
  if (whole > 0) {
    line(p, "for (int64_t j0 = 0; j0 < %" PRId64 "; j0 += PD_LANES)", whole);
    line(p, "  for (int l = 0; l < PD_LANES; l++) {");
    p->indent += 4;
    Text *out = p->out, body = {0};
    p->out = &body;
    p->reads_column = false;
    pass_body(p, phase, "l");
    p->out = out;
    if (p->reads_column)
      line(p, "const int64_t %s = j0 + l;", j);
    text_add(out, "%s", body.at);
    p->indent -= 4;
    line(p, "  }");
  }
  if (whole < n) {
    line(p, "for (int64_t %s = %" PRId64 "; %s < %" PRId64 "; %s++) {", j, whole, j, n, j);
    p->indent += 2;
    pass_body(p, phase, whole > 0 ? format("%s - %" PRId64, j, whole) : j);
    p->indent -= 2;
    line(p, "}");
  }
}

/* from, end: bounds of the columns, NULL for all. */
static void row_lines(Printer *p, const char *from, const char *end) {
  const Kernel *k = p->kernel;
  const char *j = p->index[row_dims(k)];
  for (int i = 0; i < k->terms.n; i++)
    if (p->live[i] && k->terms.at[i].row_buffer)
      line(p, "float %s_row[%" PRId64 "];", p->term[i], columns(k));
  for (int phase = 0; phase <= k->phases; phase++) {
    bool lanes;
    scalar_lines(p, phase);
    if (phase == k->phases || !pass_needs(p, phase, &lanes))
      continue;
    if (lanes) {
      lanes_pass(p, phase);
      continue;
    }
    if (!from && columns(k) == 1) {
      line(p, "{");
    } else {
      char *bound = end ? format("%s", end) : format("%" PRId64, columns(k));
      line(p, "for (int64_t %s = %s; %s < %s; %s++) {", j, from ? from : "0", j, bound, j);
    }
    p->indent += 2;
    pass_body(p, phase, "0");
    p->indent -= 2;
    line(p, "}");
  }
}

/* ---- rows and their partial sums ------------------------------------------------------------------------ */

static void open_loops(Printer *p, int from, int end) {
  for (int i = from; i < end; i++)
    if (p->kernel->dim[i] > 1) {
      line(p, "for (int64_t %s = 0; %s < %" PRId64 "; %s++) {", p->index[i], p->index[i], p->kernel->dim[i],
           p->index[i]);
      p->indent += 2;
    }
}

static void close_loops(Printer *p, int from, int end) {
  for (int i = from; i < end; i++)
    if (p->kernel->dim[i] > 1) {
      p->indent -= 2;
      line(p, "}");
    }
}

/* Declares and clears the partial sums; base: where they lie in scratch, NULL: on the stack. */
static void sums_begin(Printer *p, const char *base) {
  const Kernel *k = p->kernel;
  int64_t at = 0;
  for (int i = 0; i < k->stores.n; i++) {
    if (!p->sum[i])
      continue;
    int64_t n = sum_extent(k, &k->stores.at[i]);
    if (base) {
      line(p, "float *%s = %s + %" PRId64 ";", p->sum[i], base, at);
      line(p, "for (int64_t x = 0; x < %" PRId64 "; x++) %s[x] = 0.0f;", n, p->sum[i]);
    } else {
      line(p, "float %s[%" PRId64 "] = {0};", p->sum[i], n);
    }
    at += (n + LANES - 1) / LANES * LANES;
  }
}

/* Writes or adds the partial sums of one group into what the stores mean. */
static void sums_end(Printer *p) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!p->sum[i])
      continue;
    int dims[MAX_DIM], n = 0;
    for (int d = parallel_dims(k); d < k->n_dims; d++) {
      bool moves = d == row_dims(k) ? !store_scalar(k, s) : s->place.stride[d] != 0;
      if (moves && k->dim[d] > 1)
        dims[n++] = d;
    }
    for (int d = 0; d < n; d++)
      open_loops(p, dims[d], dims[d] + 1);
    char *to = element(p, &s->place), *sum = sum_element(p, i);
    if (p->k->buffers.at[s->place.buffer].kind == BUFFER_ACCUMULATOR)
      line(p, "%s = first ? %s : %s + %s;", to, sum, to, sum);
    else
      line(p, "%s = %s;", to, sum);
    for (int d = n - 1; d >= 0; d--)
      close_loops(p, dims[d], dims[d] + 1);
  }
}

/* The indices of dims [0, n) from the linear index `from`. */
static void unpack_index(Printer *p, const char *from, int n) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < n; i++) {
    int64_t inner = product(k->dim, i + 1, n), outer = product(k->dim, 0, i);
    if (k->dim[i] == 1 || p->index[i] == intern(from))
      continue;
    char *text = inner > 1 ? format("%s / %" PRId64, from, inner) : format("%s", from);
    if (outer > 1)
      text = format(inner > 1 ? "%s %% %" PRId64 : "%s %% %" PRId64, text, k->dim[i]);
    line(p, "const int64_t %s = %s;", p->index[i], text);
  }
}

/* Every group in nested loops, each with its partial sums. */
static void whole_lines(Printer *p) {
  const Kernel *k = p->kernel;
  int outer = parallel_dims(k);
  int64_t extent = sums_extent(k);
  const char *base = NULL;
  open_loops(p, 0, outer);
  if (extent > 0 && sums_in_scratch(k)) {
    int64_t stride[MAX_DIM] = {0};
    for (int i = outer - 1, size = 1; i >= 0; size *= (int)k->dim[i--])
      stride[i] = size * extent;
    base = format("(float *)scratch + %s", index_sum(p, 0, stride, 0, outer));
  }
  sums_begin(p, base);
  open_loops(p, outer, row_dims(k));
  row_lines(p, NULL, NULL);
  close_loops(p, outer, row_dims(k));
  sums_end(p);
  close_loops(p, 0, outer);
}

/* The body of NAME_rows: rows, groups or columns [from, end). */
static void range_lines(Printer *p) {
  const Kernel *k = p->kernel;
  if (k->n_dims == 1) {
    row_lines(p, "from", "end");
    return;
  }
  int outer = chunked(k) ? row_dims(k) : parallel_dims(k);
  if (chunked(k))
    sums_begin(p, "partial");
  int wide = 0, only = 0;
  for (int i = 0; i < outer; i++)
    if (k->dim[i] > 1) {
      wide++;
      only = i;
    }
  const char *x = wide == 1 ? p->index[only] : "row";
  line(p, "for (int64_t %s = from; %s < end; %s++) {", x, x, x);
  p->indent += 2;
  if (wide != 1)
    unpack_index(p, x, outer);
  if (!chunked(k))
    sums_begin(p, sums_extent(k) > 0 && sums_in_scratch(k)
                      ? format("(float *)scratch + %s * %" PRId64, x, sums_extent(k)) : NULL);
  open_loops(p, outer, row_dims(k));
  row_lines(p, NULL, NULL);
  close_loops(p, outer, row_dims(k));
  if (!chunked(k))
    sums_end(p);
  p->indent -= 2;
  line(p, "}");
}

/* ---- the function --------------------------------------------------------------------------------------- */

/* Parameters as declared, or as passed on. */
static Names arguments(const Printer *p, bool declare, bool range) {
  Names list = {0};
  if (range && declare) {
    push(&list, intern("int64_t from"));
    push(&list, intern("int64_t end"));
  }
  if (p->call.first && (declare || !chunked(p->kernel)))
    push(&list, intern(declare ? "bool first" : "first"));
  for (int i = 0; i < p->call.buffers.n; i++) {
    int buffer = p->call.buffers.at[i];
    const char *type = p->k->buffers.at[buffer].type == TYPE_TOKEN ? "int32_t" : "float";
    const char *constant = stores_to(p->kernel, buffer) ? "" : "const ";
    push(&list, declare ? internf("%s%s *restrict %s", constant, type, p->parameter[i]) : p->parameter[i]);
  }
  for (int i = 0; i < p->call.keys.n; i++)
    push(&list, declare ? internf("uint64_t %s", p->key[i]) : p->key[i]);
  if (p->call.scratch && !(range && chunked(p->kernel)))
    push(&list, intern(declare ? "char *restrict scratch" : "scratch"));
  return list;
}

/* Buffers that a chunk's range function does not touch: targets of partial sums alone. */
static bool chunk_uses(const Printer *p, int buffer) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->terms.n; i++)
    if (p->live[i] && k->terms.at[i].kind == TERM_LOAD && k->terms.at[i].place.buffer == buffer)
      return true;
  for (int i = 0; i < k->stores.n; i++)
    if (!p->sum[i] && k->stores.at[i].place.buffer == buffer)
      return true;
  return false;
}

static bool chunk_first(const Printer *p) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->stores.n; i++)
    if (!p->sum[i] && k->stores.at[i].accumulate &&
        p->k->buffers.at[k->stores.at[i].place.buffer].kind == BUFFER_ACCUMULATOR)
      return true;
  return false;
}

static Names chunk_arguments(const Printer *p, bool declare) {
  Names list = {0};
  if (declare) {
    push(&list, intern("int64_t from"));
    push(&list, intern("int64_t end"));
  }
  if (chunk_first(p))
    push(&list, intern(declare ? "bool first" : "first"));
  for (int i = 0; i < p->call.buffers.n; i++) {
    int buffer = p->call.buffers.at[i];
    if (!chunk_uses(p, buffer))
      continue;
    const char *type = p->k->buffers.at[buffer].type == TYPE_TOKEN ? "int32_t" : "float";
    const char *constant = stores_to(p->kernel, buffer) ? "" : "const ";
    push(&list, declare ? internf("%s%s *restrict %s", constant, type, p->parameter[i]) : p->parameter[i]);
  }
  for (int i = 0; i < p->call.keys.n; i++)
    push(&list, declare ? internf("uint64_t %s", p->key[i]) : p->key[i]);
  push(&list, declare ? intern("float *restrict partial") : internf("(float *)scratch + c * %" PRId64, sums_extent(p->kernel)));
  return list;
}

/* Deals rows to threads in equal shares; each share's results do not depend on the others. */
static void deal_lines(Printer *p, const char *function) {
  const Kernel *k = p->kernel;
  int64_t n = k->n_dims == 1 ? columns(k) : groups(k);
  int64_t each = product(k->dim, 0, k->n_dims) / n;
  int64_t step = (TASK_ELEMENTS + each - 1) / each;
  line(p, "#pragma omp parallel for");
  line(p, "for (int64_t from = 0; from < %" PRId64 "; from += %" PRId64 ")", n, step);
  Names list = {0}, rest = arguments(p, false, true);
  push(&list, intern("from"));
  push(&list, n % step == 0 ? internf("from + %" PRId64, step)
                            : internf("from + %" PRId64 " < %" PRId64 " ? from + %" PRId64 " : %" PRId64, step, n, step, n));
  for (int i = 0; i < rest.n; i++)
    push(&list, rest.at[i]);
  int indent = p->indent + 3 + (int)strlen(function) + 6;
  text_list(p->out, indent, format("%*s  %s_rows(", p->indent, "", function), &list, ");\n");
}

/* Rows in chunks by shape alone, each with its own partial sums, added in the chunks' order. */
static void chunk_lines(Printer *p, const char *function) {
  const Kernel *k = p->kernel;
  int64_t rows = product(k->dim, 0, row_dims(k)), extent = sums_extent(k);
  if (rows * columns(k) >= PARALLEL_ELEMENTS)
    line(p, "#pragma omp parallel for");
  line(p, "for (int64_t c = 0; c < %d; c++)", k->chunks);
  Names list = {0}, rest = chunk_arguments(p, false);
  if (rows % k->chunks == 0) {
    push(&list, internf("c * %" PRId64, rows / k->chunks));
    push(&list, internf("(c + 1) * %" PRId64, rows / k->chunks));
  } else {
    push(&list, internf("c * %" PRId64 " / %d", rows, k->chunks));
    push(&list, internf("(c + 1) * %" PRId64 " / %d", rows, k->chunks));
  }
  for (int i = 0; i < rest.n; i++)
    push(&list, rest.at[i]);
  int indent = p->indent + 3 + (int)strlen(function) + 6;
  text_list(p->out, indent, format("%*s  %s_rows(", p->indent, "", function), &list, ");\n");
  line(p, "float *partial = (float *)scratch;");
  line(p, "for (int64_t c = 1; c < %d; c++)", k->chunks);
  line(p, "  for (int64_t x = 0; x < %" PRId64 "; x++) partial[x] += partial[c * %" PRId64 " + x];", extent, extent);
  int64_t at = 0;
  for (int i = 0; i < k->stores.n; i++)
    if (p->sum[i]) {
      line(p, at ? "const float *%s = partial + %" PRId64 ";" : "const float *%s = partial;", p->sum[i], at);
      at += (sum_extent(k, &k->stores.at[i]) + LANES - 1) / LANES * LANES;
    }
  sums_end(p);
}

static Printer printer(Text *out, const StageKernels *stage, const Kernel *k) {
  Printer p = {.out = out, .k = stage, .kernel = k, .call = loop_call(stage, k), .live = live_terms(k)};
  static const char *const words[] = {"c", "l", "x", "row", "first", "end", "partial"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    push(&p.taken, intern(words[i]));
  p.parameter = alloc((size_t)(p.call.buffers.n + 1) * sizeof(Name));
  p.term = alloc((size_t)(k->terms.n + 1) * sizeof(Name));
  p.sum = alloc((size_t)(k->stores.n + 1) * sizeof(Name));
  p.needed = alloc((size_t)k->terms.n + 1);
  for (int i = 0; i < k->n_dims; i++) {
    p.index[i] = i == row_dims(k) ? intern("j") : row_dims(k) == 1 ? intern("i") : internf("i%d", i);
    push(&p.taken, p.index[i]);
  }
  for (int i = 0; i < p.call.buffers.n; i++) {
    const Buffer *b = &stage->buffers.at[p.call.buffers.at[i]];
    bool gradient = b->kind == BUFFER_ACCUMULATOR || b->kind == BUFFER_GRADIENT_RECEIVED ||
                    b->kind == BUFFER_GRADIENT_SENT;
    p.parameter[i] = unique_name(&p.taken, gradient ? format("%s_gradient", b->name) : b->name);
  }
  p.key = alloc((size_t)(p.call.keys.n + 1) * sizeof(Name));
  for (int i = 0; i < p.call.keys.n; i++)
    p.key[i] = unique_name(&p.taken, "key");
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (p.live[i] && t->kind != TERM_CONSTANT)
      p.term[i] = unique_name(&p.taken, t->kind == TERM_LOAD ? format("%s_%s", t->name, t->scalar ? "i" : "j") : t->name);
  }
  for (int i = 0; i < k->stores.n; i++)
    if (sums_rows(k, &k->stores.at[i]))
      p.sum[i] = unique_name(&p.taken, format("%s_sum", parameter_of(&p, k->stores.at[i].place.buffer)));
  return p;
}

/* "x, y: [512, 256]; weight: [256]" */
static char *shapes(const Printer *p) {
  Text out = {0};
  for (int i = 0; i < p->call.buffers.n; i++) {
    const Buffer *b = &p->k->buffers.at[p->call.buffers.at[i]];
    const Buffer *next = i + 1 < p->call.buffers.n ? &p->k->buffers.at[p->call.buffers.at[i + 1]] : NULL;
    bool same = next && next->rank == b->rank && !memcmp(next->dim, b->dim, (size_t)b->rank * sizeof *b->dim);
    text_add(&out, "%s", p->parameter[i]);
    if (same)
      text_add(&out, ", ");
    else
      text_add(&out, " %s%s", dims_text(b->rank, b->dim), next ? "; " : "");
  }
  return out.at;
}

void print_loop(Text *out, const StageKernels *stage, const Kernel *k, const char *function) {
  Printer p = printer(out, stage, k);
  text_comment(out, 0, format("%s. %s", k->comment ? k->comment : k->name, shapes(&p)));
  int indent = 13 + (int)strlen(function);
  Names list;
  if (is_split(k)) {
    list = chunked(k) ? chunk_arguments(&p, true) : arguments(&p, true, true);
    text_list(out, indent + 5, format("static void %s_rows(", function), &list, ") {\n");
    p.indent = 2;
    range_lines(&p);
    text_add(out, "}\n\n");
  }
  list = arguments(&p, true, false);
  text_list(out, indent, format("static void %s(", function), &list, ") {\n");
  p.indent = 2;
  if (chunked(k))
    chunk_lines(&p, function);
  else if (is_split(k))
    deal_lines(&p, function);
  else
    whole_lines(&p);
  text_add(out, "}\n\n");
}
