/* phi3: Phi-3 and Phi-3.5 mini with short contexts, and Phi-4. */
#include "import/internal.h"

static const Field fields[] = {{"vocab_size", FIELD_COUNT, NULL, NULL},
                               {"pad_token_id", FIELD_PAD, "32000", NULL},
                               {"hidden_size", FIELD_COUNT, NULL, NULL},
                               {"intermediate_size", FIELD_COUNT, NULL, NULL},
                               {"num_hidden_layers", FIELD_COUNT, NULL, NULL},
                               {"num_attention_heads", FIELD_COUNT, NULL, NULL},
                               {"num_key_value_heads", FIELD_COUNT, "=num_attention_heads", NULL},
                               {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                               {"max_position_embeddings", FIELD_COUNT, "4096", NULL},
                               {"hidden_act", FIELD_WORD, "silu", "silu|swish"},
                               {"rms_norm_eps", FIELD_EPSILON, "1e-5", NULL},
                               {"sliding_window", FIELD_WINDOW, "", NULL},
                               {"attention_bias", FIELD_FLAG, "false", "false"},
                               {"partial_rotary_factor", FIELD_NUMBER, "1", NULL},
                               {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                               {"rope_theta", FIELD_OTHER, NULL, NULL},
                               {"rope_scaling", FIELD_OTHER, NULL, NULL},
                               {"rope_parameters", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {{"vocab_size", "embed_tokens.weight", 0, NULL},
                                   {"hidden_size", "embed_tokens.weight", 1, NULL},
                                   {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
                                   {"intermediate_size", "layers.0.mlp.down_proj.weight", 1, NULL},
                                   {"head_dim", "layers.0.self_attn.o_proj.weight", 1, "num_attention_heads"},
                                   {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
                                   {0}};

static bool derive(Import *m) {
  const double usual_theta = 10000;
  derive_window(m, "true");
  return derive_rope(m, usual_theta, false) && derive_rotary_size(m, known_number(m, "head_dim"));
}

const Family family_phi3 = {
    "phi3",
    "A Phi-3",
    "model.",
    "phi3",
    fields,
    shapes,
    "original_max_position_embeddings",
    derive,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, n_kv_head = $num_key_value_heads, "
    "n_embd = $hidden_size, hidden = $intermediate_size, ",
    "x = ${root}embed_tokens: " EMBEDDED "for i in 0..n_layer {\n"
    "x = ${root}layers[i]: phi3_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]"
    "head_size = $head_dim, rotary_size = $rotary_size, [[window: window = $window, ]]documents = document, eps = $rms_norm_eps);\n}\n"
    "x = ${root}norm: rms_norm(x, eps = $rms_norm_eps);\n"
    "[[tie_word_embeddings: logits = x @ ${root}embed_tokens.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"};
