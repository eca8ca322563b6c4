/* Attention as a cuDNN graph of its operations, which the library's engines recognize. Scores and derived values
 * stay in an engine's registers, except in this form of the backward pass: ds, the gradient of scores, is one
 * tensor that two products read. An engine that keeps ds in the workspace adds up dq in a fixed order. The other
 * form, with dq as a tensor of floats, adds from many blocks in any order and is not deterministic. */
#include "attention_graph.h"
#include "scratch.h"

#include <algorithm>
#include <cmath>

bool pd_attention_has_graph(const struct pd_attention &a) { return pd_attention_is_plain(&a) && a.scale > 0; }

/* A graph under construction, with the attention's sizes. */
struct Making {
  const struct pd_attention &a;
  pd_cudnn_graph &g;
  pd_cudnn_shape scores, row; /* [sample][head][query][key]; a number of each query */

  Making(const struct pd_attention &of, pd_cudnn_graph *graph)
      : a(of), g(*graph), scores(pd_cudnn_dense(of.batch, of.heads, of.length, of.kv_length)),
        row(pd_cudnn_dense(of.batch, of.heads, of.length, 1)) {}

  int score() const { return g.between(PD_CUDNN_F32, scores); }
};

typedef decltype(pd_attention::q) Strides;

/* Strides of axes with one element may be 0 here, which cuDNN does not accept. */
static pd_cudnn_shape shape_of(const struct pd_attention &a, const Strides &s, bool of_keys) {
  int64_t heads = of_keys ? a.kv_heads : a.heads, rows = of_keys ? a.kv_length : a.length;
  int64_t row = rows > 1 ? s.row : a.size, head = heads > 1 ? s.head : row * rows;
  return {{a.batch, heads, rows, a.size}, {a.batch > 1 ? s.batch : head * heads, head, row, 1}};
}

/* scale q k^T. */
static int scaled_scores(const Making &m, int q, int k_across) {
  int s = m.g.product(q, k_across, m.score());
  return m.g.pointwise(PD_CUDNN_MULTIPLY, s, m.g.number(m.a.scale), m.score());
}

/* Minus infinity where a query's own place lies before the key's; cuDNN counts places in floats. */
static int masked_scores(const Making &m, int s) {
  if (!m.a.causal) return s;
  int query = m.g.index(s, 2, m.score());
  int key = m.g.index(s, 3, m.score());
  int sees = m.g.pointwise(PD_CUDNN_NOT_LESS, query, key, m.g.between(PD_CUDNN_BOOL, m.scores));
  return m.g.select(s, m.g.number(-INFINITY), sees, m.score());
}

std::unique_ptr<pd_attention_graph> pd_attention_forward_graph(const struct pd_attention &a,
                                                               const std::string &device) {
  auto made = std::make_unique<pd_attention_graph>(device);
  pd_cudnn_graph &g = made->graph;
  Making m(a, &g);
  int q = g.operand(PD_CUDNN_BF16, shape_of(a, a.q, false));
  int k = g.operand(PD_CUDNN_BF16, pd_cudnn_transposed(shape_of(a, a.k, true)));
  int v = g.operand(PD_CUDNN_BF16, shape_of(a, a.v, true));
  int o = g.operand(PD_CUDNN_BF16, shape_of(a, a.o, false));
  int lse = g.operand(PD_CUDNN_F32, m.row);
  auto row = [&] { return g.between(PD_CUDNN_F32, m.row); };
  int s = masked_scores(m, scaled_scores(m, q, k));
  int largest = g.reduce(PD_CUDNN_LARGEST, s, row());
  int power = g.pointwise(PD_CUDNN_EXP, g.pointwise(PD_CUDNN_SUBTRACT, s, largest, m.score()), m.score());
  int sum = g.reduce(PD_CUDNN_SUM, power, row());
  g.pointwise(PD_CUDNN_ADD, largest, g.pointwise(PD_CUDNN_LOG, sum, row()), lse);
  int p = g.pointwise(PD_CUDNN_DIVIDE, power, sum, g.between(PD_CUDNN_BF16, m.scores));
  g.product(p, v, o);
  made->operands = {q, k, v, o, lse};
  return made;
}

/* x^T times y, a row of each key: of the query heads that share a key head the sum. */
static void product_of_keys(const Making &m, int x, int y, int to) {
  const struct pd_attention &a = m.a;
  int across = m.g.reshape(x, m.g.between(PD_CUDNN_BF16, pd_cudnn_transposed(m.scores)));
  if (a.heads == a.kv_heads) {
    m.g.product(across, y, to);
    return;
  }
  int of_heads = m.g.between(PD_CUDNN_BF16, pd_cudnn_dense(a.batch, a.heads, a.kv_length, a.size));
  m.g.reduce(PD_CUDNN_SUM, m.g.product(across, y, of_heads), to);
}

/* d_o . o of each row, in memory: it is read by more than one of an engine's kernels. */
static void row_products(const Making &m, int d_o, int o, int delta) {
  const struct pd_attention &a = m.a;
  int of = m.g.between(PD_CUDNN_F32, pd_cudnn_dense(a.batch, a.heads, a.length, a.size));
  int sum =
      m.g.reduce(PD_CUDNN_SUM, m.g.pointwise(PD_CUDNN_MULTIPLY, d_o, o, of), m.g.between(PD_CUDNN_F32, m.row));
  m.g.pointwise(PD_CUDNN_MULTIPLY, sum, m.g.number(1), delta); /* engines look for a factor here: dropout's */
}

std::unique_ptr<pd_attention_graph> pd_attention_backward_graph(const struct pd_attention &a,
                                                                const std::string &device) {
  auto made = std::make_unique<pd_attention_graph>(device);
  pd_cudnn_graph &g = made->graph;
  Making m(a, &g);
  int q = g.operand(PD_CUDNN_BF16, shape_of(a, a.q, false));
  int k = g.operand(PD_CUDNN_BF16, pd_cudnn_transposed(shape_of(a, a.k, true)));
  int v = g.operand(PD_CUDNN_BF16, pd_cudnn_transposed(shape_of(a, a.v, true)));
  int o = g.operand(PD_CUDNN_BF16, shape_of(a, a.o, false));
  int lse = g.operand(PD_CUDNN_F32, m.row);
  int d_o = g.operand(PD_CUDNN_BF16, shape_of(a, a.d_o, false));
  int delta = g.operand(PD_CUDNN_F32, m.row);
  int dq = g.operand(PD_CUDNN_BF16, shape_of(a, a.dq, false));
  int dk = g.operand(PD_CUDNN_BF16, shape_of(a, a.dk, true));
  int dv = g.operand(PD_CUDNN_BF16, shape_of(a, a.dv, true));
  row_products(m, d_o, o, delta);
  int below = g.pointwise(PD_CUDNN_SUBTRACT, scaled_scores(m, q, k), lse, m.score());
  int p = g.pointwise(PD_CUDNN_EXP, masked_scores(m, below), m.score());
  product_of_keys(m, p, d_o, dv);
  int dp = g.product(d_o, v, m.score());
  int ds = g.pointwise(PD_CUDNN_SUBTRACT, dp, delta, m.score());
  ds = g.pointwise(PD_CUDNN_MULTIPLY, ds, p, m.score());
  ds = g.pointwise(PD_CUDNN_MULTIPLY, ds, g.number(a.scale), g.between(PD_CUDNN_BF16, m.scores));
  product_of_keys(m, ds, q, dk);
  g.product(ds, g.reshape(k, g.between(PD_CUDNN_BF16, shape_of(a, a.k, true))), dq);
  made->operands = {q, k, v, o, lse, d_o, delta, dq, dk, dv};
  return made;
}

/* More than plans have room for. */
static bool has_too_many_knobs(const pd_cudnn_engine &e) {
  enum { ROOM = 4 };
  return e.n > ROOM;
}

std::vector<pd_cudnn_engine> pd_attention_engines(pd_attention_graph *g, bool backward) {
  /* On GPUs of compute capability 10: adds up dq in a fixed order without the scores' gradients in the
   * workspace. */
  enum { STAGES = 14, KERNEL_CONFIGURATION = 24 };
  const pd_cudnn_engine ordered = {5, 2, {{STAGES, 2}, {KERNEL_CONFIGURATION, 31}}};
  std::vector<pd_cudnn_engine> engines = pd_cudnn_engines(&g->graph);
  engines.erase(std::remove_if(engines.begin(), engines.end(), has_too_many_knobs), engines.end());
  if (backward && std::find(engines.begin(), engines.end(), ordered) == engines.end()) engines.push_back(ordered);
  return engines;
}
