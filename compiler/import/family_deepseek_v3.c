/* DeepSeek-V3: latent attention; layers from first_k_dense_replace on have routed and shared experts. */
#include <math.h>

#include "import/internal.h"

static const Field fields[] = {{"vocab_size", FIELD_COUNT, "129280", NULL},
                               {"hidden_size", FIELD_COUNT, "7168", NULL},
                               {"intermediate_size", FIELD_COUNT, "18432", NULL},
                               {"moe_intermediate_size", FIELD_COUNT, "2048", NULL},
                               {"num_hidden_layers", FIELD_COUNT, "61", NULL},
                               {"num_attention_heads", FIELD_COUNT, "128", NULL},
                               {"num_key_value_heads", FIELD_COUNT, "=num_attention_heads", NULL},
                               {"n_shared_experts", FIELD_COUNT, "1", NULL},
                               {"n_routed_experts", FIELD_COUNT, "256", NULL},
                               {"num_experts_per_tok", FIELD_COUNT, "8", NULL},
                               {"n_group", FIELD_COUNT, "8", NULL},
                               {"topk_group", FIELD_COUNT, "4", NULL},
                               {"first_k_dense_replace", FIELD_EPSILON, "3", NULL},
                               {"moe_layer_freq", FIELD_COUNT, "1", "1"},
                               {"norm_topk_prob", FIELD_FLAG, "true", NULL},
                               {"routed_scaling_factor", FIELD_NUMBER, "2.5", NULL},
                               {"scoring_func", FIELD_WORD, "sigmoid", "sigmoid"},
                               {"topk_method", FIELD_WORD, "noaux_tc", "noaux_tc"},
                               {"q_lora_rank", FIELD_WINDOW, "1536", NULL},
                               {"kv_lora_rank", FIELD_COUNT, "512", NULL},
                               {"qk_nope_head_dim", FIELD_COUNT, "128", NULL},
                               {"qk_rope_head_dim", FIELD_COUNT, "64", NULL},
                               {"v_head_dim", FIELD_COUNT, "128", NULL},
                               {"rope_interleave", FIELD_FLAG, "true", NULL},
                               {"max_position_embeddings", FIELD_COUNT, "4096", NULL},
                               {"hidden_act", FIELD_WORD, "silu", "silu|swish"},
                               {"rms_norm_eps", FIELD_EPSILON, "1e-6", NULL},
                               {"attention_bias", FIELD_FLAG, "false", NULL},
                               {"tie_word_embeddings", FIELD_FLAG, "false", NULL},
                               {"output_router_logits", FIELD_FLAG, "false", "false"},
                               {"rope_theta", FIELD_OTHER, NULL, NULL},
                               {"rope_scaling", FIELD_OTHER, NULL, NULL},
                               {"rope_parameters", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {{"vocab_size", "embed_tokens.weight", 0, NULL},
                                   {"hidden_size", "embed_tokens.weight", 1, NULL},
                                   {"num_hidden_layers", "layers.", COUNT_LAYERS, NULL},
                                   {"q_lora_rank", "layers.0.self_attn.q_a_layernorm.weight", 0, NULL},
                                   {"kv_lora_rank", "layers.0.self_attn.kv_a_layernorm.weight", 0, NULL},
                                   {"intermediate_size", "layers.0.mlp.up_proj.weight", 0, NULL},
                                   {"n_routed_experts", "layers.0.mlp.gate.weight", 0, NULL},
                                   {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
                                   {"attention_bias", "layers.0.self_attn.kv_a_proj_with_mqa.bias", IS_THERE,
                                    NULL},
                                   {0}};

/* transformers replaces head_dim and qk_head_dim, and ignores tensors of layers that predict further tokens. */
static const char harmless[] =
    "head_dim|qk_head_dim|num_nextn_predict_layers|num_mtp_layers|ep_size|aux_loss_alpha|"
    "seq_aux";

static bool fails(const Import *m, const char *why) {
  error_at((Span){.file = m->file}, "PD0603", "%s", why);
  return false;
}

static bool groups_fit(const Import *m) {
  const double experts = known_number(m, "n_routed_experts"), groups = known_number(m, "n_group"),
               kept = known_number(m, "topk_group");
  if (fmod(experts, groups) != 0 || (groups > 1 && experts / groups < 2))
    return fails(m, format("'n_group', %g, must divide 'n_routed_experts', %g, into groups of at least 2", groups,
                           experts));
  if (kept > groups)
    return fails(m, format("'topk_group', %g, must not exceed 'n_group', %g", kept, groups));
  if (known_number(m, "num_experts_per_tok") > experts / groups * kept)
    return fails(m, format("'num_experts_per_tok' must not exceed the %g experts of 'topk_group' groups",
                           experts / groups * kept));
  return true;
}

/* YaRN also scales scores, by the square of the gain for mscale_all_dim. */
static bool derive_scale(Import *m) {
  const double gain = known_number(m, "yarn_gain"),
               size = known_number(m, "qk_nope_head_dim") + known_number(m, "qk_rope_head_dim");
  set_known(m, "scale", gain > 0 ? number_text(gain * gain / sqrt(size)) : "");
  return true;
}

static bool derive(Import *m) {
  const double usual_theta = 10000, dense = known_number(m, "first_k_dense_replace"),
               layers = known_number(m, "num_hidden_layers");
  if (known_number(m, "num_key_value_heads") != known_number(m, "num_attention_heads"))
    return fails(m,
                 "'num_key_value_heads' must be 'num_attention_heads': latent attention has keys for each head");
  if (dense != floor(dense))
    return fails(m, "'first_k_dense_replace' must be a whole number");
  if (fmod(known_number(m, "qk_rope_head_dim"), 2) != 0)
    return fails(m, "'qk_rope_head_dim' must be even");
  set_known(m, "dense", dense > 0 ? format("i < %g", dense) : "");
  set_known(m, "experts", dense < layers ? "true" : "");
  set_known(m, "grouped", known_number(m, "n_group") > 1 ? "true" : "");
  set_known(m, "scaled", known_number(m, "routed_scaling_factor") != 1 ? "true" : "");
  return derive_rope(m, usual_theta, true) && derive_scale(m) && (dense >= layers || groups_fit(m));
}

#define SIZES "x, n_head, q_rank, kv_rank, nope_size, rope_size, value_size, "
#define ATTENTION                                                                                              \
  "base = $base, [[init_differs: init = $init, ]][[scaling: scaling = $scaling, ]][[scale: scale = $scale, ]]" \
  "[[!rope_interleave: interleave = false, ]][[attention_bias: bias = true, ]]documents = document, "          \
  "eps = $rms_norm_eps);\n"

/* The router's biases stay, as in transformers, unless a run sets `rate`. */
const Family family_deepseek_v3 = {
    "deepseek_v3",
    "A DeepSeek-V3",
    "model.",
    "deepseek",
    fields,
    shapes,
    harmless,
    derive,
    "n_layer = $num_hidden_layers, n_head = $num_attention_heads, "
    "q_rank = [[q_lora_rank: $q_lora_rank]][[!q_lora_rank: none]], kv_rank = $kv_lora_rank, nope_size = $qk_nope_head_dim, "
    "rope_size = $qk_rope_head_dim, value_size = $v_head_dim, "
    "[[experts: n_expert = $n_routed_experts, top_k = $num_experts_per_tok, rate = 0, ]]n_embd = $hidden_size, "
    "[[experts: hidden = $moe_intermediate_size, ]][[dense: dense_hidden = $intermediate_size, ]]",
    "x = ${root}embed_tokens: embedding(tokens, vocab_size, n_embd, init = $init);\n"
    "for i in 0..n_layer {\n"
    "[[dense: [[experts: if $dense {\n]]"
    "x = ${root}layers[i]: deepseek_dense_block(" SIZES "dense_hidden, " ATTENTION "[[experts: } else {\n]]]]"
    "[[experts: x, violation = ${root}layers[i]: deepseek_block(" SIZES "hidden, n_expert, top_k, "
    "n_shared = $n_shared_experts, [[grouped: groups = $n_group, kept_groups = $topk_group, ]]"
    "[[!norm_topk_prob: normalize = false, ]][[scaled: factor = $routed_scaling_factor, ]]rate = rate, " ATTENTION
    "[[dense: }\n]]]]}\n"
    "x = ${root}norm: rms_norm(x, eps = $rms_norm_eps);\n"
    "[[tie_word_embeddings: logits = x @ ${root}embed_tokens.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = lm_head: linear(x, vocab_size, bias = false, init = $init);\n]]"};
