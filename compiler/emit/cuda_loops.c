/* Prints kernels of kind LOOP as CUDA kernels: constant bounds, restrict pointers, summation order fixed by
 * shapes. kernel.h defines the loops, lower/gpu.c maps them to threads, cuda_row.c prints a thread's work on a row,
 * runtime/cuda/pd_loops.h has the functions that the kernels call. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

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
    print_line(p, "const %s %s = %s;", p->dialect->integer, cuda_first_column(p),
               cuda_times(m->columns == 1 ? "0"
                          : rows > 1      ? format("at %% %" PRId64, m->columns)
                                          : "at",
                          m->vector));
  p->lead = m->columns > 1 ? format("if (%s == 0)", cuda_first_column(p)) : NULL;
  cuda_row_lines(p);
}

/* Prints the column of a thread's only elements of a row (MAP_ROWS, MAP_COLUMNS). */
static void column_line(Printer *p) {
  const GpuLoop *m = p->gpu;
  int64_t blocks = m->column_blocks;
  const char *x = "threadIdx.x";
  if (blocks > 1)
    x = format("(%s %% %" PRId64 " * %d + threadIdx.x)", block_index(p), blocks, m->x);
  if (m->vectors == 1 && p->shape->columns > 1)
    print_line(p, "const %s %s = %s;", p->dialect->integer, cuda_first_column(p), cuda_times(x, m->vector));
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
  cuda_row_lines(p);
}

/* ---- sums over rows ---------------------------------------------------------------------------- */

static bool column_sum(const Printer *p, int store) { return p->sum[store] && !p->shape->store[store].scalar; }

/* The block's tile number, counted over all groups. */
static char *tile_text(const Printer *p) {
  int64_t blocks = p->gpu->column_blocks;
  return blocks > 1 ? format("blockIdx.x / %" PRId64, blocks) : format("blockIdx.x");
}

static void clear_line(Printer *p, int store) {
  print_line(p, "%s = 0.0f;", cuda_partial_element(p, store, p->index[p->shape->row_dims]));
  p->reads_column = true;
}

static void clear_lines(Printer *p, int store) {
  if (p->gpu->vector > 1)
    cuda_vector_lines(p, clear_line, store);
  else
    clear_line(p, store);
}

static void sums_begin(Printer *p) {
  const GpuLoop *m = p->gpu;
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (p->sum[i] && !column_sum(p, i))
      print_line(p, "float %s = 0.0f;", p->sum[i]);
    else if (p->sum[i] && m->sums_in_memory)
      cuda_columns_lines(p, clear_lines, i);
    else if (p->sum[i])
      print_line(p, "%s %s%s = {};", m->vector > 1 ? format("pd_vector<%d>", m->vector) : "float", p->sum[i],
                 m->vectors > 1 ? format("[%d]", m->vectors) : "");
}

/* Stores the sum of a group or of one tile of its rows. */
static void sum_line(Printer *p, int store) {
  const Place *place = &p->kernel->stores.at[store].place;
  const char *sum = column_sum(p, store) ? cuda_own(p, p->sum[store]) : p->sum[store];
  if (p->gpu->in_scratch && column_sum(p, store))
    print_line(p, "%s = %s;", cuda_partial_element(p, store, p->index[p->shape->row_dims]), sum);
  else if (p->gpu->in_scratch)
    print_line(p, "partial[sums + %" PRId64 "] = %s;", p->gpu->sum_at[store], sum);
  else
    cuda_assign(p, store, element(p, place), cuda_narrowed(cuda_buffer(p, place->buffer), sum));
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
      cuda_vector_lines(p, sum_line, i);
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
    cuda_columns_lines(p, column_sums, 0);
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
    p->lead = m->kind == MAP_ROWS ? "if (threadIdx.x == 0)" : format("if (%s == 0)", cuda_first_column(p));
  sums_begin(p);
  open_rows(p);
  cuda_row_lines(p);
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
    return cuda_buffer(p, buffer)->elements;
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
    const Buffer *b = cuda_buffer(p, p->arguments->buffers.at[i]);
    const char *access = p->arguments->written[i] ? "PD_WRITES" : "PD_READS";
    if (takes(p, p->arguments->buffers.at[i], second))
      push(&list, values ? values->at[at]
                         : internf("%s(%s, %" PRId64 ") %s", access, cuda_stored_type(b),
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
      cuda_assign(p, i, element(p, place), cuda_narrowed(cuda_buffer(p, place->buffer), total));
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
  Printer p = printer_new(out, stage, k, cuda_loop_dialect(k->gpu->wide));
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
