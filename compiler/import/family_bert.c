/* Encoders of texts: bert and roberta, with the heads for masked words, classes of texts, and classes of words. */
#include "import/internal.h"

/* The causal variants of the same fields, which is_decoder would choose, have no template. */
static const Field fields[] = {{"vocab_size", FIELD_COUNT, NULL, NULL},
                               {"hidden_size", FIELD_COUNT, NULL, NULL},
                               {"intermediate_size", FIELD_COUNT, NULL, NULL},
                               {"num_hidden_layers", FIELD_COUNT, NULL, NULL},
                               {"num_attention_heads", FIELD_COUNT, NULL, NULL},
                               {"max_position_embeddings", FIELD_COUNT, "512", NULL},
                               {"type_vocab_size", FIELD_COUNT, "2", NULL},
                               {"hidden_act", FIELD_WORD, "gelu",
                                "gelu|gelu_python|gelu_new|gelu_pytorch_tanh|relu|silu|swish"},
                               {"layer_norm_eps", FIELD_EPSILON, "1e-12", NULL},
                               {"position_embedding_type", FIELD_WORD, "absolute", "absolute"},
                               {"tie_word_embeddings", FIELD_FLAG, "true", NULL},
                               {"is_decoder", FIELD_FLAG, "false", "false"},
                               {"add_cross_attention", FIELD_FLAG, "false", "false"},
                               {"pad_token_id", FIELD_OTHER, NULL, NULL},
                               {"architectures", FIELD_OTHER, NULL, NULL},
                               {"id2label", FIELD_OTHER, NULL, NULL},
                               {"num_labels", FIELD_OTHER, NULL, NULL},
                               {"problem_type", FIELD_OTHER, NULL, NULL},
                               {0}};

#define SHAPES(head, labels)                                                            \
  {"vocab_size", "embeddings.word_embeddings.weight", 0, NULL},                         \
      {"hidden_size", "embeddings.word_embeddings.weight", 1, NULL},                    \
      {"max_position_embeddings", "embeddings.position_embeddings.weight", 0, NULL},    \
      {"type_vocab_size", "embeddings.token_type_embeddings.weight", 0, NULL},          \
      {"num_hidden_layers", "encoder.layer.", COUNT_LAYERS, NULL},                      \
      {"intermediate_size", "encoder.layer.0.intermediate.dense.weight", 0, NULL},      \
      {"pooler", "pooler.dense.weight", IS_THERE, NULL}, {"labels", labels, 0, NULL}, { \
    "tie_word_embeddings", head, IS_NOT_THERE, NULL                                     \
  }

#define MASKED "ForMaskedLM"
#define TEXTS "ForSequenceClassification"
#define WORDS "ForTokenClassification"
#define BASE "Model"

/* Sets pad: the padding's token, whose keys attention hides. */
static bool derive_pad(Import *m, double usual) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, "pad_token_id");
  const double pad = cJSON_IsNumber(item) ? item->valuedouble : usual;
  if ((item && !cJSON_IsNull(item) && !cJSON_IsNumber(item)) || !(pad >= 0) ||
      pad >= known_number(m, "vocab_size") || pad != (double)(int)pad) {
    error_at((Span){.file = m->file}, "PD0603", "'pad_token_id' must be a token below vocab_size");
    return false;
  }
  set_known(m, "pad", number_text(pad));
  return true;
}

#define ATTRIBUTES                                                                                       \
  "n_layer = $num_hidden_layers, n_head = $num_attention_heads, width = $hidden_size, "                  \
  "hidden = $intermediate_size, max_positions = $max_positions, [[num_labels: n_label = $num_labels, ]]" \
  "p_drop = 0, pad = $pad, "

/* Of masked words: two ways to get masks. */
static const char inputs[] =
    "[[ForMaskedLM: mask = none, cls = none, sep = none, ]]n_ctx = $n_ctx, vocab_size = $vocab_size) {\n"
    "[[ForMaskedLM: if mask == none {  # texts with masks as they are; words are -100 where no loss is\n"
    "input tokens[n_ctx] : token(vocab_size);\n"
    "[[types: input token_types[n_ctx] : token($type_vocab_size);\n]]"
    "target words[n_ctx] : token(vocab_size);\n"
    "target weight[n_ctx] : counted(words, ignore = -100);\n"
    "} else {  # masks at random, others in each epoch\n"
    "target words[n_ctx] : token(vocab_size);\n"
    "input tokens[n_ctx] : masked(words, mask, special = [pad, cls, sep]);\n"
    "[[types: input token_types[n_ctx] : segments(words, sep, pad);\n]]"
    "target weight[n_ctx] : chosen(tokens);\n"
    "}\n]]"
    "[[!ForMaskedLM: input tokens[n_ctx] : token(vocab_size);\n"
    "[[types: input token_types[n_ctx] : token($type_vocab_size);\n]]]]"
    "[[ForSequenceClassification: " LABELS_TARGET "]]"
    "[[ForTokenClassification: target label[n_ctx] : token(n_label);\n"
    "target weight[n_ctx] : counted(label, ignore = -100);\n]]\n";

#define TYPES "[[types: token_types]][[!types: none]]"
#define EPS "eps = $layer_norm_eps"
#define INIT "[[init_differs: init = $init, ]]"
#define ENCODER(embeddings)                                                                         \
  "mask_of_pads = padding_mask(tokens, pad);\n"                                                     \
  "x = ${root}embeddings: " embeddings "for i in 0..n_layer {\n"                                    \
  "x = ${root}encoder.layer[i]: bert_layer(x, n_head, hidden, mask_of_pads, p_drop = p_drop, " INIT \
  "[[activation: activation = $activation, ]]" EPS ");\n}\n"
#define POOLED "pooled = ${root}pooler: bert_pooler(x, init = $init);\n"
#define CLASSIFIER(x) "classifier: linear(dropout(" x ", p_drop), n_label, init = $init, bias_init = zeros);\n"

static const char objective[] =
    "[[ForMaskedLM: output logits;\nloss weight * cross_entropy(logits, words);\n"
    "metric accuracy = weight * accuracy(logits, words);\n]]"
    "[[ForTokenClassification: output logits;\nloss weight * cross_entropy(logits, label);\n"
    "metric accuracy = weight * accuracy(logits, label);\n]]"
    "[[ForSequenceClassification: " LABELS_OBJECTIVE "]]"
    "[[Model: output hidden = x;\n[[pooler: output pooled = pooled[0];\n]]]]";

static bool derive(Import *m, const Task *tasks, double pad) {
  derive_activation(m);
  set_known(m, "inputs", inputs);
  set_known(m, "objective", objective);
  set_known(m, "max_positions", known(m, "max_position_embeddings"));
  set_known(m, "types", known_number(m, "type_vocab_size") > 1 ? "true" : "");
  if (!m->tensors.n)
    set_known(m, "pooler", "true");
  if (!heads_divide(m) || !derive_task(m, tasks) || !derive_pad(m, pad))
    return false;
  if (is_known(m, BASE)) {
    set_known(m, "outputs_only", "true");
    m->root = m->tensors.n ? m->root : "";
  }
  return !(is_known(m, TEXTS) || is_known(m, WORDS)) || derive_labels(m);
}

/* ---- bert ---------------------------------------------------------------------------------------- */

static const Task bert_tasks[] = {{MASKED, "cls.predictions.bias", "cls.predictions"},
                                  {TEXTS, "classifier.weight", "classifier | pooler"},
                                  {WORDS, NULL, "classifier"},
                                  {BASE, NULL, "pooler"},
                                  {0}};
static const ShapeRule bert_shapes[] = {SHAPES("/cls.predictions.decoder.weight", "/classifier.weight"), {0}};

static bool derive_bert(Import *m) { return derive(m, bert_tasks, 0); }

const Family family_bert = {"bert",
                            "A BERT",
                            "bert.",
                            "bert",
                            fields,
                            bert_shapes,
                            NULL,
                            derive_bert,
                            ATTRIBUTES,
                            ENCODER("bert_embeddings(tokens, " TYPES
                                    ", width, max_positions, p_drop = p_drop, " INIT EPS ", padding_idx = pad"
                                    ");\n") "[[ForMaskedLM: logits = cls.predictions: bert_predictions(x, "
                                            "[[tie_word_embeddings: ${root}embeddings.word_embeddings.weight, ]]"
                                            "[[!tie_word_embeddings: none, n_class = vocab_size, ]]" INIT
                                            "[[activation: activation = $activation, ]]" EPS ");\n]]"
                                            "[[ForSequenceClassification: " POOLED "logits = " CLASSIFIER(
                                                "pooled[0]") "]]"
                                                             "[[ForTokenClassification: logits = " CLASSIFIER(
                                                                 "x") "]]"
                                                                      "[[Model: [[pooler: " POOLED "]]]]"};

/* ---- roberta ------------------------------------------------------------------------------------- */

static const Task roberta_tasks[] = {{MASKED, "lm_head.bias", "lm_head"},
                                     {TEXTS, "classifier.out_proj.weight", "classifier"},
                                     {WORDS, "classifier.weight", "classifier"},
                                     {BASE, NULL, "pooler"},
                                     {0}};
static const ShapeRule roberta_shapes[] = {SHAPES("/lm_head.decoder.weight", "/classifier.out_proj.weight"),
                                           {"labels", "/classifier.weight", 0, NULL},
                                           {0}};

/* Positions count from pad + 1. */
static bool derive_roberta(Import *m) {
  if (!derive(m, roberta_tasks, 1))
    return false;
  const double positions = known_number(m, "max_positions") - known_number(m, "pad") - 1;
  if (positions < 1) {
    refuse_field(m, "max_position_embeddings", known(m, "max_positions"), "at least pad_token_id + 2");
    return false;
  }
  set_known(m, "max_position_embeddings", number_text(positions));
  return true;
}

const Family family_roberta = {
    "roberta",
    "A RoBERTa",
    "roberta.",
    "bert",
    fields,
    roberta_shapes,
    NULL,
    derive_roberta,
    ATTRIBUTES,
    ENCODER(
        "roberta_embeddings(tokens, " TYPES ", width, max_positions, p_drop = p_drop, pad = pad, " INIT EPS
        ");\n") "[[ForMaskedLM: logits = lm_head: roberta_predictions(x, "
                "[[tie_word_embeddings: ${root}embeddings.word_embeddings.weight, ]]"
                "[[!tie_word_embeddings: none, n_class = vocab_size, ]]" INIT EPS ");\n]]"
                "[[ForSequenceClassification: h = tanh(classifier.dense: linear(dropout(x[0], p_drop), width, init = $init, "
                "bias_init = zeros));\n"
                "logits = classifier.out_proj: linear(dropout(h, p_drop), n_label, init = $init, bias_init = zeros);\n]]"
                "[[ForTokenClassification: logits = " CLASSIFIER("x") "]]"
                                                                      "[[Model: [[pooler: " POOLED "]]]]"};
