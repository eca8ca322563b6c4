/* Gemma's families: gemma, gemma2 and gemma3. */
#include <math.h>
#include <string.h>

#include "import/internal.h"

#define COMMON_FIELDS                                                                                         \
  {"pad_token_id", FIELD_PAD, "0", NULL}, {"vocab_size", FIELD_COUNT, NULL, NULL},                            \
      {"hidden_size", FIELD_COUNT, NULL, NULL}, {"intermediate_size", FIELD_COUNT, NULL, NULL},               \
      {"num_hidden_layers", FIELD_COUNT, NULL, NULL}, {"num_attention_heads", FIELD_COUNT, NULL, NULL},       \
      {"num_key_value_heads", FIELD_COUNT, NULL, NULL}, {"head_dim", FIELD_COUNT, "256", NULL},               \
      {"max_position_embeddings", FIELD_COUNT, "8192", NULL}, {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},  \
      {"tie_word_embeddings", FIELD_FLAG, "true", NULL}, {"attention_bias", FIELD_FLAG, "false", NULL},       \
      {"use_bidirectional_attention", FIELD_FLAG, "false", "false"}, {"rope_theta", FIELD_OTHER, NULL, NULL}, \
      {"rope_scaling", FIELD_OTHER, NULL, NULL}, {                                                            \
    "rope_parameters", FIELD_OTHER, NULL, NULL                                                                \
  }

static const ShapeRule shapes[] = {{"vocab_size", "embed_tokens.weight", 0, NULL},
                                   {"hidden_size", "embed_tokens.weight", 1, NULL},
                                   {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
                                   {"intermediate_size", "layers.0.mlp.up_proj.weight", 0, NULL},
                                   {"head_dim", "layers.0.self_attn.q_proj.weight", 0, "num_attention_heads"},
                                   {"num_key_value_heads", "layers.0.self_attn.k_proj.weight", 0, "head_dim"},
                                   {"attention_bias", "layers.0.self_attn.q_proj.bias", IS_THERE, NULL},
                                   {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
                                   {0}};

static const char attributes[] = "n_layer = $num_hidden_layers, n_head = $num_attention_heads, "
                                 "n_kv_head = $num_key_value_heads, head_size = $head_dim, n_embd = $hidden_size, "
                                 "hidden = $intermediate_size, ";

#define EMBEDDING "x = ${root}embed_tokens: " EMBEDDED "x = sqrt(n_embd) * x;\n"
#define HEAD                                                              \
  "x = ${root}norm: gemma_rms_norm(x, eps = $rms_norm_eps);\n"            \
  "[[tie_word_embeddings: logits = x @ ${root}embed_tokens.weight.T;\n]]" \
  "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"

static const double usual_theta = 10000;

static bool derive_gemma(Import *m) { return derive_rope(m, usual_theta, false); }

/* Divides scores by the root of query_pre_attn_scalar; a null softcap means none. */
static bool derive_gemma2(Import *m) {
  set_known(m, "attention_scale", number_text(known_number(m, "query_pre_attn_scalar")));
  derive_window(m, "i % 2 == 0");
  return derive_gemma(m);
}

/* hidden_act is an older name; transformers only derives a missing hidden_activation from it. */
static const Field gemma_fields[] = {COMMON_FIELDS,
                                     {"hidden_act", FIELD_WORD, "gelu_pytorch_tanh", "gelu|gelu_pytorch_tanh"},
                                     {"hidden_activation", FIELD_WORD, "gelu_pytorch_tanh", "gelu_pytorch_tanh"},
                                     {0}};
const Family family_gemma = {
    "gemma",
    "A Gemma",
    "model.",
    "gemma",
    gemma_fields,
    shapes,
    NULL,
    derive_gemma,
    attributes,
    EMBEDDING
    "for i in 0..n_layer {\n"
    "x = ${root}layers[i]: gemma_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]"
    "head_size = head_size, [[attention_bias: bias = true, ]]documents = document, eps = $rms_norm_eps);\n}\n" HEAD};

static const Field gemma2_fields[] = {COMMON_FIELDS,
                                      {"hidden_act", FIELD_WORD, "gelu_pytorch_tanh", "gelu|gelu_pytorch_tanh"},
                                      {"hidden_activation", FIELD_WORD, "gelu_pytorch_tanh", "gelu_pytorch_tanh"},
                                      {"query_pre_attn_scalar", FIELD_NUMBER, "256", NULL},
                                      {"attn_logit_softcapping", FIELD_OPTION, "50", NULL},
                                      {"final_logit_softcapping", FIELD_OPTION, "30", NULL},
                                      {"sliding_window", FIELD_WINDOW, "4096", NULL},
                                      {"layer_types", FIELD_OTHER, NULL, NULL},
                                      {0}};
const Family family_gemma2 = {
    "gemma2",
    "A Gemma 2",
    "model.",
    "gemma",
    gemma2_fields,
    shapes,
    "sliding_window_size",
    derive_gemma2,
    attributes,
    EMBEDDING
    "for i in 0..n_layer {\n${window_lines}"
    "x = ${root}layers[i]: gemma2_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]"
    "head_size = head_size, scale = 1 / sqrt($attention_scale), "
    "[[attn_logit_softcapping: softcap = $attn_logit_softcapping, ]]"
    "[[attention_bias: bias = true, ]][[window: window = $window, ]]"
    "documents = document, eps = $rms_norm_eps);\n}\n" HEAD
    "[[final_logit_softcapping: logits = $final_logit_softcapping * tanh(logits / "
    "$final_logit_softcapping);\n]]"};

/* ---- gemma3 -------------------------------------------------------------------------------------- */

static const Field gemma3_fields[] = {COMMON_FIELDS,
                                      {"hidden_activation", FIELD_WORD, "gelu_pytorch_tanh", "gelu_pytorch_tanh"},
                                      {"query_pre_attn_scalar", FIELD_NUMBER, "256", NULL},
                                      {"attn_logit_softcapping", FIELD_OTHER, NULL, NULL},
                                      {"final_logit_softcapping", FIELD_OTHER, NULL, NULL},
                                      {"sliding_window", FIELD_COUNT, "4096", NULL},
                                      {"sliding_window_pattern", FIELD_COUNT, "6", NULL},
                                      {"layer_types", FIELD_OTHER, NULL, NULL},
                                      {"rope_local_base_freq", FIELD_OTHER, NULL, NULL},
                                      {0}};

static bool has_no_caps(const Import *m) {
  static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
  for (int i = 0; i < 2; i++) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, caps[i]);
    if (!item || cJSON_IsNull(item))
      continue;
    refuse_field(m, caps[i], cJSON_IsNumber(item) ? number_text(item->valuedouble) : "no number", "null");
    return false;
  }
  return true;
}

static bool has_layer_types(const Import *m) {
  const cJSON *types = cJSON_GetObjectItemCaseSensitive(m->config, "layer_types"), *item;
  if (!types || cJSON_IsNull(types))
    return true;
  bool good = cJSON_IsArray(types) && cJSON_GetArraySize(types) == known_number(m, "num_hidden_layers");
  cJSON_ArrayForEach(item, types) good &=
      cJSON_IsString(item) &&
      (!strcmp(item->valuestring, "sliding_attention") || !strcmp(item->valuestring, "full_attention"));
  if (!good)
    error_at((Span){.file = m->file}, "PD0603",
             "'layer_types' must have 'sliding_attention' or 'full_attention' for each of %s layers",
             known(m, "num_hidden_layers"));
  return good;
}

/* Layers with a window have their own base, and no scaling. */
static bool derive_gemma3(Import *m) {
  const double global_theta = 1000000, pattern = known_number(m, "sliding_window_pattern");
  if (!has_no_caps(m) || !has_layer_types(m) || !derive_ropes(m, global_theta, usual_theta))
    return false;
  set_known(m, "attention_scale", number_text(known_number(m, "query_pre_attn_scalar")));
  derive_window(m, pattern == 1 ? "" : format("(i + 1) %% %g != 0", pattern));
  const bool scaled = is_known(m, "scaling");
  set_known(m, "global_base", known(m, "base"));
  set_known(m, "global_scaling", known(m, "scaling"));
  const char *sliding = known(m, "sliding"), *local = known(m, "local_base"), *window = known(m, "sliding_window");
  if (!strcmp(sliding, "true")) {
    set_known(m, "base", local);
    set_known(m, "scaling", "");
  } else if (*sliding) {
    set_known(m, "window_lines",
              format("window = none;\nbase = %s;\n%sif %s {\nwindow = %s;\nbase = %s;\n%s}\n", known(m, "base"),
                     scaled ? format("scaling = %s;\n", known(m, "scaling")) : "", sliding, window, local,
                     scaled ? "scaling = none;\n" : ""));
    set_known(m, "base", "base");
    set_known(m, "scaling", scaled ? "scaling" : "");
  }
  return true;
}

const Family family_gemma3 = {
    "gemma3_text",
    "A Gemma 3",
    "model.",
    "gemma",
    gemma3_fields,
    shapes,
    "_sliding_window_pattern",
    derive_gemma3,
    attributes,
    EMBEDDING
    "for i in 0..n_layer {\n${window_lines}"
    "x = ${root}layers[i]: gemma3_block(x, n_head, n_kv_head, hidden, base = $base, [[init_differs: init = $init, ]]"
    "head_size = head_size, [[scaling: scaling = $scaling, ]]scale = 1 / sqrt($attention_scale), "
    "[[attention_bias: bias = true, ]][[window: window = $window, ]]"
    "documents = document, eps = $rms_norm_eps);\n}\n" HEAD};
