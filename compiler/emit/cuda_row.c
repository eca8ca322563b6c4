/* Prints what a thread of a CUDA kernel does with a row, or with its elements of one: loads, phases, stores. Several
 * adjacent elements are loaded and stored at once. runtime/cuda/pd_loops.h has the functions that the text calls. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

enum {
  LOADS_AHEAD = 4 /* unroll factor of a loop along a row */
};

/* ---- elements ---------------------------------------------------------------------------------- */

const Buffer *cuda_buffer(const Printer *p, int buffer) { return &p->k->buffers.at[buffer]; }

const char *cuda_stored_type(const Buffer *b) {
  return b->type == TYPE_TOKEN ? "int32_t" : b->bf16 ? "pd_bf16" : "float";
}

static char *widened(const Buffer *b, char *element) { return b->bf16 ? format("(float)%s", element) : element; }

char *cuda_narrowed(const Buffer *b, const char *value) {
  return b->bf16 ? format("__float2bfloat16_rn(%s)", value) : format("%s", value);
}

/* The current element of a variable that holds several elements of one thread. */
char *cuda_own(const Printer *p, Name vector) {
  const GpuLoop *m = p->gpu;
  return format("%s%s%s", vector, m->vectors > 1 ? "[m]" : "", m->vector > 1 ? "[v]" : "");
}

/* "x, i * 768 + j0": pointer and index of the first of several adjacent elements. */
static char *first_element(Printer *p, const Place *place) {
  int last = p->shape->row_dims;
  Name j = p->index[last];
  p->index[last] = intern("j0");
  char *text = format("%s, %s", parameter_of(p, place->buffer),
                      index_sum(p, place->offset, place->stride, 0, p->kernel->n_dims));
  p->index[last] = j;
  p->reads_first = true;
  return text;
}

static char *cuda_load(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  if (p->cached[term])
    return cuda_own(p, p->vector[term]);
  if (p->vector[term])
    return format("%s[v]", p->vector[term]);
  return widened(cuda_buffer(p, t->place.buffer), element(p, &t->place));
}

static char *cuda_cached(Printer *p, int term) { return cuda_own(p, p->vector[term]); }

static void cuda_reduce(Printer *p, int term, const char *x) {
  Name sum = p->term[term];
  if (p->kernel->terms.at[term].op->reduction == REDUCTION_MAX)
    print_line(p, "%s = pd_larger(%s, %s);", sum, sum, x);
  else
    print_line(p, "%s += %s;", sum, x);
}

static void cuda_reduced(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  const char *function = t->op->reduction == REDUCTION_MAX ? "max" : "sum";
  print_line(p, "%s = %s;", p->term[term],
             rounded_text(t, format("pd_row_%s<%d>(%s)", function, p->gpu->x, p->term[term])));
}

static Name store_vector(const Printer *p, int store) { return p->vector[p->kernel->terms.n + store]; }

/* Prints the line that sets or increments a store's target. */
void cuda_assign(Printer *p, int store, const char *to, const char *value) {
  if (!p->shape->store[store].accumulator) {
    print_line(p, "%s = %s;", to, value);
    return;
  }
  char *sum = format("first ? %s : %s + %s;", value, to, value);
  if (p->indent + strlen(to) + 3 + strlen(sum) <= WIDTH) {
    print_line(p, "%s = %s", to, sum);
  } else {
    print_line(p, "%s =", to);
    print_line(p, "    %s", sum);
  }
}

/* An element of a column's partial sums. */
char *cuda_partial_element(const Printer *p, int store, const char *j) {
  int64_t at = p->gpu->sum_at[store];
  if (p->shape->columns == 1)
    return at ? format("partial[sums + %" PRId64 "]", at) : format("partial[sums]");
  return format("partial[sums + %s%s]", at ? format("%" PRId64 " + ", at) : "", j);
}

static void cuda_store(Printer *p, int store) {
  const Kernel *k = p->kernel;
  const Store *s = &k->stores.at[store];
  char *value = stored_text(p, s->term);
  if (p->sum[store] && p->shape->store[store].scalar)
    print_line(p, "%s += %s;", p->sum[store], value);
  else if (p->sum[store] && p->gpu->sums_in_memory)
    print_line(p, "%s += %s;", cuda_partial_element(p, store, p->index[p->shape->row_dims]), value);
  else if (p->sum[store])
    print_line(p, "%s += %s;", cuda_own(p, p->sum[store]), value);
  else if (!p->shape->store[store].scalar && p->gpu->vector > 1)
    cuda_assign(p, store, format("%s[v]", store_vector(p, store)), value);
  else
    cuda_assign(p, store, element(p, &s->place), cuda_narrowed(cuda_buffer(p, s->place.buffer), value));
  p->reads_column |= p->sum[store] && !p->shape->store[store].scalar && p->gpu->sums_in_memory;
}

static const char *const reserved[] = {"now", "at", "row", "group", "tile", "sums", "j0", "m", "v", NULL};
static const LoopDialect narrow_loops = {.reserved = reserved,
                                         .integer = "int",
                                         .load = cuda_load,
                                         .cached = cuda_cached,
                                         .reduce = cuda_reduce,
                                         .reduced = cuda_reduced,
                                         .store = cuda_store};
static const LoopDialect wide_loops = {.reserved = reserved,
                                       .integer = "int64_t",
                                       .load = cuda_load,
                                       .cached = cuda_cached,
                                       .reduce = cuda_reduce,
                                       .reduced = cuda_reduced,
                                       .store = cuda_store};

const LoopDialect *cuda_loop_dialect(bool wide) { return wide ? &wide_loops : &narrow_loops; }

/* ---- a phase: a pass over the row ----------------------------------------------------------------------- */

/* Whether every thread of a block has elements. */
static bool is_exact(const Printer *p) {
  const GpuLoop *m = p->gpu;
  return m->kind == MAP_ELEMENTS || m->column_blocks * m->x * m->vector * m->vectors == p->shape->columns;
}

/* Whether phases need braces: several phases outside loops declare the same names. */
static bool needs_scopes(const Printer *p) {
  const Kernel *k = p->kernel;
  bool again = p->gpu->vector == 1;
  for (int i = 0; i < k->terms.n; i++)
    again |= p->vector[i] && !p->cached[i] && (k->terms.at[i].phases & (k->terms.at[i].phases - 1)) != 0;
  return again && k->phases > 1 && p->gpu->vectors == 1 && is_exact(p);
}

/* Whether the load of a cached term can also declare its cache. */
static bool loaded_whole(const Printer *p, int term) {
  bool whole = p->gpu->vectors == 1 && is_exact(p) && !needs_scopes(p);
  return whole && p->kernel->terms.at[term].kind == TERM_LOAD;
}

/* Prints the loads of a thread's adjacent elements and of its cached elements. */
static void load_lines(Printer *p, int phase) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->needed[i] || t->kind != TERM_LOAD || (p->cached[i] && t->phase < phase))
      continue;
    bool anew = !p->cached[i] || loaded_whole(p, i);
    if (!p->vector[i])
      continue;
    char *to =
        format("%s%s%s", anew ? "const auto " : "", p->vector[i], !anew && p->gpu->vectors > 1 ? "[m]" : "");
    if (p->gpu->vector > 1)
      print_line(p, "%s = pd_load<%d>(%s);", to, p->gpu->vector, first_element(p, &t->place));
    else
      print_line(p, "%s = %s;", to, widened(cuda_buffer(p, t->place.buffer), element(p, &t->place)));
  }
}

static bool stores_elements(const Printer *p, int store, int phase) {
  const Store *s = &p->kernel->stores.at[store];
  return !p->sum[store] && !p->shape->store[store].scalar && s->phase == phase;
}

static void store_vectors(Printer *p, int phase) {
  for (int i = 0; i < p->kernel->stores.n; i++) {
    const Store *s = &p->kernel->stores.at[i];
    if (!stores_elements(p, i, phase))
      continue;
    bool token = cuda_buffer(p, s->place.buffer)->type == TYPE_TOKEN, adds = p->shape->store[i].accumulator;
    print_line(p, "pd_vector<%d%s> %s%s;", p->gpu->vector, token ? ", int32_t" : "", store_vector(p, i),
               adds ? " = {}" : "");
    if (adds)
      print_line(p, "if (!first) %s = pd_load<%d>(%s);", store_vector(p, i), p->gpu->vector,
                 first_element(p, &s->place));
  }
}

/* Prints a loop over adjacent elements around the lines for one of them. */
void cuda_vector_lines(Printer *p, void (*lines)(Printer *, int), int argument) {
  Text *out = p->out, body = {0}, whole = {0};
  p->out = &body;
  p->indent += 2;
  p->reads_column = false;
  lines(p, argument);
  p->out = &whole;
  if (p->reads_column)
    print_line(p, "const %s %s = j0 + v;", p->dialect->integer, p->index[p->shape->row_dims]);
  p->reads_first |= p->reads_column;
  text_add(&whole, "%s", body.n ? body.at : "");
  p->indent -= 2;
  p->out = out;
  print_line(p, "#pragma unroll");
  print_block(p, format("for (int v = 0; v < %d; v++)", p->gpu->vector), &whole);
}

/* Prints a phase for the elements at j, or from j0 on. */
static void element_lines(Printer *p, int phase) {
  p->phase = phase;
  load_lines(p, phase);
  if (p->gpu->vector == 1) {
    phase_lines(p, phase);
    return;
  }
  store_vectors(p, phase);
  cuda_vector_lines(p, phase_lines, phase);
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (stores_elements(p, i, phase))
      print_line(p, "pd_store(%s, %s);", first_element(p, &p->kernel->stores.at[i].place), store_vector(p, i));
}

Name cuda_first_column(const Printer *p) {
  return p->gpu->vector > 1 ? intern("j0") : p->index[p->shape->row_dims];
}

char *cuda_times(const char *x, int64_t n) { return n > 1 ? format("%s * %" PRId64, x, n) : format("%s", x); }

/* Prints the start of a thread's elements, if the lines read it, and the bound check, inside the loop over a
 * row. */
static void column_in_loop(Printer *p) {
  const GpuLoop *m = p->gpu;
  char *text = format("m * %d + threadIdx.x", m->x);
  bool exact = is_exact(p), reads = m->vector > 1 ? p->reads_first : p->reads_column;
  if (!exact || reads)
    print_line(p, "const %s %s = %s;", p->dialect->integer, cuda_first_column(p),
               m->vector > 1 ? format("(%s) * %d", text, m->vector) : text);
  if (!exact)
    print_line(p, "if (%s >= %" PRId64 ") break;", cuda_first_column(p), p->shape->columns);
}

/* Columns that are loaded and stored as vectors. */
static int64_t whole_columns(const Printer *p) { return p->shape->columns / p->gpu->vector * p->gpu->vector; }

static bool is_ragged(const Printer *p) { return whole_columns(p) < p->shape->columns; }

/* The loop or condition around a thread's lines for a row; "" for none. */
static const char *columns_head(Printer *p) {
  const GpuLoop *m = p->gpu;
  Name j = cuda_first_column(p);
  int64_t n = whole_columns(p);
  if (m->vectors > 1)
    return format("#pragma unroll\n%*sfor (int m = 0; m < %d; m++)", p->indent, "", m->vectors);
  if (m->vectors == 0)
    return format("#pragma unroll %d\n%*sfor (%s %s = %s; %s < %" PRId64 "; %s += %d)", LOADS_AHEAD, p->indent, "",
                  p->dialect->integer, j, cuda_times("threadIdx.x", m->vector), j, n, j, m->x * m->vector);
  return is_exact(p) && !is_ragged(p) ? "" : format("if (%s < %" PRId64 ")", j, n);
}

/* Prints the scalar tail of a row: one thread per element for MAP_ROWS, else the thread after the last whole
 * vector. */
static void last_columns_lines(Printer *p, void (*lines)(Printer *, int), int argument) {
  const GpuLoop *m = p->gpu;
  GpuLoop single = *m;
  Name *vector = p->vector, j = p->index[p->shape->row_dims];
  Text *out = p->out, body = {0};
  int64_t n = p->shape->columns, whole = whole_columns(p);
  const char *integer = p->dialect->integer;
  single.vector = 1;
  p->out = &body;
  p->indent += 2;
  if (m->kind == MAP_ROWS)
    print_line(p, "const %s %s = %" PRId64 " + threadIdx.x;", integer, j, whole);
  p->gpu = &single;
  p->vector = alloc((size_t)(p->kernel->terms.n + p->kernel->stores.n + 1) * sizeof(Name));
  lines(p, argument);
  p->gpu = m;
  p->vector = vector;
  p->out = out;
  p->indent -= 2;
  if (m->kind == MAP_ROWS)
    print_block(p, format("if (threadIdx.x < %" PRId64 ")", n - whole), &body);
  else
    print_block(p, format("else for (%s %s = %" PRId64 "; %s < %" PRId64 "; %s++)", integer, j, whole, j, n, j),
                &body);
}

void cuda_columns_lines(Printer *p, void (*lines)(Printer *, int), int argument) {
  const char *head = columns_head(p);
  Text *out = p->out, body = {0}, whole = {0};
  bool scope = !head[0] && needs_scopes(p);
  if (!head[0] && !scope) {
    lines(p, argument);
    return;
  }
  p->out = &body;
  p->indent += 2;
  p->reads_column = p->reads_first = false;
  lines(p, argument);
  p->out = &whole;
  if (p->gpu->vectors > 1)
    column_in_loop(p);
  text_add(&whole, "%s", body.n ? body.at : "");
  p->indent -= 2;
  p->out = out;
  if (!scope) {
    print_block(p, head, &whole);
    if (is_ragged(p))
      last_columns_lines(p, lines, argument);
    return;
  }
  print_line(p, "{");
  text_add(p->out, "%s", whole.at);
  print_line(p, "}");
}

void cuda_row_lines(Printer *p) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->terms.n; i++) {
    const GpuLoop *m = p->gpu;
    const char *many = m->vectors > 1 ? format("[%d]", m->vectors) : "";
    if (!p->shape->live[i] || !p->cached[i] || loaded_whole(p, i))
      continue;
    const char *type = type_of(p, &k->terms.at[i]);
    const char *typed = is_token(p, &k->terms.at[i]) ? format(", %s", type) : "";
    print_line(p, "%s %s%s;", m->vector > 1 ? format("pd_vector<%d%s>", m->vector, typed) : type, p->vector[i],
               many);
  }
  for (int phase = 0; phase <= k->phases; phase++) {
    bool reduces;
    scalar_lines(p, phase);
    if (phase == k->phases || !phase_needs(p, phase, &reduces))
      continue;
    for (int i = 0; i < k->terms.n; i++) {
      const Term *t = &k->terms.at[i];
      if (p->shape->live[i] && t->kind == TERM_REDUCE && t->phase == phase)
        print_line(p, "float %s = %s;", p->term[i], t->op->reduction == REDUCTION_MAX ? "-INFINITY" : "0.0f");
    }
    cuda_columns_lines(p, element_lines, phase);
  }
}
