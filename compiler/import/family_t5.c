/* t5: encoder and decoder of T5, T5 1.1, Flan-T5 and ByT5's kind, trained from a source to a target. */
#include <math.h>
#include <string.h>

#include "import/internal.h"

static const Field fields[] = {{"vocab_size", FIELD_COUNT, NULL, NULL},
                               {"d_model", FIELD_COUNT, "512", NULL},
                               {"d_kv", FIELD_COUNT, "64", NULL},
                               {"d_ff", FIELD_COUNT, "2048", NULL},
                               {"num_layers", FIELD_COUNT, "6", NULL},
                               {"num_decoder_layers", FIELD_COUNT, "=num_layers", NULL},
                               {"num_heads", FIELD_COUNT, "8", NULL},
                               {"relative_attention_num_buckets", FIELD_COUNT, "32", NULL},
                               {"relative_attention_max_distance", FIELD_COUNT, "128", NULL},
                               {"layer_norm_epsilon", FIELD_EPSILON, "1e-6", NULL},
                               {"feed_forward_proj", FIELD_WORD, "relu",
                                "relu|gelu|silu|gated-relu|gated-gelu|gated-silu"},
                               {"tie_word_embeddings", FIELD_FLAG, "true", NULL},
                               {"scale_decoder_outputs", FIELD_OTHER, NULL, NULL},
                               {"is_encoder_decoder", FIELD_FLAG, "true", "true"},
                               {"is_decoder", FIELD_FLAG, "false", "false"},
                               {"architectures", FIELD_OTHER, NULL, NULL},
                               {"pad_token_id", FIELD_OTHER, NULL, NULL},
                               {"decoder_start_token_id", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {
    {"vocab_size", "shared.weight", 0, NULL},
    {"d_model", "shared.weight", 1, NULL},
    {"num_layers", "encoder.block.", COUNT_LAYERS, NULL},
    {"num_decoder_layers", "decoder.block.", COUNT_LAYERS, NULL},
    {"d_ff", "encoder.block.0.layer.1.DenseReluDense.wo.weight", 1, NULL},
    {"relative_attention_num_buckets", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 0,
     NULL},
    {"num_heads", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 1, NULL},
    {"d_kv", "encoder.block.0.layer.0.SelfAttention.q.weight", 0, "num_heads"},
    {"tie_word_embeddings", "/lm_head.weight", IS_NOT_THERE, NULL},
    {0}};

static const Task tasks[] = {{"ForConditionalGeneration", NULL, ""}, {0}};

/* A token id of config.json; -1 after a diagnostic. */
static double token(const Import *m, const char *field, double usual) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, field);
  if (!item || cJSON_IsNull(item))
    return usual;
  const double x = item->valuedouble;
  if (cJSON_IsNumber(item) && x >= 0 && x < known_number(m, "vocab_size") && x == (double)(int)x)
    return x;
  error_at((Span){.file = m->file}, "PD0603", "'%s' must be a token below vocab_size", field);
  return -1;
}

/* "gated-gelu" is the approximation with tanh, "gelu" is not. */
static void derive_network(Import *m) {
  static const char *const networks[][3] = {{"relu", "", ""},
                                            {"gelu", "", "gelu"},
                                            {"silu", "", "silu"},
                                            {"gated-relu", "true", ""},
                                            {"gated-gelu", "true", "gelu_tanh"},
                                            {"gated-silu", "true", "silu"}};
  for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
    if (!strcmp(known(m, "feed_forward_proj"), networks[i][0])) {
      set_known(m, "gated", networks[i][1]);
      set_known(m, "activation", networks[i][2]);
    }
}

/* Older files do not have scale_decoder_outputs: config.json's, not the tensors', tie_word_embeddings decides there. */
static bool derive_scale(Import *m) {
  const cJSON *scale = cJSON_GetObjectItemCaseSensitive(m->config, "scale_decoder_outputs"),
              *tied = cJSON_GetObjectItemCaseSensitive(m->config, "tie_word_embeddings");
  if (scale && !cJSON_IsNull(scale) && !cJSON_IsBool(scale)) {
    error_at((Span){.file = m->file}, "PD0603", "'scale_decoder_outputs' must be true or false");
    return false;
  }
  set_known(m, "scaled", (cJSON_IsBool(scale) ? cJSON_IsTrue(scale) : !cJSON_IsFalse(tied)) ? "true" : "");
  return true;
}

static const char inputs[] =
    "n_source = 512, n_target = 512, vocab_size = $vocab_size, pad = $pad, start = $start, ignore = pad) {\n"
    "input source[n_source] : token(vocab_size);\n"
    "target next[n_target] : token(vocab_size);\n"
    "input before[n_target] : shifted(next, first = start);\n"
    "target weight[n_target] : counted(next, ignore = ignore);\n"
    "\n";
static const char objective[] = "output logits;\n"
                                "entropy = weight * cross_entropy(logits, next);\n"
                                "loss entropy;\n"
                                "metric perplexity = entropy, of_mean = exp;\n";

/* The encoder has half of the buckets for each direction; half of a direction's buckets have one distance each. */
static bool check_buckets(const Import *m) {
  const char *field = "relative_attention_num_buckets", *distance = "relative_attention_max_distance";
  const double buckets = known_number(m, field);
  if (buckets < 4 || fmod(buckets, 2) != 0)
    refuse_field(m, field, known(m, field), "even numbers of at least 4");
  else if (known_number(m, distance) <= floor(buckets / 2))
    refuse_field(m, distance, known(m, distance), format("more than half of '%s', %s", field, known(m, field)));
  else
    return true;
  return false;
}

static bool derive(Import *m) {
  const double pad = token(m, "pad_token_id", 0), start = pad < 0 ? -1 : token(m, "decoder_start_token_id", pad);
  if (start < 0 || !check_buckets(m) || !derive_task(m, tasks) || !derive_scale(m))
    return false;
  set_known(m, "task", ""); /* it generates, as models without tasks do */
  set_known(m, "pad", number_text(pad));
  set_known(m, "start", number_text(start));
  set_known(m, "inputs", inputs);
  set_known(m, "objective", objective);
  derive_network(m);
  return true;
}

#define POSITION(stack, length, more)                                                                    \
  "position = " stack                                                                                    \
  ".block[0].layer[0].SelfAttention.relative_attention_bias: t5_position_bias(n_head, " length ", " more \
  "buckets = $relative_attention_num_buckets, max_distance = $relative_attention_max_distance, "         \
  "init = normal(1 / sqrt(n_embd)));\n"
#define NETWORK \
  "[[gated: gated = true, ]][[activation: activation = $activation, ]]p_drop = p_drop, eps = $layer_norm_epsilon"

const Family family_t5 = {
    "t5",
    "A T5",
    "",
    "t5",
    fields,
    shapes,
    "n_positions|output_past|dropout_rate|initializer_factor|dense_act_fn|is_gated_act",
    derive,
    "n_layer = $num_layers, n_decoder_layer = $num_decoder_layers, n_head = $num_heads, head_size = $d_kv, "
    "n_embd = $d_model, hidden = $d_ff, p_drop = 0, ",
    "mask_of_pads = padding_mask(source, pad);\n"
    "x = dropout(shared: embedding(source, vocab_size, n_embd, init = normal(1)), p_drop);\n" POSITION(
        "encoder", "n_source",
        "") "for i in 0..n_layer {\n"
            "x = encoder.block[i]: t5_encoder_block(x, n_head, head_size, hidden, position, mask_of_pads, " NETWORK
            ");\n"
            "}\n"
            "x = dropout(encoder.final_layer_norm: rms_norm(x, eps = $layer_norm_epsilon), p_drop);\n"
            "\n"
            "y = dropout(shared(before), p_drop);\n" POSITION(
                "decoder", "n_target",
                "bidirectional = false, ") "for i in 0..n_decoder_layer {\n"
                                           "y = decoder.block[i]: t5_decoder_block(y, x, n_head, head_size, hidden, position, mask_of_pads, " NETWORK
                                           ");\n"
                                           "}\n"
                                           "y = dropout(decoder.final_layer_norm: rms_norm(y, eps = $layer_norm_epsilon), p_drop);\n"
                                           "[[scaled: y = y / sqrt(n_embd);\n]]"
                                           "[[tie_word_embeddings: logits = y @ shared.weight.T;\n]]"
                                           "[[!tie_word_embeddings: logits = lm_head: linear(y, vocab_size, bias = false, init = normal(1));\n]]"};
