/* Families with Llama's block: llama (Llama 2 and 3, SmolLM, Yi), mistral, qwen2, qwen3, olmo2, mixtral. */
#include "import/internal.h"

#define COMMON_FIELDS                                                                                         \
  {"vocab_size", FIELD_COUNT, NULL, NULL}, {"hidden_size", FIELD_COUNT, NULL, NULL},                          \
      {"intermediate_size", FIELD_COUNT, NULL, NULL}, {"num_hidden_layers", FIELD_COUNT, NULL, NULL},         \
      {"num_attention_heads", FIELD_COUNT, NULL, NULL}, {"max_position_embeddings", FIELD_COUNT, NULL, NULL}, \
      {"hidden_act", FIELD_WORD, "silu", "silu|swish"}, {"rope_theta", FIELD_OTHER, NULL, NULL},              \
      {"rope_scaling", FIELD_OTHER, NULL, NULL}, {                                                            \
    "rope_parameters", FIELD_OTHER, NULL, NULL                                                                \
  }

/* A family may append rules. */
#define COMMON_SHAPES                                                                              \
  {"vocab_size", "embed_tokens.weight", 0, NULL}, {"hidden_size", "embed_tokens.weight", 1, NULL}, \
      {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},                                        \
      {"intermediate_size", "layers.0.mlp.up_proj.weight", 0, NULL}, {                             \
    "tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL                                   \
  }

#define HEAD_SHAPES                                                             \
  {"head_dim", "layers.0.self_attn.q_proj.weight", 0, "num_attention_heads"}, { \
    "num_key_value_heads", "layers.0.self_attn.k_proj.weight", 0, "head_dim"    \
  }

static const char attributes[] = "n_layer = $num_hidden_layers, n_head = $num_attention_heads, "
                                 "n_kv_head = $num_key_value_heads, [[heads_differ: head_size = $head_dim, ]]"
                                 "n_embd = $hidden_size, hidden = $intermediate_size, ";

#define EMBEDDING "x = ${root}embed_tokens: " EMBEDDED
#define HEAD                                                              \
  "x = ${root}norm: rms_norm(x, eps = $rms_norm_eps);\n"                  \
  "[[tie_word_embeddings: logits = x @ ${root}embed_tokens.weight.T;\n]]" \
  "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"
#define BLOCK(more)                                                                                                \
  "for i in 0..n_layer {\n${window_lines}"                                                                         \
  "x = ${root}layers[i]: llama_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]" \
  "[[heads_differ: head_size = head_size, ]][[scaling: scaling = $scaling, ]]" more                                \
  "[[window: window = $window, ]]documents = document, eps = $rms_norm_eps);\n}\n"

/* head_size defaults to the width divided by the heads. */
static void derive_heads(Import *m) {
  const double usual = known_number(m, "hidden_size") / known_number(m, "num_attention_heads");
  set_known(m, "heads_differ", known_number(m, "head_dim") != usual ? "true" : "");
}

static bool derive_plain(Import *m) {
  const double usual_theta = 10000;
  derive_heads(m);
  set_known(m, "window", "");
  return derive_rope(m, usual_theta, true);
}

/* ---- llama ------------------------------------------------------------------------------------- */

static const Field llama_fields[] = {COMMON_FIELDS,
                                     {"pad_token_id", FIELD_PAD, "", NULL},
                                     {"num_key_value_heads", FIELD_COUNT, "=num_attention_heads", NULL},
                                     {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                                     {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                                     {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                     {"attention_bias", FIELD_FLAG, "false", NULL},
                                     {"mlp_bias", FIELD_FLAG, "false", NULL},
                                     {"rope_interleaved", FIELD_FLAG, "false", "false"},
                                     {0}};
static const ShapeRule llama_shapes[] = {COMMON_SHAPES,
                                         HEAD_SHAPES,
                                         {"attention_bias", "layers.0.self_attn.q_proj.bias", IS_THERE, NULL},
                                         {"mlp_bias", "layers.0.mlp.up_proj.bias", IS_THERE, NULL},
                                         {0}};
const Family family_llama = {
    "llama",      "A Llama",
    "model.",     "llama",
    llama_fields, llama_shapes,
    NULL,         derive_plain,
    attributes,   EMBEDDING BLOCK("[[attention_bias: bias = true, ]][[mlp_bias: mlp_bias = true, ]]") HEAD};

/* ---- mistral ----------------------------------------------------------------------------------- */

static const Field mistral_fields[] = {COMMON_FIELDS,
                                       {"pad_token_id", FIELD_PAD, "", NULL},
                                       {"num_key_value_heads", FIELD_COUNT, "8", NULL},
                                       {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                                       {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                                       {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                       {"sliding_window", FIELD_WINDOW, "4096", NULL},
                                       {0}};
static const ShapeRule mistral_shapes[] = {COMMON_SHAPES, HEAD_SHAPES, {0}};

static bool derive_mistral(Import *m) {
  const bool good = derive_plain(m);
  derive_window(m, "true");
  return good;
}

const Family family_mistral = {"mistral",      "A Mistral", "model.",       "llama",    mistral_fields,
                               mistral_shapes, NULL,        derive_mistral, attributes, EMBEDDING BLOCK("") HEAD};

/* ---- qwen2, qwen3 ------------------------------------------------------------------------------ */

static const Field qwen2_fields[] = {COMMON_FIELDS,
                                     {"pad_token_id", FIELD_PAD, "", NULL},
                                     {"num_key_value_heads", FIELD_COUNT, "32", NULL},
                                     {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                                     {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                                     {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                     {"use_sliding_window", FIELD_FLAG, "false", NULL},
                                     {"sliding_window", FIELD_WINDOW, "4096", NULL},
                                     {"max_window_layers", FIELD_COUNT, "28", NULL},
                                     {"layer_types", FIELD_OTHER, NULL, NULL},
                                     {"use_mrope", FIELD_FLAG, "false", "false"},
                                     {0}};
static const Field qwen3_fields[] = {COMMON_FIELDS,
                                     {"pad_token_id", FIELD_PAD, "", NULL},
                                     {"num_key_value_heads", FIELD_COUNT, "32", NULL},
                                     {"head_dim", FIELD_COUNT, "128", NULL},
                                     {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                                     {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                     {"attention_bias", FIELD_FLAG, "false", NULL},
                                     {"use_sliding_window", FIELD_FLAG, "false", NULL},
                                     {"sliding_window", FIELD_WINDOW, "4096", NULL},
                                     {"max_window_layers", FIELD_COUNT, "28", NULL},
                                     {"layer_types", FIELD_OTHER, NULL, NULL},
                                     {0}};
static const ShapeRule qwen3_shapes[] = {
    COMMON_SHAPES,
    {"head_dim", "layers.0.self_attn.q_norm.weight", 0, NULL},
    {"num_attention_heads", "layers.0.self_attn.q_proj.weight", 0, "head_dim"},
    {"num_key_value_heads", "layers.0.self_attn.k_proj.weight", 0, "head_dim"},
    {"attention_bias", "layers.0.self_attn.q_proj.bias", IS_THERE, NULL},
    {0}};

/* With use_sliding_window, layers from max_window_layers on have a sliding window. */
static bool derive_qwen(Import *m) {
  const bool good = derive_plain(m), slides = is_known(m, "use_sliding_window");
  const double first = known_number(m, "max_window_layers");
  if (!slides)
    set_known(m, "sliding_window", "");
  derive_window(m, first < known_number(m, "num_hidden_layers") ? format("i >= %g", first) : "");
  return good;
}

const Family family_qwen2 = {
    "qwen2",        "A Qwen2", "model.",    "llama",    qwen2_fields,
    mistral_shapes, NULL,      derive_qwen, attributes, EMBEDDING BLOCK("bias = true, o_bias = false, ") HEAD};
const Family family_qwen3 = {
    "qwen3",      "A Qwen3",
    "model.",     "llama",
    qwen3_fields, qwen3_shapes,
    NULL,         derive_qwen,
    attributes,   EMBEDDING BLOCK("[[attention_bias: bias = true, ]]qk_norm = \"heads\", ") HEAD};

/* ---- olmo2 ------------------------------------------------------------------------------------- */

static const Field olmo2_fields[] = {COMMON_FIELDS,
                                     {"pad_token_id", FIELD_PAD, "1", NULL},
                                     {"num_key_value_heads", FIELD_COUNT, "=num_attention_heads", NULL},
                                     {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                                     {"rms_norm_eps", FIELD_EPSILON, "1e-5", NULL},
                                     {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                     {"attention_bias", FIELD_FLAG, "false", NULL},
                                     {0}};
static const ShapeRule olmo2_shapes[] = {
    COMMON_SHAPES, HEAD_SHAPES, {"attention_bias", "layers.0.self_attn.q_proj.bias", IS_THERE, NULL}, {0}};
const Family family_olmo2 = {
    "olmo2",
    "An OLMo 2",
    "model.",
    "llama",
    olmo2_fields,
    olmo2_shapes,
    NULL,
    derive_plain,
    attributes,
    EMBEDDING
    "for i in 0..n_layer {\n"
    "x = ${root}layers[i]: olmo2_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]"
    "[[heads_differ: head_size = head_size, ]][[scaling: scaling = $scaling, ]]"
    "[[attention_bias: bias = true, ]]documents = document, eps = $rms_norm_eps);\n}\n" HEAD};

/* ---- mixtral ----------------------------------------------------------------------------------- */

static const Field mixtral_fields[] = {COMMON_FIELDS,
                                       {"pad_token_id", FIELD_PAD, "", NULL},
                                       {"num_key_value_heads", FIELD_COUNT, "8", NULL},
                                       {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                                       {"rms_norm_eps", FIELD_EPSILON, "1e-5", NULL},
                                       {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                                       {"sliding_window", FIELD_WINDOW, "", NULL},
                                       {"num_local_experts", FIELD_COUNT, "8", NULL},
                                       {"num_experts_per_tok", FIELD_COUNT, "2", NULL},
                                       {"output_router_logits", FIELD_FLAG, "false", "false"},
                                       {"router_jitter_noise", FIELD_NUMBER, "0", "0"},
                                       {0}};
static const ShapeRule mixtral_shapes[] = {
    {"vocab_size", "embed_tokens.weight", 0, NULL},
    {"hidden_size", "embed_tokens.weight", 1, NULL},
    {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
    {"num_local_experts", "layers.0.block_sparse_moe.gate.weight", 0, NULL},
    {"intermediate_size", "layers.0.block_sparse_moe.experts.0.w1.weight", 0, NULL},
    {"intermediate_size", "layers.0.block_sparse_moe.experts.down_proj", 2, NULL},
    {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
    HEAD_SHAPES,
    {0}};
const Family family_mixtral = {
    "mixtral",
    "A Mixtral",
    "model.",
    "mixtral",
    mixtral_fields,
    mixtral_shapes,
    "router_aux_loss_coef",
    derive_mistral,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, n_kv_head = $num_key_value_heads, "
    "[[heads_differ: head_size = $head_dim, ]]n_expert = $num_local_experts, "
    "top_k = $num_experts_per_tok, n_embd = $hidden_size, hidden = $intermediate_size, ",
    EMBEDDING
    "for i in 0..n_layer {\n"
    "x, imbalance = ${root}layers[i]: mixtral_block(x, n_head, n_kv_head, hidden, n_expert, top_k, base = $base, "
    "[[init_differs: init = $init, ]][[heads_differ: head_size = head_size, ]][[scaling: scaling = $scaling, ]]"
    "[[window: window = $window, ]]documents = document, eps = $rms_norm_eps);\n}\n" HEAD};
