/* Hugging Face's tokenizer.json: the steps of encoding, one object each with its "type". An unknown step is
 * refused by name, because ignoring it would silently give different tokens. */
#include "parts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- members --------------------------------------------------------------------------------- */

static const cJSON *member(const cJSON *of, const char *name) {
  return cJSON_GetObjectItemCaseSensitive(of, name);
}

/* A text, or NULL. */
static const char *text_of(const cJSON *of, const char *name) { return cJSON_GetStringValue(member(of, name)); }

static bool flag(const cJSON *of, const char *name, bool otherwise) {
  const cJSON *item = member(of, name);
  return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

/* A token's number, or -1. */
static int32_t number(const cJSON *item) {
  double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
  return x >= 0 && x < 0x1p31 && x == floor(x) ? (int32_t)x : -1;
}

/* The type of a step, also for messages. */
static const char *type_of(const cJSON *step) {
  const char *type = text_of(step, "type");
  return type ? type : "without a type";
}

static bool unknown(char *why, const char *kind, const cJSON *step) {
  return pd_refuse(why, "its %s %.100s is not supported", kind, type_of(step));
}

static bool unknown_with(char *why, const char *kind, const cJSON *step, const char *what) {
  return pd_refuse(why, "its %s %.100s with %s is not supported", kind, type_of(step), what);
}

static bool too_many(char *why, const char *kind) {
  return pd_refuse(why, "it has more than %d steps in its %s", PD_MAX_STEPS, kind);
}

/* Calls `read` for a step, or for each step in `list` of a Sequence. */
typedef bool read_step(struct pd_tokenizer *t, const cJSON *step, char *why);

static bool each_step(struct pd_tokenizer *t, const cJSON *step, const char *list, read_step *read, char *why) {
  if (!step || cJSON_IsNull(step)) return true;
  if (strcmp(type_of(step), "Sequence")) return read(t, step, why);
  const cJSON *item;
  cJSON_ArrayForEach(item, member(step, list)) {
    if (!read(t, item, why)) return false;
  }
  return true;
}

/* ---- model ----------------------------------------------------------------------------------- */

static bool read_vocabulary(struct pd_tokenizer *t, const cJSON *vocabulary, int64_t classes, char *why) {
  if (!cJSON_IsObject(vocabulary)) return pd_refuse(why, "it has no vocabulary");
  pd_bpe_start(&t->bpe, classes);
  const cJSON *item;
  cJSON_ArrayForEach(item, vocabulary) {
    int32_t id = number(item);
    if (id < 0) return pd_refuse(why, "its token '%.100s' has no number", item->string);
    if (id >= classes)
      return pd_refuse(why, "its token '%.100s' has the number %d, but the model has %lld tokens", item->string,
                       id, (long long)classes);
    if (!pd_bpe_add_token(&t->bpe, item->string, strlen(item->string), id))
      return pd_refuse(why, "its vocabulary has token '%.100s' or number %d twice", item->string, id);
  }
  return true;
}

bool pd_tokenizer_parse_vocabulary(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes,
                                   char *why) {
  cJSON *root = cJSON_ParseWithLength(text, bytes);
  bool ok = root ? read_vocabulary(t, root, classes, why) : pd_refuse(why, "it is not JSON, or it is cut short");
  cJSON_Delete(root);
  return ok;
}

/* "a b", or ["a", "b"]. */
static bool read_merge(struct pd_bpe *b, const cJSON *merge) {
  const char *left = cJSON_GetStringValue(merge), *space = left ? strchr(left, ' ') : NULL;
  if (space) return pd_bpe_add_merge(b, left, (size_t)(space - left), space + 1, strlen(space + 1));
  if (!cJSON_IsArray(merge) || cJSON_GetArraySize(merge) != 2) return false;
  left = cJSON_GetStringValue(cJSON_GetArrayItem(merge, 0));
  const char *right = cJSON_GetStringValue(cJSON_GetArrayItem(merge, 1));
  return left && right && pd_bpe_add_merge(b, left, strlen(left), right, strlen(right));
}

static bool read_wordpiece(struct pd_tokenizer *t, const cJSON *model, int64_t classes, char *why) {
  const char *unk = text_of(model, "unk_token"), *prefix = text_of(model, "continuing_subword_prefix");
  const int32_t most = number(member(model, "max_input_chars_per_word"));
  enum { MOST = 1000 }; /* the time of a word grows with its square */
  if (most > MOST) return unknown_with(why, "model", model, "words of more than 1000 characters");
  if (!prefix) return pd_refuse(why, "it has no continuing_subword_prefix");
  if (!read_vocabulary(t, member(model, "vocab"), classes, why)) return false;
  t->wordpiece = (struct pd_wordpiece){strdup(prefix), most < 0 ? 100 : most};
  t->bpe.unknown = unk ? pd_bpe_find(&t->bpe, unk, strlen(unk)) : -1;
  return t->bpe.unknown >= 0 || pd_refuse(why, "its unk_token '%.100s' is not in the vocabulary", unk ? unk : "");
}

/* Adds the pieces of a Unigram's vocabulary, which are pairs of a text and a score. */
static bool read_pieces(struct pd_tokenizer *t, const cJSON *vocabulary, int64_t classes, char *why) {
  const cJSON *item;
  int32_t id = 0;
  if (!cJSON_IsArray(vocabulary)) return pd_refuse(why, "it has no vocabulary");
  if (cJSON_GetArraySize(vocabulary) > classes)
    return pd_refuse(why, "it has %d tokens, but the model has %lld", cJSON_GetArraySize(vocabulary),
                     (long long)classes);
  pd_bpe_start(&t->bpe, classes);
  t->unigram.score = pd_grown(NULL, sizeof *t->unigram.score * (size_t)(classes + 1));
  cJSON_ArrayForEach(item, vocabulary) {
    const char *piece = cJSON_GetStringValue(cJSON_GetArrayItem(item, 0));
    const cJSON *score = cJSON_GetArrayItem(item, 1);
    if (!piece || !cJSON_IsNumber(score) || !isfinite(score->valuedouble))
      return pd_refuse(why, "its token %d is not a text with a score", id);
    if (!pd_bpe_add_token(&t->bpe, piece, strlen(piece), id))
      return pd_refuse(why, "its vocabulary has token '%.100s' twice", piece);
    t->unigram.score[id++] = score->valuedouble;
  }
  pd_unigram_complete(&t->unigram, &t->bpe);
  return true;
}

static bool read_unigram(struct pd_tokenizer *t, const cJSON *model, int64_t classes, char *why) {
  const cJSON *unk = member(model, "unk_id");
  if (!read_pieces(t, member(model, "vocab"), classes, why)) return false;
  t->bpe.unknown = number(unk);
  t->bpe.byte_fallback = flag(model, "byte_fallback", false);
  return !unk || cJSON_IsNull(unk) ||
         (t->bpe.unknown >= 0 && t->bpe.unknown < classes && t->bpe.text[t->bpe.unknown]) ||
         pd_refuse(why, "its unk_id is not a token");
}

static bool read_model(struct pd_tokenizer *t, const cJSON *model, int64_t classes, char *why) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  const cJSON *merges = member(model, "merges"), *merge;
  if (!cJSON_IsObject(model)) return pd_refuse(why, "it is not a tokenizer.json: the field model is missing");
  if (!strcmp(type_of(model), "Unigram")) return read_unigram(t, model, classes, why);
  if (!strcmp(type_of(model), "WordPiece")) return read_wordpiece(t, model, classes, why);
  if (strcmp(type_of(model), "BPE") && (member(model, "type") || !merges)) return unknown(why, "model", model);
  if (!cJSON_IsArray(merges)) return pd_refuse(why, "it has no merges");
  for (int i = 0; i < 2; i++)
    if (text_of(model, affixes[i]) && *text_of(model, affixes[i]))
      return unknown_with(why, "model", model, affixes[i]);
  const cJSON *dropout = member(model, "dropout");
  if (cJSON_IsNumber(dropout) && dropout->valuedouble != 0) return unknown_with(why, "model", model, "dropout");
  if (!read_vocabulary(t, member(model, "vocab"), classes, why)) return false;
  pd_bpe_expect(&t->bpe, (size_t)cJSON_GetArraySize(merges));
  int64_t i = 0;
  cJSON_ArrayForEach(merge, merges) {
    if (!read_merge(&t->bpe, merge))
      return pd_refuse(why, "its merge %lld is not a pair of tokens whose merge is a token", (long long)i);
    i++;
  }
  const char *unk = text_of(model, "unk_token");
  t->bpe.unknown = unk ? pd_bpe_find(&t->bpe, unk, strlen(unk)) : -1;
  if (unk && t->bpe.unknown < 0) return pd_refuse(why, "its unk_token '%.100s' is not in the vocabulary", unk);
  t->bpe.fuse_unknown = flag(model, "fuse_unk", false);
  t->bpe.byte_fallback = flag(model, "byte_fallback", false);
  t->bpe.whole_words = flag(model, "ignore_merges", false);
  return true;
}

/* ---- before the model ------------------------------------------------------------------------ */

/* The largest factor by which consecutive steps can lengthen a text. */
static bool grows_little(const struct pd_replacement *steps, int n, const char *separator, const char *kind,
                         char *why) {
  enum { MOST = 256 };
  double times = separator ? (double)strlen(separator) : 1;
  for (const struct pd_replacement *r = steps; r < steps + n; r++) {
    double to = r->to ? (double)strlen(r->to) : 1, one = r->from ? to / (double)strlen(r->from)
                                                         : r->to ? 1 + to
                                                                 : 1;
    if (one > 1) times *= one;
  }
  return times <= MOST ||
         pd_refuse(why, "the steps of its %s lengthen a text by up to %.3g times: the limit is %d", kind, times,
                   MOST);
}

static bool add_replacement(struct pd_replacement *steps, int *n, const char *from, const char *to,
                            const char *kind, char *why) {
  if (*n == PD_MAX_STEPS) return too_many(why, kind);
  steps[(*n)++] = (struct pd_replacement){.from = from ? strdup(from) : NULL, .to = to ? strdup(to) : NULL};
  return grows_little(steps, *n, NULL, kind, why);
}

/* Replace with a text for its pattern. */
static bool read_replace(struct pd_replacement *steps, int *n, const cJSON *step, const char *kind, char *why) {
  const char *from = text_of(member(step, "pattern"), "String"), *to = text_of(step, "content");
  const char *expression = text_of(member(step, "pattern"), "Regex");
  if (expression && !strcmp(expression, " {2,}") && to) {
    if (!add_replacement(steps, n, " ", to, kind, why)) return false;
    return steps[*n - 1].runs = true;
  }
  if (!from || !*from || !to) return unknown_with(why, kind, step, "a pattern that is no text");
  return add_replacement(steps, n, from, to, kind, why);
}

static bool read_bert_normalizer(struct pd_tokenizer *t, const cJSON *step, char *why) {
  if (t->n_normalizer || t->bert.on) return unknown_with(why, "normalizer", step, "another step before it");
  const bool lower = flag(step, "lowercase", true);
  t->bert = (struct pd_bert){.on = true,
                             .clean = flag(step, "clean_text", true),
                             .chinese = flag(step, "handle_chinese_chars", true),
                             .strip = flag(step, "strip_accents", lower),
                             .lower = lower};
  return true;
}

static bool read_charsmap(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *map = text_of(step, "precompiled_charsmap");
  if (t->n_normalizer || t->charsmap.unit) return unknown_with(why, "normalizer", step, "another step before it");
  return (map && pd_charsmap_parse(&t->charsmap, map)) || unknown_with(why, "normalizer", step, "a damaged map");
}

static bool read_strip_normalizer(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const bool left = flag(step, "strip_left", true), right = flag(step, "strip_right", true);
  if (!left && !right) return true;
  if (!add_replacement(t->normalizer, &t->n_normalizer, NULL, NULL, "normalizer", why)) return false;
  t->normalizer[t->n_normalizer - 1].strip_left = left;
  t->normalizer[t->n_normalizer - 1].strip_right = right;
  return true;
}

static bool read_normalizer(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *type = type_of(step), *prepend = text_of(step, "prepend");
  if (!strcmp(type, "BertNormalizer")) return read_bert_normalizer(t, step, why);
  if (t->bert.on) return unknown_with(why, "normalizer", step, "BertNormalizer before it");
  if (!strcmp(type, "Replace")) return read_replace(t->normalizer, &t->n_normalizer, step, "normalizer", why);
  if (!strcmp(type, "Precompiled")) return read_charsmap(t, step, why);
  if (!strcmp(type, "Strip")) return read_strip_normalizer(t, step, why);
  if (!strcmp(type, "NFC")) return add_replacement(t->normalizer, &t->n_normalizer, NULL, NULL, "normalizer", why);
  if (strcmp(type, "Prepend") || !prepend) return unknown(why, "normalizer", step);
  return add_replacement(t->normalizer, &t->n_normalizer, NULL, prepend, "normalizer", why);
}

/* Adds a splitter by an expression, or by BERT's rule for NULL; takes ownership of the pattern. */
static bool add_splitter(struct pd_tokenizer *t, struct pd_splitter s, char *why) {
  if (t->n_splitters < PD_MAX_STEPS) {
    t->splitter[t->n_splitters++] = s;
    return true;
  }
  pd_pattern_free(s.pattern);
  return too_many(why, "pre_tokenizer");
}

static bool add_expression(struct pd_tokenizer *t, const char *expression, char *why) {
  return add_splitter(t, (struct pd_splitter){.pattern = pd_pattern_compile(expression, why)}, why);
}

/* The places of matches by Hugging Face's names. Words that are matches, without the text between them, are isolated
 * matches if every character belongs to a match. */
static bool read_behavior(const cJSON *step, struct pd_splitter *s, char *why) {
  static const char *const names[] = {"Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const char *behavior = text_of(step, "behavior");
  const bool invert = flag(step, "invert", false);
  for (int i = 0; i < 4 && behavior; i++)
    if (!strcmp(behavior, names[i]) && (!invert || !i)) {
      s->behavior = (enum pd_behavior)i;
      return true;
    }
  if (behavior && !strcmp(behavior, "Removed") && invert)
    return pd_pattern_covers(s->pattern) ||
           unknown_with(why, "pre_tokenizer", step, "a pattern that would remove characters");
  return unknown_with(why, "pre_tokenizer", step, "this behavior");
}

static bool read_split(struct pd_tokenizer *t, const cJSON *step, char *why) {
  char part[PD_WHY] = "no pattern";
  const char *expression = text_of(member(step, "pattern"), "Regex");
  const char *text = text_of(member(step, "pattern"), "String");
  struct pd_splitter s = {.pattern = expression      ? pd_pattern_compile(expression, part)
                                     : text && *text ? pd_pattern_of_text(text, part)
                                                     : NULL};
  if (!s.pattern) return unknown_with(why, "pre_tokenizer", step, part);
  if (read_behavior(step, &s, why)) return add_splitter(t, s, why);
  pd_pattern_free(s.pattern);
  return false;
}

static bool read_byte_level(struct pd_tokenizer *t, const cJSON *step, char *why) {
  t->byte_level = true;
  t->space_first = flag(step, "add_prefix_space", true);
  if (t->space_first && t->n_splitters)
    return unknown_with(why, "pre_tokenizer", step, "add_prefix_space behind another step");
  return !flag(step, "use_regex", true) || add_expression(t, pd_gpt2_expression, why);
}

/* Metaspace's scheme of prepending the separator; older files have a flag. */
static bool read_prepend(const cJSON *step, const char *kind, enum pd_prepend *to, char *why) {
  static const char *const names[] = {"never", "first", "always"};
  const char *scheme = text_of(step, "prepend_scheme");
  *to = flag(step, "add_prefix_space", true) ? PD_ALWAYS : PD_NEVER;
  if (!scheme) return true;
  for (int i = 0; i < 3; i++)
    if (!strcmp(scheme, names[i])) {
      *to = (enum pd_prepend)i;
      return true;
    }
  return unknown_with(why, kind, step, "this prepend_scheme");
}

static bool read_metaspace(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *separator = text_of(step, "replacement");
  if (!separator || !*separator) return unknown_with(why, "pre_tokenizer", step, "no replacement");
  if (t->n_splitters) return unknown_with(why, "pre_tokenizer", step, "another step before it");
  t->separator = strdup(separator);
  t->separates = flag(step, "split", true);
  if (!grows_little(t->normalizer, t->n_normalizer, separator, "pre_tokenizer", why)) return false;
  return read_prepend(step, "pre_tokenizer", &t->prepend, why);
}

static bool read_pre_tokenizer(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *type = type_of(step);
  if (t->byte_level || t->separator) return unknown_with(why, "pre_tokenizer", step, "another step before it");
  if (t->wordpiece.continuing)
    return (!strcmp(type, "BertPreTokenizer") && !t->n_splitters &&
            add_splitter(t, (struct pd_splitter){0}, why)) ||
           unknown_with(why, "pre_tokenizer", step, "WordPiece");
  if (!strcmp(type, "ByteLevel")) return read_byte_level(t, step, why);
  if (!strcmp(type, "Metaspace")) return read_metaspace(t, step, why);
  if (!strcmp(type, "WhitespaceSplit") && t->unigram.score && !t->n_splitters) return t->drops_spaces = true;
  if (t->drops_spaces) return unknown_with(why, "pre_tokenizer", step, "WhitespaceSplit before it");
  if (!strcmp(type, "Split")) return read_split(t, step, why);
  if (!strcmp(type, "Digits"))
    return add_expression(t, flag(step, "individual_digits", false) ? pd_digit_expression : pd_digits_expression,
                          why);
  return unknown(why, "pre_tokenizer", step);
}

static bool read_added(struct pd_tokenizer *t, const cJSON *list, char *why) {
  const cJSON *item;
  if (list && !cJSON_IsArray(list)) return pd_refuse(why, "its added_tokens is not a list");
  t->added = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *t->added);
  if (!t->added) return pd_refuse(why, "out of memory");
  cJSON_ArrayForEach(item, list) {
    const char *content = text_of(item, "content");
    struct pd_added a = {.id = number(member(item, "id")),
                         .left = flag(item, "lstrip", false),
                         .right = flag(item, "rstrip", false),
                         .special = flag(item, "special", false)};
    if (!content || !*content || a.id < 0)
      return pd_refuse(why, "one of its added_tokens has no content or number");
    if (flag(item, "single_word", false))
      return pd_refuse(why, "its added token '%.100s' has single_word, which is not supported", content);
    a.content = strdup(content);
    if (flag(item, "normalized", !a.special)) {
      size_t bytes = strlen(content);
      a.normalized = pd_normalize(t, content, &bytes);
    }
    if (!pd_tokenizer_add(t, a, why)) return false;
  }
  return true;
}

/* ---- behind it ------------------------------------------------------------------------------- */

/* Adds tokens to those around a text; false: not tokens of the vocabulary, or too many. */
static bool add_around(const struct pd_tokenizer *t, const cJSON *ids, int32_t *list, int *n) {
  const cJSON *id;
  if (!cJSON_IsArray(ids)) return false;
  cJSON_ArrayForEach(id, ids) {
    const int32_t token = number(id);
    if (token < 0 || token >= t->bpe.n || *n == PD_MAX_PREFIX) return false;
    list[(*n)++] = token;
  }
  return true;
}

/* The tokens that TemplateProcessing puts before a single text, and behind it. */
static bool read_template(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const cJSON *piece;
  bool behind = false;
  cJSON_ArrayForEach(piece, member(step, "single")) {
    const char *name = text_of(member(piece, "SpecialToken"), "id");
    const cJSON *ids = name ? member(member(member(step, "special_tokens"), name), "ids") : NULL;
    if (!behind && member(piece, "Sequence"))
      behind = true;
    else if (!behind && !add_around(t, ids, t->prefix, &t->n_prefix))
      return unknown_with(why, "post_processor", step,
                          cJSON_IsArray(ids) ? "these tokens before a text" : "this template");
    else if (behind && t->n_suffix >= 0 && !add_around(t, ids, t->suffix, &t->n_suffix))
      t->n_suffix = -1;
  }
  return behind || unknown_with(why, "post_processor", step, "this template");
}

/* BertProcessing, RobertaProcessing: a token before a text, and one behind it. */
static bool read_bert_processing(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const int32_t token = number(cJSON_GetArrayItem(member(step, "cls"), 1)),
                last = number(cJSON_GetArrayItem(member(step, "sep"), 1));
  if (token < 0 || token >= t->bpe.n || t->n_prefix == PD_MAX_PREFIX)
    return unknown_with(why, "post_processor", step, "this cls");
  t->prefix[t->n_prefix++] = token;
  if (last < 0 || last >= t->bpe.n || t->n_suffix < 0 || t->n_suffix == PD_MAX_PREFIX)
    t->n_suffix = -1;
  else
    t->suffix[t->n_suffix++] = last;
  return true;
}

static bool read_post_processor(struct pd_tokenizer *t, const cJSON *step, char *why) {
  if (!strcmp(type_of(step), "BertProcessing") || !strcmp(type_of(step), "RobertaProcessing"))
    return read_bert_processing(t, step, why);
  if (!strcmp(type_of(step), "ByteLevel")) return true; /* of offsets */
  if (!strcmp(type_of(step), "TemplateProcessing")) return read_template(t, step, why);
  return unknown(why, "post_processor", step);
}

/* Strips the first space of the text, after tokens were joined. */
static bool read_strip(struct pd_tokenizer *t, const cJSON *step, bool fused, char *why) {
  const char *content = text_of(step, "content");
  int32_t start = number(member(step, "start")), stop = number(member(step, "stop"));
  if (!fused || !content || strcmp(content, " ") || start > 1 || stop != 0)
    return unknown_with(why, "decoder", step, "these members");
  t->drop_space = start == 1;
  return true;
}

static bool read_decode_metaspace(struct pd_tokenizer *t, const cJSON *step, char *why) {
  enum pd_prepend prepend;
  const char *separator = text_of(step, "replacement");
  if (!separator || !*separator || t->decode_separator)
    return unknown_with(why, "decoder", step, "no replacement");
  t->decode_separator = strdup(separator);
  if (!read_prepend(step, "decoder", &prepend, why)) return false;
  t->drop_separator = prepend != PD_NEVER;
  return true;
}

static bool read_decode_wordpiece(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *prefix = text_of(step, "prefix");
  if (!prefix || t->decode_continuing) return unknown_with(why, "decoder", step, "no prefix");
  t->decode_continuing = strdup(prefix);
  t->tidies = flag(step, "cleanup", true);
  return true;
}

static bool read_decoder(struct pd_tokenizer *t, const cJSON *step, char *why) {
  const char *type = type_of(step);
  if (!strcmp(type, "WordPiece") && t->wordpiece.continuing) return read_decode_wordpiece(t, step, why);
  if (!strcmp(type, "ByteLevel")) return t->decode_byte_level = true;
  if (!strcmp(type, "ByteFallback")) return t->decode_fallback = true;
  if (!strcmp(type, "Fuse")) return t->fused = true;
  if (!strcmp(type, "Strip")) return read_strip(t, step, t->fused, why);
  if (t->fused) return unknown_with(why, "decoder", step, "Fuse before it");
  if (!strcmp(type, "Metaspace")) return read_decode_metaspace(t, step, why);
  if (!strcmp(type, "Replace")) return read_replace(t->decoder, &t->n_decoder, step, "decoder", why);
  return unknown(why, "decoder", step);
}

static bool read_all(struct pd_tokenizer *t, const cJSON *root, int64_t classes, char *why) {
  const cJSON *decoder = member(root, "decoder");
  if (!read_model(t, member(root, "model"), classes, why) ||
      !each_step(t, member(root, "normalizer"), "normalizers", read_normalizer, why) ||
      !each_step(t, member(root, "pre_tokenizer"), "pretokenizers", read_pre_tokenizer, why) ||
      !read_added(t, member(root, "added_tokens"), why) ||
      !each_step(t, member(root, "post_processor"), "processors", read_post_processor, why))
    return false;
  if (!cJSON_IsObject(decoder)) return pd_refuse(why, "it has no decoder");
  if (t->drops_spaces && !t->separator) return pd_refuse(why, "its WhitespaceSplit has no Metaspace behind it");
  if (t->wordpiece.continuing && !t->n_splitters) return pd_refuse(why, "its WordPiece has no BertPreTokenizer");
  return each_step(t, decoder, "decoders", read_decoder, why);
}

bool pd_tokenizer_parse_json(struct pd_tokenizer *t, const char *text, size_t bytes, int64_t classes, char *why) {
  cJSON *root = cJSON_ParseWithLength(text, bytes);
  bool ok = root ? read_all(t, root, classes, why) : pd_refuse(why, "it is not JSON, or it is cut short");
  cJSON_Delete(root);
  return ok;
}
