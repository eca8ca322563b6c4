/* Fused kernels compute the Graph's values. Every model of models/, at a small size, runs kernel by kernel in
 * double, whole and with every legal cut. The results are compared with the interpreter's, with one and two
 * samples per microbatch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autodiff/autodiff.h"
#include "biases/biases.h"
#include "elaborate/elaborate.h"
#include "fuse/facts.h"
#include "graph/interpret.h"
#include "layout/permutes.h"
#include "simplify/simplify.h"
#include "sample.h"

static const Target one_thread = {.threads = 1};

/* ---- executing kernels ------------------------------------------------------------------------------ */

typedef struct Machine {
  const StageKernels *k;
  double **memory;
} Machine;

static int64_t at(const Place *p, const int64_t *index) {
  int64_t i = p->offset;
  for (int d = 0; d < p->rank; d++)
    i += index[d] * p->stride[d];
  return i;
}

static bool next_index(int n, const int64_t *dim, int64_t *index) {
  for (int d = n - 1; d >= 0; d--) {
    if (++index[d] < dim[d])
      return true;
    index[d] = 0;
  }
  return false;
}

/* Whether an element is kept; the mask's index is that of a sample's element in the loop's dims. */
static double mask(const Machine *m, const Kernel *k, const Term *t, const int64_t *index) {
  const Graph *g = m->k->graph;
  int64_t n = shape_elements(&g->values.at[t->node->out[0]].shape), all = n * m->k->microbatch, at = 0;
  static const StageKernels *stage;
  static const Node *node; /* the mask's node */
  static double *kept;
  if (stage != m->k || node != t->node) {
    double *ones = alloc(sizeof *ones * (size_t)all);
    kept = alloc(sizeof *kept * (size_t)all);
    for (int64_t i = 0; i < all; i++)
      ones[i] = 1;
    op_dropout.evaluate(g, (int)(t->node - g->nodes.at), m->k->microbatch, (const double *const[]){ones}, &kept);
    stage = m->k;
    node = t->node;
  }
  assert_true(k->samples && k->dim[0] == m->k->microbatch);
  for (int d = 1; d < k->n_dims; d++)
    at = at * k->dim[d] + index[d];
  assert_true(at < n);
  return kept[index[0] * n + at];
}

static double element(const Machine *m, const Kernel *k, const Term *t, double *const *row, const int64_t *index) {
  int64_t j = index[k->n_dims - 1];
  double operand[4];
  if (t->kind == TERM_CONSTANT)
    return t->constant;
  if (t->kind == TERM_LOAD)
    return m->memory[t->place.buffer][at(&t->place, index)];
  for (int i = 0; i < t->n_in; i++)
    operand[i] = row[t->in[i]][j];
  if (t->op == &op_iota)
    return (double)j;
  if (t->op == &op_microbatch || t->op == &op_share) {
    double number, *to = &number;
    t->op->evaluate(m->k->graph, (int)(t->node - m->k->graph->nodes.at), m->k->microbatch, NULL, &to);
    return number;
  }
  if (t->op == &op_one_hot)
    return (double)j == operand[0];
  if (t->op == &op_dropout)
    return operand[0] * mask(m, k, t, index);
  return t->op->fold(operand, t->node->attr);
}

static void run_row(const Machine *m, const Kernel *k, double **row, int64_t *index) {
  int64_t size = k->dim[k->n_dims - 1], *j = &index[k->n_dims - 1];
  for (int i = 0; i < k->terms.n; i++) {
    const Term *t = &k->terms.at[i];
    if (t->kind == TERM_REDUCE) {
      double total = t->op == &op_max ? -INFINITY : 0;
      for (int64_t c = 0; c < size; c++)
        total = t->op == &op_max ? fmax(total, row[t->in[0]][c]) : total + row[t->in[0]][c];
      for (int64_t c = 0; c < size; c++)
        row[i][c] = total;
      continue;
    }
    for (*j = 0; *j < size; ++*j)
      row[i][*j] = element(m, k, t, row, index);
    for (int64_t c = 1; t->scalar && c < size; c++)
      assert_true(row[i][c] == row[i][0]);
  }
  for (int i = 0; i < k->stores.n; i++) {
    const Store *s = &k->stores.at[i];
    bool once = s->place.stride[k->n_dims - 1] == 0 && size > 1;
    for (*j = 0; *j < (once ? 1 : size); ++*j) {
      double *to = &m->memory[s->place.buffer][at(&s->place, index)];
      *to = row[s->term][*j] + (s->accumulate ? *to : 0);
    }
  }
  *j = 0;
}

static void run_loop(const Machine *m, const Kernel *k) {
  int64_t index[MAX_DIM] = {0};
  double **row = alloc(sizeof *row * (size_t)k->terms.n);
  for (int i = 0; i < k->terms.n; i++)
    row[i] = alloc(sizeof **row * (size_t)k->dim[k->n_dims - 1]);
  for (int i = 0; i < k->stores.n; i++) {
    const Place *p = &k->stores.at[i].place;
    if (!k->stores.at[i].accumulate || m->k->buffers.at[p->buffer].kind == BUFFER_ACCUMULATOR)
      continue;
    do
      m->memory[p->buffer][at(p, index)] = 0;
    while (next_index(k->n_dims, k->dim, index));
  }
  do
    run_row(m, k, row, index);
  while (next_index(k->n_dims - 1, k->dim, index));
}

static void run_call(const Machine *m, const Kernel *k) {
  const Graph *g = m->k->graph;
  enum { MOST = 16 };
  double *in[MOST], *out[MOST];
  int64_t index[MAX_DIM] = {0}, n;
  assert_true(k->in.n <= MOST && k->out.n <= MOST);
  for (int i = 0; i < k->in.n + k->out.n; i++) {
    const Place *p = i < k->in.n ? &k->in.at[i] : &k->out.at[i - k->in.n];
    n = 1;
    for (int d = 0; d < p->rank; d++)
      n *= p->dim[d];
    double *copy = alloc(sizeof *copy * (size_t)(n + 1));
    n = 0;
    do
      copy[n++] = m->memory[p->buffer][at(p, index)];
    while (next_index(p->rank, p->dim, index));
    *(i < k->in.n ? &in[i] : &out[i - k->in.n]) = copy;
  }
  int node = (int)(k->node - g->nodes.at);
  k->node->op->evaluate(g, node, m->k->microbatch, (const double *const *)in, out);
  for (int i = 0; i < k->out.n; i++) {
    const Place *p = &k->out.at[i];
    n = 0;
    do {
      double *to = &m->memory[p->buffer][at(p, index)];
      double bias = k->bias >= 0 ? in[k->bias][index[p->rank - 1]] : 0;
      *to = out[i][n++] + bias + (k->accumulate ? *to : 0);
    } while (next_index(p->rank, p->dim, index));
  }
}

static void run_kernels(const Machine *m, const Kernels *kernels) {
  for (int i = 0; i < kernels->n; i++)
    if (kernels->at[i].kind == KERNEL_LOOP)
      run_loop(m, &kernels->at[i]);
    else
      run_call(m, &kernels->at[i]);
}

/* ---- comparing ----------------------------------------------------------------------------------------- */

static double **values_of_inputs(const Graph *g, int64_t microbatch) {
  double **input = alloc(sizeof *input * (size_t)(g->inputs.n + 1));
  for (int i = 0; i < g->inputs.n; i++) {
    const Value *v = &g->values.at[g->inputs.at[i].value];
    int64_t n = microbatch * shape_elements(&v->shape);
    input[i] = alloc(sizeof **input * (size_t)n);
    for (int64_t j = 0; j < n; j++)
      input[i][j] = v->type == TYPE_TOKEN ? rand() % (int)v->classes : rand() % 1000 / 500.0 - 1;
  }
  return input;
}

static double **values_of_params(const Graph *g) {
  double **param = alloc(sizeof *param * (size_t)(g->params.n + 1));
  for (int i = 0; i < g->params.n; i++) {
    int64_t n = shape_elements(&g->params.at[i].shape);
    param[i] = alloc(sizeof **param * (size_t)n);
    for (int64_t j = 0; j < n; j++)
      param[i][j] = rand() % 2001 / 1000.0 - 1;
  }
  return param;
}

static void expect(const Machine *m, const Buffer *b, const double *got, const double *want) {
  double largest = 1e-30, worst = 0;
  for (int64_t i = 0; i < b->elements; i++) {
    if (isnan(want[i]) && isnan(got[i])) /* random operands may leave the domain of logarithms and roots */
      continue;
    largest = fmax(largest, fabs(want[i]));
    worst = fmax(worst, fabs(want[i] - got[i]));
    if (isnan(got[i]))
      worst = INFINITY;
  }
  if (worst > 1e-9 * largest)
    fail_msg("stage %d of pieces %d..%d: %s '%s' is off by %g of %g", m->k->stage, m->k->chunks.at[0].first_piece,
             m->k->chunks.at[0].end_piece - 1, b->kind == BUFFER_ACCUMULATOR ? "the gradient of" : "value",
             b->comment, worst, largest);
}

/* Before the weights pass, other microbatches overwrite all values that need not last. */
static void forget(const Machine *m) {
  for (int i = 0; i < m->k->buffers.n; i++) {
    const Buffer *b = &m->k->buffers.at[i];
    bool lost = b->kind == BUFFER_TEMPORARY || b->kind == BUFFER_SAVED;
    for (int64_t j = 0; lost && j < b->elements; j++)
      m->memory[i][j] = NAN;
  }
}

/* No product for a weight's gradient delays the backward pass. */
static void check_split(const StageKernels *k) {
  for (int i = 0; k->split && i < k->backward.n; i++)
    assert_false(k->backward.at[i].kind == KERNEL_CALL && k->backward.at[i].accumulate);
}

/* By term: it depends on the place's content before the loop. */
static bool *find_reads(const Kernel *kernel, const Place *place) {
  bool *reads = alloc((size_t)kernel->terms.n + 1);
  for (int i = 0; i < kernel->terms.n; i++) {
    const Term *t = &kernel->terms.at[i];
    reads[i] = t->kind == TERM_LOAD && t->place.buffer == place->buffer && t->place.offset == place->offset &&
               !memcmp(t->place.stride, place->stride, sizeof place->stride[0] * (size_t)kernel->n_dims);
    for (int j = 0; j < t->n_in; j++)
      reads[i] |= reads[t->in[j]];
  }
  return reads;
}

/* Rows run term by term here. Printed loops store an element before the next store and phase, so no later store or
 * phase may read an overwritten element. */
static void check_overwritten(const Kernel *kernel) {
  for (int i = 0; kernel->kind == KERNEL_LOOP && i < kernel->stores.n; i++) {
    const Store *s = &kernel->stores.at[i];
    if (s->accumulate)
      continue;
    const bool *reads = find_reads(kernel, &s->place);
    for (int j = i + 1; j < kernel->stores.n; j++)
      assert_false(kernel->stores.at[j].phase >= s->phase && reads[kernel->stores.at[j].term]);
    for (int j = 0; j < kernel->terms.n; j++)
      assert_false(kernel->terms.at[j].kind == TERM_LOAD && reads[j] &&
                   kernel->terms.at[j].phases >> s->phase > 1);
  }
}

static void check_stage(const Graph *g, const StageKernels *k, double **input, double **param, double **value) {
  Machine m = {k, alloc(sizeof(double *) * (size_t)k->buffers.n)};
  kernels_verify(k);
  check_split(k);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int i = 0; i < pass_kernels(k, pass)->n; i++)
      check_overwritten(&pass_kernels(k, pass)->at[i]);
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    m.memory[i] = alloc(sizeof(double) * (size_t)b->elements);
    if (is_parameter(b->kind))
      m.memory[i] = param[b->param];
    else if (b->kind == BUFFER_RECEIVED || b->kind == BUFFER_GRADIENT_RECEIVED)
      m.memory[i] = value[b->value];
    else if (b->kind != BUFFER_ACCUMULATOR && b->kind != BUFFER_INPUT)
      for (int64_t j = 0; j < b->elements; j++)
        m.memory[i][j] = NAN; /* reveals reads before writes */
    for (int j = 0; j < g->inputs.n; j++)
      if (b->kind == BUFFER_INPUT && b->value == g->inputs.at[j].value)
        m.memory[i] = input[j];
  }
  for (int i = 0; i < k->buffers.n; i++) /* adds to the result of an earlier microbatch */
    for (int64_t j = 0; k->buffers.at[i].kind == BUFFER_ACCUMULATOR && j < k->buffers.at[i].elements; j++)
      m.memory[i][j] = 1;
  run_kernels(&m, &k->setup);
  run_kernels(&m, &k->forward);
  run_kernels(&m, &k->backward);
  forget(&m);
  run_kernels(&m, &k->weights);
  for (int i = 0; i < k->buffers.n; i++)
    for (int64_t j = 0; k->buffers.at[i].kind == BUFFER_ACCUMULATOR && j < k->buffers.at[i].elements; j++)
      m.memory[i][j] -= 1;
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    if (b->kind == BUFFER_ACCUMULATOR)
      expect(&m, b, m.memory[i], value[g->params.at[b->param].gradients.at[b->use]]);
    else if (b->kind == BUFFER_SENT || b->kind == BUFFER_FIGURE || b->kind == BUFFER_GRADIENT_SENT)
      expect(&m, b, m.memory[i], value[b->value]);
  }
}

/* Recomputation of all pieces, of every second, of halves, and of random ones in turn. */
static Name next_subset(int n) {
  enum { KINDS = 6 };
  static int turn;
  const int kind = turn++ % KINDS;
  Text t = {0};
  for (int i = 0; i < n; i++)
    text_add(&t, "%d",
             kind == 0 || (kind == 1 && i % 2) || (kind == 2 && i < n / 2) || (kind == 3 && i >= n / 2) ||
                 (kind > 3 && rand() % 3 > 0));
  return intern(t.at);
}

static int repeated; /* kernels of the backward pass, over all models */

/* The stage with recomputed pieces: its values are those of the model, too, and its forward pass saves no more. */
static void check_recomputed(const Graph *g, const Pieces *p, int first, int end, int stage, int n_stages,
                             int64_t microbatch, bool split, double **input, double **param, double **value) {
  const FuseFacts *facts = fuse_facts(g);
  const Target bf16 = {.backend = &backend_cuda, .precision = PRECISION_BF16, .threads = 1};
  const Name again = next_subset(end - first);
  StageKernels *k =
      fuse_part(facts, p, first, end, stage, n_stages, microbatch, false, again, split, one_thread, true);
  for (int i = 0; i < k->backward.n; i++)
    repeated += k->backward.at[i].again;
  check_stage(g, k, input, param, value);
  kernels_verify(fuse_part(facts, p, first, end, stage, n_stages, microbatch, false, again, split, bf16, false));
}

/* Two ranks with every second of four or of six parts. */
static void check_chunks(const Graph *g, const Pieces *p, int64_t microbatch, double **input, double **param,
                         double **value) {
  enum { RANKS = 2, MOST = 3 };
  for (int chunks = 2; chunks <= MOST && p->n >= RANKS * chunks; chunks++)
    for (int rank = 0; rank < RANKS; rank++) {
      StageKernels *chunk[MOST];
      int parts = RANKS * chunks;
      for (int c = 0; c < chunks; c++) {
        int at = c * RANKS + rank;
        chunk[c] =
            fuse(g, p, p->n * at / parts, p->n * (at + 1) / parts, at, parts, microbatch, false, true, one_thread);
      }
      StageKernels *k = merge_chunks(chunk, chunks);
      assert_int_equal(k->stage, rank);
      assert_int_equal(k->n_stages, RANKS);
      assert_int_equal(k->chunks.n, chunks);
      check_stage(g, k, input, param, value);
      for (int c = 0; c < chunks; c++)
        assert_int_equal(chunk_buffers(k, &k->received, c).n, chunk[c]->received.n);
    }
}

/* Both sides of a cut store a crossing value in the same type. */
static void check_types(const StageKernels *from, const Ints *sent, const StageKernels *to, const Ints *received) {
  assert_int_equal(sent->n, received->n);
  for (int i = 0; i < sent->n; i++)
    assert_int_equal(from->buffers.at[sent->at[i]].bf16, to->buffers.at[received->at[i]].bf16);
}

/* In bf16 calls read and write all supported values in bf16 (kernels_verify), for every cut. */
static void check_precision(const Graph *g, const Pieces *p, int64_t microbatch, bool split) {
  const Target gpu = {.backend = &backend_cuda, .precision = PRECISION_BF16, .threads = 1};
  for (int c = 1; c < p->n; c++) {
    if (!taken())
      continue;
    const StageKernels *a = fuse(g, p, 0, c, 0, 2, microbatch, false, split, gpu);
    const StageKernels *b = fuse(g, p, c, p->n, 1, 2, microbatch, false, split, gpu);
    kernels_verify(a);
    kernels_verify(b);
    check_types(a, &a->sent, b, &b->received);
    check_types(b, &b->gradients_sent, a, &a->gradients_received);
  }
}

static void check_cuts(const Graph *g, int64_t microbatch, bool split) {
  Pieces p = cut(g);
  srand(1);
  double **input = values_of_inputs(g, microbatch), **param = values_of_params(g);
  double **value = interpret(g, microbatch, (const double *const *)input, (const double *const *)param);
  check_stage(g, fuse(g, &p, 0, p.n, 0, 1, microbatch, false, split, one_thread), input, param, value);
  check_recomputed(g, &p, 0, p.n, 0, 1, microbatch, split, input, param, value);
  assert_true(p.n > 1);
  check_precision(g, &p, microbatch, split);
  if (split)
    check_chunks(g, &p, microbatch, input, param, value);
  for (int c = 1; c < p.n; c++) {
    if (!taken())
      continue;
    check_stage(g, fuse(g, &p, 0, c, 0, 2, microbatch, false, split, one_thread), input, param, value);
    check_stage(g, fuse(g, &p, c, p.n, 1, 2, microbatch, false, split, one_thread), input, param, value);
    check_recomputed(g, &p, c, p.n, 1, 2, microbatch, split, input, param, value);
  }
}

/* Tests every stage between two legal cuts, with the backward pass whole or split in turn. A set of cuts is right
 * if its stages are. */
static void check_all_stages(const Graph *g, int64_t microbatch) {
  Pieces p = cut(g);
  double **input = values_of_inputs(g, microbatch), **param = values_of_params(g);
  double **value = interpret(g, microbatch, (const double *const *)input, (const double *const *)param);
  for (int first = 0; first < p.n; first++)
    for (int end = first + 1; end <= p.n; end++) {
      if (!taken())
        continue;
      int stage = first > 0, n_stages = stage + 1 + (end < p.n);
      bool split = (first + end) % 2;
      check_stage(g, fuse(g, &p, first, end, stage, n_stages, microbatch, false, split, one_thread), input, param,
                  value);
    }
}

static Graph *compiled(const char *path, const char *const *define, int n) {
  const Ast *file = parse_file(path);
  Graph *g = file ? elaborate(file, &(ElaborateOptions){.define = define, .n_define = n}) : NULL;
  diagnostics_flush();
  assert_non_null(g);
  move_permutes(g);
  autodiff(g);
  simplify(g);
  graph_verify(g);
  return g;
}

static int merged_biases; /* over all models */

/* With bias gradients computed by products: both results are accumulators. */
static void check_merged_biases(const char *path, const char *const *define, int n) {
  Graph *g = compiled(path, define, n);
  int merged = 0;
  merge_bias_gradients(g);
  graph_verify(g);
  for (int i = 0; i < g->nodes.n; i++)
    merged += g->nodes.at[i].op == &op_weight_and_bias_gradient;
  merged_biases += merged;
  if (merged) {
    check_cuts(g, 2, false);
    check_cuts(g, 1, true);
  }
}

static void check_model(const char *path, const char *const *define, int n) {
  Graph *g = compiled(path, define, n);
  check_cuts(g, 1, false);
  check_cuts(g, 2, false);
  check_cuts(g, 2, true);
  check_merged_biases(path, define, n);
}

static void gpt(void **state) {
  (void)state;
  check_model("models/gpt_mini.pdm",
              (const char *[]){"n_layer=2", "n_head=2", "n_embd=8", "n_ctx=6", "vocab_size=11"}, 5);
}

/* Whether a loop overwrites a buffer that it reads. */
static bool works_in_place(const Kernel *kernel) {
  for (int i = 0; kernel->kind == KERNEL_LOOP && i < kernel->stores.n; i++)
    for (int j = 0; !kernel->stores.at[i].accumulate && j < kernel->terms.n; j++)
      if (kernel->terms.at[j].kind == TERM_LOAD &&
          kernel->terms.at[j].place.buffer == kernel->stores.at[i].place.buffer)
        return true;
  return false;
}

/* Logits and their gradient share one buffer: no other has 2 samples' 6 positions and 11 classes. Other tests
 * execute the kernels and so detect overwritten operands. */
static void in_place(void **state) {
  (void)state;
  Graph *g = compiled("models/gpt_mini.pdm",
                      (const char *[]){"n_layer=2", "n_head=2", "n_embd=8", "n_ctx=6", "vocab_size=11"}, 5);
  Pieces p = cut(g);
  const StageKernels *k = fuse(g, &p, 0, p.n, 0, 1, 2, false, false, one_thread);
  int logits = 0, loops = 0;
  for (int i = 0; i < k->buffers.n; i++)
    logits += k->buffers.at[i].elements == 2 * 6 * 11 && !is_parameter(k->buffers.at[i].kind);
  for (int i = 0; i < k->backward.n; i++)
    loops += works_in_place(&k->backward.at[i]);
  assert_int_equal(logits, 1);
  assert_true(loops > 1);
}

static void llama(void **state) {
  (void)state;
  check_model("models/llama_mini.pdm",
              (const char *[]){"n_layer=2", "n_head=4", "n_kv_head=2", "n_embd=16", "n_ctx=6", "hidden=12",
                               "vocab_size=11"},
              7);
}

static void mlp(void **state) {
  (void)state;
  check_model("models/mlp.pdm", (const char *[]){"n_ctx=4", "n_embd=3", "hidden=5", "vocab_size=11"}, 4);
}

/* Models of the golden tests: every primitive, every kind of product and view. */
static void golden(void **state) {
  static const char *const models[] = {"pointwise", "shapes", "products",    "expanded", "attention", "layers",
                                       "blocks",    "lstms",  "recurrences", "mamba",    "statistics"};
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    check_model(format("tests/golden/%s.pdm", models[i]), NULL, 0);
}

/* Difficult cases for fusion. */
static void corners(void **state) {
  static const char *const models[] = {"counting", "places",   "losses", "rows",  "again",
                                       "permutes", "averages", "ones",   "biases"};
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    check_model(format("tests/unit/models/%s.pdm", models[i]), NULL, 0);
}

/* Apart from a convolution's result and the normalised output, no value of their size is stored. */
static void normalised(void **state) {
  (void)state;
  Graph *g = compiled("tests/unit/models/normalised.pdm", NULL, 0);
  Pieces p = cut(g);
  const StageKernels *k = fuse(g, &p, 0, p.n, 0, 1, 2, false, false, one_thread);
  for (int i = 0; i < k->buffers.n; i++)
    if (k->buffers.at[i].kind == BUFFER_SAVED)
      assert_null(strstr(k->buffers.at[i].comment, "centered"));
  check_model("tests/unit/models/normalised.pdm", NULL, 0);
}

/* A kernel's places in order: reads first, each once. */
static void check_accesses(const Kernel *k) {
  int reads = k->in.n, writes = k->out.n + k->stores.n;
  bool written = false;
  for (int i = 0; i < k->terms.n; i++)
    reads += k->terms.at[i].kind == TERM_LOAD;
  for (Access a = {0}; next_access(k, &a);) {
    assert_false(written && !a.write);
    written = a.write;
    if (k->kind == KERNEL_CALL)
      assert_ptr_equal(a.place, a.write ? &k->out.at[a.index] : &k->in.at[a.index]);
    else
      assert_ptr_equal(a.place, a.write ? &k->stores.at[a.index].place : &k->terms.at[a.index].place);
    assert_true(kernel_touches(k, a.place->buffer));
    *(a.write ? &writes : &reads) -= 1;
  }
  assert_int_equal(reads, 0);
  assert_int_equal(writes, 0);
}

/* The kind of a stage's own buffer states the pass that makes it and the pass that reads it last. */
static void lifetimes(void **state) {
  static const PassKind made[] = {
      [BUFFER_SAVED] = PASS_FORWARD, [BUFFER_KEPT] = PASS_FORWARD, [BUFFER_DEFERRED] = PASS_BACKWARD};
  static const PassKind last[] = {
      [BUFFER_SAVED] = PASS_BACKWARD, [BUFFER_KEPT] = PASS_WEIGHTS, [BUFFER_DEFERRED] = PASS_WEIGHTS};
  (void)state;
  Graph *g = compiled("tests/unit/models/normalised.pdm", NULL, 0);
  Pieces p = cut(g);
  const StageKernels *k = fuse(g, &p, 0, p.n, 0, 1, 2, false, true, one_thread);
  int n[BUFFER_FIGURE + 1] = {0};
  for (int i = 0; i < k->buffers.n; i++) {
    const Buffer *b = &k->buffers.at[i];
    n[b->kind]++;
    if (b->kind < BUFFER_SAVED || b->kind > BUFFER_TEMPORARY)
      continue;
    PassKind first = b->kind == BUFFER_TEMPORARY ? buffer_made(b) : made[b->kind];
    PassKind end = b->kind == BUFFER_TEMPORARY ? first : last[b->kind];
    assert_int_equal(buffer_made(b), first);
    assert_int_equal(buffer_read_last(b), end);
    assert_true(kernel_touches(&pass_kernels(k, first)->at[b->first], i));
    assert_true(kernel_touches(&pass_kernels(k, end)->at[b->last], i));
    for (int j = 0; j < b->first; j++)
      assert_false(kernel_touches(&pass_kernels(k, first)->at[j], i));
    for (int j = b->last + 1; j < pass_kernels(k, end)->n; j++)
      assert_false(kernel_touches(&pass_kernels(k, end)->at[j], i));
  }
  assert_true(n[BUFFER_SAVED] && n[BUFFER_KEPT] && n[BUFFER_DEFERRED] && n[BUFFER_TEMPORARY]);
  for (PassKind pass = 0; pass < PASS_KINDS; pass++)
    for (int i = 0; i < pass_kernels(k, pass)->n; i++)
      check_accesses(&pass_kernels(k, pass)->at[i]);
}

/* Graphs that are not chains, cut into any number of stages. */
static void graphs(void **state) {
  static const char *const models[] = {"unet", "fan", "parts", "ties", "sources", "frozen", "translate"};
  (void)state;
  for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
    Graph *g = compiled(format("tests/graphs/%s.pdm", models[i]), NULL, 0);
    check_all_stages(g, 2);
  }
}

/* Runs last: some models had biases whose gradients products compute. */
static void merged(void **state) {
  (void)state;
  assert_int_equal(merged_biases, 36);
  assert_true(repeated > 1000);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(gpt),       cmocka_unit_test(llama),
                                     cmocka_unit_test(mlp),       cmocka_unit_test(golden),
                                     cmocka_unit_test(corners),   cmocka_unit_test(normalised),
                                     cmocka_unit_test(lifetimes), cmocka_unit_test(graphs),
                                     cmocka_unit_test(merged),    cmocka_unit_test(in_place)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
