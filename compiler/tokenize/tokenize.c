#include "tokenize/tokenize.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/watch.h"
#include "tokenize/internal.h"

enum { MOST_TOKENS = 1 << 22 }; /* of a vocabulary */

/* ---- the tokenizer ------------------------------------------------------------------------------- */

static bool is_there(const char *path) { return access(path, R_OK) == 0; }

/* Of a folder tokenizer.json, or else GPT-2's two. */
int tokenizer_files(const char *name, char *path[2]) {
  struct stat st;
  const char *comma = strchr(name, ',');
  if (stat(name, &st) == 0 && S_ISDIR(st.st_mode)) {
    path[0] = format("%s/tokenizer.json", name);
    if (is_there(path[0]) || !is_there(format("%s/merges.txt", name)))
      return 1;
    path[0] = format("%s/vocab.json", name), path[1] = format("%s/merges.txt", name);
    return 2;
  }
  path[0] = comma ? format("%.*s", (int)(comma - name), name) : format("%s", name);
  path[1] = comma ? format("%s", comma + 1) : NULL;
  return comma ? 2 : 1;
}

struct pd_tokenizer *tokenizer_of(const char *name, char *why) {
  char *path[2] = {NULL, NULL};
  const int n = name ? tokenizer_files(name, path) : 0;
  return pd_tokenizer_open(path, n, n ? MOST_TOKENS : 256, why);
}

/* Sets *end to the token after each document, NO_END or END_NEEDED. eos: of the tokenizer's folder, or NULL. */
static bool find_end(const TokenizeRequest *request, const struct pd_tokenizer *t, const char *eos, int32_t *end,
                     char *why) {
  const char *name = request->end;
  *end = NO_END;
  if (name && !strcmp(name, "none"))
    return true;
  if (!request->tokenizer) {
    char *behind = NULL;
    const long byte = name ? strtol(name, &behind, 10) : END_NEEDED;
    *end = (int32_t)byte;
    return !name || (behind > name && !*behind && byte >= 0 && byte < 256) ||
           pd_refuse(
               why, "--end '%s': tokens are bytes; give a number from 0 to 255, such as 10 for a newline, or none",
               name);
  }
  if (!name)
    name = eos;
  *end = name ? pd_tokenizer_token(t, name) : pd_tokenizer_end(t);
  if (*end >= 0)
    return true;
  return name ? pd_refuse(why, "the tokenizer has no token '%s' to end documents with", name)
              : pd_refuse(why,
                          "the tokenizer names no token that ends a text; name one with --end, or use --end none");
}

/* ---- parts --------------------------------------------------------------------------------------- */

/* Whether a string of this JSON has a zero character, where the parser would end it. */
static bool has_zero(const Part *p) {
  for (size_t i = 0; i + 6 <= p->bytes; i++)
    if (p->at[i] == '\\') {
      if (!memcmp(p->at + i + 1, "u0000", 5))
        return true;
      i++;
    }
  return false;
}

static const char *skip_blank(const char *at, const char *end) {
  while (at < end && memchr(" \t\r", *at, 3))
    at++;
  return at;
}

static bool is_chat(const cJSON *line) {
  static const char *const members[] = {"messages", "conversations", "prompt", "instruction"};
  bool chat = false;
  for (size_t i = 0; i < sizeof members / sizeof *members && cJSON_IsObject(line); i++)
    chat |= cJSON_GetObjectItemCaseSensitive(line, members[i]) != NULL;
  return chat;
}

/* Fills `why`: the member is missing or holds no text. */
static void refuse_member(const cJSON *line, const cJSON *member, const char *field, char *why) {
  const char *other = cJSON_IsObject(line) && line->child ? line->child->string : NULL;
  if (member)
    pd_refuse(why, "its member '%s' is not a text", field);
  else if (is_chat(line))
    pd_refuse(why,
              "it has no member '%s', but is a chat. help: pdc tokenize --length N -o FILE.npz writes samples of "
              "chats, which train and data --show read",
              field);
  else if (other)
    pd_refuse(why, "it has no member '%s', but '%.100s'; name the text's member with --field", field, other);
  else
    pd_refuse(why, "it is not an object with a member '%s'", field);
}

/* The list of a line that holds numbers of tokens instead of a text. NULL: none. field: NULL: not given. */
static const cJSON *numbers_of_line(const cJSON *line, const char *field) {
  const cJSON *list =
      cJSON_IsArray(line) ? line : cJSON_GetObjectItemCaseSensitive(line, field ? field : "input_ids");
  const bool text = !field && cJSON_GetObjectItemCaseSensitive(line, "text");
  return cJSON_IsArray(list) && !text ? list : NULL;
}

static void take_numbers(Part *p, const struct pd_tokenizer *t, const cJSON *list, char *why) {
  const long long size = (long long)pd_tokenizer_size(t);
  const cJSON *x;
  p->numbers = true;
  p->tokens = malloc(sizeof *p->tokens * (size_t)(cJSON_GetArraySize(list) + 1));
  if (!p->tokens) {
    pd_refuse(why, "no memory for its tokens");
    return;
  }
  cJSON_ArrayForEach(x, list) {
    if (!cJSON_IsNumber(x) || x->valuedouble < 0 || x->valuedouble != floor(x->valuedouble)) {
      pd_refuse(why, "element %lld of its list is not the number of a token", (long long)p->n);
      return;
    }
    if (x->valuedouble >= (double)size) {
      pd_refuse(
          why,
          "token %.0f is outside the tokenizer's %lld tokens. help: name the tokenizer of these numbers with "
          "--tokenizer",
          x->valuedouble, size);
      return;
    }
    p->tokens[p->n++] = (int32_t)x->valuedouble;
  }
}

/* The text of a line of JSON, to be freed. NULL after taking its numbers; after filling `why`; for a blank line. */
static char *text_of_line(Part *p, const struct pd_tokenizer *t, const char *given, char *why) {
  const char *field = given ? given : "text";
  const char *end = p->at + p->bytes, *behind = NULL;
  if (skip_blank(p->at, end) == end)
    return NULL;
  cJSON *line = cJSON_ParseWithLengthOpts(p->at, p->bytes, &behind, false);
  const cJSON *text = cJSON_GetObjectItemCaseSensitive(line, field), *numbers = numbers_of_line(line, given);
  char *copy = NULL;
  if (!line)
    pd_refuse(why, "it is not JSON from offset %zu of the line on", behind ? (size_t)(behind - p->at) : 0);
  else if (skip_blank(behind, end) != end)
    pd_refuse(why, "it has more than one JSON object, from offset %zu of the line on", (size_t)(behind - p->at));
  else if (numbers)
    take_numbers(p, t, numbers, why);
  else if (!cJSON_IsString(text))
    refuse_member(line, text, field, why);
  else if (has_zero(p))
    pd_refuse(why, "it holds a zero character, \\u0000");
  else
    copy = strdup(text->valuestring);
  cJSON_Delete(line);
  return copy;
}

static void refuse_part(Part *p, const char *cause) {
  char why[PD_WHY] = "";
  if (p->line)
    pd_refuse(why, "'%s': line %" PRId64 ": %s", p->path, p->line, cause);
  else
    pd_refuse(why, "'%s': %s", p->path, cause);
  p->n = -1;
  p->why = strdup(why);
}

/* Runs on several threads: nothing of the arena. */
static void encode_sample(const ChatReader *c, const LabelReader *labels, Part *p) {
  char why[PD_WHY] = "";
  if (!p->line)
    pd_refuse(
        why,
        "--length takes lines of .jsonl files, and this is a text. help: write one object with 'text' a line");
  else if (labels->field)
    labelled_of_line(labels, p, why);
  else
    sample_of_line(c, p, why);
  if (*why)
    refuse_part(p, why);
}

/* As encode_sample. */
void encode_document(const struct pd_tokenizer *t, const char *field, Part *p) {
  char why[PD_WHY] = "";
  char *decoded = p->line ? text_of_line(p, t, field, why) : NULL;
  const char *text = p->line ? decoded : p->at;
  p->bytes = decoded ? strlen(decoded) : p->line ? 0 : p->bytes;
  if (text)
    p->n = pd_tokenizer_encode(t, text, p->bytes, &p->tokens, why);
  if (*why)
    refuse_part(p, why);
  free(decoded);
}

/* ---- all together -------------------------------------------------------------------------------- */

typedef struct Tokenizing {
  const TokenizeRequest *request;
  struct pd_tokenizer *tokenizer;
  int32_t end;
  int64_t documents, in_document; /* tokens of the one that is being written */
  int64_t bytes;                  /* of texts, without what else a line of JSON has */
  double start, told;             /* seconds */
  Texts texts;
  TokenFiles files;
  struct pd_arena config; /* of the tokenizer's folder */
  ChatReader chats;       /* of samples */
  Rows *rows;             /* NULL: documents, in `files`, or: */
  LabelReader labels;     /* without field: none */
  Labelled *labelled;
  RowCounts counts;
} Tokenizing;

static bool add_part(Tokenizing *t, const Part *p, char *why) {
  const int32_t *prefix;
  const int n_prefix = pd_tokenizer_prefix(t->tokenizer, &prefix);
  if (p->n < 0 && !(t->rows && p->beyond && t->request->too_long == LONG_SKIP))
    return pd_refuse(why, "%s", p->why);
  t->files.place = (Place){p->file,        (int64_t)p->offset, p->line ? p->line - 1 : 0, t->bytes, t->documents,
                           t->in_document, t->files.n};
  t->bytes += (int64_t)p->bytes;
  if (t->labelled)
    return labelled_add(t->labelled, p, why);
  if (t->rows)
    return rows_add(t->rows, p, why);
  t->in_document = p->first ? p->n : t->in_document + p->n;
  if (t->end == END_NEEDED && t->documents > 0 && p->n > 0)
    return pd_refuse(
        why, "there are several documents, and bytes have no end of text: --end 10 ends each with a newline, "
             "--end none joins them");
  if (p->first && p->n > 0 && !p->numbers && !files_add(&t->files, prefix, n_prefix, why))
    return false;
  if (!files_add(&t->files, p->tokens, p->n, why))
    return false;
  if (!p->last || t->in_document == 0)
    return true;
  t->documents++;
  const bool ended = p->numbers && p->tokens[p->n - 1] == t->end;
  return t->end < 0 || ended || files_add(&t->files, &t->end, 1, why);
}

static void tell_progress(Tokenizing *t) {
  const double now = seconds_now();
  if (t->request->quiet || !isatty(STDERR_FILENO) || now < t->told + 1)
    return;
  t->told = now;
  fprintf(stderr, "\r%3.0f %%, %s tokens, %.2f million a second ",
          100.0 * (double)t->texts.bytes / (double)t->texts.all, with_commas(t->files.n),
          (double)(t->files.n - t->files.earlier) / (now - t->start) * 1e-6);
}

static bool write_all(Tokenizing *t, char *why) {
  const TokenizeRequest *request = t->request;
  const int threads = request->threads ? request->threads : omp_get_num_procs();
  (void)threads; /* read by the pragma, which builds without OpenMP ignore */
  Batch *b = alloc(sizeof *b);
  bool good = true;
  do {
    good = texts_next(&t->texts, b, why);
    /* The parts' order in the file is theirs here, whichever thread encodes them. */
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (int i = 0; i < b->n; i++)
      if (t->rows || t->labelled)
        encode_sample(&t->chats, &t->labels, &b->part[i]);
      else
        encode_document(t->tokenizer, request->field, &b->part[i]);
    for (int i = 0; i < b->n && good; i++)
      good = add_part(t, &b->part[i], why);
    const bool ended = b->n == 0;
    batch_free(b);
    tell_progress(t);
    if (ended)
      break;
  } while (good);
  texts_close(&t->texts);
  if (t->labelled)
    return labelled_close(t->labelled, good, why);
  if (t->rows)
    return rows_close(t->rows, good, &t->counts, why);
  if (good && t->files.n == 0)
    good = pd_refuse(why, "the files hold no text");
  return files_close(&t->files, good, why) && good;
}

static void tell(const Tokenizing *t) {
  const TokenizeRequest *request = t->request;
  const double seconds = seconds_now() - t->start;
  if (request->quiet)
    return;
  if (t->told > 0)
    fprintf(stderr, "\r\033[K");
  if (t->files.files > 1)
    printf("%s to %s: ", plain_path(output_path(request, 0)),
           plain_path(output_path(request, t->files.files - 1)));
  else
    printf("%s: ", plain_path(output_path(request, 0)));
  printf("%s token%s of %d bits, %s document%s, %.2f bytes a token", with_commas(t->files.n),
         t->files.n == 1 ? "" : "s", 8 * t->files.bytes, with_commas(t->documents), t->documents == 1 ? "" : "s",
         (double)t->bytes / (double)t->files.n);
  if (seconds > 1)
    printf(", %.2f million tokens/s", (double)(t->files.n - t->files.earlier) / seconds * 1e-6);
  printf("\n");
}

static void tell_samples(const Tokenizing *t) {
  const RowCounts *c = &t->counts;
  const TokenizeRequest *request = t->request;
  const double positions = (double)c->rows * (double)request->length;
  if (request->quiet)
    return;
  if (t->told > 0)
    fprintf(stderr, "\r\033[K");
  const int64_t left =
      c->samples - c->no_loss - c->beyond - (request->too_long == LONG_TRUNCATE ? 0 : c->too_long);
  printf("%s: %s sample%s in %s row%s of %lld positions, %.1f %% with loss, %.1f %% padding\n",
         plain_path(request->output), with_commas(left), left == 1 ? "" : "s", with_commas(c->rows),
         c->rows == 1 ? "" : "s", (long long)request->length, 100.0 * (double)c->counted / positions,
         100.0 * (1.0 - (double)c->tokens / positions));
  if (c->too_long)
    printf("%s of more than %lld tokens %s, the longest of %s\n", with_commas(c->too_long),
           (long long)request->length + 1, request->too_long == LONG_TRUNCATE ? "truncated" : "left out",
           with_commas(c->longest));
  if (c->beyond)
    printf("%s left out, because the template exceeds a limit\n", with_commas(c->beyond));
  if (c->no_loss)
    printf("%s without a token with loss left out\n", with_commas(c->no_loss));
}

/* ---- samples --------------------------------------------------------------------------------------- */

/* The token behind the last sample of a row: that of the folder, or else the one that ends texts, or 0. */
static int32_t padding(const Tokenizing *t) {
  const struct pd_value *name = pd_member(&t->chats.special, "pad_token");
  const int32_t pad = name ? pd_tokenizer_token(t->tokenizer, name->text.at) : -1;
  return pad >= 0 ? pad : t->end >= 0 ? t->end : 0;
}

/* Notes the first special token of pdc's own template that the tokenizer lacks: its text becomes other tokens. */
static void note_missing(const Tokenizing *t) {
  const TokenizeRequest *request = t->request;
  const char *const *token =
      request->template && request->tokenizer && !request->quiet ? pd_template_tokens(request->template) : NULL;
  while (token && *token && pd_tokenizer_token(t->tokenizer, *token) >= 0)
    token++;
  if (token && *token)
    fprintf(stderr, "pdc: note: the tokenizer has no token '%s', which --chat-template %s writes\n", *token,
            request->template);
}

static bool start_samples(Tokenizing *t, const struct pd_value *config, char *why) {
  const TokenizeRequest *request = t->request;
  t->chats = (ChatReader){.tokenizer = t->tokenizer,
                          .template = pd_template_open(request->tokenizer, request->template, config, why),
                          .special = pd_special_tokens(config, &t->config),
                          .loss_on = (LossOn)request->loss_on,
                          .field = request->field,
                          .end = t->end};
  if (*why)
    return false;
  note_missing(t);
  if (request->pack && t->end == END_NEEDED)
    return pd_refuse(why, "--pack needs a token between samples, and bytes have no end of text: --end 10 takes a "
                          "newline, --end none takes no token");
  return (t->rows = rows_open(request, padding(t), t->end < 0 ? NO_END : t->end, why)) != NULL;
}

/* The special token of the folder, or else the first of these texts that is a token; NULL: none. */
static const char *special_or(const struct pd_tokenizer *t, struct pd_arena *arena, const struct pd_value *config,
                              const char *name, const char *const texts[2]) {
  const char *given = pd_special_token(config, name, arena);
  for (int i = 0; i < 2 && !given; i++)
    given = pd_tokenizer_token(t, texts[i]) >= 0 ? texts[i] : NULL;
  return given;
}

static int32_t label_pad(const struct pd_tokenizer *t, struct pd_arena *arena, const struct pd_value *config) {
  static const char *const pads[] = {"[PAD]", "<pad>"};
  const char *pad = special_or(t, arena, config, "pad_token", pads);
  return pad ? pd_tokenizer_token(t, pad) : -1;
}

bool label_padding(const char *tokenizer, const struct pd_tokenizer *t, int32_t *pad, char *why) {
  struct pd_arena arena = {0};
  struct pd_value config;
  const bool good = !tokenizer || pd_tokenizer_config(tokenizer, &arena, &config, why);
  *pad = tokenizer && good ? label_pad(t, &arena, &config) : -1;
  pd_arena_free(&arena);
  return good;
}

/* The token that ends a text: of labelled texts the separator. NULL: the folder names none. */
static const char *end_of(Tokenizing *t, const struct pd_value *config) {
  static const char *const separators[] = {"[SEP]", "</s>"};
  return t->request->labels ? special_or(t->tokenizer, &t->config, config, "sep_token", separators)
                            : pd_special_token(config, "eos_token", &t->config);
}

/* RoBERTa's tokenizers have the same token for separators and ends. */
static bool start_labels(Tokenizing *t, const struct pd_value *config, char *why) {
  const TokenizeRequest *request = t->request;
  const int32_t pad = label_pad(t->tokenizer, &t->config, config);
  const char *separator = pd_special_token(config, "sep_token", &t->config),
             *eos = pd_special_token(config, "eos_token", &t->config);
  if (!request->tokenizer)
    return pd_refuse(why, "--labels needs --tokenizer DIR, a folder of Hugging Face");
  if (pad < 0)
    return pd_refuse(why, "the tokenizer names no token for padding, pad_token");
  if (t->end < 0 && request->end)
    return pd_refuse(
        why, "--labels needs a token that separates texts, which --end none leaves out. help: remove --end none");
  if (t->end < 0)
    return pd_refuse(why, "the tokenizer names no token that separates texts. help: name one with --end, such as "
                          "--end \"[SEP]\"");
  t->labels = (LabelReader){.tokenizer = t->tokenizer,
                            .field = request->field ? request->field : "text",
                            .separator = t->end,
                            .doubled = separator && eos && !strcmp(separator, eos),
                            .length = request->length,
                            .truncates = request->too_long == LONG_TRUNCATE};
  return (t->labelled = labelled_open(request, pad, why)) != NULL;
}

/* Continues an earlier call, if there is one. */
static bool resume(Tokenizing *t, char *why) {
  const Place *place = &t->files.place;
  if (!resume_read(&t->files, why))
    return false;
  if (!t->files.earlier)
    return true;
  t->bytes = place->text, t->documents = place->documents, t->in_document = place->in_document;
  return texts_resume(&t->texts, place, why);
}

bool tokenize(const TokenizeRequest *request) {
  char why[PD_WHY] = "";
  Tokenizing t = {.request = request, .start = seconds_now(), .files.request = request};
  struct pd_value config;
  signals_watch(&t.files);
  bool good = pd_tokenizer_config(request->tokenizer, &t.config, &config, why) &&
              (t.tokenizer = tokenizer_of(request->tokenizer, why)) != NULL &&
              output_may_be_written(request, why) &&
              find_end(request, t.tokenizer, end_of(&t, &config), &t.end, why) &&
              texts_open(&t.texts, request, t.tokenizer, why) &&
              (!request->length || (request->labels ? start_labels : start_samples)(&t, &config, why));
  if (good) {
    t.files.end = t.end;
    t.files.bytes = pd_tokenizer_size(t.tokenizer) <= 65536 ? 2 : 4;
    good = (!request->resume || resume(&t, why)) && write_all(&t, why);
  }
  pd_template_close(t.chats.template);
  pd_tokenizer_close(t.tokenizer);
  pd_arena_free(&t.config);
  signals_restore();
  if (!good) {
    error_at(NO_SPAN, "PD0660", "%s", why);
    return false;
  }
  if (t.rows)
    tell_samples(&t);
  else if (!t.labelled)
    tell(&t);
  return true;
}
