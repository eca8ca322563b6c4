/* A model's function in the fields of Hugging Face's config.json. The runtime compares the fields when it loads
 * weights (runtime/checkpoint/config.c). Derived from operations and attributes, not from names. */
#ifndef PDC_TRAITS_H
#define PDC_TRAITS_H

#include "graph/identity.h"

/* Takes the graph as elaborated. Omits a field that is absent from the graph or has several values:
 *   num_attention_heads, num_key_value_heads, head_dim
 *   rms_norm_eps, layer_norm_eps
 *   rotary_dim, and rope_theta, or rope_frequencies unless these are powers of one number
 *   hidden_act: silu, gelu, gelu_pytorch_tanh, quick_gelu, relu
 *   tie_word_embeddings
 *   num_experts_per_tok, norm_topk_prob
 * Returns nothing for a graph without attention, rotary positions, such norms and experts. */
Settings graph_traits(const Graph *g);

#endif
