/* Text generation: the prompt, the input of each step, sampled tokens and output. All samples have the same prompt
 * and position. Inputs follow from numbers that all ranks know, so the prompt streams through the stages. The rank
 * with the logits broadcasts a sampled token, for which all ranks wait. Positions count within a window that
 * starts at token 0; with --window it moves by half of the context whenever the context is full. */
#include "generate/generate.h"
#include "messages/messages.h"

#include "generate/sampling.h"
#include "tokens/tokenizer.h"
#include "shared/named_pipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pd_tokenizer *tokenizer; /* on rank 0; NULL: tokens are numbers in input and output */
static int32_t *prompt, *all;          /* all: [sample][capacity] */
static int64_t n_prompt, capacity;     /* capacity: tokens at the end */
static char *ends;                     /* by token: --stop ends a sample at it; NULL: none */

static int64_t known;       /* tokens of each sample so far */
static int64_t fed, window; /* this step's last token, and the token at position 0 */
static int32_t *drawn;      /* by sample: the token that follows */
static bool draws;          /* this step's logits are for an unknown token */
static double started, prompted;

static const struct pd_generation *generation(void) { return pd.stage->generation; }
static int64_t samples(void) { return pd.stage->microbatch; }
static bool cached(void) { return generation()->position >= 0; }
static int32_t *tokens_of(int64_t sample) { return all + sample * capacity; }

/* ---- the prompt ------------------------------------------------------------------------------------- */

static bool read_numbers(const char *text, char *why) {
  prompt = pd_allocate(sizeof *prompt * (strlen(text) / 2 + 1));
  for (const char *at = text;;) {
    char *end;
    long long token = strtoll(at, &end, 10);
    if (end == at || (*end && *end != ',') || token < 0 || token >= generation()->classes)
      return pd_refuse(why, "--prompt-tokens needs numbers from 0 to %lld, separated by commas, not '%s'",
                       (long long)generation()->classes - 1, at);
    prompt[n_prompt++] = (int32_t)token;
    if (!*end) return true;
    at = end + 1;
  }
}

/* Reads a whole file, or standard input; limited, because a device may be endless. */
static bool read_stream(const char *path, char **text, size_t *bytes, char *why) {
  enum { MOST = 256 << 20 };
  if (path && pd_is_named_pipe(path))
    return pd_refuse(
        why, "cannot read '%s': it is a named pipe. help: pass a command's output to --prompt-file /dev/stdin",
        path);
  FILE *in = path ? fopen(path, "rb") : stdin;
  size_t room = 0;
  if (!in) return pd_refuse(why, "cannot read '%s': %s", path, strerror(errno));
  for (size_t got = 1; got && *bytes <= MOST; *bytes += got) {
    if (*bytes + 4096 > room) {
      room = 2 * room + 8192;
      *text = realloc(*text, room);
      if (!*text) pd_fail("out of memory: cannot get %zu bytes", room);
    }
    got = fread(*text + *bytes, 1, 4096, in);
  }
  bool ok = !ferror(in) || pd_refuse(why, "cannot read %s%s%s: %s", path ? "'" : "",
                                     path ? path : "standard input", path ? "'" : "", strerror(errno));
  if (path) fclose(in);
  return ok && (*bytes <= MOST || pd_refuse(why, "the prompt in %s%s%s has more than %d MiB", path ? "'" : "",
                                            path ? path : "standard input", path ? "'" : "", MOST >> 20));
}

static bool encode_prompt(char *why) {
  const struct pd_options *o = &pd_options;
  char *text = NULL;
  size_t bytes = o->prompt ? strlen(o->prompt) : 0;
  if (!o->prompt && !read_stream(o->prompt_file, &text, &bytes, why)) return false;
  int32_t *encoded;
  const int32_t *prefix;
  int n_prefix = pd_tokenizer_prefix(tokenizer, &prefix);
  int64_t n = pd_tokenizer_encode(tokenizer, o->prompt ? o->prompt : text, bytes, &encoded, why);
  free(text);
  if (n < 0) return false;
  prompt = pd_allocate(sizeof *prompt * (size_t)(n_prefix + n));
  memcpy(prompt, prefix, sizeof *prompt * (size_t)n_prefix);
  memcpy(prompt + n_prefix, encoded, sizeof *prompt * (size_t)n);
  n_prompt = n_prefix + n;
  free(encoded);
  return true;
}

static bool check_prompt(char *why) {
  int64_t context = generation()->context;
  if (!n_prompt) return pd_refuse(why, "the prompt is empty. help: give --prompt TEXT, or text on standard input");
  if (n_prompt > context && !pd_options.window)
    return pd_refuse(
        why,
        "the prompt has %lld tokens, but the model's context has %lld. help: drop the beginning of the prompt "
        "with --window",
        (long long)n_prompt, (long long)context);
  return true;
}

bool pd_generation_read(char *why) {
  const struct pd_options *o = &pd_options;
  bool text = !o->prompt_tokens || !o->token_numbers;
  if (pd.rank) return true;
  if (text && !o->n_tokenizer && generation()->classes != 256)
    return pd_refuse(why,
                     "the model has %lld tokens, more than the 256 bytes. help: give --tokenizer FILE..., or use "
                     "--prompt-tokens and --output tokens",
                     (long long)generation()->classes);
  if (text && !(tokenizer = pd_tokenizer_open(o->tokenizer, o->n_tokenizer, generation()->classes, why)))
    return false;
  if (o->stop && !tokenizer)
    return pd_refuse(why, "--stop needs --tokenizer, which defines the end-of-text token");
  return (o->prompt_tokens ? read_numbers(o->prompt_tokens, why) : encode_prompt(why)) && check_prompt(why);
}

static void broadcast(void *what, size_t bytes, int root, const char *text) {
  MPI_Request request;
  MPI_Ibcast(what, (int)bytes, MPI_BYTE, root, pd_comm_control, &request);
  pd_wait(1, &request, text, -1, NULL, -1);
}

void pd_generation_share(void) {
  static const char what[] = "the prompt";
  const struct pd_options *o = &pd_options;
  broadcast(&n_prompt, sizeof n_prompt, 0, what);
  if (pd.rank) prompt = pd_allocate(sizeof *prompt * (size_t)n_prompt);
  broadcast(prompt, sizeof *prompt * (size_t)n_prompt, 0, what);
  if (o->stop) {
    ends = pd_allocate((size_t)generation()->classes);
    for (int64_t i = 0; tokenizer && i < generation()->classes; i++)
      ends[i] = pd_tokenizer_ends(tokenizer, (int32_t)i);
    broadcast(ends, (size_t)generation()->classes, 0, what);
  }
  capacity = n_prompt + o->tokens;
  if (!o->window && capacity > generation()->context + 1) capacity = generation()->context + 1;
  all = pd_allocate(sizeof *all * (size_t)(samples() * capacity));
  drawn = pd_allocate(sizeof *drawn * (size_t)samples());
  for (int64_t b = 0; b < samples(); b++) memcpy(tokens_of(b), prompt, sizeof *all * (size_t)n_prompt);
  known = n_prompt;
}

/* After each half of a context of new tokens, half a context is fed again. */
int64_t pd_generation_steps(void) { return 2 * capacity; }

/* ---- printing, on rank 0 ----------------------------------------------------------------------------- */

static void flush_output(void) {
  if (fflush(stdout) || ferror(stdout)) pd_fail("cannot write to standard output: %s", strerror(errno));
}

/* Tokens of a sample up to its end token; without one, all known tokens. */
static int64_t printed_tokens(int64_t sample) {
  for (int64_t i = n_prompt; ends && i < known; i++)
    if (ends[tokens_of(sample)[i]]) return i;
  return known;
}

static void print_token(struct pd_decoding *d, int64_t index, int32_t token) {
  const char *text;
  if (pd_options.token_numbers) {
    printf(index > n_prompt ? ",%d" : "%d", token);
    return;
  }
  size_t bytes = pd_tokenizer_decode(tokenizer, d, token, &text);
  fwrite(text, 1, bytes, stdout);
}

/* The prompt is decoded too, because a token's text may depend on earlier tokens. */
static void begin_text(struct pd_decoding *d) {
  const char *text;
  for (int64_t i = 0; i < n_prompt && !pd_options.token_numbers; i++)
    pd_tokenizer_decode(tokenizer, d, prompt[i], &text);
}

static void end_text(struct pd_decoding *d) {
  const char *text;
  size_t bytes = pd_options.token_numbers ? 0 : pd_tokenizer_decode_end(d, &text);
  if (bytes) fwrite(text, 1, bytes, stdout);
  fputs("\n", stdout);
  flush_output();
}

/* A single sample is printed incrementally, several samples one after another at the end. */
static void print_new(void) {
  static struct pd_decoding d;
  static int64_t done;
  if (pd.rank || samples() > 1) return;
  if (!done) begin_text(&d);
  if (done < n_prompt) done = n_prompt;
  for (int64_t end = printed_tokens(0); done < end; done++) print_token(&d, done, all[done]);
  if (known == capacity || printed_tokens(0) < known)
    end_text(&d);
  else
    flush_output();
}

static void print_samples(void) {
  if (pd.rank || samples() == 1) return;
  for (int64_t b = 0; b < samples(); b++) {
    struct pd_decoding d = {.n_held = 0};
    if (b && !pd_options.token_numbers) fputs("----\n", stdout);
    begin_text(&d);
    for (int64_t i = n_prompt, end = printed_tokens(b); i < end; i++) print_token(&d, i, tokens_of(b)[i]);
    end_text(&d);
  }
}

/* ---- steps ------------------------------------------------------------------------------------------- */

/* The start of the window whose last token has this index. */
static int64_t window_of(int64_t index) {
  int64_t context = generation()->context, half = (context + 1) / 2;
  return index < context ? 0 : (index - context + half) / half * half;
}

/* Broadcasts the token sampled from this step's logits. */
static void take_drawn(void) {
  static const char what[] = "the next token";
  broadcast(drawn, sizeof *drawn * (size_t)samples(), pd_rank_of(generation()->stage, 0), what);
  for (int64_t b = 0; b < samples(); b++) tokens_of(b)[known] = drawn[b];
  known++;
  print_new();
}

static bool is_over(void) {
  bool over = ends != NULL;
  for (int64_t b = 0; b < samples() && over; b++) over = printed_tokens(b) < known;
  return over || known >= capacity;
}

static void finish(void) {
  print_samples();
  double now = pd_seconds();
  int64_t n = (known - n_prompt) * samples();
  if (pd.rank) return;
  if (known == generation()->context + 1 && known < n_prompt + pd_options.tokens)
    pd_note("the context of %lld tokens is full. help: continue with its newer half with --window",
            (long long)generation()->context);
  if (n_prompt == known) return;
  int64_t computed = n_prompt - window_of(n_prompt - 1);
  char of[64] = "";
  if (computed < n_prompt) snprintf(of, sizeof of, ", the last of %lld,", (long long)n_prompt);
  pd_note("%lld token%s of prompt%s in %.2f s, %lld token%s in %.2f s: %.1f tokens/s", (long long)computed,
          computed == 1 ? "" : "s", of, prompted - started, (long long)n, n == 1 ? "" : "s", now - prompted,
          (double)n / (now - prompted));
}

/* With a cache, tokens are fed one by one, again from the window's start after it moves; without, the whole window
 * at once. */
bool pd_generation_next(int64_t k) {
  if (k == 1) {
    started = prompted = pd_seconds();
    window = window_of(known - 1);
    fed = cached() ? window : known - 1;
  } else {
    if (draws) take_drawn();
    if (known == n_prompt + 1) prompted = pd_seconds();
    fed++;
    if (fed - window == generation()->context) {
      window = window_of(fed);
      fed = cached() ? window : fed;
    }
  }
  draws = fed + 1 == known;
  if (!is_over()) return true;
  finish();
  return false;
}

static void load_tokens(const void *of, int64_t b, int worker, void *to) {
  (void)worker;
  const int input = *(const int *)of;
  int32_t *numbers = to;
  for (int64_t i = 0; i < pd.stage->inputs[input].elements; i++) {
    int64_t at = cached() ? fed : window + i;
    int32_t token = at <= fed ? tokens_of(b)[at] : 0;
    numbers[i] = input == generation()->position ? (int32_t)(fed - window) : token;
  }
}

void pd_generation_load(int input, int64_t k, void *to) {
  (void)k;
  pd_load_samples(input, to, false, load_tokens, &input);
}

void pd_generation_logits(int figure, int64_t k, const float *logits, int64_t n) {
  (void)figure, (void)k;
  const struct pd_options *o = &pd_options;
  const struct pd_sampling how = {.temperature = (float)o->temperature,
                                  .top_k = o->top_k,
                                  .top_p = (float)o->top_p};
  static int32_t *order;
  if (!draws) return;
  if (!order) order = pd_allocate(sizeof *order * (size_t)generation()->classes);
  int64_t width = generation()->logits, row = cached() ? 0 : fed - window;
  for (int64_t b = 0; b < samples(); b++) {
    const float *of_sample = pd_view(logits + b * (n / samples()) + row * width, generation()->classes, false);
    int64_t token = pd_choose_token(of_sample, generation()->classes, &how, pd.seed, b, known, order);
    if (token < 0) pd_fail("the logits of token %lld are non-finite", (long long)known);
    drawn[b] = (int32_t)token;
  }
}
