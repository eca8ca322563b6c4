/* Qwen3 with experts: layers of decoder_sparse_step have experts, those of mlp_only_layers have not. */
#include <math.h>

#include "import/internal.h"

static const Field fields[] = {{"vocab_size", FIELD_COUNT, NULL, NULL},
                               {"pad_token_id", FIELD_PAD, "", NULL},
                               {"hidden_size", FIELD_COUNT, NULL, NULL},
                               {"intermediate_size", FIELD_COUNT, "6144", NULL},
                               {"moe_intermediate_size", FIELD_COUNT, "768", NULL},
                               {"num_hidden_layers", FIELD_COUNT, NULL, NULL},
                               {"num_attention_heads", FIELD_COUNT, NULL, NULL},
                               {"num_key_value_heads", FIELD_COUNT, "4", NULL},
                               {"head_dim", FIELD_COUNT, "=hidden_size/num_attention_heads", NULL},
                               {"max_position_embeddings", FIELD_COUNT, "32768", NULL},
                               {"num_experts", FIELD_COUNT, "128", NULL}, /* transformers 5 writes: */
                               {"num_local_experts", FIELD_COUNT, "=num_experts", NULL},
                               {"num_experts_per_tok", FIELD_COUNT, "8", NULL},
                               {"norm_topk_prob", FIELD_FLAG, "false", NULL},
                               {"decoder_sparse_step", FIELD_COUNT, "1", NULL},
                               {"mlp_only_layers", FIELD_OTHER, NULL, NULL},
                               {"hidden_act", FIELD_WORD, "silu", "silu|swish"},
                               {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                               {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                               {"attention_bias", FIELD_FLAG, "false", NULL},
                               {"use_sliding_window", FIELD_FLAG, "false", NULL},
                               {"sliding_window", FIELD_WINDOW, "4096", NULL},
                               {"output_router_logits", FIELD_FLAG, "false", "false"},
                               {"rope_theta", FIELD_OTHER, NULL, NULL},
                               {"rope_scaling", FIELD_OTHER, NULL, NULL},
                               {"rope_parameters", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {{"vocab_size", "embed_tokens.weight", 0, NULL},
                                   {"hidden_size", "embed_tokens.weight", 1, NULL},
                                   {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
                                   {"num_local_experts", "layers.0.mlp.gate.weight", 0, NULL},
                                   {"moe_intermediate_size", "layers.0.mlp.experts.0.gate_proj.weight", 0, NULL},
                                   {"moe_intermediate_size", "layers.0.mlp.experts.down_proj", 2, NULL},
                                   {"intermediate_size", "layers.0.mlp.up_proj.weight", 0, NULL},
                                   {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
                                   {"head_dim", "layers.0.self_attn.q_norm.weight", 0, NULL},
                                   {"num_attention_heads", "layers.0.self_attn.q_proj.weight", 0, "head_dim"},
                                   {"num_key_value_heads", "layers.0.self_attn.k_proj.weight", 0, "head_dim"},
                                   {"attention_bias", "layers.0.self_attn.q_proj.bias", IS_THERE, NULL},
                                   {0}};

/* Sets dense: the condition for a layer i without experts. */
static bool derive_dense(Import *m) {
  const double layers = known_number(m, "num_hidden_layers"), step = known_number(m, "decoder_sparse_step");
  const cJSON *list = cJSON_GetObjectItemCaseSensitive(m->config, "mlp_only_layers"), *item;
  Text dense = {0};
  text_add(&dense, "%s", step > 1 ? format("(i + 1) %% %g != 0", step) : "");
  if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list)) {
    error_at((Span){.file = m->file}, "PD0603", "'mlp_only_layers' must be a list of layers");
    return false;
  }
  cJSON_ArrayForEach(item, list) {
    const double i = item->valuedouble;
    if (!cJSON_IsNumber(item) || i < 0 || i >= layers || i != floor(i)) {
      error_at((Span){.file = m->file}, "PD0603", "'mlp_only_layers' must have whole numbers from 0 to %g",
               layers - 1);
      return false;
    }
    text_add(&dense, "%si == %g", *dense.at ? " or " : "", i);
  }
  set_known(m, "dense", dense.at);
  return true;
}

static bool has_one_count(const Import *m) {
  const cJSON *old = cJSON_GetObjectItemCaseSensitive(m->config, "num_experts"),
              *new = cJSON_GetObjectItemCaseSensitive(m->config, "num_local_experts");
  if (!cJSON_IsNumber(old) || !cJSON_IsNumber(new) || old->valuedouble == new->valuedouble)
    return true;
  error_at((Span){.file = m->file}, "PD0603", "'num_experts' is %g, but 'num_local_experts' is %g",
           old->valuedouble, new->valuedouble);
  return false;
}

/* All layers have the window: transformers does not read max_window_layers. */
static bool derive(Import *m) {
  const double usual_theta = 10000;
  const double usual = known_number(m, "hidden_size") / known_number(m, "num_attention_heads");
  set_known(m, "heads_differ", known_number(m, "head_dim") != usual ? "true" : "");
  set_known(m, "window", is_known(m, "use_sliding_window") ? known(m, "sliding_window") : "");
  return has_one_count(m) && derive_rope(m, usual_theta, true) && derive_dense(m);
}

#define ATTENTION                                                                                    \
  "base = $base, [[init_differs: init = $init, ]][[heads_differ: head_size = head_size, ]]"          \
  "[[scaling: scaling = $scaling, ]][[attention_bias: bias = true, ]][[window: window = $window, ]]" \
  "documents = document, eps = $rms_norm_eps);\n"

const Family family_qwen3_moe = {
    "qwen3_moe",
    "A Qwen3 with experts",
    "model.",
    "qwen3_moe",
    fields,
    shapes,
    "router_aux_loss_coef|max_window_layers",
    derive,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, n_kv_head = $num_key_value_heads, "
    "[[heads_differ: head_size = $head_dim, ]]n_expert = $num_local_experts, top_k = $num_experts_per_tok, "
    "n_embd = $hidden_size, hidden = $moe_intermediate_size, [[dense: dense_hidden = $intermediate_size, ]]",
    "x = ${root}embed_tokens: " EMBEDDED "for i in 0..n_layer {\n"
    "[[dense: if $dense {\n"
    "x = ${root}layers[i]: llama_block(x, n_head, n_kv_head, dense_hidden, qk_norm = \"heads\", " ATTENTION
    "} else {\n]]"
    "x, imbalance = ${root}layers[i]: qwen3_moe_block(x, n_head, n_kv_head, hidden, n_expert, top_k, "
    "[[!norm_topk_prob: normalize = false, ]]" ATTENTION "[[dense: }\n]]}\n"
    "x = ${root}norm: rms_norm(x, eps = $rms_norm_eps);\n"
    "[[tie_word_embeddings: logits = x @ ${root}embed_tokens.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"};
