/* llama.cpp's architectures for the families that `pdc import` knows. Names and metadata are those of llama.cpp's
 * conversion from Hugging Face's folders (gguf-py's tensor_mapping.py and constants.py list them). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "export/internal.h"

typedef struct Rule { /* a tensor, with or without ".weight" and ".bias" */
  const char *from, *to;
  Order order;
} Rule;

typedef struct Architecture {
  const char *model_type, *name;
  const char *layers; /* prefix of a layer's tensors, behind the root */
  const Rule *rules;  /* of layers; end with NULL */
  const Rule *whole;  /* of the model; a '/' stands in the place of the root */
  bool rotary_pairs;  /* rotates neighbours */
  bool norms_from_1;  /* norms of the folder lack 1 */
  bool windows;       /* knows sliding windows */
  void (*fields)(const Imported *m, const char *name, Gguf *g);
  bool (*suits)(const Imported *m); /* further conditions: false after a diagnostic; NULL: none */
} Architecture;

/* ---- fields ---------------------------------------------------------------------------------------------- */

static const char *key(const char *name, const char *what) { return format("%s.%s", name, what); }

static void common_fields(const Imported *m, const char *a, Gguf *g) {
  gguf_uint(g, key(a, "context_length"), (uint64_t)imported_number(m, "max_position_embeddings"));
  gguf_uint(g, key(a, "embedding_length"), (uint64_t)imported_number(m, "hidden_size"));
  gguf_uint(g, key(a, "block_count"), (uint64_t)imported_number(m, "num_hidden_layers"));
  gguf_uint(g, key(a, "feed_forward_length"), (uint64_t)imported_number(m, "intermediate_size"));
  gguf_uint(g, key(a, "attention.head_count"), (uint64_t)imported_number(m, "num_attention_heads"));
}

static void llama_fields(const Imported *m, const char *a, Gguf *g) {
  double factor, low;
  const uint64_t head = (uint64_t)imported_number(m, "head_dim");
  common_fields(m, a, g);
  gguf_uint(g, key(a, "attention.head_count_kv"), (uint64_t)imported_number(m, "num_key_value_heads"));
  gguf_float(g, key(a, "attention.layer_norm_rms_epsilon"), imported_number(m, "rms_norm_eps"));
  gguf_uint(g, key(a, "attention.key_length"), head);
  gguf_uint(g, key(a, "attention.value_length"), head);
  gguf_float(g, key(a, "rope.freq_base"), imported_number(m, "base"));
  if (sscanf(imported_value(m, "scaling"), "[%lf, %lf", &factor, &low) == 1) {
    gguf_text(g, key(a, "rope.scaling.type"), "linear");
    gguf_float(g, key(a, "rope.scaling.factor"), factor);
  }
}

static void rotary_fields(const Imported *m, const char *a, Gguf *g) {
  llama_fields(m, a, g);
  gguf_uint(g, key(a, "rope.dimension_count"), (uint64_t)imported_number(m, "head_dim"));
}

static void gemma2_fields(const Imported *m, const char *a, Gguf *g) {
  llama_fields(m, a, g);
  gguf_float(g, key(a, "attn_logit_softcapping"), imported_number(m, "attn_logit_softcapping"));
  gguf_float(g, key(a, "final_logit_softcapping"), imported_number(m, "final_logit_softcapping"));
  gguf_uint(g, key(a, "attention.sliding_window"), (uint64_t)imported_number(m, "sliding_window"));
}

static bool scaling_is_linear(const char *scaling, double *factor) {
  double low;
  return sscanf(scaling, "[%lf, %lf", factor, &low) == 1;
}

/* Layers with a window have a base of their own, and no scaling. */
static void gemma3_fields(const Imported *m, const char *a, Gguf *g) {
  const uint64_t head = (uint64_t)imported_number(m, "head_dim");
  double factor;
  common_fields(m, a, g);
  gguf_uint(g, key(a, "attention.head_count_kv"), (uint64_t)imported_number(m, "num_key_value_heads"));
  gguf_float(g, key(a, "attention.layer_norm_rms_epsilon"), imported_number(m, "rms_norm_eps"));
  gguf_uint(g, key(a, "attention.key_length"), head);
  gguf_uint(g, key(a, "attention.value_length"), head);
  gguf_uint(g, key(a, "attention.sliding_window"), (uint64_t)imported_number(m, "sliding_window"));
  gguf_float(g, key(a, "rope.freq_base"), imported_number(m, "global_base"));
  gguf_float(g, key(a, "rope.freq_base_swa"), imported_number(m, "local_base"));
  if (scaling_is_linear(imported_value(m, "global_scaling"), &factor)) {
    gguf_text(g, key(a, "rope.scaling.type"), "linear");
    gguf_float(g, key(a, "rope.scaling.factor"), factor);
  }
}

/* llama.cpp gives all layers a window but each sixth. */
static bool suits_gemma3(const Imported *m) {
  const char *sliding = imported_value(m, "sliding"), *scaling = imported_value(m, "global_scaling");
  const bool few = imported_number(m, "num_hidden_layers") < 6;
  double factor;
  if (strcmp(sliding, "(i + 1) % 6 != 0") && !(few && !strcmp(sliding, "true"))) {
    error_at(NO_SPAN, "PD0656",
             "llama.cpp's architecture 'gemma3' has a window in all layers but each sixth, and '%s' has others",
             m->folder);
    return false;
  }
  if (!*scaling || scaling_is_linear(scaling, &factor))
    return true;
  error_at(NO_SPAN, "PD0656", "llama.cpp's architecture 'gemma3' has no such scaling of rotary positions");
  return false;
}

static void qwen3_moe_fields(const Imported *m, const char *a, Gguf *g) {
  llama_fields(m, a, g);
  gguf_uint(g, key(a, "expert_count"), (uint64_t)imported_number(m, "num_local_experts"));
  gguf_uint(g, key(a, "expert_used_count"), (uint64_t)imported_number(m, "num_experts_per_tok"));
  gguf_uint(g, key(a, "expert_feed_forward_length"), (uint64_t)imported_number(m, "moe_intermediate_size"));
}

static bool suits_qwen3_moe(const Imported *m) {
  const bool normalizes =
      *imported_value(m, "norm_topk_prob") && strcmp(imported_value(m, "norm_topk_prob"), "false");
  if (normalizes && !*imported_value(m, "dense"))
    return true;
  error_at(
      NO_SPAN, "PD0656",
      normalizes
          ? "llama.cpp's architecture 'qwen3moe' has experts in all layers, and '%s' has layers without"
          : "llama.cpp's architecture 'qwen3moe' normalizes the probabilities of chosen experts, and '%s' has norm_topk_prob false",
      m->folder);
  return false;
}

/* A window of 0 is none. */
static void phi3_fields(const Imported *m, const char *a, Gguf *g) {
  llama_fields(m, a, g);
  const char *rotary = imported_value(m, "rotary_size");
  gguf_uint(g, key(a, "rope.dimension_count"), (uint64_t)imported_number(m, *rotary ? "rotary_size" : "head_dim"));
  gguf_uint(g, key(a, "rope.scaling.original_context_length"),
            (uint64_t)imported_number(m, "max_position_embeddings"));
  gguf_uint(g, key(a, "attention.sliding_window"), (uint64_t)imported_number(m, "sliding_window"));
}

static void gpt2_fields(const Imported *m, const char *a, Gguf *g) {
  const double width = imported_number(m, "n_embd"), inner = imported_number(m, "n_inner");
  gguf_uint(g, key(a, "context_length"), (uint64_t)imported_number(m, "n_positions"));
  gguf_uint(g, key(a, "embedding_length"), (uint64_t)width);
  gguf_uint(g, key(a, "block_count"), (uint64_t)imported_number(m, "n_layer"));
  gguf_uint(g, key(a, "feed_forward_length"), (uint64_t)(inner > 0 ? inner : 4 * width));
  gguf_uint(g, key(a, "attention.head_count"), (uint64_t)imported_number(m, "n_head"));
  gguf_float(g, key(a, "attention.layer_norm_epsilon"), imported_number(m, "layer_norm_epsilon"));
}

static void neox_fields(const Imported *m, const char *a, Gguf *g) {
  common_fields(m, a, g);
  gguf_uint(g, key(a, "rope.dimension_count"), (uint64_t)imported_number(m, "rotary_size"));
  gguf_float(g, key(a, "rope.freq_base"), imported_number(m, "base"));
  gguf_bool(g, key(a, "use_parallel_residual"), strcmp(imported_value(m, "use_parallel_residual"), "false") != 0);
  gguf_float(g, key(a, "attention.layer_norm_epsilon"), imported_number(m, "layer_norm_eps"));
}

/* ---- names ------------------------------------------------------------------------------------------------ */

static const Rule llama_whole[] = {{"embed_tokens", "token_embd", ORDER_SAME},
                                   {"norm", "output_norm", ORDER_SAME},
                                   {"/lm_head", "output", ORDER_SAME},
                                   {0}};
#define LLAMA_RULES                                                                                       \
  {"self_attn.q_proj", "attn_q", ORDER_ROTARY_PAIRS}, {"self_attn.k_proj", "attn_k", ORDER_ROTARY_PAIRS}, \
      {"self_attn.v_proj", "attn_v", ORDER_SAME}, {"self_attn.o_proj", "attn_output", ORDER_SAME},        \
      {"self_attn.q_norm", "attn_q_norm", ORDER_SAME}, {"self_attn.k_norm", "attn_k_norm", ORDER_SAME},   \
      {"mlp.gate_proj", "ffn_gate", ORDER_SAME}, {"mlp.up_proj", "ffn_up", ORDER_SAME}, {                 \
    "mlp.down_proj", "ffn_down", ORDER_SAME                                                               \
  }
static const Rule llama_rules[] = {LLAMA_RULES,
                                   {"input_layernorm", "attn_norm", ORDER_SAME},
                                   {"post_attention_layernorm", "ffn_norm", ORDER_SAME},
                                   {0}};
static const Rule olmo2_rules[] = {LLAMA_RULES,
                                   {"post_attention_layernorm", "post_attention_norm", ORDER_SAME},
                                   {"post_feedforward_layernorm", "post_ffw_norm", ORDER_SAME},
                                   {0}};
static const Rule gemma2_rules[] = {LLAMA_RULES,
                                    {"input_layernorm", "attn_norm", ORDER_SAME},
                                    {"post_attention_layernorm", "post_attention_norm", ORDER_SAME},
                                    {"pre_feedforward_layernorm", "ffn_norm", ORDER_SAME},
                                    {"post_feedforward_layernorm", "post_ffw_norm", ORDER_SAME},
                                    {0}};
static const Rule qwen3_moe_rules[] = {LLAMA_RULES,
                                       {"input_layernorm", "attn_norm", ORDER_SAME},
                                       {"post_attention_layernorm", "ffn_norm", ORDER_SAME},
                                       {"mlp.gate", "ffn_gate_inp", ORDER_SAME},
                                       {"mlp.experts.0.gate_proj", "ffn_gate_exps", ORDER_SAME},
                                       {"mlp.experts.0.up_proj", "ffn_up_exps", ORDER_SAME},
                                       {"mlp.experts.0.down_proj", "ffn_down_exps", ORDER_SAME},
                                       {0}};
static const Rule phi3_rules[] = {{"self_attn.qkv_proj", "attn_qkv", ORDER_SAME},
                                  {"self_attn.o_proj", "attn_output", ORDER_SAME},
                                  {"mlp.gate_up_proj", "ffn_up", ORDER_SAME},
                                  {"mlp.down_proj", "ffn_down", ORDER_SAME},
                                  {"input_layernorm", "attn_norm", ORDER_SAME},
                                  {"post_attention_layernorm", "ffn_norm", ORDER_SAME},
                                  {0}};
static const Rule gpt2_whole[] = {{"wte", "token_embd", ORDER_SAME},
                                  {"wpe", "position_embd", ORDER_SAME},
                                  {"ln_f", "output_norm", ORDER_SAME},
                                  {"/lm_head", "output", ORDER_SAME},
                                  {0}};
static const Rule gpt2_rules[] = {{"ln_1", "attn_norm", ORDER_SAME},
                                  {"attn.c_attn", "attn_qkv", ORDER_TRANSPOSED},
                                  {"attn.c_proj", "attn_output", ORDER_TRANSPOSED},
                                  {"ln_2", "ffn_norm", ORDER_SAME},
                                  {"mlp.c_fc", "ffn_up", ORDER_TRANSPOSED},
                                  {"mlp.c_proj", "ffn_down", ORDER_TRANSPOSED},
                                  {0}};
static const Rule neox_whole[] = {{"embed_in", "token_embd", ORDER_SAME},
                                  {"final_layer_norm", "output_norm", ORDER_SAME},
                                  {"/embed_out", "output", ORDER_SAME},
                                  {0}};
static const Rule neox_rules[] = {{"input_layernorm", "attn_norm", ORDER_SAME},
                                  {"attention.query_key_value", "attn_qkv", ORDER_BY_PART},
                                  {"attention.dense", "attn_output", ORDER_SAME},
                                  {"post_attention_layernorm", "ffn_norm", ORDER_SAME},
                                  {"mlp.dense_h_to_4h", "ffn_up", ORDER_SAME},
                                  {"mlp.dense_4h_to_h", "ffn_down", ORDER_SAME},
                                  {0}};

static const Architecture architectures[] = {
    {"llama", "llama", "layers.", llama_rules, llama_whole, true, false, false, rotary_fields, NULL},
    {"mistral", "llama", "layers.", llama_rules, llama_whole, true, false, false, rotary_fields, NULL},
    {"qwen2", "qwen2", "layers.", llama_rules, llama_whole, false, false, false, llama_fields, NULL},
    {"qwen3", "qwen3", "layers.", llama_rules, llama_whole, false, false, false, llama_fields, NULL},
    {"olmo2", "olmo2", "layers.", olmo2_rules, llama_whole, false, false, false, llama_fields, NULL},
    {"gemma", "gemma", "layers.", llama_rules, llama_whole, false, true, false, llama_fields, NULL},
    {"gemma2", "gemma2", "layers.", gemma2_rules, llama_whole, false, true, true, gemma2_fields, NULL},
    {"gemma3_text", "gemma3", "layers.", gemma2_rules, llama_whole, false, true, true, gemma3_fields,
     suits_gemma3},
    {"qwen3_moe", "qwen3moe", "layers.", qwen3_moe_rules, llama_whole, false, false, false, qwen3_moe_fields,
     suits_qwen3_moe},
    {"phi3", "phi3", "layers.", phi3_rules, llama_whole, false, false, true, phi3_fields, NULL},
    {"gpt2", "gpt2", "h.", gpt2_rules, gpt2_whole, false, false, false, gpt2_fields, NULL},
    {"gpt_neox", "gptneox", "layers.", neox_rules, neox_whole, false, false, false, neox_fields, NULL}};
enum { N_ARCHITECTURES = sizeof architectures / sizeof *architectures };

static const Architecture *find_architecture(const Imported *m) {
  Text all = {0};
  for (int i = 0; i < N_ARCHITECTURES; i++) {
    if (!strcmp(architectures[i].model_type, imported_type(m)))
      return &architectures[i];
    text_add(&all, "%s%s", i ? ", " : "", architectures[i].model_type);
  }
  Diagnostic *d = error_at(NO_SPAN, "PD0656", "'%s' has the model_type '%s', which pdc does not write as GGUF",
                           m->folder, imported_type(m));
  help(d, "known: %s", all.at);
  return NULL;
}

/* ---- tensors ---------------------------------------------------------------------------------------------- */

static int64_t heads_of(const Imported *m, const char *name) {
  return (int64_t)imported_number(m, strcmp(name, "attn_k") ? "num_attention_heads" : "num_key_value_heads");
}

/* "model.layers.3.mlp.experts.7.up_proj.weight": the number 7 of such a name of an expert's tensor; -1: another name.
 * *before and *after: the text around it. */
static int64_t expert_of(const char *name, int *before, const char **after) {
  static const char experts[] = ".experts.";
  const char *at = strstr(name, experts);
  char *end;
  if (!at)
    return -1;
  at += sizeof experts - 1;
  const long number = strtol(at, &end, 10);
  *before = (int)(at - name), *after = end;
  return end > at && *end == '.' ? number : -1;
}

/* The tensors of all experts, of the sizes of the first; false after a diagnostic. */
static bool gather_experts(const Imported *m, const Tensor *first, Exported *e) {
  const char *after;
  int before;
  if (expert_of(first->name, &before, &after) < 0)
    return true;
  e->n_experts = (int64_t)imported_number(m, "num_local_experts");
  e->experts = alloc((size_t)e->n_experts * sizeof *e->experts);
  for (int64_t i = 0; i < e->n_experts; i++) {
    const char *name = format("%.*s%lld%s", before, first->name, (long long)i, after);
    const Tensor *t = tensors_find(imported_tensors(m), name);
    if (!t || t->rank != first->rank || t->dim[0] != first->dim[0] || t->dim[1] != first->dim[1]) {
      error_at(NO_SPAN, "PD0656", "the folder has no tensor '%s' of the sizes of '%s'", name, first->name);
      return false;
    }
    e->experts[i] = t;
  }
  e->rows *= e->n_experts;
  return true;
}

static bool add_tensor(const Imported *m, const Architecture *a, const Rule *rule, const Tensor *t,
                       const char *name, GgmlType type, Gguf *g) {
  enum { BLOCK = 32 };
  const bool vector = t->rank == 1, norm = strstr(rule->to, "norm") != NULL;
  Exported e = {.name = name, .from = t, .vector = vector, .type = type, .order = rule->order};
  if (e.order == ORDER_ROTARY_PAIRS && !a->rotary_pairs)
    e.order = ORDER_SAME;
  if (e.order == ORDER_TRANSPOSED && vector)
    e.order = ORDER_SAME;
  e.rows = vector ? 1 : t->dim[e.order == ORDER_TRANSPOSED];
  e.columns = t->dim[vector ? 0 : e.order != ORDER_TRANSPOSED];
  e.heads = heads_of(m, rule->to);
  e.plus = a->norms_from_1 && norm ? 1 : 0;
  if (vector || norm || !strcmp(rule->to, "position_embd") || !strcmp(rule->to, "ffn_gate_inp"))
    e.type = GGML_F32;
  else if (type == GGML_Q8_0 && e.columns % BLOCK)
    e.type = GGML_F16;
  if (!gather_experts(m, t, &e))
    return false;
  push(&g->tensors, e);
  return true;
}

/* The rule whose name is `name` up to ".weight" or ".bias", which *end points to. */
static const Rule *find_rule(const Rule *rules, const char *name, bool whole, const char **end) {
  for (; rules->from; rules++) {
    const char *from = rules->from + (whole && *rules->from == '/');
    const size_t n = strlen(from);
    if (!strncmp(name, from, n) && (!strcmp(name + n, ".weight") || !strcmp(name + n, ".bias"))) {
      *end = name + n;
      return rules;
    }
  }
  return NULL;
}

/* "blk.3.attn_q.weight" of a tensor, or NULL. */
static const char *new_name(const Imported *m, const Architecture *a, const Tensor *t, const Rule **rule) {
  const char *root = imported_root(m), *end;
  const char *name = strncmp(t->name, root, strlen(root)) ? t->name : t->name + strlen(root);
  if (strncmp(name, a->layers, strlen(a->layers)))
    return (*rule = find_rule(a->whole, name, true, &end)) ? format("%s%s", (*rule)->to, end) : NULL;
  char *dot;
  const long layer = strtol(name + strlen(a->layers), &dot, 10);
  if (*dot != '.' || !(*rule = find_rule(a->rules, dot + 1, false, &end)))
    return NULL;
  return format("blk.%ld.%s%s", layer, (*rule)->to, end);
}

/* Factors by which llama.cpp divides Llama 3's frequencies (Hugging Face's rope_type "llama3"). */
static void add_frequencies(const Imported *m, Gguf *g) {
  double factor, low, high, original;
  if (sscanf(imported_value(m, "scaling"), "[%lf, %lf, %lf, %lf]", &factor, &low, &high, &original) != 4)
    return;
  const int64_t n = (int64_t)imported_number(m, "head_dim") / 2;
  const double base = imported_number(m, "base");
  float *x = alloc((size_t)n * sizeof *x + 1);
  for (int64_t i = 0; i < n; i++) {
    const double length = 2 * acos(-1) * pow(base, (double)i / (double)n), ratio = original / length;
    const double smooth = (ratio - low) / (high - low);
    x[i] = (float)(ratio > high ? 1 : ratio < low ? factor : 1 / ((1 - smooth) / factor + smooth));
  }
  const Exported e = {.name = "rope_freqs.weight", .numbers = x, .rows = 1, .columns = n, .vector = true};
  push(&g->tensors, e);
}

static bool has_output(const Imported *m, const Tensor *t) {
  const bool head = !strcmp(t->name, "lm_head.weight") || !strcmp(t->name, "embed_out.weight");
  return !head || !strcmp(imported_value(m, "tie_word_embeddings"), "false");
}

/* Older versions of transformers saved masks and frequencies. */
static bool is_needless(const Tensor *t) {
  static const char *const ends[] = {".inv_freq", ".masked_bias", ".attn.bias", ".attention.bias"};
  const size_t n = strlen(t->name);
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
    if (n > strlen(ends[i]) && !strcmp(t->name + n - strlen(ends[i]), ends[i]))
      return true;
  return false;
}

/* The first expert's tensors stand for those of all. */
static bool is_later_expert(const Tensor *t) {
  const char *after;
  int before;
  return expert_of(t->name, &before, &after) > 0;
}

static bool add_tensors(const Imported *m, const Architecture *a, GgmlType type, Gguf *g) {
  const Tensors *all = imported_tensors(m);
  for (int i = 0; i < all->n; i++) {
    const Tensor *t = &all->at[i];
    const Rule *rule;
    const char *name = new_name(m, a, t, &rule);
    if (is_needless(t) || !has_output(m, t) || is_later_expert(t))
      continue;
    if (!name || t->rank > 2) {
      error_at(NO_SPAN, "PD0656", "tensor '%s' has no name in llama.cpp's architecture '%s'", t->name, a->name);
      return false;
    }
    if (!add_tensor(m, a, rule, t, name, type, g))
      return false;
  }
  add_frequencies(m, g);
  return true;
}

/* ---- the model ----------------------------------------------------------------------------------------------- */

/* Refuses or warns of values with which llama.cpp computes something else. */
static bool suits(const Imported *m, const Architecture *a) {
  const double window = imported_number(m, "window"), scalar = imported_number(m, "query_pre_attn_scalar");
  const bool windows = *imported_value(m, "window") != 0 && strcmp(imported_value(m, "window"), "0");
  if (scalar && scalar != imported_number(m, "head_dim")) {
    error_at(NO_SPAN, "PD0656",
             "'query_pre_attn_scalar' is %g, and llama.cpp scales scores by the head's size, %g", scalar,
             imported_number(m, "head_dim"));
    return false;
  }
  if (windows && !a->windows && window < imported_number(m, "max_position_embeddings")) {
    Diagnostic *d = warning_at(NO_SPAN, "PD0657", "llama.cpp's architecture '%s' has no sliding window", a->name);
    help(d, "results are equal for texts of up to %s tokens", imported_value(m, "sliding_window"));
  }
  return !a->suits || a->suits(m);
}

bool export_model(const Imported *m, GgmlType type, Gguf *g) {
  const Architecture *a = find_architecture(m);
  const int file_type = type == GGML_F32 ? 0 : type == GGML_F16 ? 1 : 7;
  if (!a || !suits(m, a))
    return false;
  if (!m->has_weights) {
    error_at(NO_SPAN, "PD0656", "'%s' has no weights", m->folder);
    return false;
  }
  const char *slash = strrchr(m->folder, '/');
  gguf_text(g, "general.architecture", a->name);
  gguf_text(g, "general.type", "model");
  gguf_text(g, "general.name", make_utf8(format("%s", slash ? slash + 1 : m->folder)));
  gguf_uint(g, "general.file_type", (uint64_t)file_type);
  gguf_uint(g, "general.quantization_version", 2);
  gguf_uint(g, key(a->name, "vocab_size"), (uint64_t)imported_number(m, "vocab_size"));
  a->fields(m, a->name, g);
  return add_tensors(m, a, type, g);
}
