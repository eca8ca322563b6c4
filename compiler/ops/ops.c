/* The list of all primitives. */
#include <string.h>

#include "ops/op.h"

/* clang-format off */
const Op *const all_ops[] = {
    &op_param, &op_input, &op_operand, &op_constant, &op_iota, &op_iota_part, &op_full,
    &op_add, &op_sub, &op_mul, &op_div, &op_neg, &op_square, &op_maximum, &op_minimum, &op_greater, &op_equal,
    &op_select, &op_exp, &op_expm1, &op_log, &op_log1p, &op_sigmoid, &op_tanh, &op_erf, &op_erfc, &op_sqrt, &op_rsqrt,
    &op_sin, &op_cos, &op_relu, &op_abs, &op_floor, &op_round, &op_rand_like, &op_randn_like, &op_rounded,
    &op_dropout, &op_dropout_part, &op_one_hot, &op_one_hot_part,
    &op_sum, &op_max, &op_sum_to,
    &op_microbatch, &op_running_average, &op_share,
    &op_reshape, &op_transpose, &op_permute, &op_slice, &op_split, &op_concat, &op_pad, &op_expand, &op_detach,
    &op_all_reduce, &op_all_reduce_max, &op_all_gather, &op_reduce_scatter, &op_own_part, &op_summand, &op_own_columns,
    &op_matmul, &op_few_rows_matmul, &op_weight_gradient, &op_weight_and_bias_gradient,
    &op_matmul_gelu, &op_matmul_gelu_gradient,
    &op_convolution, &op_convolution_backward, &op_convolution_weights,
    &op_max_pool, &op_max_pool_gradient, &op_average_pool, &op_average_pool_gradient,
    &op_adaptive_average_pool, &op_adaptive_average_pool_gradient,
    &op_attention, &op_attention_gradient, &op_cached_attention,
    &op_keep, &op_cached_rows, &op_lstm, &op_lstm_gradient, &op_cached_lstm,
    &op_step, &op_state, &op_recurrence, &op_scan, &op_cached_scan,
    &op_top_k, &op_top_k_gradient, &op_biased_top_k,
    &op_within_capacity, &op_expert_linear, &op_expert_linear_weights, &op_expert_sum,
    &op_gather, &op_gather_part, &op_gather_gradient, &op_gather_gradient_part,
    NULL};
/* clang-format on */
const int n_ops = sizeof all_ops / sizeof all_ops[0] - 1;

/* Every word of a model is looked up: open addressing, filled once. */
enum { SLOTS = 256 };
static const Op *op_named[SLOTS];

static unsigned slot_of(const char *name) {
  unsigned h = 0x811c9dc5u; /* FNV-1a */
  for (const char *c = name; *c; c++)
    h = (h ^ (unsigned char)*c) * 0x01000193u;
  unsigned slot = (h ^ h >> 16) % SLOTS;
  while (op_named[slot] && strcmp(op_named[slot]->name, name) != 0)
    slot = (slot + 1) % SLOTS;
  return slot;
}

const Op *op_find(const char *name) {
  static bool filled;
  if (!filled) {
    ensure(n_ops < SLOTS / 2);
    for (int i = 0; i < n_ops; i++)
      op_named[slot_of(all_ops[i]->name)] = all_ops[i];
    filled = true;
  }
  return op_named[slot_of(name)];
}

const Attr *node_attr(const Node *n, const char *name) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++)
    if (!strcmp(n->op->attr[i].name, name))
      return &n->attr[i];
  BUG("'%s' has no attribute '%s'", n->op->name, name);
}

uint64_t node_key(const Node *n) {
  uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
  for (const char *c = node_attr(n, "$key")->text; *c; c++)
    h = (h ^ (unsigned char)*c) * 0x100000001b3u;
  return h;
}
