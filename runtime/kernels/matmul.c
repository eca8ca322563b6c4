/* pd_matmul: oneDNN's matmul primitive, restricted to forms with the fastest implementation ("brg") and with bits
 * independent of the number of threads:
 * - operands dense, row-major or transposed; others are copied into scratch first;
 * - a transposed `a` with k >= 2048 would have k split among threads (bits then depend on their number), since
 *   oneDNN 3 also for a very long k of any operand. Such products are computed in pieces of k, determined by shape
 *   alone, and added to c; in batches `a` is transposed first;
 * - with a transposed `a`, results far wider than high are computed in two parts, because the library's blocks
 *   would not fit the processor's caches (768 x 3072 at k = 1024 twice as fast in two, on a Xeon with AVX-512;
 *   docs/results/cpu.md);
 * - on processors without such an implementation, kernels/tiles.c computes a product of two matrices, because the
 *   library runs at half speed with a part of c per thread; batches and small products are computed in such parts,
 *   some matrices or some rows, determined by shape alone.
 * bf16 operands are used directly if the processor has an implementation, else converted to floats in scratch.
 * Products marked few_rows go to kernels/few_rows.c, as do those marked by_sample while few rows are used. */
#define PD_KERNELS
#include "kernels/few_rows.h"
#include "kernels/pd_bf16.h"
#include "kernels/tiles.h"
#include "pd_onednn.h"

#include <omp.h>
#include <string.h>

enum { ALIGNMENT = 64, PARTS = 8, LEAST_ROWS = 16, LEAST_COLUMNS = 16, LEAST_TILED = 1 << 18 };

/* A [batch][rows][columns] operand in the caller's layout and in oneDNN's. */
struct operand {
  int64_t batch, rows, columns;
  int64_t batch_stride, row, column;
  enum pd_type type;
  bool transposed;   /* oneDNN sees columns of `rows` contiguous elements */
  bool copied;       /* ... in scratch, at `offset` bytes */
  enum pd_type seen; /* ... of this type */
  int64_t offset;
};

struct call { /* one piece of k */
  dnnl_primitive_t primitive;
  dnnl_memory_t a, b, c, bias, scratch;
};

/* Some matrices of the batch, some rows of c; each by one thread, or one after another by all threads. */
struct part {
  int64_t matrix, matrices, row, rows;
  struct call first, middle, last; /* middle, last: more than two, more than one piece */
};

__thread int64_t pd_rows_used;

struct pd_matmul {
  struct pd_matmul_shape shape;
  struct operand a, b, bias, c;
  int64_t piece; /* of k */
  int pieces, parts;
  bool by_one; /* thread, each part */
  bool in_tiles;
  struct pd_tiled tiles;
  struct part part[PARTS];
  size_t library_bytes, bytes; /* library_bytes: of a part */
};

static bool is_dense(const struct operand *o, int64_t row, int64_t column) {
  bool batches = o->batch == 1 || o->batch_stride == 0 || o->batch_stride == o->rows * o->columns;
  return batches && (o->rows == 1 || o->row == row) && (o->columns == 1 || o->column == column);
}

static void take_scratch(struct operand *o, int64_t *bytes) {
  if (!o->copied) return;
  o->offset = *bytes;
  int64_t batch = o->batch_stride == 0 ? 1 : o->batch, size = batch * o->rows * o->columns * pd_bytes_of(o->seen);
  *bytes += (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Chooses oneDNN's layout of the operand; needs scratch if a copy is necessary. */
static void place(struct operand *o, bool never_transposed, int64_t *bytes) {
  if (!is_dense(o, o->columns, 1)) {
    o->transposed = o->row < o->column && !never_transposed;
    o->copied = !o->transposed || !is_dense(o, 1, o->rows);
  }
  o->copied |= o->seen != o->type;
  take_scratch(o, bytes);
}

/* The descriptor of its first matrices, rows and columns. */
static descriptor describe(const struct operand *o, int64_t batch, int64_t rows, int64_t columns) {
  int64_t dim[] = {o->batch_stride == 0 ? 1 : batch, rows, columns};
  int64_t stride[] = {o->rows * o->columns, o->transposed ? 1 : o->columns, o->transposed ? o->rows : 1};
  int skip = o->batch == 1;
  return by_strides(3 - skip, dim + skip, o->seen, stride + skip);
}

static descriptor describe_bias(const struct pd_matmul *m) {
  int64_t n = m->shape.n, dim[] = {1, 1, n}, stride[] = {n, n, 1};
  int skip = m->shape.batch == 1;
  return by_strides(3 - skip, dim + skip, m->bias.seen, stride + skip);
}

static struct call call_new(struct pd_matmul *m, const struct part *part, int64_t k, bool bias, bool accumulate) {
  int64_t batch = part->matrices, rows = part->rows, n = m->shape.n;
  descriptor a = describe(&m->a, batch, rows, k), b = describe(&m->b, batch, k, n);
  descriptor c = describe(&m->c, batch, rows, n), v = bias ? describe_bias(m) : NULL;
  dnnl_primitive_attr_t attributes = attributes_new(accumulate);
  dnnl_primitive_desc_t p;
  struct call call;
  check(plan_matmul(&p, a, b, v, c, attributes), "plan a matmul");
  call.primitive = primitive_new(p, "create a matmul");
  descriptor scratch = chosen(p, dnnl_query_scratchpad_md);
  size_t bytes = descriptor_bytes(scratch);
  if (bytes > m->library_bytes) m->library_bytes = bytes;
  call.a = memory(a);
  call.b = memory(b);
  call.c = memory(c);
  call.bias = bias ? memory(v) : NULL;
  call.scratch = memory(scratch);
  descriptor all[] = {a, b, c, v, scratch};
  for (int i = 0; i < 5; i++) descriptor_free(all[i]);
  dnnl_primitive_desc_destroy(p);
  dnnl_primitive_attr_destroy(attributes);
  return call;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_wide(const struct pd_matmul *m) {
  enum { LEAST_SUMS = 512, LEAST_ELEMENTS = 1 << 20 };
  const struct pd_matmul_shape *s = &m->shape;
  return m->a.transposed && s->batch == 1 && s->k >= LEAST_SUMS && s->n >= 4 * s->m &&
         s->m * s->n >= LEAST_ELEMENTS;
}

/* Whole, or in equal parts but for the last. */
static void choose_parts(struct pd_matmul *m) {
  const struct pd_matmul_shape *s = &m->shape;
  int64_t all = s->batch > 1 ? s->batch : s->m, least = s->batch > 1 ? 1 : LEAST_ROWS;
  m->by_one = !threads_leave_bits();
  int parts = m->by_one ? PARTS : is_wide(m) ? 2 : 1;
  int64_t each = parts == 1 ? all : ((all + parts - 1) / parts + least - 1) / least * least;
  for (int64_t at = 0; at < all; at += each) {
    struct part *part = &m->part[m->parts++];
    int64_t n = smaller(each, all - at);
    *part = s->batch > 1 ? (struct part){.matrix = at, .matrices = n, .rows = s->m}
                         : (struct part){.matrices = 1, .row = at, .rows = n};
  }
}

/* Planned for their number of threads. */
static void make_parts(struct pd_matmul *m, bool add) {
  const struct pd_matmul_shape *s = &m->shape;
  int threads = omp_get_max_threads();
  choose_parts(m);
  if (m->by_one && m->parts > 1) omp_set_num_threads(1);
  for (int i = 0; i < m->parts; i++) {
    struct part *part = &m->part[i];
    part->first = call_new(m, part, m->piece, s->bias, add);
    if (m->pieces > 2) part->middle = call_new(m, part, m->piece, false, true);
    if (m->pieces > 1) part->last = call_new(m, part, s->k - (m->pieces - 1) * m->piece, false, true);
  }
  omp_set_num_threads(threads);
  m->library_bytes = (m->library_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* After the library's working memory of each concurrent part. */
static size_t copies_offset(const struct pd_matmul *m) {
  return (size_t)(m->by_one ? m->parts : 1) * m->library_bytes;
}

/* Types for the library: those in memory if it supports bf16, else floats. */
static void choose_types(struct pd_matmul *m) {
  const struct pd_matmul_shape *s = &m->shape;
  bool bf16 = s->a_type == PD_BF16 && s->b_type == PD_BF16 && has_bf16();
  m->a.type = s->a_type, m->b.type = s->b_type, m->bias.type = s->bias_type, m->c.type = s->c_type;
  struct operand *all[] = {&m->a, &m->b, &m->bias, &m->c};
  for (int i = 0; i < 4; i++) all[i]->seen = bf16 ? all[i]->type : PD_F32;
}

static bool suits_tiles(const struct pd_matmul_shape *s) {
  bool large = s->m >= LEAST_ROWS && s->n >= LEAST_COLUMNS && s->m * s->n * s->k >= LEAST_TILED;
  return s->batch == 1 && tiles_are_faster(large);
}

/* Strides between rows or columns, in the caller's layout or in the copy. */
static int64_t row_stride(const struct operand *o) { return !o->copied ? o->row : o->transposed ? 1 : o->columns; }
static int64_t column_stride(const struct operand *o) {
  return !o->copied ? o->column : o->transposed ? o->rows : 1;
}

/* Tiles accept any strides, but only floats. */
static void plan_tiles(struct pd_matmul *m, int64_t *bytes) {
  const struct pd_matmul_shape *s = &m->shape;
  struct operand *all[] = {&m->a, &m->b, &m->bias, &m->c};
  for (int i = 0; i < 4; i++) {
    struct operand *o = all[i];
    o->copied = o->seen != o->type;
    o->transposed = o->copied && o->row < o->column;
    take_scratch(o, bytes);
  }
  m->tiles = (struct pd_tiled){.m = s->m,
                               .n = s->n,
                               .k = s->k,
                               .a_row = row_stride(&m->a),
                               .a_column = column_stride(&m->a),
                               .b_row = row_stride(&m->b),
                               .b_column = column_stride(&m->b),
                               .c_row = row_stride(&m->c),
                               .add = s->accumulate && !m->c.copied};
  m->library_bytes = (pd_tiled_scratch(&m->tiles) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void plan_calls(struct pd_matmul *m, int64_t *bytes) {
  const struct pd_matmul_shape *s = &m->shape;
  m->pieces = 1;
  m->piece = s->k;
  place(&m->a, s->batch > 1 && s->k > longest_sum(true), bytes);
  int64_t longest = longest_sum(m->a.transposed);
  if (s->k > longest) {
    m->pieces = (int)((s->k + longest - 1) / longest);
    m->piece = ((s->k + m->pieces - 1) / m->pieces + 63) / 64 * 64;
    m->pieces = (int)((s->k + m->piece - 1) / m->piece);
    m->c.seen = PD_F32; /* result of the pieces so far */
  }
  place(&m->b, m->pieces > 1, bytes);
  place(&m->bias, true, bytes);
  place(&m->c, true, bytes);
  make_parts(m, s->accumulate && !m->c.copied);
}

struct pd_matmul *pd_matmul_new(struct pd_matmul_shape s) {
  struct pd_matmul *m = pd_object_allocate(sizeof *m);
  int64_t bytes = 0;
  m->shape = s;
  if (s.few_rows) return m;
  open_library();
  m->a = (struct operand){.batch = s.batch,
                          .rows = s.m,
                          .columns = s.k,
                          .batch_stride = s.a_batch,
                          .row = s.a_row,
                          .column = s.a_column};
  m->b = (struct operand){.batch = s.batch,
                          .rows = s.k,
                          .columns = s.n,
                          .batch_stride = s.b_batch,
                          .row = s.b_row,
                          .column = s.b_column};
  m->c = (struct operand){
      .batch = s.batch, .rows = s.m, .columns = s.n, .batch_stride = s.c_batch, .row = s.c_row, .column = 1};
  m->bias = (struct operand){.batch = 1, .rows = 1, .columns = s.bias ? s.n : 0, .row = s.n, .column = 1};
  choose_types(m);
  m->in_tiles = suits_tiles(&s);
  if (m->in_tiles)
    plan_tiles(m, &bytes);
  else
    plan_calls(m, &bytes);
  m->bytes = (size_t)bytes + copies_offset(m);
  pd_check_scratch(m->bytes);
  return m;
}

size_t pd_matmul_scratch(const struct pd_matmul *m) { return m->bytes; }

/* n elements, `step` from each other, of one type or widened. */
static void copy_line(void *to, enum pd_type seen, pd_in from, int64_t n, int64_t step) {
  const float *x = from.at;
  const pd_bf16 *h = from.at;
  if (step == 1 && seen == from.type)
    memcpy(to, from.at, (size_t)(n * pd_bytes_of(seen)));
  else if (seen == PD_BF16)
    for (int64_t j = 0; j < n; j++) ((pd_bf16 *)to)[j] = h[j * step];
  else if (from.type == PD_BF16)
    for (int64_t j = 0; j < n; j++) ((float *)to)[j] = pd_from_bf16(h[j * step]);
  else
    for (int64_t j = 0; j < n; j++) ((float *)to)[j] = x[j * step];
}

/* The operand in the library's layout. */
static const char *gather_operand(const struct operand *o, pd_in from, char *scratch) {
  if (!o->copied) return from.at;
  int64_t batch = o->batch_stride == 0 ? 1 : o->batch;
  int64_t lines = o->transposed ? o->columns : o->rows, length = o->transposed ? o->rows : o->columns;
  int64_t line = o->transposed ? o->column : o->row, step = o->transposed ? o->row : o->column;
#pragma omp parallel for
  for (int64_t i = 0; i < batch * lines; i++)
    copy_line(scratch + o->offset + i * length * pd_bytes_of(o->seen), o->seen,
              pd_in_from(from, i / lines * o->batch_stride + i % lines * line), length, step);
  return scratch + o->offset;
}

static void scatter_result(const struct pd_matmul *m, const char *from, pd_out c) {
  const struct pd_matmul_shape *s = &m->shape;
#pragma omp parallel for
  for (int64_t i = 0; i < s->batch * s->m; i++) {
    const float *x = (const float *)from + i * s->n;
    pd_out to = pd_out_from(c, i / s->m * s->c_batch + i % s->m * s->c_row);
    float *y = to.at;
    pd_bf16 *h = to.at;
    if (m->c.seen == PD_BF16)
      memcpy(h, (const pd_bf16 *)from + i * s->n, (size_t)s->n * sizeof *h);
    else if (m->c.type == PD_BF16)
      pd_write(to, 0, x, s->n);
    else if (s->accumulate)
      for (int64_t j = 0; j < s->n; j++) y[j] += x[j];
    else
      memcpy(y, x, (size_t)s->n * sizeof *y);
  }
}

static void execute(const struct call *call, const void *a, const void *b, const void *bias, void *c,
                    void *scratch) {
  set(call->a, a);
  set(call->b, b);
  set(call->c, c);
  set(call->scratch, scratch);
  dnnl_exec_arg_t arguments[5] = {{DNNL_ARG_SRC, call->a},
                                  {DNNL_ARG_WEIGHTS, call->b},
                                  {DNNL_ARG_DST, call->c},
                                  {DNNL_ARG_SCRATCHPAD, call->scratch}};
  int n = 4;
  if (call->bias) {
    set(call->bias, bias);
    arguments[n++] = (dnnl_exec_arg_t){DNNL_ARG_BIAS, call->bias};
  }
  check_run(dnnl_primitive_execute(call->primitive, pd_onednn.stream, n, arguments), "execute a matmul");
}

/* Byte offset of the part's matrices and rows; 0 for operands shared by the batch. */
static int64_t part_offset(const struct operand *o, const struct part *part, bool by_rows) {
  int64_t matrix = o->batch_stride == 0 ? 0 : part->matrix * o->rows * o->columns;
  return (matrix + (by_rows ? part->row * (o->transposed ? 1 : o->columns) : 0)) * pd_bytes_of(o->seen);
}

static void execute_part(const struct pd_matmul *m, const struct part *part, const char *a, const char *b,
                         const char *bias, char *c, void *scratch) {
  a += part_offset(&m->a, part, true);
  b += part_offset(&m->b, part, false);
  c += part_offset(&m->c, part, true);
  for (int i = 0; i < m->pieces; i++) {
    const struct call *call = i == 0 ? &part->first : i == m->pieces - 1 ? &part->last : &part->middle;
    int64_t k = i * m->piece;
    execute(call, a + k * (m->a.transposed ? m->shape.m : 1) * pd_bytes_of(m->a.seen),
            b + k * m->shape.n * pd_bytes_of(m->b.seen), bias, c, scratch);
  }
}

void pd_matmul(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch) {
  const struct pd_matmul_shape *s = &m->shape;
  if (s->few_rows) {
    pd_few_rows(s, a, b, bias, c);
    return;
  }
  if (s->by_sample && pd_rows_used > 0 && pd_rows_used <= PD_FEW_ROWS) {
    struct pd_matmul_shape few = *s;
    few.m = pd_rows_used;
    pd_few_rows(&few, a, b, bias, c);
    return;
  }
  char *copies = (char *)scratch + copies_offset(m);
  const char *left = gather_operand(&m->a, a, copies), *right = gather_operand(&m->b, b, copies);
  const char *vector = bias.at ? gather_operand(&m->bias, bias, copies) : NULL;
  char *result = m->c.copied ? copies + m->c.offset : c.at;
  if (m->in_tiles) {
    pd_tiled_multiply(&m->tiles, (const float *)left, (const float *)right, (const float *)vector, (float *)result,
                      scratch);
  } else if (m->parts == 1 || !m->by_one) {
    for (int i = 0; i < m->parts; i++) execute_part(m, &m->part[i], left, right, vector, result, scratch);
  } else {
#pragma omp parallel for schedule(dynamic, 1)
    for (int i = 0; i < m->parts; i++)
      execute_part(m, &m->part[i], left, right, vector, result, (char *)scratch + (size_t)i * m->library_bytes);
  }
  if (m->c.copied) scatter_result(m, result, c);
}
