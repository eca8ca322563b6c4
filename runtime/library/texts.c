/* Texts of generators: an instance's tokenizer, and generation from text to text. */
#define _GNU_SOURCE /* memmem */
#include "library/library.h"
#include "tokens/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the tokenizer -------------------------------------------------------------------------------------- */

static int64_t classes_of(const struct pd_model *m) {
  const struct pd_generation *g = m->generation;
  return g->encoder ? m->inputs[g->source].classes : g->classes;
}

static bool exists(char *to, const char *folder, const char *name) {
  struct stat st;
  return snprintf(to, PATH_MAX, "%s/%s", folder, name) < PATH_MAX && !stat(to, &st);
}

struct opening {
  const struct pd_model *m;
  const char *path;
  struct pd_tokenizer *made;
  char *why;
};

/* The tokenizer.json of a folder, or GPT-2's two files. */
static void open_it(void *of) {
  struct opening *o = of;
  char first[PATH_MAX], second[PATH_MAX], *paths[2] = {first, second};
  struct stat st;
  int n = 1;
  if (!stat(o->path, &st) && S_ISDIR(st.st_mode)) {
    if (!exists(first, o->path, "tokenizer.json"))
      n = exists(first, o->path, "vocab.json") && exists(second, o->path, "merges.txt") ? 2 : 0;
  } else {
    paths[0] = (char *)o->path;
  }
  if (n)
    o->made = pd_tokenizer_open(paths, n, classes_of(o->m), o->why);
  else
    pd_refuse(o->why, "the folder '%.900s' has neither tokenizer.json nor vocab.json with merges.txt", o->path);
}

int pd_instance_tokenizer(struct pd_instance *x, const char *path, char *why) {
  char unseen[PD_WHY];
  why = PD_WHY_OR(why, unseen);
  if (!pd_instance_given(x, path, why)) return -1;
  struct opening o = {x->model, path, NULL, why};
  if (x->busy) {
    pd_refuse(o.why, "%s: this instance is generating", x->model->name);
    return -1;
  }
  if (!pd_instance_protect(x, open_it, &o, o.why) || !o.made) return -1;
  pd_tokenizer_close(x->tokenizer);
  x->tokenizer = o.made;
  return 0;
}

static bool has_tokenizer(const struct pd_instance *x, char *why) {
  return x->tokenizer || pd_refuse(why, "%s has no tokenizer: open one first", x->model->name);
}

/* ---- texts to tokens, and back ----------------------------------------------------------------------------- */

struct encoding {
  const struct pd_instance *x;
  const char *text;
  size_t bytes;
  int32_t *tokens; /* malloc'd */
  int64_t n;       /* -1: failed */
  char *why;
};

/* With the tokens before a text; a source is a whole text, and gets those behind it. */
static void encode_it(void *of) {
  struct encoding *e = of;
  const struct pd_tokenizer *t = e->x->tokenizer;
  const int32_t *prefix, *suffix = NULL;
  int32_t *encoded;
  const int before = pd_tokenizer_prefix(t, &prefix);
  const int behind = e->x->model->generation->encoder ? pd_tokenizer_suffix(t, &suffix) : 0;
  if (behind < 0) {
    pd_refuse(e->why, "%s: the tokenizer's rule for the tokens behind a text is not supported", e->x->model->name);
    return;
  }
  const int64_t n = pd_tokenizer_encode(t, e->text, e->bytes, &encoded, e->why);
  if (n < 0) return;
  e->tokens = malloc(sizeof *e->tokens * (size_t)(before + n + behind + 1));
  if (!e->tokens) {
    free(encoded);
    pd_refuse(e->why, "%s: out of memory", e->x->model->name);
    return;
  }
  memcpy(e->tokens, prefix, sizeof *prefix * (size_t)before);
  memcpy(e->tokens + before, encoded, sizeof *encoded * (size_t)n);
  if (behind) memcpy(e->tokens + before + n, suffix, sizeof *suffix * (size_t)behind);
  free(encoded);
  e->n = before + n + behind;
}

static bool encode(struct encoding *e) {
  return has_tokenizer(e->x, e->why) && pd_instance_protect(e->x, encode_it, e, e->why) && e->n >= 0;
}

int64_t pd_instance_encode(const struct pd_instance *x, const char *text, size_t bytes, int32_t *tokens,
                           int64_t most, char *why) {
  char unseen[PD_WHY];
  struct encoding e = {.x = x, .text = text, .bytes = bytes, .n = -1, .why = PD_WHY_OR(why, unseen)};
  if (!pd_instance_given(x, bytes ? text : "", e.why) || !encode(&e)) return -1;
  if (most > 0) memcpy(tokens, e.tokens, sizeof *tokens * (size_t)(e.n < most ? e.n : most));
  free(e.tokens);
  return e.n;
}

/* Text that grows. */
struct text {
  char *at;
  size_t n, room;
};

static bool append(struct text *t, const char *bytes, size_t n) {
  if (t->n + n + 1 > t->room) {
    const size_t room = 2 * (t->n + n) + 64;
    char *grown = realloc(t->at, room);
    if (!grown) return false;
    t->at = grown, t->room = room;
  }
  memcpy(t->at + t->n, bytes, n);
  t->n += n;
  t->at[t->n] = 0;
  return true;
}

struct decoding {
  const struct pd_instance *x;
  const int32_t *tokens;
  int64_t n;
  struct text text;
  bool good;
};

static void decode_it(void *of) {
  struct decoding *d = of;
  struct pd_decoding state = {{0}, 0, false, NULL, 0};
  const char *text;
  d->good = true;
  for (int64_t i = 0; i < d->n && d->good; i++) {
    const size_t bytes = pd_tokenizer_decode(d->x->tokenizer, &state, d->tokens[i], &text);
    d->good = append(&d->text, text, bytes);
  }
  const size_t bytes = pd_tokenizer_decode_end(&state, &text);
  d->good = d->good && append(&d->text, text, bytes);
}

int64_t pd_instance_decode(const struct pd_instance *x, const int32_t *tokens, int64_t n, char *text, size_t room,
                           char *why) {
  char unseen[PD_WHY];
  struct decoding d = {.x = x, .tokens = tokens, .n = n};
  why = PD_WHY_OR(why, unseen);
  if (!pd_instance_given(x, n > 0 ? (const void *)tokens : "", why) || !has_tokenizer(x, why)) return -1;
  for (int64_t i = 0; i < n; i++)
    if (tokens[i] < 0 || tokens[i] >= x->model->generation->classes) {
      pd_refuse(why, "%s: token %lld is %d, which is not 0 to %lld", x->model->name, (long long)i, tokens[i],
                (long long)x->model->generation->classes - 1);
      return -1;
    }
  const bool good = pd_instance_protect(x, decode_it, &d, why) &&
                    (d.good || pd_refuse(why, "%s: out of memory", x->model->name));
  if (good && room) {
    const size_t some = d.text.n < room ? d.text.n : room - 1;
    memcpy(text, d.text.at, some);
    text[some] = 0;
  }
  free(d.text.at);
  return good ? (int64_t)d.text.n : -1;
}

/* ---- from text to text ----------------------------------------------------------------------------------- */

/* A generation under way. Text waits while it may be the beginning of a stop. */
struct writing {
  struct pd_instance *x;
  const char *const *stops; /* NULL: none */
  pd_take_text *take;
  void *context;
  struct pd_decoding state;
  struct text text;
  bool failed, ended, stopped; /* memory; by the caller; at an end token or a stop */
};

/* The first stop in the text; NULL: none. */
static const char *find_stop(const struct writing *w) {
  const char *first = NULL;
  for (const char *const *s = w->stops; s && *s; s++) {
    const char *found = **s && w->text.n ? memmem(w->text.at, w->text.n, *s, strlen(*s)) : NULL;
    if (found && (!first || found < first)) first = found;
  }
  return first;
}

/* Bytes at the end that may begin a stop. */
static size_t waiting(const struct writing *w) {
  size_t most = 0;
  for (const char *const *s = w->stops; s && *s; s++) {
    size_t n = **s ? strlen(*s) - 1 : 0;
    for (n = n < w->text.n ? n : w->text.n; n > most; n--)
      if (!memcmp(w->text.at + w->text.n - n, *s, n)) most = n;
  }
  return most;
}

static void give(struct writing *w, size_t n) {
  if (!n) return;
  if (w->take && w->take(w->context, w->text.at, n)) w->ended = true;
  w->text.n -= n;
  memmove(w->text.at, w->text.at + n, w->text.n);
}

static int write_token(void *of, int32_t token) {
  struct writing *w = of;
  const char *text;
  if (pd_tokenizer_ends(w->x->tokenizer, token)) return w->stopped = true;
  const size_t bytes = pd_tokenizer_decode(w->x->tokenizer, &w->state, token, &text);
  if (!append(&w->text, text, bytes)) return w->failed = true;
  const char *stop = find_stop(w);
  if (stop) {
    w->text.n = (size_t)(stop - w->text.at);
    return w->stopped = true;
  }
  give(w, w->text.n - waiting(w));
  return w->ended;
}

/* The text of a token may depend on those before it. */
static void begin_text(void *of) {
  struct writing *w = ((void **)of)[0];
  const struct encoding *e = ((void **)of)[1];
  const char *text;
  for (int64_t i = 0; i < e->n && !w->x->model->generation->encoder; i++)
    pd_tokenizer_decode(w->x->tokenizer, &w->state, e->tokens[i], &text);
}

int64_t pd_instance_generate_text(struct pd_instance *x, const char *prompt, size_t bytes, int64_t most,
                                  const char *const *stops, const struct pd_drawing *how, pd_take_text *take,
                                  void *context, char *why) {
  char unseen[PD_WHY];
  struct encoding e = {.x = x, .text = prompt, .bytes = bytes, .n = -1, .why = PD_WHY_OR(why, unseen)};
  struct writing w = {.x = x, .stops = stops, .take = take, .context = context};
  if (!pd_instance_given(x, bytes ? prompt : "", e.why)) return -1;
  const char *name = x->model->name, *text;
  int64_t n = -1;
  if (encode(&e) && pd_instance_protect(x, begin_text, (void *[]){&w, &e}, e.why))
    n = pd_instance_generate(x, e.tokens, e.n, most, how, write_token, &w, e.why); /* may free the instance */
  const size_t rest = pd_tokenizer_decode_end(&w.state, &text);
  if (n >= 0 && !w.failed && !w.ended && !w.stopped) w.failed = !append(&w.text, text, rest);
  if (n >= 0 && !w.failed && !w.ended) give(&w, w.text.n);
  if (n >= 0 && w.failed) {
    pd_refuse(e.why, "%s: out of memory", name);
    n = -1;
  }
  free(w.text.at);
  free(e.tokens);
  return n;
}
