/* What a model computes, in the fields of the config.json that Hugging Face keeps beside weights: the runtime compares the two
 * when it loads weights (runtime/checkpoint/config.c). Derived from operations and their attributes, not from names. */
#ifndef PDC_TRAITS_H
#define PDC_TRAITS_H

#include "graph/identity.h"

/* Of a graph as elaboration leaves it. A field that the graph does not show, or that has several values, is left out:
 *   num_attention_heads, num_key_value_heads, head_dim
 *   rms_norm_eps, layer_norm_eps
 *   rotary_dim, and rope_theta, or rope_frequencies where these are no powers of one number
 *   hidden_act: silu, gelu, gelu_pytorch_tanh, quick_gelu, relu
 *   tie_word_embeddings
 * None where the graph has neither attention nor rotary positions nor such a norm. */
Settings graph_traits(const Graph *g);

#endif
