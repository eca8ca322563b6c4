/* The tokenizer's fields, from tokenizer.json and tokenizer_config.json. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "export/internal.h"

/* llama.cpp's kinds of tokens. */
enum { TOKEN_NORMAL = 1, TOKEN_UNKNOWN = 2, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5, TOKEN_BYTE = 6 };

typedef struct Tokens {
  const cJSON *root, *model, *vocab, *merges, *added;
  const cJSON *config; /* tokenizer_config.json; NULL: none */
  int file;
  int64_t n;
  const char **text; /* by token */
  int32_t *kind;
  float *score;
  bool pieces; /* of SentencePiece: spaces as U+2581, bytes as <0x0A> */
} Tokens;

static const cJSON *member(const cJSON *of, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, name);
  return cJSON_IsNull(item) ? NULL : item;
}

static bool refuse(const Tokens *t, const char *what) {
  error_at((Span){.file = t->file}, "PD0656", "%s", what);
  return false;
}

/* ---- kinds of tokenizers ------------------------------------------------------------------------------------- */

/* Whether some part of the object, at any depth, is a text with this value behind this name. */
static bool has(const cJSON *of, const char *name, const char *value) {
  bool found =
      of && of->string && cJSON_IsString(of) && !strcmp(of->string, name) && !strcmp(of->valuestring, value);
  for (const cJSON *item = cJSON_IsString(of) || !of ? NULL : of->child; item && !found; item = item->next)
    found = has(item, name, value);
  return found;
}

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* llama.cpp's name for the way in which texts are divided before merges; NULL: unknown. */
static const char *divided_as(const Tokens *t) {
  const cJSON *by = member(t->root, "pre_tokenizer");
  const bool whole = cJSON_IsTrue(member(t->model, "ignore_merges"));
  if (has(by, "Regex", CONTRACTIONS "\\p{N}{1,3}" REST))
    return whole ? "llama-bpe" : "dbrx";
  if (has(by, "Regex", CONTRACTIONS "\\p{N}" REST))
    return "qwen2";
  if (has(by, "type", "Split"))
    return NULL;
  return has(by, "type", "Digits") ? "smollm" : "gpt-2";
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

static bool set_token(Tokens *t, const cJSON *id, const char *text, int32_t kind) {
  const double at = cJSON_IsNumber(id) ? id->valuedouble : -1;
  if (at < 0 || at != (double)(int64_t)at)
    return refuse(t, "a token has a number that is not whole");
  if (at >= (double)t->n) {
    error_at((Span){.file = t->file}, "PD0656", "token %.0f ('%s') is beyond the model's %lld tokens", at,
             make_utf8(format("%.60s", text)), (long long)t->n);
    return false;
  }
  t->text[(int64_t)at] = text;
  t->kind[(int64_t)at] = kind;
  return true;
}

static bool is_byte(const char *text) { return strlen(text) == 6 && !strncmp(text, "<0x", 3) && text[5] == '>'; }

static bool read_vocabulary(Tokens *t) {
  const char *unknown = cJSON_GetStringValue(member(t->model, "unk_token"));
  for (const cJSON *item = t->vocab->child; item; item = item->next) {
    const int32_t kind = t->pieces && is_byte(item->string)          ? TOKEN_BYTE
                         : unknown && !strcmp(unknown, item->string) ? TOKEN_UNKNOWN
                                                                     : TOKEN_NORMAL;
    if (!set_token(t, item, item->string, kind))
      return false;
  }
  for (const cJSON *item = cJSON_IsArray(t->added) ? t->added->child : NULL; item; item = item->next) {
    const cJSON *content = member(item, "content"), *id = member(item, "id");
    if (!cJSON_IsString(content))
      return refuse(t, "a member of 'added_tokens' has no text");
    const bool special = cJSON_IsTrue(member(item, "special"));
    const bool first = unknown && !strcmp(unknown, content->valuestring);
    if (!set_token(t, id, content->valuestring, first ? TOKEN_UNKNOWN : special ? TOKEN_CONTROL : TOKEN_USER))
      return false;
  }
  for (int64_t i = 0; i < t->n; i++)
    if (!t->text[i])
      t->text[i] = format("[PAD%lld]", (long long)i), t->kind[i] = TOKEN_UNUSED;
  return true;
}

/* ---- merges ---------------------------------------------------------------------------------------------------- */

/* "a b" of a merge, written as a text or as a pair. */
static const char *merge_text(const cJSON *merge) {
  if (cJSON_IsString(merge))
    return merge->valuestring;
  const cJSON *a = cJSON_GetArrayItem(merge, 0), *b = cJSON_GetArrayItem(merge, 1);
  return cJSON_IsString(a) && cJSON_IsString(b) ? format("%s %s", a->valuestring, b->valuestring) : NULL;
}

static bool read_merges(const Tokens *t, const char ***to, int64_t *n) {
  const char **all = alloc(((size_t)cJSON_GetArraySize(t->merges) + 1) * sizeof *all);
  for (const cJSON *item = t->merges->child; item; item = item->next) {
    const char *text = merge_text(item);
    if (!text)
      return refuse(t, "a member of 'merges' is neither a text nor a pair of texts");
    all[(*n)++] = text;
  }
  *to = all;
  return true;
}

typedef struct Numbered {
  const char *text;
  int64_t token;
} Numbered;

static int by_text(const void *a, const void *b) {
  return strcmp(((const Numbered *)a)->text, ((const Numbered *)b)->text);
}

/* SentencePiece merges the pair whose result has the highest score: the earliest merge. */
static void set_scores(Tokens *t, const char *const *merges, int64_t n) {
  Numbered *sorted = alloc((size_t)t->n * sizeof *sorted + 1);
  for (int64_t i = 0; i < t->n; i++)
    sorted[i] = (Numbered){t->text[i], i};
  qsort(sorted, (size_t)t->n, sizeof *sorted, by_text);
  for (int64_t i = 0; i < t->n; i++)
    t->score[i] = t->kind[i] == TOKEN_NORMAL ? -1e4f - (float)n : 0; /* no merge makes it */
  for (int64_t i = n - 1; i >= 0; i--) {
    const char *space = strchr(merges[i], ' ');
    if (!space)
      continue;
    const Numbered key = {format("%.*s%s", (int)(space - merges[i]), merges[i], space + 1), 0};
    const Numbered *found = bsearch(&key, sorted, (size_t)t->n, sizeof *sorted, by_text);
    if (found)
      t->score[found->token] = -(float)i;
  }
}

/* ---- special tokens ----------------------------------------------------------------------------------------------- */

static int64_t find_token(const Tokens *t, const char *name) {
  const cJSON *token = t->config ? member(t->config, name) : NULL;
  if (cJSON_IsObject(token))
    token = member(token, "content");
  for (int64_t i = 0; cJSON_IsString(token) && i < t->n; i++)
    if (!strcmp(t->text[i], token->valuestring))
      return i;
  return -1;
}

static void add_special(const Tokens *t, Gguf *g) {
  static const char *const names[][2] = {{"bos_token", "tokenizer.ggml.bos_token_id"},
                                         {"eos_token", "tokenizer.ggml.eos_token_id"},
                                         {"unk_token", "tokenizer.ggml.unknown_token_id"},
                                         {"pad_token", "tokenizer.ggml.padding_token_id"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const int64_t token = find_token(t, names[i][0]);
    if (token >= 0)
      gguf_uint(g, names[i][1], (uint64_t)token);
  }
}

/* Whether the tokenizer puts its first token before each text. */
static bool begins_texts(const Tokens *t) {
  const cJSON *first = cJSON_GetArrayItem(member(member(t->root, "post_processor"), "single"), 0);
  const cJSON *adds = t->config ? member(t->config, "add_bos_token") : NULL;
  if (has(member(t->root, "post_processor"), "type", "Sequence"))
    return cJSON_IsTrue(adds) || has(member(t->root, "post_processor"), "type", "TemplateProcessing");
  return adds ? cJSON_IsTrue(adds) : first && member(first, "SpecialToken");
}

static void add_template(const Tokens *t, const char *folder, Gguf *g) {
  const char *path = format("%s/chat_template.jinja", folder);
  size_t n;
  const char *text = access(path, F_OK) == 0 ? read_file(path, &n) : NULL;
  const cJSON *own = t->config ? member(t->config, "chat_template") : NULL;
  if (!text)
    text = cJSON_GetStringValue(own);
  if (text)
    gguf_text(g, "tokenizer.chat_template", text);
}

/* ---- the tokenizer -------------------------------------------------------------------------------------------------- */

static void add_kind(const Tokens *t, Gguf *g) {
  if (t->pieces) {
    gguf_text(g, "tokenizer.ggml.model", "llama");
    gguf_bool(g, "tokenizer.ggml.add_space_prefix",
              has(member(t->root, "normalizer"), "type", "Prepend") ||
                  has(member(t->root, "pre_tokenizer"), "prepend_scheme", "first") ||
                  has(member(t->root, "pre_tokenizer"), "prepend_scheme", "always"));
    return;
  }
  const char *divided = divided_as(t);
  gguf_text(g, "tokenizer.ggml.model", "gpt2");
  gguf_text(g, "tokenizer.ggml.pre", divided ? divided : "default");
  if (!divided)
    help(warning_at((Span){.file = t->file}, "PD0657",
                    "llama.cpp has no name for the way in which 'pre_tokenizer' divides texts"),
         "the file says 'default', and tokens may differ from the tokenizer's");
}

static bool read_tokenizer(const char *folder, int64_t classes, Tokens *t) {
  const char *config = format("%s/tokenizer_config.json", folder);
  int ignored;
  *t = (Tokens){.n = classes};
  if (!(t->root = json_load(format("%s/tokenizer.json", folder), &t->file)) ||
      (access(config, F_OK) == 0 && !(t->config = json_load(config, &ignored))))
    return false;
  t->model = member(t->root, "model");
  t->vocab = member(t->model, "vocab");
  t->merges = member(t->model, "merges");
  t->added = member(t->root, "added_tokens");
  if (!cJSON_IsObject(t->vocab) || !cJSON_IsArray(t->merges))
    return refuse(t, "pdc writes tokenizers of the type BPE as GGUF, and no others");
  t->pieces = !has(member(t->root, "pre_tokenizer"), "type", "ByteLevel");
  t->text = alloc((size_t)classes * sizeof *t->text);
  t->kind = alloc((size_t)classes * sizeof *t->kind);
  t->score = alloc((size_t)classes * sizeof *t->score);
  return read_vocabulary(t);
}

bool export_tokens(const char *folder, int64_t classes, Gguf *g) {
  Tokens t;
  const char **merges = NULL;
  int64_t n = 0;
  if (access(format("%s/tokenizer.json", folder), F_OK) != 0) {
    help(warning_at(NO_SPAN, "PD0657", "'%s' has no tokenizer.json: the file gets no tokenizer", folder),
         "copy the model's tokenizer.json into the folder");
    gguf_text(g, "tokenizer.ggml.model", "none");
    return true;
  }
  if (!read_tokenizer(folder, classes, &t) || !read_merges(&t, &merges, &n))
    return false;
  add_kind(&t, g);
  gguf_texts(g, "tokenizer.ggml.tokens", t.text, t.n);
  gguf_ints(g, "tokenizer.ggml.token_type", t.kind, t.n);
  if (t.pieces) {
    set_scores(&t, merges, n);
    gguf_floats(g, "tokenizer.ggml.scores", t.score, t.n);
  } else {
    gguf_texts(g, "tokenizer.ggml.merges", merges, n);
  }
  add_special(&t, g);
  gguf_bool(g, "tokenizer.ggml.add_bos_token", begins_texts(&t));
  add_template(&t, folder, g);
  return true;
}
