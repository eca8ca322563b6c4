/* config.json: accepts the family's fields and fields without influence on results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "import/internal.h"

/* Fields without influence on evaluation from tokens: names, files, token ids, dropout, generation, classification
 * heads. */
static const char *const harmless[] = {"_name_or_path",
                                       "architectures",
                                       "auto_map",
                                       "model_type",
                                       "transformers_version",
                                       "torch_dtype",
                                       "dtype",
                                       "transformers.js_config",
                                       "_attn_implementation",
                                       "_attn_implementation_autoset",
                                       "attn_implementation",
                                       "bos_token_id",
                                       "eos_token_id",
                                       "pad_token_id",
                                       "sep_token_id",
                                       "cls_token_id",
                                       "mask_token_id",
                                       "decoder_start_token_id",
                                       "prefix",
                                       "tokenizer_class",
                                       "use_cache",
                                       "cache_implementation",
                                       "output_attentions",
                                       "output_hidden_states",
                                       "return_dict",
                                       "torchscript",
                                       "use_bfloat16",
                                       "gradient_checkpointing",
                                       "pretraining_tp",
                                       "is_decoder",
                                       "is_llama_config",
                                       "task_specific_params",
                                       "problem_type",
                                       "id2label",
                                       "label2id",
                                       "num_labels",
                                       "finetuning_task",
                                       "chunk_size_feed_forward",
                                       "attention_dropout",
                                       "hidden_dropout",
                                       "attn_pdrop",
                                       "embd_pdrop",
                                       "resid_pdrop",
                                       "classifier_dropout",
                                       "classifier_dropout_prob",
                                       "attention_probs_dropout_prob",
                                       "hidden_dropout_prob",
                                       "temperature",
                                       "top_k",
                                       "top_p",
                                       "typical_p",
                                       "max_length",
                                       "min_length",
                                       "max_new_tokens",
                                       "do_sample",
                                       "num_beams",
                                       "num_beam_groups",
                                       "num_return_sequences",
                                       "early_stopping",
                                       "length_penalty",
                                       "repetition_penalty",
                                       "diversity_penalty",
                                       "no_repeat_ngram_size",
                                       "encoder_no_repeat_ngram_size",
                                       "bad_words_ids",
                                       "forced_bos_token_id",
                                       "forced_eos_token_id",
                                       "remove_invalid_values",
                                       "exponential_decay_length_penalty",
                                       "suppress_tokens",
                                       "begin_suppress_tokens",
                                       "output_scores",
                                       "return_dict_in_generate",
                                       "initializer_range"};

static bool is_among(const char *name, const char *list) {
  const size_t n = strlen(name);
  for (const char *at = list; at && *at; at += strcspn(at, "|"), at += *at == '|')
    if (strcspn(at, "|") == n && !strncmp(at, name, n))
      return true;
  return false;
}

static bool is_harmless(const Import *m, const char *name) {
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
    if (!strcmp(harmless[i], name))
      return true;
  return is_among(name, m->family->harmless);
}

static const Field *find_field(const Import *m, const char *name) {
  for (const Field *f = m->family->fields; f->name; f++)
    if (!strcmp(f->name, name))
      return f;
  return NULL;
}

/* ---- values ----------------------------------------------------------------------------------- */

const char *known(const Import *m, const char *name) {
  for (int i = m->known.n - 1; i >= 0; i--)
    if (!strcmp(m->known.at[i].name, name))
      return m->known.at[i].text;
  return "";
}

bool is_known(const Import *m, const char *name) {
  const char *text = known(m, name);
  return *text && strcmp(text, "0") && strcmp(text, "false");
}

double known_number(const Import *m, const char *name) { return strtod(known(m, name), NULL); }

void set_known(Import *m, const char *name, const char *text) { push(&m->known, ((Known){name, text})); }

/* The shortest decimal equal to this number. */
const char *number_text(double x) {
  if (x == floor(x) && fabs(x) < 0x1p53)
    return format("%lld", (long long)x);
  char *text = NULL;
  for (int digits = 1; digits <= 17; digits++) {
    text = format("%.*g", digits, x);
    if (strtod(text, NULL) == x)
      break;
  }
  return text;
}

/* ---- mistakes --------------------------------------------------------------------------------- */

static Span place(const Import *m) { return (Span){.file = m->file}; }

Diagnostic *refuse_field(const Import *m, const char *field, const char *value, const char *computed) {
  Diagnostic *d = error_at(place(m), "PD0652", "'%s' is %.200s, which the layers for '%s' do not compute", field,
                           value, m->family->model_type);
  if (computed)
    help(d, "known: %s", computed);
  return d;
}

bool heads_divide(const Import *m) {
  if (fmod(known_number(m, "hidden_size"), known_number(m, "num_attention_heads")) == 0)
    return true;
  error_at(place(m), "PD0603", "'hidden_size', %s, must be a multiple of 'num_attention_heads', %s",
           known(m, "hidden_size"), known(m, "num_attention_heads"));
  return false;
}

Diagnostic *refuse_unknown(const Import *m, const char *field) {
  Diagnostic *d =
      error_at(place(m), "PD0651", "field '%.200s' of a '%s' model is not known, and may change its results",
               field, m->family->model_type);
  help(d, "if it changes no result, remove it from config.json, or set it to null");
  return d;
}

static const char *printed(const cJSON *item) {
  char *text = cJSON_PrintUnformatted(item);
  return text ? make_utf8(format("%.200s", text)) : "";
}

static bool refuse_type(const Import *m, const Field *f, const cJSON *item) {
  static const char *const kinds[] = {[FIELD_COUNT] = "a whole number from 1 to 1000000000",
                                      [FIELD_NUMBER] = "a finite number",
                                      [FIELD_EPSILON] = "a finite number of at least 0",
                                      [FIELD_OPTION] = "a finite number or null",
                                      [FIELD_WINDOW] = "a whole number from 1 to 1000000000, or null",
                                      [FIELD_PAD] = "a whole number or null",
                                      [FIELD_FLAG] = "true or false",
                                      [FIELD_WORD] = "a string"};
  error_at(place(m), "PD0603", "'%s' must be %s, not %.200s", f->name, kinds[f->kind], printed(item));
  return false;
}

/* ---- fields ----------------------------------------------------------------------------------- */

static const char *item_text(const Field *f, const cJSON *item) {
  enum { MOST = 1000000000 };
  const double x = item->valuedouble;
  switch (f->kind) {
  case FIELD_WINDOW:
  case FIELD_COUNT: return cJSON_IsNumber(item) && x >= 1 && x <= MOST && x == floor(x) ? number_text(x) : NULL;
  case FIELD_PAD: return cJSON_IsNumber(item) && fabs(x) <= MOST && x == floor(x) ? number_text(x) : NULL;
  case FIELD_EPSILON: return cJSON_IsNumber(item) && isfinite(x) && x >= 0 ? number_text(x) : NULL;
  case FIELD_OPTION:
  case FIELD_NUMBER: return cJSON_IsNumber(item) && isfinite(x) ? number_text(x) : NULL;
  case FIELD_FLAG: return cJSON_IsBool(item) ? cJSON_IsTrue(item) ? "true" : "false" : NULL;
  case FIELD_WORD: return cJSON_IsString(item) ? item->valuestring : NULL;
  case FIELD_OTHER: break;
  }
  return NULL;
}

/* "=hidden_size/num_attention_heads" */
static const char *usual_text(const Import *m, const char *usual) {
  if (*usual != '=')
    return usual;
  const char *slash = strchr(usual, '/');
  if (!slash)
    return known(m, usual + 1);
  const double x = known_number(m, format("%.*s", (int)(slash - usual - 1), usual + 1));
  return number_text(x / known_number(m, slash + 1));
}

static bool read_field(Import *m, const Field *f) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, f->name);
  const bool optional = f->kind == FIELD_OPTION || f->kind == FIELD_WINDOW || f->kind == FIELD_PAD;
  const bool none = optional && cJSON_IsNull(item);
  if (f->kind == FIELD_OTHER)
    return true;
  if (cJSON_IsNull(item))
    item = NULL;
  if (!item && !f->usual) {
    error_at(place(m), "PD0603", "'%s' is missing", f->name);
    return false;
  }
  const char *text = none ? "" : item ? item_text(f, item) : usual_text(m, f->usual);
  if (!text)
    return refuse_type(m, f, item);
  if (f->only && !is_among(text, f->only)) {
    refuse_field(m, f->name, item ? printed(item) : text, f->only);
    return false;
  }
  set_known(m, f->name, text);
  return true;
}

bool derive_padding(Import *m) {
  const char *field = "pad_token_id", *text = known(m, field);
  const double pad = known_number(m, field), rows = known_number(m, "vocab_size");
  const bool usual = !cJSON_HasObjectItem(m->config, field), row = pad >= -rows && pad < rows;
  set_known(m, "padding", *text && row ? format("padding_idx = %s, ", text) : "");
  if (!*text || row || usual)
    return true;
  error_at(place(m), "PD0603", "'pad_token_id' is %s, but vocab_size is %s", text, known(m, "vocab_size"));
  return false;
}

bool object_is_plain(const Import *m, const cJSON *object) {
  for (const cJSON *item = object->child; item; item = item->next)
    if (cJSON_GetObjectItemCaseSensitive(object, item->string) != item) {
      error_at(place(m), "PD0603", "'%s' is there twice", make_utf8(format("%.200s", item->string)));
      return false;
    }
  return true;
}

bool fields_read(Import *m) {
  bool good = object_is_plain(m, m->config);
  for (const cJSON *item = m->config->child; item; item = item->next)
    if (item->string && !cJSON_IsNull(item) && !find_field(m, item->string) && !is_harmless(m, item->string)) {
      refuse_unknown(m, make_utf8(format("%.200s", item->string)));
      good = false;
    }
  for (const Field *f = m->family->fields; f->name && good; f++)
    good = read_field(m, f);
  const cJSON *init = cJSON_GetObjectItemCaseSensitive(m->config, "initializer_range");
  const bool given = cJSON_IsNumber(init) && init->valuedouble > 0 && isfinite(init->valuedouble);
  const char *deviation = given ? format("%.4g", init->valuedouble) : "0.02"; /* used by fresh weights only */
  set_known(m, "init", format("normal(%s)", deviation));
  set_known(m, "init_differs", strcmp(deviation, "0.02") ? "true" : ""); /* from the layers' default */
  return good;
}
