/* The prompts: read and encoded by rank 0, and sent to all ranks. */
#include "generate/internal.h"
#include "messages/messages.h"
#include "shared/named_pipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pd_tokenizer *pd_tokenizer;
char *pd_end_tokens;
struct pd_request **pd_requests;
int64_t pd_n_requests;

void *pd_own(void *old, size_t bytes) {
  void *new = realloc(old, bytes ? bytes : 1);
  if (!new) pd_fail("out of memory: cannot get %zu bytes", bytes);
  return new;
}

/* With an encoder, the sequence begins with its first token, and ends at an end token, as the targets of training do. */
static void take_source(struct pd_request *r) {
  r->source = r->tokens, r->n_source = r->n_prompt;
  r->n_prompt = r->n_known = r->n_result = 1;
  r->tokens = pd_own(NULL, sizeof *r->tokens);
  r->tokens[0] = (int32_t)pd_generated()->start;
  r->turns = true;
}

struct pd_request *pd_request_add(int32_t *tokens, int64_t n) {
  struct pd_request *r = pd_own(NULL, sizeof *r);
  *r = (struct pd_request){.number = pd_n_requests, .n_prompt = n, .n_known = n, .n_result = n, .tokens = tokens};
  if (pd_reads_source()) take_source(r);
  if (!(pd_n_requests & (pd_n_requests - 1))) /* doubles the room */
    pd_requests = pd_own(pd_requests, sizeof(*pd_requests) * (size_t)(2 * pd_n_requests + 2));
  return pd_requests[pd_n_requests++] = r;
}

struct pd_request *pd_request_add_features(float *features, int32_t *tokens, int64_t n) {
  tokens = pd_own(tokens, sizeof *tokens * (size_t)(n + 1));
  memmove(tokens + 1, tokens, sizeof *tokens * (size_t)n);
  tokens[0] = (int32_t)pd_generated()->start;
  struct pd_request *r = pd_request_add(tokens, n + 1);
  r->features = features;
  r->turns = true;
  return r;
}

bool pd_prompt_fits(const int32_t *tokens, int64_t n, const char *what, char *why) {
  const struct pd_generation *g = pd_generated();
  int64_t context = pd_most_prompt();
  if (!n)
    return pd_refuse(why, "%s is empty%s", what,
                     pd_options.prompts ? "" : ". help: give --prompt TEXT, or text on standard input");
  if (pd_reads_source() && (n > context || (n < context && g->pad < 0)))
    return pd_refuse(
        why,
        n > context
            ? "%s has %lld tokens, but '%s' of the model has %lld. help: shorten it, or build with a longer '%s'"
            : "%s has %lld tokens, but '%s' of the model has %lld, and nothing in the model tells padding. help: use padding_mask or an input 'lengths(%s)'",
        what, (long long)n, pd.stage->inputs[g->source].name, (long long)context,
        pd.stage->inputs[g->source].name);
  if (pd_padding_alone(g, tokens, n))
    return pd_refuse(why, "%s has only the padding token %lld, so that the encoder sees nothing", what,
                     (long long)g->pad);
  if (n > context && !pd_options.window)
    return pd_refuse(
        why,
        "%s has %lld tokens, but the model's context has %lld. help: drop the beginning of the prompt "
        "with --window",
        what, (long long)n, (long long)context);
  return true;
}

/* ---- one prompt ------------------------------------------------------------------------------------- */

static bool read_numbers(const char *text, int32_t **tokens, int64_t *n, char *why) {
  *tokens = pd_own(NULL, sizeof **tokens * (strlen(text) / 2 + 1));
  for (const char *at = text;;) {
    char *end;
    long long token = strtoll(at, &end, 10);
    if (end == at || (*end && *end != ',') || token < 0 || token >= pd_prompt_classes())
      return pd_refuse(why, "--prompt-tokens needs numbers from 0 to %lld, separated by commas, not '%s'",
                       (long long)pd_prompt_classes() - 1, at);
    (*tokens)[(*n)++] = (int32_t)token;
    if (!*end) return true;
    at = end + 1;
  }
}

/* Reads a whole file, or standard input; limited, because a device may be endless. */
static bool read_stream(const char *option, const char *path, char **text, size_t *bytes, char *why) {
  enum { MOST = 256 << 20 };
  if (path && pd_is_named_pipe(path))
    return pd_refuse(why, "cannot read '%s': it is a named pipe. help: pass a command's output to %s /dev/stdin",
                     path, option);
  FILE *in = path ? fopen(path, "rb") : stdin;
  size_t room = 0;
  if (!in) return pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  for (size_t got = 1; got && *bytes <= MOST; *bytes += got) {
    if (*bytes + 4096 > room) {
      room = 2 * room + 8192;
      *text = pd_own(*text, room);
    }
    got = fread(*text + *bytes, 1, 4096, in);
  }
  bool ok = !ferror(in) || pd_refuse(why, "cannot read %s%s%s: %s", path ? "'" : "",
                                     path ? path : "standard input", path ? "'" : "", strerror(errno));
  if (path) fclose(in);
  return ok && (*bytes <= MOST || pd_refuse(why, "the prompt in %s%s%s has more than %d MiB", path ? "'" : "",
                                            path ? path : "standard input", path ? "'" : "", MOST >> 20));
}

/* The text's tokens behind the tokenizer's prefix; a source is a whole text, with its suffix. */
static bool encode(const char *text, size_t bytes, int32_t **tokens, int64_t *n, char *why) {
  int32_t *encoded;
  const int32_t *prefix, *suffix;
  const int n_prefix = pd_tokenizer_prefix(pd_tokenizer, &prefix),
            n_suffix = pd_reads_source() ? pd_tokenizer_suffix(pd_tokenizer, &suffix) : 0;
  if (n_suffix < 0) return pd_refuse(why, "the tokenizer's rule for the tokens behind a text is not supported");
  int64_t n_text = pd_tokenizer_encode(pd_tokenizer, text, bytes, &encoded, why);
  if (n_text < 0) return false;
  *n = n_prefix + n_text + n_suffix;
  *tokens = pd_own(NULL, sizeof **tokens * (size_t)*n);
  memcpy(*tokens, prefix, sizeof **tokens * (size_t)n_prefix);
  memcpy(*tokens + n_prefix, encoded, sizeof **tokens * (size_t)n_text);
  if (n_suffix) memcpy(*tokens + n_prefix + n_text, suffix, sizeof **tokens * (size_t)n_suffix);
  free(encoded);
  return true;
}

/* One prompt is continued as often as the program has samples. */
static bool read_prompt(char *why) {
  const struct pd_options *o = &pd_options;
  char *text = NULL;
  size_t bytes = o->prompt ? strlen(o->prompt) : 0;
  int32_t *tokens = NULL;
  int64_t n = 0;
  if (o->prompt_tokens) {
    if (!read_numbers(o->prompt_tokens, &tokens, &n, why)) return false;
  } else {
    if (!o->prompt && !read_stream("--prompt-file", o->prompt_file, &text, &bytes, why)) return false;
    bool encoded = encode(o->prompt ? o->prompt : text, bytes, &tokens, &n, why);
    free(text);
    if (!encoded) return false;
  }
  if (!pd_prompt_fits(tokens, n, "the prompt", why)) return false;
  for (int64_t b = 0; b < pd_generated()->samples; b++)
    pd_request_add(memcpy(pd_own(NULL, sizeof *tokens * (size_t)n), tokens, sizeof *tokens * (size_t)n), n);
  free(tokens);
  return true;
}

/* With --features: the decoder's first tokens, none without --prompt-tokens. */
static bool read_features(char *why) {
  const struct pd_options *o = &pd_options;
  int32_t *tokens = NULL;
  int64_t n = 0;
  const int64_t most = pd_generated()->context - 1;
  bool ok = !o->prompt_tokens || read_numbers(o->prompt_tokens, &tokens, &n, why);
  if (ok && n > most)
    ok = pd_refuse(why, "--prompt-tokens has %lld tokens, but behind the first token the context has %lld",
                   (long long)n, (long long)most);
  struct pd_features all = {0};
  ok = ok && pd_features_read(o->features, &all, why);
  const int64_t each = pd.stage->inputs[pd_generated()->source].elements;
  for (int64_t i = 0; ok && i < all.n; i++) {
    float *x = pd_own(NULL, sizeof *x * (size_t)each);
    int32_t *first = pd_own(NULL, sizeof *first * (size_t)(n + 1));
    if (n) memcpy(first, tokens, sizeof *first * (size_t)n);
    pd_request_add_features(memcpy(x, all.at + i * each, sizeof *x * (size_t)each), first, n);
  }
  free(all.at);
  free(tokens);
  return ok;
}

/* ---- many prompts -------------------------------------------------------------------------------------- */

static bool take_tokens(const struct pd_value *list, int32_t **tokens, int64_t *n, char *why) {
  if (list->kind != PD_LIST) return pd_refuse(why, "'tokens' is not a list of numbers");
  *tokens = pd_own(NULL, sizeof **tokens * (size_t)list->list->n);
  for (; *n < list->list->n; ++*n) {
    const struct pd_value *v = &list->list->at[*n];
    if (v->kind != PD_INT || v->whole < 0 || v->whole >= pd_prompt_classes())
      return pd_refuse(why, "'tokens' has an element that is not a number from 0 to %lld",
                       (long long)pd_prompt_classes() - 1);
    (*tokens)[*n] = (int32_t)v->whole;
  }
  return true;
}

static bool take_messages(const struct pd_value *line, const struct pd_value *messages, int32_t **tokens,
                          int64_t *n, char *why) {
  if (messages->kind != PD_LIST || !messages->list->n)
    return pd_refuse(why, "'messages' is not a list of messages");
  for (int64_t i = 0; i < messages->list->n; i++) {
    const struct pd_value *role = pd_member(&messages->list->at[i], "role");
    if (!role || role->kind != PD_TEXT)
      return pd_refuse(why, "message %lld of 'messages' has no text 'role'", (long long)i + 1);
  }
  return pd_chat_open(why) && (*n = pd_chat_tokens(messages, pd_member(line, "tools"), tokens, why)) >= 0;
}

/* As JSON, malloc'd: a text or a whole number. */
static bool take_id(const struct pd_value *id, char **to, char *why) {
  if (!id || id->kind == PD_NONE) return true;
  if (id->kind != PD_INT && id->kind != PD_TEXT)
    return pd_refuse(why, "'id' is neither a text nor a whole number");
  size_t room = id->kind == PD_TEXT ? 6 * id->text.n + 3 : 32, n = 0;
  *to = pd_own(NULL, room);
  if (id->kind == PD_INT) {
    snprintf(*to, room, "%lld", (long long)id->whole);
    return true;
  }
  (*to)[n++] = '"';
  for (size_t i = 0; i < id->text.n; i++) {
    unsigned char c = (unsigned char)id->text.at[i];
    if (c < 0x20 || c == '"' || c == '\\')
      n += (size_t)snprintf(*to + n, room - n, "\\u%04x", c);
    else
      (*to)[n++] = (char)c;
  }
  (*to)[n++] = '"', (*to)[n] = 0;
  return true;
}

/* An object with prompt, messages or tokens, or a text. */
/* Members that other programs read as settings of a prompt; other members are notes of the file. */
static bool has_no_settings(const struct pd_value *v, char *why) {
  static const char *const settings[][2] = {{"temperature", "--temperature"},
                                            {"top_k", "--top-k"},
                                            {"top_p", "--top-p"},
                                            {"seed", "--seed"},
                                            {"max_tokens", "--tokens"},
                                            {"max_new_tokens", "--tokens"},
                                            {"logprobs", "--logprobs"},
                                            {"stop", "--stop"}};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
    if (pd_member(v, settings[i][0]))
      return pd_refuse(why, "the member '%s' would have no effect. help: give %s for all prompts", settings[i][0],
                       settings[i][1]);
  return true;
}

static bool read_json_line(struct pd_arena *a, const char *line, size_t bytes, char *why) {
  struct pd_value v;
  int32_t *tokens = NULL;
  int64_t n = 0;
  char *id = NULL;
  if (!pd_json_parse(a, line, bytes, &v, why) || !has_no_settings(&v, why)) return false;
  const struct pd_value *prompt = v.kind == PD_TEXT ? &v : pd_member(&v, "prompt");
  const struct pd_value *messages = pd_member(&v, "messages"), *numbers = pd_member(&v, "tokens");
  if ((prompt != NULL) + (messages != NULL) + (numbers != NULL) != 1)
    return pd_refuse(why,
                     "it needs exactly one of the members 'prompt', 'messages' and 'tokens', or to be a text");
  if (prompt && prompt->kind != PD_TEXT) return pd_refuse(why, "'prompt' is not a text");
  if (!numbers && !pd_tokenizer) return pd_refuse(why, "a text needs --tokenizer FILE...");
  bool ok = prompt     ? encode(prompt->text.at, prompt->text.n, &tokens, &n, why)
            : messages ? take_messages(&v, messages, &tokens, &n, why)
                       : take_tokens(numbers, &tokens, &n, why);
  if (!ok || !take_id(pd_member(&v, "id"), &id, why) || !pd_prompt_fits(tokens, n, "the prompt", why))
    return false;
  struct pd_request *r = pd_request_add(tokens, n);
  r->turns |= messages != NULL;
  r->id = id;
  return true;
}

static bool is_json(const char *path) {
  size_t n = strlen(path);
  return n >= 6 && !strcmp(path + n - 6, ".jsonl");
}

static bool is_blank(const char *line, size_t bytes) {
  size_t i = 0;
  while (i < bytes && strchr(" \t\r", line[i]) && line[i]) i++;
  return i == bytes;
}

/* A line is a prompt; blank lines have none. */
static bool read_lines(char *why) {
  const char *path = pd_options.prompts;
  char *text = NULL, cause[PD_WHY] = "";
  size_t bytes = 0;
  int64_t number = 0;
  struct pd_arena arena = {0};
  bool json = is_json(path), ok = read_stream("--prompts", path, &text, &bytes, why);
  for (const char *line = text, *end = text + bytes, *next; ok && line < end; line = next) {
    const char *newline = memchr(line, '\n', (size_t)(end - line));
    size_t n = (size_t)((newline ? newline : end) - line);
    next = newline ? newline + 1 : end;
    number++;
    if (!json && n && line[n - 1] == '\r') n--;
    if (is_blank(line, n)) continue;
    int32_t *tokens;
    int64_t n_tokens;
    ok = json ? read_json_line(&arena, line, n, cause)
              : encode(line, n, &tokens, &n_tokens, cause) &&
                    pd_prompt_fits(tokens, n_tokens, "the prompt", cause) && pd_request_add(tokens, n_tokens);
    pd_arena_free(&arena);
    if (!ok) pd_refuse(why, "line %lld of '%s': %s", (long long)number, path, cause);
  }
  free(text);
  return ok && (pd_n_requests || pd_refuse(why, "'%s' has no prompt", path));
}

/* ---- start --------------------------------------------------------------------------------------------- */

static bool open_tokenizer(char *why) {
  const struct pd_options *o = &pd_options;
  bool json = o->prompts && is_json(o->prompts); /* may have token numbers alone */
  bool needed = o->output == PD_PRINT_TEXT || !(o->prompt_tokens || o->features || json);
  bool bytes = !o->n_tokenizer && pd_generated()->classes == 256;
  if (o->chat && !o->n_tokenizer)
    return pd_refuse(why, "--chat needs --tokenizer FILE..., in the folder of the model");
  if (needed && !o->n_tokenizer && !bytes)
    return pd_refuse(why,
                     "the model has %lld tokens, more than the 256 bytes. help: give --tokenizer FILE..., or use "
                     "--prompt-tokens and --output tokens",
                     (long long)pd_generated()->classes);
  if (!needed && !o->n_tokenizer && !(bytes && o->output == PD_PRINT_JSON)) return true;
  pd_tokenizer = pd_tokenizer_open(o->tokenizer, o->n_tokenizer, pd_generated()->classes, why);
  return pd_tokenizer != NULL;
}

bool pd_generation_read(char *why) {
  const struct pd_options *o = &pd_options;
  if (pd.rank) return true;
  if (!open_tokenizer(why)) return false;
  if (o->stop && !pd_tokenizer)
    return pd_refuse(why, "--stop needs --tokenizer, which defines the end-of-text token");
  if (o->features) return read_features(why);
  return o->chat ? pd_chat_open(why) : o->prompts ? read_lines(why) : read_prompt(why);
}

/* ---- to all ranks ---------------------------------------------------------------------------------------- */

void pd_broadcast(void *what, size_t bytes, int root, const char *text) {
  MPI_Request request;
  MPI_Ibcast(what, (int)bytes, MPI_BYTE, root, pd_comm_control, &request);
  pd_wait(1, &request, text, -1, NULL, -1);
}

void pd_requests_share(int64_t first) {
  static const char what[] = "the prompt";
  int64_t n = pd_n_requests, header[2];
  pd_broadcast(&n, sizeof n, 0, what);
  for (int64_t i = first; i < n; i++) {
    if (!pd.rank) header[0] = pd_n_given(pd_requests[i]), header[1] = pd_requests[i]->turns;
    pd_broadcast(header, sizeof header, 0, what);
    if (pd.rank)
      pd_request_add(pd_own(NULL, sizeof(int32_t) * (size_t)header[0]), header[0])->turns = header[1] != 0;
    struct pd_request *r = pd_requests[i];
    pd_broadcast(r->source ? r->source : r->tokens, sizeof(int32_t) * (size_t)header[0], 0, what);
    if (!pd_reads_features()) continue;
    const size_t bytes = sizeof(float) * (size_t)pd.stage->inputs[pd_generated()->source].elements;
    if (pd.rank) r->features = pd_own(NULL, bytes);
    pd_broadcast(r->features, bytes, 0, what);
  }
}

void pd_request_begin(struct pd_request *r) {
  const struct pd_options *o = &pd_options;
  int64_t context = pd_generated()->context;
  r->capacity = r->n_prompt + o->tokens;
  if (!o->window && r->capacity > context + 1) r->capacity = context + 1;
  r->tokens = pd_own(r->tokens, sizeof *r->tokens * (size_t)r->capacity);
  if (o->logprobs) r->logprobs = pd_own(NULL, sizeof *r->logprobs * (size_t)(r->capacity - r->n_prompt));
  if (r->capacity == r->n_prompt) r->end = PD_AT_LENGTH;
}

void pd_generation_share(void) {
  int64_t classes = pd_generated()->classes;
  pd_end_tokens = pd_allocate((size_t)classes);
  for (int64_t i = 0; pd_tokenizer && i < classes; i++)
    pd_end_tokens[i] = pd_tokenizer_ends(pd_tokenizer, (int32_t)i);
  pd_broadcast(pd_end_tokens, (size_t)classes, 0, "the tokenizer's end tokens");
  pd_requests_share(0);
}
