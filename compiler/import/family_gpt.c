/* Families with layer norms: gpt2 and gpt_neox (Pythia). */
#include "import/internal.h"

/* ---- gpt2 -------------------------------------------------------------------------------------- */

static const Field gpt2_fields[] = {{"vocab_size", FIELD_COUNT, "50257", NULL},
                                    {"n_positions", FIELD_COUNT, "1024", NULL},
                                    {"n_ctx", FIELD_COUNT, "=n_positions", NULL},
                                    {"n_embd", FIELD_COUNT, "768", NULL},
                                    {"n_layer", FIELD_COUNT, "12", NULL},
                                    {"n_head", FIELD_COUNT, "12", NULL},
                                    {"n_inner", FIELD_COUNT, "0", NULL},
                                    {"activation_function", FIELD_WORD, "gelu_new", "gelu_new|gelu_pytorch_tanh"},
                                    {"layer_norm_epsilon", FIELD_EPSILON, "1e-5", NULL},
                                    {"scale_attn_weights", FIELD_FLAG, "true", "true"},
                                    {"scale_attn_by_inverse_layer_idx", FIELD_FLAG, "false", "false"},
                                    {"add_cross_attention", FIELD_FLAG, "false", "false"},
                                    {"tie_word_embeddings", FIELD_FLAG, "true", NULL},
                                    {0}};
static const ShapeRule gpt2_shapes[] = {{"vocab_size", "wte.weight", 0, NULL},
                                        {"n_embd", "wte.weight", 1, NULL},
                                        {"n_positions", "wpe.weight", 0, NULL},
                                        {"n_layer", "h.", COUNT_LAYERS, NULL},
                                        {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
                                        {0}};

/* Refuses settings without an argument in transformer_block. */
static bool derive_gpt2(Import *m) {
  const double usual_eps = 1e-5, wide = 4;
  const double inner = known_number(m, "n_inner");
  set_known(m, "max_position_embeddings", known(m, "n_positions"));
  if (inner > 0 && inner != wide * known_number(m, "n_embd")) {
    refuse_field(m, "n_inner", known(m, "n_inner"), "4 * n_embd");
    return false;
  }
  if (known_number(m, "layer_norm_epsilon") != usual_eps) {
    refuse_field(m, "layer_norm_epsilon", known(m, "layer_norm_epsilon"), "1e-5");
    return false;
  }
  return true;
}

const Family family_gpt2 = {
    "gpt2",
    "A GPT-2",
    "transformer.",
    "transformer",
    gpt2_fields,
    gpt2_shapes,
    "reorder_and_upcast_attn|summary_activation|summary_first_dropout|summary_proj_to_labels|summary_type|"
    "summary_use_proj",
    derive_gpt2,
    "n_layer = $n_layer, n_head = $n_head, n_embd = $n_embd, n_positions = $n_positions, p_drop = 0, ",
    "x = ${root}wte: embedding(tokens, vocab_size, n_embd, init = $init);\n"
    "if packed {\n"
    "input positions[n_ctx] : token(n_ctx);\n"
    "x = x + ${root}wpe: embedding(positions, n_positions, n_embd, init = $init);\n"
    "} else {\n"
    "table = ${root}wpe: position_embedding(n_positions, n_embd, init = $init);\n"
    "x = x + table[..n_ctx];\n"
    "}\n"
    "x = dropout(x, p_drop);\n"
    "for i in 0..n_layer {\n"
    "x = ${root}h[i]: transformer_block(x, n_head, causal = true, p_drop = p_drop, [[init_differs: init = $init, ]]"
    "stored = in_out, documents = document);\n}\n"
    "x = ${root}ln_f: layer_norm(x);\n"
    "[[tie_word_embeddings: logits = x @ ${root}wte.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"};

/* ---- gpt_neox ---------------------------------------------------------------------------------- */

static const Field neox_fields[] = {{"vocab_size", FIELD_COUNT, NULL, NULL},
                                    {"hidden_size", FIELD_COUNT, NULL, NULL},
                                    {"intermediate_size", FIELD_COUNT, NULL, NULL},
                                    {"num_hidden_layers", FIELD_COUNT, NULL, NULL},
                                    {"num_attention_heads", FIELD_COUNT, NULL, NULL},
                                    {"max_position_embeddings", FIELD_COUNT, "2048", NULL},
                                    {"hidden_act", FIELD_WORD, "gelu", "gelu"},
                                    {"layer_norm_eps", FIELD_EPSILON, "1e-5", NULL},
                                    {"rotary_pct", FIELD_NUMBER, "0.25", NULL},
                                    {"rotary_emb_base", FIELD_NUMBER, "10000", NULL},
                                    {"use_parallel_residual", FIELD_FLAG, "true", NULL},
                                    {"attention_bias", FIELD_FLAG, "true", NULL},
                                    {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                    {"rope_theta", FIELD_OTHER, NULL, NULL},
                                    {"rope_scaling", FIELD_OTHER, NULL, NULL},
                                    {"rope_parameters", FIELD_OTHER, NULL, NULL},
                                    {0}};
static const ShapeRule neox_shapes[] = {{"vocab_size", "embed_in.weight", 0, NULL},
                                        {"hidden_size", "embed_in.weight", 1, NULL},
                                        {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
                                        {"intermediate_size", "layers.0.mlp.dense_h_to_4h.weight", 0, NULL},
                                        {"attention_bias", "layers.0.attention.query_key_value.bias", IS_THERE,
                                         NULL},
                                        {"tie_word_embeddings", "/embed_out.weight", IS_NOT_THERE, NULL},
                                        {0}};

static bool derive_neox(Import *m) {
  set_known(m, "partial_rotary_factor", known(m, "rotary_pct"));
  return derive_rope(m, known_number(m, "rotary_emb_base"), true) &&
         derive_rotary_size(m, known_number(m, "hidden_size") / known_number(m, "num_attention_heads"));
}

const Family family_gpt_neox = {
    "gpt_neox",
    "A GPT-NeoX",
    "gpt_neox.",
    "neox",
    neox_fields,
    neox_shapes,
    NULL,
    derive_neox,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, n_embd = $hidden_size, "
    "hidden = $intermediate_size, ",
    "x = ${root}embed_in: embedding(tokens, vocab_size, n_embd, init = $init);\n"
    "for i in 0..n_layer {\n"
    "x = ${root}layers[i]: neox_block(x, n_head, hidden, rotary_size = $rotary_size, base = $base, [[init_differs: init = $init, ]]"
    "[[scaling: scaling = $scaling, ]][[!attention_bias: bias = false, ]]"
    "[[!use_parallel_residual: parallel = false, ]]documents = document, eps = $layer_norm_eps);\n}\n"
    "x = ${root}final_layer_norm: layer_norm(x, eps = $layer_norm_eps);\n"
    "[[tie_word_embeddings: logits = x @ ${root}embed_in.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = embed_out: linear(x, vocab_size, bias = false, init = $init);\n]]"};
