/* Kernels of kind LOOP as static C functions: constant bounds, restrict pointers, and sums over a row in
 * LANES lanes that C compilers vectorise as they stand. kernel.h says what the loops mean. */
#include "emit/loops.h"

#include <inttypes.h>
#include <string.h>

enum { TASK_ELEMENTS = 16384 }; /* of one share, at least */

/* ---- a row ----------------------------------------------------------------------------------- */

static void store_line(Printer *p, int store) {
  const Store *s = &p->kernel->stores.at[store];
  char *value = term_text(p, s->term);
  if (p->sum[store])
    print_line(p, "%s += %s;", sum_element(p, store), value);
  else if (accumulator_store(p->k, s))
    print_line(p, "%s = first ? %s : %s + %s;", element(p, &s->place), value, element(p, &s->place), value);
  else
    print_line(p, "%s = %s;", element(p, &s->place), value);
}

static void scalar_lines(Printer *p, int slot) {
  const Kernel *k = p->kernel;
  count_references(p, slot, true);
  p->phase = slot;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || !t->scalar || t->kind == TERM_CONSTANT || scalar_slot(k, i) != slot)
      continue;
    if (t->kind == TERM_REDUCE) {
      print_line(p, "const float %s = pd_lanes_%s(%s_lanes);", p->term[i], t->op == &op_max ? "max" : "sum",
                 p->term[i]);
      p->named[i] = true;
    } else if (p->references[i] != 1) {
      name_term(p, i);
    }
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
  p->phase = phase;
  count_references(p, phase, false);
  for (int i = 0; i < k->terms.n; i++)
    p->named[i] = p->named[i] && k->terms.at[i].scalar;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->needed[i] || p->references[i] == 1)
      continue;
    name_term(p, i);
    if (t->row_buffer && t->phase == phase) {
      p->reads_column |= columns(k) > 1;
      print_line(p, "%s_row[%s] = %s;", p->term[i], columns(k) > 1 ? p->index[row_dims(k)] : "0", p->term[i]);
    }
  }
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    char *x = term_text(p, t->in[0]);
    if (t->op == &op_max)
      print_line(p, "%s_lanes[%s] = pd_max(%s_lanes[%s], %s);", p->term[i], lane, p->term[i], lane, x);
    else
      print_line(p, "%s_lanes[%s] += %s;", p->term[i], lane, x);
  }
  for (int i = 0; i < k->stores.n; i++)
    if (!store_scalar(k, &k->stores.at[i]) && k->stores.at[i].phase == phase)
      store_line(p, i);
}

static bool one_line(const Text *body) {
  const char *first = body->n ? strchr(body->at, '\n') : NULL;
  return first && !first[1];
}

/* A loop (or none: "") around lines, with braces where it needs them. */
static void print_block(Printer *p, const char *head, const Text *body) {
  bool bare = one_line(body);
  print_line(p, bare ? "%s" : head[0] ? "%s {" : "%s{", head);
  text_add(p->out, "%s", body->n ? body->at : "");
  if (!bare)
    print_line(p, "}");
}

static void lanes_pass(Printer *p, int phase) {
  const Kernel *k = p->kernel;
  int64_t n = columns(k), whole = n / LANES * LANES;
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (!p->live[i] || t->kind != TERM_REDUCE || t->phase != phase)
      continue;
    if (t->op == &op_max) {
      print_line(p, "float %s_lanes[PD_LANES];", p->term[i]);
      print_line(p, "for (int l = 0; l < PD_LANES; l++) %s_lanes[l] = -INFINITY;", p->term[i]);
    } else {
      print_line(p, "float %s_lanes[PD_LANES] = {0};", p->term[i]);
    }
  }
  const char *j = p->index[row_dims(k)];
  if (whole > 0) {
    print_line(p, "for (int64_t j0 = 0; j0 < %" PRId64 "; j0 += PD_LANES)", whole);
    Text *out = p->out, lines = {0}, body = {0};
    p->out = &lines;
    p->indent += 4;
    p->reads_column = false;
    pass_body(p, phase, "l");
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
    pass_body(p, phase, whole > 0 ? format("%s - %" PRId64, j, whole) : j);
    p->indent -= 2;
    print_line(p, "}");
  }
}

/* from, end: bounds of the columns, NULL for all. */
static void row_lines(Printer *p, const char *from, const char *end) {
  const Kernel *k = p->kernel;
  const char *j = p->index[row_dims(k)];
  for (int i = 0; i < k->terms.n; i++)
    if (p->live[i] && k->terms.at[i].row_buffer)
      print_line(p, "float %s_row[%" PRId64 "];", p->term[i], columns(k));
  for (int phase = 0; phase <= k->phases; phase++) {
    bool lanes;
    scalar_lines(p, phase);
    if (phase == k->phases || !pass_needs(p, phase, &lanes))
      continue;
    if (lanes) {
      lanes_pass(p, phase);
      continue;
    }
    Text *out = p->out, body = {0};
    p->out = &body;
    p->indent += 2;
    pass_body(p, phase, "0");
    p->indent -= 2;
    p->out = out;
    char *bound = end ? format("%s", end) : format("%" PRId64, columns(k));
    print_block(p,
                !from && columns(k) == 1
                    ? ""
                    : format("for (int64_t %s = %s; %s < %s; %s++)", j, from ? from : "0", j, bound, j),
                &body);
  }
}

/* ---- rows and their partial sums ------------------------------------------------------------- */

static void open_loops(Printer *p, int from, int end) {
  for (int i = from; i < end; i++)
    if (p->kernel->dim[i] > 1) {
      print_line(p, "for (int64_t %s = 0; %s < %" PRId64 "; %s++) {", p->index[i], p->index[i],
                 p->kernel->dim[i], p->index[i]);
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

/* Declares and clears the partial sums; base: where they lie in scratch, NULL: on the stack. */
static void sums_begin(Printer *p, const char *base) {
  const Kernel *k = p->kernel;
  int64_t at = 0;
  for (int i = 0; i < k->stores.n; i++) {
    if (!p->sum[i])
      continue;
    int64_t n = sum_extent(k, &k->stores.at[i]);
    if (!base)
      print_line(p, "float %s[%" PRId64 "] = {0};", p->sum[i], n);
    else if (at == 0)
      print_line(p, "float *%s = %s;", p->sum[i], base);
    else
      print_line(p, "float *%s = %s + %" PRId64 ";", p->sum[i], base, at);
    at += (n + LANES - 1) / LANES * LANES;
  }
  if (base && at > 0)
    print_line(p, "memset(%s, 0, %" PRId64 " * sizeof(float));", base, at);
}

/* Whether a store's target lies in memory as its partial sums do. */
static bool contiguous_target(const Printer *p, int store) {
  const Kernel *k = p->kernel;
  const Store *s = &k->stores.at[store];
  int64_t size = 1;
  for (int i = k->n_dims - 1; i >= parallel_dims(k); i--)
    if (sum_moves(k, s, i) && k->dim[i] > 1) {
      if (s->place.stride[i] != size)
        return false;
      size *= k->dim[i];
    }
  return true;
}

/* The pointer to a group's first element of a store's target. */
static char *target_text(Printer *p, int store) {
  const Place *place = &p->kernel->stores.at[store].place;
  char *index = index_sum(p, place->offset, place->stride, 0, parallel_dims(p->kernel));
  Name name = parameter_of(p, place->buffer);
  return strcmp(index, "0") ? format("%s + %s", name, index) : format("%s", name);
}

/* Writes or adds partial sums that lie as their target does, from one or several chunks. */
static void sum_line(Printer *p, int store, const char *part, int64_t stride, int chunks) {
  bool adds = accumulator_store(p->k, &p->kernel->stores.at[store]);
  print_line(p, "sum_chunks(%s, %s, %s, %" PRId64 ", %" PRId64 ", %d);", adds ? "first" : "true",
             target_text(p, store), part, sum_extent(p->kernel, &p->kernel->stores.at[store]), stride,
             chunks);
}

/* Writes or adds the partial sums of one group into what the stores mean. */
static void sums_end(Printer *p, bool but_contiguous) {
  const Kernel *k = p->kernel;
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    if (!p->sum[i] || (but_contiguous && contiguous_target(p, i)))
      continue;
    if (contiguous_target(p, i)) {
      sum_line(p, i, p->sum[i], 0, 1);
      continue;
    }
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
      print_line(p, "%s = first ? %s : %s + %s;", to, sum, to, sum);
    else
      print_line(p, "%s = %s;", to, sum);
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
    print_line(p, "const int64_t %s = %s;", p->index[i], text);
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
  print_line(p, "for (int64_t %s = from; %s < end; %s++) {", x, x, x);
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
    sums_end(p, false);
  p->indent -= 2;
  print_line(p, "}");
}

/* ---- the function ---------------------------------------------------------------------------- */

/* Targets of partial sums alone are not touched by a chunk. */
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
  for (int i = 0; i < p->kernel->stores.n; i++)
    if (!p->sum[i] && accumulator_store(p->k, &p->kernel->stores.at[i]))
      return true;
  return false;
}

/* Parameters as declared, or as passed on; chunk: of the function over one chunk's rows. */
static Names arguments(const Printer *p, bool declare, bool chunk) {
  Names list = {0};
  if (chunk ? chunk_first(p) : p->call.first)
    push(&list, intern(declare ? "bool first" : "first"));
  for (int i = 0; i < p->call.buffers.n; i++) {
    int buffer = p->call.buffers.at[i];
    if (chunk && !chunk_uses(p, buffer))
      continue;
    const char *type = p->k->buffers.at[buffer].type == TYPE_TOKEN ? "int32_t" : "float";
    const char *constant = kernel_writes(p->kernel, buffer) ? "" : "const ";
    push(&list, declare ? internf("%s%s *restrict %s", constant, type, p->parameter[i]) : p->parameter[i]);
  }
  for (int i = 0; i < p->call.keys.n; i++)
    push(&list, declare ? internf("uint64_t %s", p->key[i]) : p->key[i]);
  if (chunk)
    push(&list, declare ? intern("float *restrict partial")
                        : internf("partial + c * %" PRId64, sums_extent(p->kernel)));
  else if (p->call.scratch)
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

/* Rows in chunks by shape alone, each with its own partial sums, added in the chunks' order. */
static void chunk_lines(Printer *p, const char *function) {
  const Kernel *k = p->kernel;
  int64_t rows = product(k->dim, 0, row_dims(k)), extent = sums_extent(k), at = 0;
  bool even = rows % k->chunks == 0;
  print_line(p, "float *partial = (float *)scratch;");
  if (rows * columns(k) >= PARALLEL_ELEMENTS)
    print_line(p, "#pragma omp parallel for");
  print_line(p, "for (int64_t c = 0; c < %d; c++)", k->chunks);
  Names list = arguments(p, false, true);
  prepend_range(&list,
                even ? internf("c * %" PRId64, rows / k->chunks)
                     : internf("c * %" PRId64 " / %d", rows, k->chunks),
                even ? internf("(c + 1) * %" PRId64, rows / k->chunks)
                     : internf("(c + 1) * %" PRId64 " / %d", rows, k->chunks));
  text_list(p->out, p->indent + 2 + (int)strlen(function) + 6,
            format("%*s  %s_rows(", p->indent, "", function), &list, ");\n");
  for (int i = 0; i < k->stores.n; i++) {
    if (!p->sum[i])
      continue;
    const Store *store = &k->stores.at[i];
    int64_t n = sum_extent(k, store);
    const char *part = at ? format("partial + %" PRId64, at) : "partial";
    if (contiguous_target(p, i)) {
      sum_line(p, i, part, extent, k->chunks);
    } else {
      print_line(p, "sum_chunks(true, %s, %s, %" PRId64 ", %" PRId64 ", %d);", part, part, n, extent,
                 k->chunks);
      print_line(p, "const float *%s = %s;", p->sum[i], part);
    }
    at += (n + LANES - 1) / LANES * LANES;
  }
  sums_end(p, true);
}

/* A name for a loaded value: the parameter's own for weights. */
static char *load_name(const Printer *p, const Term *t) {
  bool weight = p->k->buffers.at[t->place.buffer].kind == BUFFER_WEIGHT;
  return format("%s_%s", weight ? parameter_of(p, t->place.buffer) : t->name, t->scalar ? "i" : "j");
}

static void name_parameters(Printer *p) {
  for (int i = 0; i < p->call.buffers.n; i++) {
    const Buffer *b = &p->k->buffers.at[p->call.buffers.at[i]];
    p->parameter[i] =
        unique_name(&p->taken, b->kind == BUFFER_ACCUMULATOR ? format("d_%s", b->name) : b->name);
  }
}

static Printer printer(Text *out, const StageKernels *stage, const Kernel *k) {
  Printer p = {.out = out, .k = stage, .kernel = k, .call = loop_call(stage, k), .live = live_terms(k)};
  static const char *const words[] = {"c", "l", "row", "end", "j0"};
  size_t terms = (size_t)k->terms.n + 1;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    push(&p.taken, intern(words[i]));
  p.parameter = alloc((size_t)(p.call.buffers.n + 1) * sizeof(Name));
  p.key = alloc((size_t)(p.call.keys.n + 1) * sizeof(Name));
  p.sum = alloc((size_t)(k->stores.n + 1) * sizeof(Name));
  p.term = alloc(terms * sizeof(Name));
  p.references = alloc(terms * sizeof *p.references);
  p.needed = alloc(terms);
  p.named = alloc(terms);
  for (int i = 0; i < k->n_dims; i++) {
    p.index[i] = i == row_dims(k) ? intern("j") : row_dims(k) == 1 ? intern("i") : internf("i%d", i);
    push(&p.taken, p.index[i]);
  }
  name_parameters(&p);
  for (int i = 0; i < p.call.keys.n; i++)
    p.key[i] = unique_name(&p.taken, "key");
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (p.live[i] && t->kind != TERM_CONSTANT)
      p.term[i] = unique_name(&p.taken, t->kind == TERM_LOAD ? load_name(&p, t) : t->name);
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

void c_print_loop(Text *out, const StageKernels *stage, const Kernel *k, const char *function) {
  Printer p = printer(out, stage, k);
  text_comment(out, 0, format("%s. %s", k->comment ? k->comment : k->name, shapes(&p)));
  if (is_split(k)) {
    const char *name = chunked(k) ? format("%s_rows", function) : function;
    Names list = arguments(&p, true, chunked(k));
    prepend_range(&list, intern("int64_t from"), intern("int64_t end"));
    text_list(out, 13 + (int)strlen(name), format("static void %s(", name), &list, ") {\n");
    p.indent = 2;
    range_lines(&p);
    text_add(out, "}\n\n");
  }
  if (is_split(k) && !chunked(k))
    return;
  Names list = arguments(&p, true, false);
  text_list(out, 13 + (int)strlen(function), format("static void %s(", function), &list, ") {\n");
  p.indent = 2;
  if (chunked(k))
    chunk_lines(&p, function);
  else
    whole_lines(&p);
  text_add(out, "}\n\n");
}

static const char sum_chunks[] =
    "/* to = (first) or to += the chunks' partial sums, `stride` apart, in the order of chunks. */\n"
    "static inline void sum_chunks(bool first, float *to, float *partial, int64_t n, int64_t stride, int "
    "chunks) {\n"
    "  for (int64_t c = 1; c < chunks; c++)\n"
    "    for (int64_t j = 0; j < n; j++) partial[j] += partial[c * stride + j];\n"
    "  for (int64_t j = 0; j < n; j++) to[j] = first ? partial[j] : to[j] + partial[j];\n"
    "}\n\n";

static const char parallel[] =
    "/* Calls f for equal shares of n rows (or elements), on as many threads as there are. */\n"
    "#define PARALLEL(f, n, share, ...)                                                         \\\n"
    "  do {                                                                                     \\\n"
    "    _Pragma(\"omp parallel for\") for (int64_t from = 0; from < (n); from += (share))        \\\n"
    "      f(from, from + (share) < (n) ? from + (share) : (n), __VA_ARGS__);                   \\\n"
    "  } while (0)\n\n";

void c_print_loop_helpers(Text *out, const char *loops) {
  text_add(out, "%s%s", parallel, strstr(loops, "sum_chunks(") ? sum_chunks : "");
}

void c_print_loop_call(Text *out, int indent, const StageKernels *stage, const Kernel *k, const char *function,
                       const Names *arguments) {
  (void)stage;
  if (!is_split(k) || chunked(k)) {
    text_list(out, indent + (int)strlen(function) + 1, format("%*s%s(", indent, "", function), arguments,
              ");\n");
    return;
  }
  int64_t n = k->n_dims == 1 ? columns(k) : groups(k), each = product(k->dim, 0, k->n_dims) / n;
  int64_t share = (TASK_ELEMENTS + each - 1) / each;
  Names list = *arguments;
  prepend_range(&list, internf("%" PRId64, n), internf("%" PRId64, share));
  Names longer = {0};
  push(&longer, intern(function));
  for (int i = 0; i < list.n; i++)
    push(&longer, list.at[i]);
  text_list(out, indent + 9, format("%*sPARALLEL(", indent, ""), &longer, ");\n");
}
