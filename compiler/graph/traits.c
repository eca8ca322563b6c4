#include "graph/traits.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "graph/interpret.h"
#include "ops/op.h"

/* The current value of a field; it must be equal everywhere in the model. */
typedef struct Trait {
  const char *value; /* NULL: none yet */
  bool differs;
} Trait;

typedef enum {
  HEADS,
  KV_HEADS,
  HEAD_DIM,
  RMS_EPS,
  LAYER_EPS,
  ROTARY_DIM,
  THETA,
  FREQUENCIES,
  ACTIVATION,
  TIED,
  WINDOW,
  LENGTH,
  CHOSEN,
  NORMALIZED,
  N_TRAITS
} Which;

static const char *const names[N_TRAITS] = {
    [HEADS] = "num_attention_heads",  [KV_HEADS] = "num_key_value_heads", [HEAD_DIM] = "head_dim",
    [RMS_EPS] = "rms_norm_eps",       [LAYER_EPS] = "layer_norm_eps",     [ROTARY_DIM] = "rotary_dim",
    [THETA] = "rope_theta",           [FREQUENCIES] = "rope_frequencies", [ACTIVATION] = "hidden_act",
    [TIED] = "tie_word_embeddings",   [WINDOW] = "sliding_window",        [LENGTH] = "attention_length",
    [CHOSEN] = "num_experts_per_tok", [NORMALIZED] = "norm_topk_prob"};

typedef struct Survey {
  const Graph *g;
  Trait trait[N_TRAITS];
} Survey;

static void see(Survey *s, Which which, const char *value) {
  Trait *t = &s->trait[which];
  t->differs |= t->value && strcmp(t->value, value);
  t->value = value;
}

static void see_int(Survey *s, Which which, int64_t x) { see(s, which, format("%lld", (long long)x)); }

static const Node *producer(const Graph *g, int value) { return &g->nodes.at[g->values.at[value].node]; }
static bool is_made_by(const Graph *g, int value, const Op *op) { return producer(g, value)->op == op; }

static int behind_detach(const Graph *g, int value) {
  while (is_made_by(g, value, &op_detach))
    value = producer(g, value)->in[0];
  return value;
}

/* The number that fills the whole value. */
static bool is_number(const Graph *g, int value, double *x) {
  const Node *n = producer(g, value);
  return n->op->constant && n->op->constant(n, x);
}

/* The other operand of a binary node with a number; -1: no operand is a number. */
static int beside_number(const Graph *g, const Node *n, double *x) {
  if (n->n_in != 2)
    return -1;
  return is_number(g, n->in[1], x) ? n->in[0] : is_number(g, n->in[0], x) ? n->in[1] : -1;
}

/* ---- norms --------------------------------------------------------------------------------------- */

/* The value averaged by this mean along the last axis; -1: not a mean. */
static int mean_of(const Graph *g, int value) {
  double n;
  const Node *scaled = producer(g, value);
  if (scaled->op != &op_div && scaled->op != &op_mul)
    return -1;
  int sum = beside_number(g, scaled, &n);
  return sum >= 0 && is_made_by(g, sum, &op_sum) ? producer(g, sum)->in[0] : -1;
}

static int squared(const Graph *g, int value) {
  const Node *n = producer(g, value);
  bool is_square = n->op == &op_square || (n->op == &op_mul && n->in[0] == n->in[1]);
  return is_square ? n->in[0] : -1;
}

static bool is_centered(const Graph *g, int value) {
  const Node *n = producer(g, behind_detach(g, value));
  return n->op == &op_sub && mean_of(g, behind_detach(g, n->in[1])) >= 0;
}

/* Recognises 1 / sqrt(mean(x^2) + eps), of x or of x - mean(x). The remaining rounding error of the mean may be
 * subtracted. */
static void see_norm(Survey *s, const Node *root) {
  const Graph *g = s->g;
  const Node *sum = producer(g, root->in[0]);
  double eps;
  int variance = sum->op == &op_add ? beside_number(g, sum, &eps) : -1;
  if (variance < 0 || !g->values.at[variance].shape.batched)
    return;
  if (is_made_by(g, variance, &op_sub))
    variance = producer(g, variance)->in[0];
  int square = mean_of(g, variance), x = square < 0 ? -1 : squared(g, square);
  if (x >= 0)
    see(s, is_centered(g, x) ? LAYER_EPS : RMS_EPS, format("%.9g", eps));
}

/* ---- attention, rotary positions ------------------------------------------------------------------- */

/* The positions that the last query sees, by the window or the constant mask; -1: the mask depends on the sample. */
static int64_t window_of(const Graph *g, const Node *n, int64_t length) {
  enum { MASK = 3 };
  const double hidden = -10000;
  if (node_int(n, "window") > 0)
    return node_int(n, "window");
  if (n->n_in <= MASK || g->values.at[n->in[MASK]].type != TYPE_F32 || g->values.at[n->in[MASK]].shape.rank != 2)
    return length;
  const Shape *mask = &g->values.at[n->in[MASK]].shape;
  double x;
  if (mask->batched || mask->dim[1] != length)
    return -1;
  for (int64_t seen = 0; seen < length; seen++) {
    if (!interpret_element(g, n->in[MASK], mask->dim[0] * length - 1 - seen, &x))
      return -1;
    if (x <= hidden)
      return seen;
  }
  return length;
}

static void see_attention(Survey *s, const Node *n) {
  const Shape *q = &s->g->values.at[n->in[0]].shape, *k = &s->g->values.at[n->in[1]].shape;
  see_int(s, HEADS, q->dim[0]);
  see_int(s, KV_HEADS, k->dim[0]);
  const Shape *v =
      &s->g->values.at[n->in[2]].shape; /* latent attention: another size, and head_dim means the rotary part */
  see(s, HEAD_DIM, v->dim[2] == q->dim[2] ? format("%lld", (long long)q->dim[2]) : "");
  const int64_t window = window_of(s->g, n, k->dim[1]);
  see(s, WINDOW, window < 0 ? "" : format("%lld", (long long)window));
  see_int(s, LENGTH, k->dim[1]);
}

static bool is_near(double x, double y) { return fabs(x - y) <= 1e-5 * fabs(y); }

/* Frequencies theta^(-2i / (2 half)) are powers of one number. */
static void see_frequencies(Survey *s, const double *frequency, int64_t half) {
  const double ratio = frequency[1], theta = pow(ratio, -(double)half);
  Text list = {0};
  bool powers = is_near(frequency[0], 1);
  for (int64_t i = 0; i < half; i++) {
    powers &= is_near(frequency[i], pow(ratio, (double)i));
    text_add(&list, "%s%.7g", i ? " " : "", frequency[i]);
  }
  see_int(s, ROTARY_DIM, 2 * half);
  see(s, THETA, powers ? format("%.7g", theta) : "");
  see(s, FREQUENCIES, powers ? "" : list.at);
}

/* Recognises the cosine of angles [length, half], with row p equal to p times row 1. */
static void see_rotation(Survey *s, const Node *n) {
  enum { MOST = 1024 };
  const Shape *angles = &s->g->values.at[n->in[0]].shape;
  double frequency[MOST], twice;
  if (angles->batched || angles->rank != 2 || angles->dim[0] < 3 || angles->dim[1] < 2 || angles->dim[1] > MOST)
    return;
  const int64_t half = angles->dim[1];
  for (int64_t i = 0; i < half; i++)
    if (!interpret_element(s->g, n->in[0], half + i, &frequency[i]) ||
        !interpret_element(s->g, n->in[0], 2 * half + i, &twice) || !is_near(twice, 2 * frequency[i]))
      return;
  see_frequencies(s, frequency, half);
}

/* ---- experts --------------------------------------------------------------------------------------- */

static int behind_reshape(const Graph *g, int value) {
  while (is_made_by(g, value, &op_reshape))
    value = producer(g, value)->in[0];
  return value;
}

static void see_experts(Survey *s, const Node *n) {
  enum { EXPERTS = 2 };
  const Shape *experts = &s->g->values.at[n->in[EXPERTS]].shape;
  see_int(s, CHOSEN, experts->dim[experts->rank - 1]);
}

/* Recognises weights that are the largest probabilities, or these divided by their sum. */
static void see_weights(Survey *s, const Node *n) {
  const Graph *g = s->g;
  const int weights = behind_reshape(g, n->in[1]);
  const Node *ratio = producer(g, weights);
  if (ratio->op == &op_top_k) {
    see(s, NORMALIZED, "false");
  } else if (ratio->op == &op_div) {
    const int sum = behind_reshape(g, ratio->in[1]);
    if (is_made_by(g, sum, &op_sum) && producer(g, sum)->in[0] == ratio->in[0])
      see(s, NORMALIZED, "true");
  }
}

/* ---- activations ----------------------------------------------------------------------------------- */

/* Whether an operand of the value's node, or of a node that leads to it, is near this number. */
static bool has_number(const Graph *g, int value, double wanted, int depth) {
  const Node *n = producer(g, value);
  double x;
  if (is_number(g, value, &x))
    return is_near(x, wanted);
  bool found = false;
  for (int i = 0; i < n->n_in && depth && n->op->kind == OP_POINTWISE; i++)
    found |= has_number(g, n->in[i], wanted, depth - 1);
  return found;
}

/* Recognises x * sigmoid(x) and sigmoid approximations of the normal distribution. */
static const char *kind_of_product(const Graph *g, const Node *product) {
  enum { DEEP = 6 };
  const double of_cube = 0.044715, quick = 1.702;
  for (int k = 0; k < product->n_in; k++) {
    if (!is_made_by(g, product->in[k], &op_sigmoid))
      continue;
    int inner = producer(g, product->in[k])->in[0], x = product->in[1 - k];
    double factor;
    if (inner == x)
      return "silu";
    const Node *scaled = producer(g, inner);
    if (scaled->op == &op_mul && beside_number(g, scaled, &factor) == x && is_near(factor, quick))
      return "quick_gelu";
    if (has_number(g, inner, of_cube, DEEP))
      return "gelu_pytorch_tanh";
  }
  return NULL;
}

static void see_product(Survey *s, const Node *n) {
  const char *kind = kind_of_product(s->g, n);
  if (kind)
    see(s, ACTIVATION, kind);
}

static void see_erf(Survey *s, const Node *n) {
  (void)n;
  see(s, ACTIVATION, "gelu");
}

static void see_relu(Survey *s, const Node *n) {
  (void)n;
  see(s, ACTIVATION, "relu");
}

/* Recognises GPT-2's formula, 0.5 x (1 + tanh(..)). Other uses of tanh are not network activations. */
static void see_tanh(Survey *s, const Node *n) {
  enum { DEEP = 6 };
  if (has_number(s->g, n->in[0], 0.044715, DEEP))
    see(s, ACTIVATION, "gelu_pytorch_tanh");
}

static const struct {
  const Op *op;
  void (*see)(Survey *s, const Node *n);
} seen_by[] = {{&op_rsqrt, see_norm},
               {&op_sqrt, see_norm},
               {&op_attention, see_attention},
               {&op_cos, see_rotation},
               {&op_mul, see_product},
               {&op_erf, see_erf},
               {&op_erfc, see_erf},
               {&op_relu, see_relu},
               {&op_tanh, see_tanh},
               {&op_expert_linear, see_experts},
               {&op_expert_sum, see_weights}};

/* ---- the head -------------------------------------------------------------------------------------- */

static bool is_product(const Node *n) { return n->op == &op_matmul || n->op == &op_attention; }

/* The parameter at a product's second operand, through views; NULL: none. */
static const Param *factor_of(const Graph *g, const Node *n) {
  int value = n->in[1];
  while (producer(g, value)->op->kind == OP_VIEW)
    value = producer(g, value)->in[0];
  const Node *source = producer(g, value);
  return source->op->source == SOURCE_PARAMETER ? &g->params.at[node_int(source, "index")] : NULL;
}

/* A table indexed by tokens, or NULL. */
static const Param *table_of(const Graph *g, const Node *n) {
  if (n->op != &op_gather || g->values.at[n->in[1]].type != TYPE_TOKEN)
    return NULL;
  const Node *source = producer(g, n->in[0]);
  return source->op->source == SOURCE_PARAMETER ? &g->params.at[node_int(source, "index")] : NULL;
}

/* The table with the most rows; smaller tables may be segment embeddings. */
static const Param *largest_table(const Graph *g) {
  const Param *largest = NULL;
  for (int i = 0; i < g->n_forward; i++) {
    const Param *table = table_of(g, &g->nodes.at[i]);
    if (table && (!largest || table->shape.dim[0] > largest->shape.dim[0]))
      largest = table;
  }
  return largest;
}

/* Whether the head, a last product of the model, uses the embedding table or a parameter of the same shape. */
static void see_heads(Survey *s) {
  const Graph *g = s->g;
  const Param *table = largest_table(g);
  bool *leads_on = alloc((size_t)g->nodes.n * sizeof *leads_on); /* to a product */
  for (int i = g->n_forward - 1; i >= 0; i--) {
    const Node *n = &g->nodes.at[i];
    for (int k = 0; k < n->n_in; k++)
      leads_on[g->values.at[n->in[k]].node] |= leads_on[i] || is_product(n);
    const Param *head = n->op == &op_matmul && !leads_on[i] ? factor_of(g, n) : NULL;
    if (head && table && shape_equal(&table->shape, &head->shape))
      see(s, TIED, head == table ? "true" : "false");
  }
}

/* ---- all of it ------------------------------------------------------------------------------------- */

static bool is_known(const Trait *t) { return t->value && *t->value && !t->differs; }

Settings graph_traits(const Graph *g) {
  static const Which telling[] = {HEADS, RMS_EPS, LAYER_EPS, ROTARY_DIM, CHOSEN};
  Survey s = {.g = g};
  Settings traits = {0};
  bool tells = false;
  for (int i = 0; i < g->n_forward; i++)
    for (size_t k = 0; k < sizeof seen_by / sizeof *seen_by; k++)
      if (g->nodes.at[i].op == seen_by[k].op)
        seen_by[k].see(&s, &g->nodes.at[i]);
  see_heads(&s);
  for (size_t i = 0; i < sizeof telling / sizeof *telling; i++)
    tells |= is_known(&s.trait[telling[i]]);
  for (int i = 0; i < N_TRAITS && tells; i++)
    if (is_known(&s.trait[i]))
      push(&traits, (Setting){names[i], s.trait[i].value});
  return traits;
}
