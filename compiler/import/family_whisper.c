/* whisper: encoder of spectrograms and decoder of texts. */
#include <math.h>

#include "import/internal.h"

/* The template has neither apply_spec_augment nor layer dropout, which change trainings. */
static const Field fields[] = {{"vocab_size", FIELD_COUNT, "51865", NULL},
                               {"pad_token_id", FIELD_PAD, "50256", NULL},
                               {"decoder_start_token_id", FIELD_COUNT, "50257", NULL},
                               {"num_mel_bins", FIELD_COUNT, "80", NULL},
                               {"d_model", FIELD_COUNT, "384", NULL},
                               {"encoder_layers", FIELD_COUNT, "4", NULL},
                               {"encoder_attention_heads", FIELD_COUNT, "6", NULL},
                               {"encoder_ffn_dim", FIELD_COUNT, "1536", NULL},
                               {"decoder_layers", FIELD_COUNT, "4", NULL},
                               {"decoder_attention_heads", FIELD_COUNT, "6", NULL},
                               {"decoder_ffn_dim", FIELD_COUNT, "1536", NULL},
                               {"max_source_positions", FIELD_COUNT, "1500", NULL},
                               {"max_target_positions", FIELD_COUNT, "448", NULL},
                               {"activation_function", FIELD_WORD, "gelu",
                                "gelu|gelu_python|gelu_new|gelu_pytorch_tanh|relu|silu|swish"},
                               {"scale_embedding", FIELD_FLAG, "false", "false"},
                               {"apply_spec_augment", FIELD_FLAG, "false", "false"},
                               {"encoder_layerdrop", FIELD_NUMBER, "0", "0"},
                               {"decoder_layerdrop", FIELD_NUMBER, "0", "0"},
                               {"is_encoder_decoder", FIELD_FLAG, "true", "true"},
                               {"tie_word_embeddings", FIELD_FLAG, "true", NULL},
                               {"architectures", FIELD_OTHER, NULL, NULL},
                               {0}};
static const ShapeRule shapes[] = {{"vocab_size", "decoder.embed_tokens.weight", 0, NULL},
                                   {"d_model", "decoder.embed_tokens.weight", 1, NULL},
                                   {"num_mel_bins", "encoder.conv1.weight", 1, NULL},
                                   {"max_source_positions", "encoder.embed_positions.weight", 0, NULL},
                                   {"max_target_positions", "decoder.embed_positions.weight", 0, NULL},
                                   {"encoder_layers", "encoder.layers.", COUNT_LAYERS, NULL},
                                   {"decoder_layers", "decoder.layers.", COUNT_LAYERS, NULL},
                                   {"encoder_ffn_dim", "encoder.layers.0.fc1.weight", 0, NULL},
                                   {"decoder_ffn_dim", "decoder.layers.0.fc1.weight", 0, NULL},
                                   {"tie_word_embeddings", "/proj_out.weight", IS_NOT_THERE, NULL},
                                   {0}};

static const Task tasks[] = {{"ForConditionalGeneration", NULL, ""}, {0}};

static const char inputs[] =
    "n_target = $max_target_positions, vocab_size = $vocab_size, start = $decoder_start_token_id, ignore = -100) {\n"
    "input features[$num_mel_bins, $frames] : f32;\n"
    "target next[n_target] : token(vocab_size);\n"
    "input before[n_target] : shifted(next, first = start);\n"
    "target weight[n_target] : counted(next, ignore = ignore);\n"
    "\n";
static const char objective[] = "output logits;\n"
                                "entropy = weight * cross_entropy(logits, next);\n"
                                "loss entropy;\n"
                                "metric perplexity = entropy, of_mean = exp;\n";

static bool divides(const Import *m, const char *heads) {
  if (fmod(known_number(m, "d_model"), known_number(m, heads)) == 0)
    return true;
  error_at((Span){.file = m->file}, "PD0603", "'d_model', %s, must be a multiple of '%s', %s", known(m, "d_model"),
           heads, known(m, heads));
  return false;
}

static bool derive(Import *m) {
  if (!divides(m, "encoder_attention_heads") || !divides(m, "decoder_attention_heads") || !derive_task(m, tasks))
    return false;
  if (known_number(m, "decoder_start_token_id") >= known_number(m, "vocab_size")) {
    error_at((Span){.file = m->file}, "PD0603", "'decoder_start_token_id' must be a token below vocab_size");
    return false;
  }
  set_known(m, "task", ""); /* it generates, as models without tasks do */
  set_known(m, "frames", number_text(2 * known_number(m, "max_source_positions")));
  set_known(m, "hidden_act", known(m, "activation_function"));
  set_known(m, "inputs", inputs);
  set_known(m, "objective", objective);
  set_known(m, "frozen", format("%sencoder.embed_positions", m->root));
  derive_activation(m);
  return true;
}

#define NETWORK "[[activation: activation = $activation, ]]p_drop = p_drop[[init_differs: , init = $init]]);\n}\n"

const Family family_whisper = {
    "whisper",
    "A Whisper",
    "model.",
    "whisper",
    fields,
    shapes,
    "activation_dropout|begin_suppress_tokens|classifier_proj_size|forced_decoder_ids|init_std|mask_feature_length|"
    "mask_feature_min_masks|mask_feature_prob|mask_time_length|mask_time_min_masks|mask_time_prob|max_length|"
    "median_filter_width|num_hidden_layers|suppress_tokens|use_weighted_layer_sum|dropout",
    derive,
    "n_layer = $encoder_layers, n_head = $encoder_attention_heads, hidden = $encoder_ffn_dim, "
    "n_decoder_layer = $decoder_layers, n_decoder_head = $decoder_attention_heads, decoder_hidden = $decoder_ffn_dim, "
    "n_embd = $d_model, n_positions = $max_target_positions, p_drop = 0, ",
    "x = dropout(${root}encoder: whisper_features(features, n_embd[[init_differs: , init = $init]]), p_drop);\n"
    "for i in 0..n_layer {\n"
    "x = ${root}encoder.layers[i]: whisper_encoder_layer(x, n_head, hidden, " NETWORK
    "x = ${root}encoder.layer_norm: layer_norm(x);\n"
    "\n"
    "positions = ${root}decoder.embed_positions: position_embedding(n_positions, n_embd, init = $init);\n"
    "y = ${root}decoder.embed_tokens: embedding(before, vocab_size, n_embd, ${padding}init = $init) + positions[0..n_target];\n"
    "y = dropout(y, p_drop);\n"
    "for i in 0..n_decoder_layer {\n"
    "y = ${root}decoder.layers[i]: whisper_decoder_layer(y, x, n_decoder_head, decoder_hidden, " NETWORK
    "y = ${root}decoder.layer_norm: layer_norm(y);\n"
    "[[tie_word_embeddings: logits = y @ ${root}decoder.embed_tokens.weight.T;\n]]"
    "[[!tie_word_embeddings: logits = proj_out: linear(y, vocab_size, bias = false, init = $init);\n]]"};
