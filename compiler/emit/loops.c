/* Prints kernels of kind LOOP as static C functions: constant bounds, restrict pointers, row sums in LANES lanes
 * that C compilers vectorise. kernel.h defines the loops, runtime/kernels/pd_loops.h has the functions that they
 * call. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

/* ---- a row ----------------------------------------------------------------------------------- */

/* A value as the buffer stores it; accumulators hold floats. */
static char *narrowed(const Printer *p, const Place *place, const char *value) {
  return format(p->k->buffers.at[place->buffer].bf16 ? "pd_to_bf16(%s)" : "%s", value);
}

static void store_line(Printer *p, int store) {
  const Store *s = &p->kernel->stores.at[store];
  char *value = stored_text(p, s->term);
  if (p->sum[store])
    print_line(p, "%s += %s;", sum_element(p, store), value);
  else if (p->shape->store[store].accumulator)
    print_line(p, "%s = first ? %s : %s + %s;", element(p, &s->place), value, element(p, &s->place), value);
  else
    print_line(p, "%s = %s;", element(p, &s->place), narrowed(p, &s->place, value));
}

/* ---- loads and stores in C ----------------------------------------------------------------------- */

static char *c_load(Printer *p, int term) {
  const Place *place = &p->kernel->terms.at[term].place;
  return format(p->k->buffers.at[place->buffer].bf16 ? "pd_from_bf16(%s)" : "%s", element(p, place));
}

static char *c_cached(Printer *p, int term) {
  p->reads_column |= p->shape->columns > 1;
  return format("%s_row[%s]", p->term[term], p->shape->columns > 1 ? p->index[p->shape->row_dims] : "0");
}

static void c_reduce(Printer *p, int term, const char *x) {
  if (p->kernel->terms.at[term].op->reduction == REDUCTION_MAX)
    print_line(p, "%s_lanes[%s] = pd_max(%s_lanes[%s], %s);", p->term[term], p->lane, p->term[term], p->lane, x);
  else
    print_line(p, "%s_lanes[%s] += %s;", p->term[term], p->lane, x);
}

static void c_reduced(Printer *p, int term) {
  const Term *t = &p->kernel->terms.at[term];
  const char *function = t->op->reduction == REDUCTION_MAX ? "max" : "sum";
  print_line(p, "const float %s = %s;", p->term[term],
             rounded_text(t, format("pd_lanes_%s(%s_lanes)", function, p->term[term])));
}

static const char *const c_reserved[] = {"c", "l", "row", "end", "j0", NULL};
static const LoopDialect c_loops = {.reserved = c_reserved,
                                    .integer = "int64_t",
                                    .load = c_load,
                                    .cached = c_cached,
                                    .reduce = c_reduce,
                                    .reduced = c_reduced,
                                    .store = store_line};

static void lanes_lines(Printer *p, int phase) {
  const Kernel *k = p->kernel;
  int64_t n = p->shape->columns, whole = n / LANES * LANES;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->shape->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    if (t->op->reduction == REDUCTION_MAX) {
      print_line(p, "float %s_lanes[PD_LANES];", p->term[i]);
      print_line(p, "for (int l = 0; l < PD_LANES; l++) %s_lanes[l] = -INFINITY;", p->term[i]);
    } else {
      print_line(p, "float %s_lanes[PD_LANES] = {0};", p->term[i]);
    }
  }
  const char *j = p->index[p->shape->row_dims];
  if (whole > 0) {
    print_line(p, "for (int64_t j0 = 0; j0 < %" PRId64 "; j0 += PD_LANES)", whole);
    Text *out = p->out, lines = {0}, body = {0};
    p->out = &lines;
    p->indent += 4;
    p->reads_column = false;
    p->lane = "l";
    phase_lines(p, phase);
    p->out = &body;
    if (p->reads_column)
      print_line(p, "const int64_t %s = j0 + l;", j);
    text_add(&body, "%s", lines.at);
    p->indent -= 2;
    p->out = out;
    print_block(p, "for (int l = 0; l < PD_LANES; l++)", &body);
    p->indent -= 2;
  }
  if (whole < n) {
    print_line(p, "for (int64_t %s = %" PRId64 "; %s < %" PRId64 "; %s++) {", j, whole, j, n, j);
    p->indent += 2;
    p->lane = whole > 0 ? format("%s - %" PRId64, j, whole) : j;
    phase_lines(p, phase);
    p->indent -= 2;
    print_line(p, "}");
  }
}

/* from, end: bounds of the columns, NULL for all. */
static void row_lines(Printer *p, const char *from, const char *end) {
  const Kernel *k = p->kernel;
  const char *j = p->index[p->shape->row_dims];
  for (int i = 0; i < k->terms.n; i++)
    if (p->shape->live[i] && p->cached[i])
      print_line(p, "float %s_row[%" PRId64 "];", p->term[i], p->shape->columns);
  for (int phase = 0; phase <= k->phases; phase++) {
    bool lanes;
    scalar_lines(p, phase);
    if (phase == k->phases || !phase_needs(p, phase, &lanes))
      continue;
    if (lanes) {
      lanes_lines(p, phase);
      continue;
    }
    Text *out = p->out, body = {0};
    p->out = &body;
    p->indent += 2;
    phase_lines(p, phase);
    p->indent -= 2;
    p->out = out;
    char *bound = end ? format("%s", end) : format("%" PRId64, p->shape->columns);
    print_block(p,
                !from && p->shape->columns == 1
                    ? ""
                    : format("for (int64_t %s = %s; %s < %s; %s++)", j, from ? from : "0", j, bound, j),
                &body);
  }
}

/* ---- rows and their partial sums ------------------------------------------------------------- */

static void open_loops(Printer *p, int from, int end) {
  for (int i = from; i < end; i++)
    if (p->kernel->dim[i] > 1) {
      print_line(p, "for (int64_t %s = 0; %s < %" PRId64 "; %s++) {", p->index[i], p->index[i], p->kernel->dim[i],
                 p->index[i]);
      p->indent += 2;
    }
}

static void close_loops(Printer *p, int from, int end) {
  for (int i = from; i < end; i++)
    if (p->kernel->dim[i] > 1) {
      p->indent -= 2;
      print_line(p, "}");
    }
}

/* Declares and clears the partial sums; base: their start in scratch, NULL: on the stack. */
static void sums_begin(Printer *p, const char *base) {
  Name first = NULL;
  for (int i = 0; i < p->kernel->stores.n; i++) {
    if (!p->sum[i])
      continue;
    if (!base)
      print_line(p, "float %s[%" PRId64 "] = {0};", p->sum[i], p->shape->store[i].sums);
    else if (!first)
      print_line(p, "float *%s = %s;", p->sum[i], base);
    else
      print_line(p, "float *%s = %s + %" PRId64 ";", p->sum[i], base, p->host->sum_at[i]);
    first = first ? first : p->sum[i];
  }
  if (base && first)
    print_line(p, "memset(%s, 0, %" PRId64 " * sizeof(float));", base, p->shape->sums);
}

/* The pointer to a group's first element of a store's target. */
static char *target_text(Printer *p, int store) {
  const Place *place = &p->kernel->stores.at[store].place;
  char *index = index_sum(p, place->offset, place->stride, 0, p->shape->group_dims);
  Name name = parameter_of(p, place->buffer);
  return strcmp(index, "0") ? format("%s + %s", name, index) : format("%s", name);
}

/* Whether sums can be accumulated in the target: it has their layout, in f32. */
static bool stands_dense(const Printer *p, int store) {
  return p->shape->store[store].dense && !p->k->buffers.at[p->kernel->stores.at[store].place.buffer].bf16;
}

/* Writes or adds partial sums whose layout is the target's, from one or several tiles. */
static void sum_line(Printer *p, int store, const char *part, int64_t stride, int tiles) {
  bool adds = p->shape->store[store].accumulator;
  print_line(p, "pd_sum_tiles(%s, %s, %s, %" PRId64 ", %" PRId64 ", %d);", adds ? "first" : "true",
             target_text(p, store), part, p->shape->store[store].sums, stride, tiles);
}

/* Writes or adds the partial sums of one group to the stores' targets. */
static void sums_end(Printer *p, bool but_contiguous) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!p->sum[i] || (but_contiguous && stands_dense(p, i)))
      continue;
    if (stands_dense(p, i)) {
      sum_line(p, i, p->sum[i], 0, 1);
      continue;
    }
    int dims[MAX_DIM], n = 0;
    for (int d = p->shape->group_dims; d < k->n_dims; d++) {
      if (p->shape->store[i].moves[d] && k->dim[d] > 1)
        dims[n++] = d;
    }
    for (int d = 0; d < n; d++)
      open_loops(p, dims[d], dims[d] + 1);
    char *to = element(p, &s->place), *sum = sum_element(p, i);
    if (p->shape->store[i].accumulator)
      print_line(p, "%s = first ? %s : %s + %s;", to, sum, to, sum);
    else
      print_line(p, "%s = %s;", to, narrowed(p, &s->place, sum));
    for (int d = n - 1; d >= 0; d--)
      close_loops(p, dims[d], dims[d] + 1);
  }
}

/* Every group in nested loops, each with its partial sums. */
static void whole_lines(Printer *p) {
  int outer = p->shape->group_dims;
  const char *base = NULL;
  open_loops(p, 0, outer);
  if (p->shape->sums > 0 && p->host->in_scratch)
    base = format("(float *)scratch + %s", index_sum(p, 0, p->host->sum_stride, 0, outer));
  sums_begin(p, base);
  open_loops(p, outer, p->shape->row_dims);
  row_lines(p, NULL, NULL);
  close_loops(p, outer, p->shape->row_dims);
  sums_end(p, false);
  close_loops(p, 0, outer);
}

/* The body of NAME_rows: rows, groups or columns [from, end). */
static void range_lines(Printer *p) {
  const Kernel *k = p->kernel;
  if (k->n_dims == 1) {
    row_lines(p, "from", "end");
    return;
  }
  int outer = p->host->tiled ? p->shape->row_dims : p->shape->group_dims;
  if (p->host->tiled)
    sums_begin(p, "partial");
  int wide = 0, only = 0;
  for (int i = 0; i < outer; i++)
    if (k->dim[i] > 1) {
      wide++;
      only = i;
    }
  const char *x = wide == 1 ? p->index[only] : "row";
  print_line(p, "for (int64_t %s = from; %s < end; %s++) {", x, x, x);
  p->indent += 2;
  if (wide != 1)
    unpack_index(p, x, 0, outer);
  if (!p->host->tiled)
    sums_begin(p, p->shape->sums > 0 && p->host->in_scratch
                      ? format("(float *)scratch + %s * %" PRId64, x, p->shape->sums)
                      : NULL);
  open_loops(p, outer, p->shape->row_dims);
  row_lines(p, NULL, NULL);
  close_loops(p, outer, p->shape->row_dims);
  if (!p->host->tiled)
    sums_end(p, false);
  p->indent -= 2;
  print_line(p, "}");
}

/* ---- the function ---------------------------------------------------------------------------- */

/* Parameters as declared, or as arguments; tile: of the function for one tile. */
static Names arguments(const Printer *p, bool declare, bool tile) {
  Names list = {0};
  if (tile ? tile_uses_first(p) : p->arguments->first)
    push(&list, intern(declare ? "bool first" : "first"));
  for (int i = 0; i < p->arguments->buffers.n; i++) {
    int buffer = p->arguments->buffers.at[i];
    if (tile && !tile_uses(p, buffer))
      continue;
    const char *type = element_type(&p->k->buffers.at[buffer]);
    const char *constant = p->arguments->written[i] ? "" : "const ";
    push(&list, declare ? internf("%s%s *restrict %s", constant, type, p->parameter[i]) : p->parameter[i]);
  }
  for (int i = 0; i < p->arguments->keys.n; i++)
    push(&list, declare ? internf("uint64_t %s", p->key[i]) : p->key[i]);
  if (tile)
    push(&list, declare ? intern("float *restrict partial") : internf("partial + c * %" PRId64, p->shape->sums));
  else if (p->arguments->scratch)
    push(&list, intern(declare ? "char *restrict scratch" : "scratch"));
  return list;
}

static void prepend_range(Names *list, Name from, Name end) {
  Names longer = {0};
  push(&longer, from);
  push(&longer, end);
  for (int i = 0; i < list->n; i++)
    push(&longer, list->at[i]);
  *list = longer;
}

/* The shape alone decides the tiles. Each has its own partial sums, added in the tiles' order. */
static void tile_lines(Printer *p, const char *function) {
  const Kernel *k = p->kernel;
  int64_t rows = p->shape->rows, extent = p->shape->sums;
  bool even = rows % k->tiles == 0;
  print_line(p, "float *partial = (float *)scratch;");
  if (p->host->parallel)
    print_line(p, "#pragma omp parallel for");
  print_line(p, "for (int64_t c = 0; c < %d; c++)", k->tiles);
  Names list = arguments(p, false, true);
  prepend_range(&list,
                even ? internf("c * %" PRId64, rows / k->tiles) : internf("c * %" PRId64 " / %d", rows, k->tiles),
                even ? internf("(c + 1) * %" PRId64, rows / k->tiles)
                     : internf("(c + 1) * %" PRId64 " / %d", rows, k->tiles));
  text_list(p->out, p->indent + 2 + (int)strlen(function) + 6, format("%*s  %s_rows(", p->indent, "", function),
            &list, ");\n");
  for (int i = 0; i < k->stores.n; i++) {
    if (!p->sum[i])
      continue;
    int64_t n = p->shape->store[i].sums, at = p->host->sum_at[i];
    const char *part = at ? format("partial + %" PRId64, at) : "partial";
    if (stands_dense(p, i)) {
      sum_line(p, i, part, extent, k->tiles);
    } else {
      print_line(p, "pd_sum_tiles(true, %s, %s, %" PRId64 ", %" PRId64 ", %d);", part, part, n, extent, k->tiles);
      print_line(p, "const float *%s = %s;", p->sum[i], part);
    }
  }
  sums_end(p, true);
}

void c_print_loop(Text *out, const StageKernels *stage, const Lowered *k, const char *function) {
  Printer p = printer_new(out, stage, k, &c_loops);
  p.host = k->host;
  text_comment(out, 0, kernel_title(&p));
  if (p.host->ranged) {
    const char *name = p.host->tiled ? format("%s_rows", function) : function;
    Names list = arguments(&p, true, p.host->tiled);
    prepend_range(&list, intern("int64_t from"), intern("int64_t end"));
    text_list(out, 13 + (int)strlen(name), format("static void %s(", name), &list, ") {\n");
    p.indent = 2;
    range_lines(&p);
    text_add(out, "}\n\n");
  }
  if (p.host->ranged && !p.host->tiled)
    return;
  Names list = arguments(&p, true, false);
  text_list(out, 13 + (int)strlen(function), format("static void %s(", function), &list, ") {\n");
  p.indent = 2;
  if (p.host->tiled)
    tile_lines(&p, function);
  else
    whole_lines(&p);
  text_add(out, "}\n\n");
}

void c_print_loop_call(Text *out, int indent, const StageKernels *stage, const Lowered *k, const char *function,
                       const Names *arguments) {
  const HostLoop *h = k->host;
  (void)stage;
  if (!h->ranged || h->tiled) {
    text_list(out, indent + (int)strlen(function) + 1, format("%*s%s(", indent, "", function), arguments, ");\n");
    return;
  }
  Names list = *arguments;
  prepend_range(&list, internf("%" PRId64, h->ways), internf("%" PRId64, h->share));
  Names longer = {0};
  push(&longer, intern(function));
  for (int i = 0; i < list.n; i++)
    push(&longer, list.at[i]);
  text_list(out, indent + 12, format("%*sPD_PARALLEL(", indent, ""), &longer, ");\n");
}
