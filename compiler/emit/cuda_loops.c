/* Prints kernels of kind LOOP as CUDA kernels: constant bounds, restrict pointers, summation order fixed by
 * shapes. kernel.h defines the loops, lower/gpu.c maps them to threads, runtime/cuda/pd_loops.h has the functions
 * that they call. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

enum {
  LOADS_AHEAD = 4 /* unroll factor of a loop along a row */
};

/* ---- elements ---------------------------------------------------------------------------------- */

static const Buffer *buffer_at(const Printer *p, int buffer) { return &p->k->buffers.at[buffer]; }

static const char *stored_type(const Buffer *b) {
  return b->type == TYPE_TOKEN ? "int32_t" : b->bf16 ? "pd_bf16" : "float";
}

static char *widened(const Buffer *b, char *element) { return b->bf16 ? format("(float)%s", element) : element; }

static char *narrowed(const Buffer *b, const char *value) {
  return b->bf16 ? format("__float2bfloat16_rn(%s)", value) : format("%s", value);
}

/* The current element of a variable that holds several elements of one thread. */
static char *own(const Printer *p, Name vector) {
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
    return own(p, p->vector[term]);
  if (p->vector[term])
    return format("%s[v]", p->vector[term]);
  return widened(buffer_at(p, t->place.buffer), element(p, &t->place));
}

static char *cuda_cached(Printer *p, int term) { return own(p, p->vector[term]); }

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
static void assign(Printer *p, int store, const char *to, const char *value) {
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
static char *partial_element(const Printer *p, int store, const char *j) {
  int64_t at = p->gpu->sum_at[store];
  if (p->shape->columns == 1)
    return at ? format("partial[sums + %" PRId64 "]", at) : format("partial[sums]");
  return format("partial[sums + %s%s]", at ? format("%" PRId64 " + ", at) : "", j);
}

static void cuda_store(Printer *p, int store) {
  const Kernel *k = p->kernel;
  const Store *s = &k->stores.at[store];
  char *value = term_text(p, s->term);
  if (p->sum[store] && p->shape->store[store].scalar)
    print_line(p, "%s += %s;", p->sum[store], value);
  else if (p->sum[store] && p->gpu->sums_in_memory)
    print_line(p, "%s += %s;", partial_element(p, store, p->index[p->shape->row_dims]), value);
  else if (p->sum[store])
    print_line(p, "%s += %s;", own(p, p->sum[store]), value);
  else if (!p->shape->store[store].scalar && p->gpu->vector > 1)
    assign(p, store, format("%s[v]", store_vector(p, store)), value);
  else
    assign(p, store, element(p, &s->place), narrowed(buffer_at(p, s->place.buffer), value));
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
      print_line(p, "%s = %s;", to, widened(buffer_at(p, t->place.buffer), element(p, &t->place)));
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
    bool token = buffer_at(p, s->place.buffer)->type == TYPE_TOKEN, adds = p->shape->store[i].accumulator;
    print_line(p, "pd_vector<%d%s> %s%s;", p->gpu->vector, token ? ", int32_t" : "", store_vector(p, i),
               adds ? " = {}" : "");
    if (adds)
      print_line(p, "if (!first) %s = pd_load<%d>(%s);", store_vector(p, i), p->gpu->vector,
                 first_element(p, &s->place));
  }
}

/* Prints a loop over adjacent elements around the lines for one of them. */
static void vector_lines(Printer *p, void (*lines)(Printer *, int), int argument) {
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
  vector_lines(p, phase_lines, phase);
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (stores_elements(p, i, phase))
      print_line(p, "pd_store(%s, %s);", first_element(p, &p->kernel->stores.at[i].place), store_vector(p, i));
}

static Name first_column(const Printer *p) {
  return p->gpu->vector > 1 ? intern("j0") : p->index[p->shape->row_dims];
}

static char *times(const char *x, int64_t n) { return n > 1 ? format("%s * %" PRId64, x, n) : format("%s", x); }

/* Prints the start of a thread's elements, if the lines read it, and the bound check, inside the loop over a
 * row. */
static void column_in_loop(Printer *p) {
  const GpuLoop *m = p->gpu;
  char *text = format("m * %d + threadIdx.x", m->x);
  bool exact = is_exact(p), reads = m->vector > 1 ? p->reads_first : p->reads_column;
  if (!exact || reads)
    print_line(p, "const %s %s = %s;", p->dialect->integer, first_column(p),
               m->vector > 1 ? format("(%s) * %d", text, m->vector) : text);
  if (!exact)
    print_line(p, "if (%s >= %" PRId64 ") break;", first_column(p), p->shape->columns);
}

/* Columns that are loaded and stored as vectors. */
static int64_t whole_columns(const Printer *p) { return p->shape->columns / p->gpu->vector * p->gpu->vector; }

static bool is_ragged(const Printer *p) { return whole_columns(p) < p->shape->columns; }

/* The loop or condition around a thread's lines for a row; "" for none. */
static const char *columns_head(Printer *p) {
  const GpuLoop *m = p->gpu;
  Name j = first_column(p);
  int64_t n = whole_columns(p);
  if (m->vectors > 1)
    return format("#pragma unroll\n%*sfor (int m = 0; m < %d; m++)", p->indent, "", m->vectors);
  if (m->vectors == 0)
    return format("#pragma unroll %d\n%*sfor (%s %s = %s; %s < %" PRId64 "; %s += %d)", LOADS_AHEAD, p->indent, "",
                  p->dialect->integer, j, times("threadIdx.x", m->vector), j, n, j, m->x * m->vector);
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

static void columns_lines(Printer *p, void (*lines)(Printer *, int), int argument) {
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

static void row_lines(Printer *p) {
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
    columns_lines(p, element_lines, phase);
  }
}

/* ---- rows of a thread ---------------------------------------------------------------------------- */

/* The only one of dims [first, end) that is longer than 1, or -1. */
static int only_wide(const Kernel *k, int first, int end) {
  int only = -1;
  for (int i = first; i < end; i++)
    if (k->dim[i] > 1) {
      if (only >= 0)
        return -1;
      only = i;
    }
  return only;
}

/* Prints the indices of dims [first, end) from a linear index, which gets a name if several dims are longer than
 * 1. */
static void index_lines(Printer *p, const char *name, const char *text, int first, int end) {
  const Kernel *k = p->kernel;
  if (product(k->dim, first, end) == 1)
    return;
  int only = only_wide(k, first, end);
  print_line(p, "const %s %s = %s;", p->dialect->integer, only >= 0 ? p->index[only] : name, text);
  if (only < 0)
    unpack_index(p, name, first, end);
}

static char *wide_text(const char *text) {
  return format(strchr(text, ' ') ? "(int64_t)(%s)" : "(int64_t)%s", text);
}

static const char *block_index(const Printer *p) { return p->gpu->wide ? "(int64_t)blockIdx.x" : "blockIdx.x"; }

static int64_t all_elements(const Printer *p) { return p->shape->groups * p->shape->rows * p->gpu->columns; }

static void elements_lines(Printer *p) {
  const GpuLoop *m = p->gpu;
  int64_t n = all_elements(p), rows = n / m->columns;
  print_line(p, "const %s at = %s * %d + threadIdx.x;", p->dialect->integer, block_index(p), m->x);
  if (n % m->x)
    print_line(p, "if (at >= %" PRId64 ") return;", n);
  index_lines(p, "row", m->columns > 1 ? format("at / %" PRId64, m->columns) : "at", 0, p->shape->row_dims);
  if (m->columns * m->vector > 1)
    print_line(p, "const %s %s = %s;", p->dialect->integer, first_column(p),
               times(m->columns == 1 ? "0"
                     : rows > 1      ? format("at %% %" PRId64, m->columns)
                                     : "at",
                     m->vector));
  p->lead = m->columns > 1 ? format("if (%s == 0)", first_column(p)) : NULL;
  row_lines(p);
}

/* Prints the column of a thread's only elements of a row (MAP_ROWS, MAP_COLUMNS). */
static void column_line(Printer *p) {
  const GpuLoop *m = p->gpu;
  int64_t blocks = m->column_blocks;
  const char *x = "threadIdx.x";
  if (blocks > 1)
    x = format("(%s %% %" PRId64 " * %d + threadIdx.x)", block_index(p), blocks, m->x);
  if (m->vectors == 1 && p->shape->columns > 1)
    print_line(p, "const %s %s = %s;", p->dialect->integer, first_column(p), times(x, m->vector));
}

static void rows_lines(Printer *p) {
  const Kernel *k = p->kernel;
  const GpuLoop *m = p->gpu;
  int64_t rows = p->shape->groups * p->shape->rows;
  index_lines(p, "row", m->y > 1 ? format("%s * %d + threadIdx.y", block_index(p), m->y) : "blockIdx.x", 0,
              p->shape->row_dims);
  int only = only_wide(k, 0, p->shape->row_dims);
  if (rows % m->y)
    print_line(p, "if (%s >= %" PRId64 ") return;", only >= 0 ? p->index[only] : "row", rows);
  column_line(p);
  p->lead = "if (threadIdx.x == 0)";
  row_lines(p);
}

/* ---- sums over rows ---------------------------------------------------------------------------- */

static bool column_sum(const Printer *p, int store) { return p->sum[store] && !p->shape->store[store].scalar; }

/* The block's tile number, counted over all groups. */
static char *tile_text(const Printer *p) {
  int64_t blocks = p->gpu->column_blocks;
  return blocks > 1 ? format("blockIdx.x / %" PRId64, blocks) : format("blockIdx.x");
}

static void clear_line(Printer *p, int store) {
  print_line(p, "%s = 0.0f;", partial_element(p, store, p->index[p->shape->row_dims]));
  p->reads_column = true;
}

static void clear_lines(Printer *p, int store) {
  if (p->gpu->vector > 1)
    vector_lines(p, clear_line, store);
  else
    clear_line(p, store);
}

static void sums_begin(Printer *p) {
  const GpuLoop *m = p->gpu;
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (p->sum[i] && !column_sum(p, i))
      print_line(p, "float %s = 0.0f;", p->sum[i]);
    else if (p->sum[i] && m->sums_in_memory)
      columns_lines(p, clear_lines, i);
    else if (p->sum[i])
      print_line(p, "%s %s%s = {};", m->vector > 1 ? format("pd_vector<%d>", m->vector) : "float", p->sum[i],
                 m->vectors > 1 ? format("[%d]", m->vectors) : "");
}

/* Stores the sum of a group or of one tile of its rows. */
static void sum_line(Printer *p, int store) {
  const Place *place = &p->kernel->stores.at[store].place;
  const char *sum = column_sum(p, store) ? own(p, p->sum[store]) : p->sum[store];
  if (p->gpu->in_scratch && column_sum(p, store))
    print_line(p, "%s = %s;", partial_element(p, store, p->index[p->shape->row_dims]), sum);
  else if (p->gpu->in_scratch)
    print_line(p, "partial[sums + %" PRId64 "] = %s;", p->gpu->sum_at[store], sum);
  else
    assign(p, store, element(p, place), narrowed(buffer_at(p, place->buffer), sum));
  p->reads_column = true;
}

static void column_sums(Printer *p, int unused) {
  const GpuLoop *m = p->gpu;
  (void)unused;
  for (int i = 0; i < p->kernel->stores.n; i++) {
    if (!column_sum(p, i) || m->sums_in_memory)
      continue;
    if (m->vector == 1) {
      sum_line(p, i);
    } else if (m->in_scratch) {
      p->reads_first = true;
      const char *from = m->sum_at[i] ? format("%" PRId64 " + j0", m->sum_at[i]) : "j0";
      print_line(p, "pd_store(partial, sums + %s, %s%s);", from, p->sum[i], m->vectors > 1 ? "[m]" : "");
    } else {
      vector_lines(p, sum_line, i);
    }
  }
}

/* Adds up the sums of the block's thread rows and stores the total. */
static void sums_end(Printer *p) {
  const Kernel *k = p->kernel;
  const GpuLoop *m = p->gpu;
  bool columns_there = false;
  for (int i = 0; i < k->stores.n; i++) {
    columns_there |= column_sum(p, i) && !m->sums_in_memory;
    if (p->sum[i] && m->y > 1)
      print_line(p, "pd_add_rows<%d, %d>(%s);", m->x, m->y, p->sum[i]);
  }
  if (m->y > 1)
    print_line(p, "if (threadIdx.y > 0) return;");
  if (columns_there)
    columns_lines(p, column_sums, 0);
  Text *out = p->out, scalars = {0};
  p->out = &scalars;
  p->indent += 2;
  for (int i = 0; i < k->stores.n; i++)
    if (p->sum[i] && !column_sum(p, i))
      sum_line(p, i);
  p->out = out;
  p->indent -= 2;
  if (scalars.n)
    print_block(p, p->lead, &scalars);
}

/* Prints the block's indices and the start of its partial sums. */
static void block_lines(Printer *p) {
  const GpuLoop *m = p->gpu;
  const char *number = tile_text(p), *integer = p->dialect->integer;
  int64_t blocks = m->tiles * m->column_blocks;
  if (m->tiles > 1)
    print_line(p, "const %s tile = %s%s;", integer, number,
               p->shape->groups > 1 ? format(" %% %d", m->tiles) : "");
  if (m->tiles > 1 && p->shape->groups == 1)
    number = "tile";
  const bool cast = m->wide && strcmp(number, "tile") != 0;
  if (m->in_scratch)
    print_line(p, "const %s sums = %s * %" PRId64 ";", integer, cast ? wide_text(number) : number, m->stride);
  const char *group = blocks > 1 ? format("blockIdx.x / %" PRId64, blocks) : "blockIdx.x";
  index_lines(p, "group", group, 0, p->shape->group_dims);
}

static void open_rows(Printer *p) {
  const Kernel *k = p->kernel;
  const GpuLoop *m = p->gpu;
  int outer = p->shape->group_dims, only = only_wide(k, outer, p->shape->row_dims);
  int64_t rows = p->shape->rows;
  const char *row = only >= 0 ? p->index[only] : "row", *from = m->y > 1 ? "threadIdx.y" : "0";
  const char *end = format("%" PRId64, rows);
  if (m->tiles > 1) {
    from = format("tile * %" PRId64 "%s", m->rows, m->y > 1 ? " + threadIdx.y" : "");
    end = format("(tile + 1) * %" PRId64 "%s", m->rows,
                 rows % m->rows ? format(" && %s < %" PRId64, row, rows) : "");
  }
  print_line(p, "for (%s %s = %s; %s < %s; %s%s) {", p->dialect->integer, row, from, row, end, row,
             m->y > 1 ? format(" += %d", m->y) : "++");
  p->indent += 2;
  if (only < 0)
    unpack_index(p, "row", outer, p->shape->row_dims);
}

/* Sums over the rows of a group, in tiles if one block per group would leave the GPU underused. */
static void summed_lines(Printer *p) {
  const GpuLoop *m = p->gpu;
  block_lines(p);
  column_line(p);
  if (p->shape->columns > 1 && m->x > 1)
    p->lead = m->kind == MAP_ROWS ? "if (threadIdx.x == 0)" : format("if (%s == 0)", first_column(p));
  sums_begin(p);
  open_rows(p);
  row_lines(p);
  p->indent -= 2;
  print_line(p, "}");
  sums_end(p);
}

/* ---- the kernel -------------------------------------------------------------------------------- */

/* Whether the first or the second kernel has a parameter for the buffer. */
static bool takes(const Printer *p, int buffer, bool second) {
  const Kernel *k = p->kernel;
  if (!second)
    return !p->gpu->in_scratch || tile_uses(p, buffer);
  for (int i = 0; i < k->stores.n; i++)
    if (p->sum[i] && k->stores.at[i].place.buffer == buffer)
      return true;
  return false;
}

static bool takes_first(const Printer *p, bool second) {
  bool takes = !second && (p->gpu->in_scratch ? tile_uses_first(p) : p->arguments->first);
  for (int i = 0; i < p->kernel->stores.n; i++)
    takes |= second && p->sum[i] && p->shape->store[i].accumulator;
  return takes;
}

/* The elements of a buffer from its argument on. In the body of a scan the argument moves from row to row, so that only
 * the elements of a row follow. */
static int64_t reached(const Printer *p, int buffer) {
  int64_t most = 1;
  if (!p->k->graph->loop.steps)
    return buffer_at(p, buffer)->elements;
  for (Access a = {0}; next_access(p->kernel, &a);) {
    int64_t last = a.place->offset;
    for (int i = 0; i < a.place->rank; i++)
      last += (a.place->dim[i] - 1) * a.place->stride[i];
    most = a.place->buffer == buffer && last >= most ? last + 1 : most;
  }
  return most;
}

/* The declared parameters or, given the values of the call (lower.h), its arguments. */
static Names parameters(const Printer *p, bool second, const Names *values) {
  Names list = {0};
  int at = 0;
  if (p->arguments->first && takes_first(p, second))
    push(&list, values ? values->at[0] : intern("bool first"));
  at += p->arguments->first;
  if (second)
    push(&list, values ? internf("(float *)%s", values->at[values->n - 1])
                       : internf("PD_READS(float, %" PRId64 ") partial", p->gpu->partials));
  for (int i = 0; i < p->arguments->buffers.n; i++, at++) {
    const Buffer *b = buffer_at(p, p->arguments->buffers.at[i]);
    const char *access = p->arguments->written[i] ? "PD_WRITES" : "PD_READS";
    if (takes(p, p->arguments->buffers.at[i], second))
      push(&list, values ? values->at[at]
                         : internf("%s(%s, %" PRId64 ") %s", access, stored_type(b),
                                   reached(p, p->arguments->buffers.at[i]), p->parameter[i]));
  }
  for (int i = 0; i < p->arguments->keys.n && !second; i++)
    push(&list, values ? values->at[at + i] : internf("uint64_t %s", p->key[i]));
  if (p->gpu->in_scratch && !second)
    push(&list, values ? internf("(float *)%s", values->at[values->n - 1])
                       : internf("PD_WRITES(float, %" PRId64 ") partial", p->gpu->partials));
  if (p->arguments->now && !second)
    push(&list, intern(values ? "pd_now" : "const struct pd_now *now"));
  return list;
}

/* The second launch bound, blocks per multiprocessor, limits a thread's registers. Without it ptxas spills to fit
 * more blocks than are launched. */
static void print_head(Printer *p, const char *function, int threads, int resident, bool second) {
  Names list = parameters(p, second, NULL);
  text_add(p->out, "static __global__ void __launch_bounds__(%d, %d)\n", threads, resident);
  text_list(p->out, (int)strlen(function) + 1, format("%s(", function), &list, ") {\n");
  p->indent = 2;
}

/* Prints the choice of the sum that a thread of the second kernel stores, with its place. */
static void total_lines(Printer *p, Name total) {
  const Kernel *k = p->kernel;
  int last = p->shape->row_dims;
  const char *otherwise = "";
  for (int scalars = 0; scalars < 2; scalars++)
    for (int i = 0; i < k->stores.n; i++) {
      if (!p->sum[i] || column_sum(p, i) != (scalars == 0))
        continue;
      const Place *place = &k->stores.at[i].place;
      int64_t from = p->gpu->sum_at[i], end = from + (scalars ? 1 : p->shape->columns);
      p->index[last] = from ? internf("at - %" PRId64, from) : intern("at");
      if (from && place->stride[last] != 1)
        p->index[last] = internf("(%s)", p->index[last]);
      print_line(p, "%sif (at < %" PRId64 ")", otherwise, end);
      p->indent += 2;
      assign(p, i, element(p, place), narrowed(buffer_at(p, place->buffer), total));
      p->indent -= 2;
      otherwise = "else ";
    }
}

/* The second kernel: adds up the tiles' partial sums. */
static void print_sums(Printer *p, const char *function) {
  const GpuLoop *m = p->gpu;
  int64_t blocks = m->total_blocks;
  bool grouped = p->shape->groups > 1;
  const char *block = "blockIdx.x", *group = "blockIdx.x";
  if (grouped)
    block = blocks > 1 ? format("blockIdx.x %% %" PRId64, blocks) : "0";
  if (blocks > 1)
    group = format("(blockIdx.x / %" PRId64 ")", blocks);
  Name total = unique_name(&p->taken, "total");
  text_comment(p->out, 0, format("The sums of %d tiles.", m->tiles));
  print_head(p, format("%s_sums", function), SUMS_BLOCK * SUMS_BLOCK, 1, true);
  if (m->wide)
    block = wide_text(block);
  print_line(p, "const %s at = %s * %d + threadIdx.x;", p->dialect->integer, block, SUMS_BLOCK);
  index_lines(p, "group", group, 0, p->shape->group_dims);
  char *first = grouped ? format("%s * (int64_t)%" PRId64 " + at", group, m->tiles * m->stride) : format("at");
  print_line(p, "const float %s = pd_add_tiles(partial, %d, %" PRId64 ", %s, at < %" PRId64 ");", total, m->tiles,
             m->stride, first, m->sums);
  print_line(p, "if (threadIdx.y > 0) return;");
  total_lines(p, total);
  text_add(p->out, "}\n\n");
}

static void name_vectors(Printer *p) {
  const Kernel *k = p->kernel;
  p->vector = alloc((size_t)(k->terms.n + k->stores.n + 1) * sizeof(Name));
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (p->shape->live[i] && (p->cached[i] || (t->kind == TERM_LOAD && !t->scalar && p->gpu->vector > 1)))
      p->vector[i] = unique_name(&p->taken, format("%s_%s", t->kind == TERM_LOAD ? load_name(p, t) : t->name,
                                                   p->cached[i] ? "row" : "v"));
  }
  for (int i = 0; i < k->stores.n && p->gpu->vector > 1; i++)
    if (!p->sum[i] && !p->shape->store[i].scalar)
      p->vector[k->terms.n + i] =
          unique_name(&p->taken, format("%s_v", parameter_of(p, k->stores.at[i].place.buffer)));
}

static Printer cuda_printer(Text *out, const StageKernels *stage, const Lowered *k) {
  Printer p = printer_new(out, stage, k, k->gpu->wide ? &wide_loops : &narrow_loops);
  p.gpu = k->gpu;
  p.cached = k->gpu->cached;
  name_vectors(&p);
  return p;
}

void cuda_print_loop(Text *out, const StageKernels *stage, const Lowered *k, const char *function) {
  const GpuLoop *m = k->gpu;
  Printer p = cuda_printer(out, stage, k);
  text_comment(out, 0, kernel_title(&p));
  print_head(&p, function, m->x * m->y, m->resident, false);
  if (m->sums > 0)
    summed_lines(&p);
  else if (m->kind == MAP_ROWS)
    rows_lines(&p);
  else
    elements_lines(&p);
  text_add(out, "}\n\n");
  if (m->in_scratch)
    print_sums(&p, function);
}

/* ---- the call ---------------------------------------------------------------------------------- */

static void launch(Text *out, int indent, const char *function, int64_t grid, int x, int y,
                   const Names *arguments) {
  Names list = {0};
  push(&list, intern(function));
  push(&list, internf("%" PRId64, grid));
  push(&list, y > 1 ? internf("dim3(%d, %d)", x, y) : internf("%d", x));
  push(&list, intern("0"));
  push(&list, intern("pd_stream"));
  for (int i = 0; i < arguments->n; i++)
    push(&list, arguments->at[i]);
  text_list(out, indent + 10, format("%*sPD_LAUNCH(", indent, ""), &list, ");\n");
}

void cuda_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *k, const char *function,
                          const Names *arguments) {
  const GpuLoop *m = k->gpu;
  Text unused = {0};
  Printer p = cuda_printer(&unused, stage, k);
  Names list = parameters(&p, false, arguments);
  launch(out, indent, function, m->blocks, m->x, m->y, &list);
  if (!m->in_scratch)
    return;
  list = parameters(&p, true, arguments);
  launch(out, indent, format("%s_sums", function), k->shape->groups * m->total_blocks, SUMS_BLOCK, SUMS_BLOCK,
         &list);
}
