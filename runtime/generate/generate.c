/* Text generation: the steps of all ranks. A slot holds a sequence. A step fills the rows of a batch: with positions of
 * prompts, or with one drawn token of each slot. All ranks compute the inputs alike, so prompts stream through the stages.
 * The rank that computes the logits broadcasts each drawn token; all ranks wait for it. Positions count within a window that starts at
 * token 0; with --window it moves by half of the context whenever the context is full.
 *
 * Drawn tokens wait while a prompt is fed: so the kernels that compute a position, and its bits, do not depend on other
 * sequences. */
#include "data/data.h"
#include "generate/internal.h"
#include "messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct slot {
  struct pd_request *r;  /* NULL: free */
  int64_t fed, window;   /* tokens that were fed, and the token at position 0 */
  int64_t block;         /* tokens before this one are fed as rows of a prompt */
  bool draws;            /* this step's logits are for its next token */
  bool fresh;            /* this step's encoder reads its source first */
  int32_t *held;         /* tokens whose keys and values the cache has, by position */
  int64_t n_held, alike; /* alike: of these, the first that were fed as rows of prompts */
  int64_t end;           /* behind the highest position that was fed since position 0 */
};

/* A position that this step feeds. With an encoder, row b is slot b's, or unused. */
struct row {
  int slot;      /* -1: unused */
  int64_t token; /* its index in the sequence */
};

struct drawn {
  int32_t token;
  struct pd_logprobs logprobs;
};

static struct {
  struct slot *slot;
  struct drawn *drawn; /* by slot */
  struct row *row;     /* of this step */
  int64_t n_rows, fed; /* rows that may be used, and that are */
  bool encodes;        /* a slot is fresh */
  int64_t next_request;
  struct pd_request *last_turn; /* of --chat */
  struct {
    double started, prompted;
    int64_t prompts, drawn; /* tokens of prompts that were computed, and that were drawn */
    int64_t longest;        /* prompt */
    bool full;              /* a context */
  } counts;
} steps;

static int64_t n_slots(void) { return pd_generated()->samples; }
static bool cached(void) { return pd_generated()->position >= 0; }
static bool has_encoder(void) { return pd_generated()->encoder; }

bool pd_generation_encodes(void) { return steps.encodes; }

/* An upper bound; after each half of a context of new tokens, half a context is fed again. */
int64_t pd_generation_steps(void) {
  int64_t n = 0, most = INT64_MAX / 64;
  if (pd_options.chat) return most;
  for (int64_t i = 0; i < pd_n_requests && n < most; i++)
    n += 2 * (pd_requests[i]->n_prompt + pd_options.tokens) + 2;
  return n < most ? n : most;
}

/* The start of the window whose last token has this index. */
static int64_t window_of(int64_t index) {
  int64_t context = pd_generated()->context, half = (context + 1) / 2;
  return index < context ? 0 : (index - context + half) / half * half;
}

/* ---- slots --------------------------------------------------------------------------------------------- */

static void start(void) {
  steps.slot = pd_allocate(sizeof *steps.slot * (size_t)n_slots());
  steps.row = pd_allocate(sizeof *steps.row * (size_t)pd.stage->microbatch);
  steps.drawn = pd_allocate(sizeof *steps.drawn * (size_t)n_slots());
  for (int64_t b = 0; b < n_slots(); b++)
    steps.slot[b].held = pd_allocate(sizeof(int32_t) * (size_t)pd_generated()->context);
  pd_results_open();
  steps.counts.started = steps.counts.prompted = pd_seconds();
}

/* Leading tokens of the request that the slot's cache has. Those that were drawn were computed by other kernels. The cache of
 * a window holds the window's positions before a step and the step's rows: a step can begin a microbatch before the highest
 * position. */
static int64_t in_cache(const struct slot *s, const struct pd_request *r) {
  const int64_t ring = pd_generated()->ring;
  if (has_encoder()) return 0;
  int64_t n = 0, most = pd_options.chat ? s->n_held : s->alike;
  if (most > r->n_prompt - 1) most = r->n_prompt - 1; /* the last token's logits are not kept */
  while (n < most && s->held[n] == r->tokens[n]) n++;
  if (pd_generated()->state) return n == s->end ? n : 0;
  return ring && s->end > ring && s->end - n > pd.stage->microbatch ? 0 : n;
}

static void assign(struct slot *s, struct pd_request *r) {
  s->r = r;
  s->window = window_of(r->n_known - 1);
  s->block = r->n_known;
  s->fresh = has_encoder();
  if (pd_n_given(r) > steps.counts.longest) steps.counts.longest = pd_n_given(r);
  s->fed = !cached() ? r->n_known - 1 : s->window ? s->window : in_cache(s, r);
  steps.counts.prompts += pd_n_given(r) - (cached() || has_encoder() ? s->fed : s->window);
}

/* The free slot whose cache has most of the request's tokens; NULL: none is free. */
static struct slot *free_slot(const struct pd_request *r) {
  struct slot *best = NULL;
  int64_t most = -1;
  for (struct slot *s = steps.slot; s < steps.slot + n_slots(); s++) {
    int64_t n = s->r ? -1 : in_cache(s, r);
    if (n > most) best = s, most = n;
  }
  return best;
}

static void end(struct pd_request *r) {
  steps.counts.full |= r->end == PD_AT_CONTEXT;
  if (pd_options.chat) steps.last_turn = r;
  pd_result_ends(r);
}

/* An encoder computes all slots, so that half of them wait for new sources together. */
static bool enough_free(void) {
  int64_t n = 0;
  for (int64_t b = 0; b < n_slots(); b++) n += !steps.slot[b].r;
  return !has_encoder() || 2 * n >= n_slots();
}

static void fill_slots(void) {
  if (!enough_free()) return;
  for (struct slot *s; steps.next_request < pd_n_requests; steps.next_request++) {
    struct pd_request *r = pd_requests[steps.next_request];
    if (!(s = free_slot(r))) return;
    pd_request_begin(r);
    if (r->end == PD_OPEN)
      assign(s, r);
    else
      end(r);
  }
}

/* ---- rows ----------------------------------------------------------------------------------------------- */

static void feed(struct slot *s, bool prompt) {
  int64_t position = s->fed - s->window;
  steps.fed++;
  steps.row[has_encoder() ? s - steps.slot : steps.n_rows++] = (struct row){(int)(s - steps.slot), s->fed};
  if (cached()) {
    s->held[position] = s->r->tokens[s->fed];
    s->n_held = position + 1;
    if (!position || s->end <= position) s->end = position + 1;
    if (prompt && s->alike >= position) s->alike = position + 1;
    if (!prompt && s->alike > position) s->alike = position;
  }
  s->fed++;
  s->draws = s->fed == s->r->n_known;
}

/* A full window moves, and its tokens are fed again. */
static void move_window(struct slot *s) {
  if (s->fed - s->window < pd_generated()->context) return;
  s->window = window_of(s->fed);
  if (!cached()) return;
  s->fed = s->window;
  s->block = s->r->n_known;
}

static void choose_rows(void) {
  bool prompts = false;
  steps.n_rows = has_encoder() ? n_slots() : 0;
  steps.fed = 0;
  steps.encodes = false;
  for (int64_t b = 0; b < steps.n_rows; b++) steps.row[b].slot = -1;
  for (struct slot *s = steps.slot; s < steps.slot + n_slots(); s++) {
    steps.encodes |= s->fresh;
    s->draws = s->fresh = false;
    if (!s->r) continue;
    move_window(s);
    prompts |= cached() && !has_encoder() && s->fed < s->block;
  }
  for (struct slot *s = steps.slot; s < steps.slot + n_slots(); s++) {
    if (!s->r) continue;
    if (!prompts) feed(s, false);
    while (prompts && s->fed < s->block && steps.n_rows < pd.stage->microbatch) feed(s, true);
  }
  pd_device_use_rows(prompts || n_slots() > PD_FEW_ROWS || !cached() || has_encoder() ? 0 : steps.n_rows);
}

/* ---- drawn tokens ---------------------------------------------------------------------------------------- */

static void add_token(struct slot *s, const struct drawn *d) {
  struct pd_request *r = s->r;
  r->tokens[r->n_known] = d->token;
  if (r->logprobs) r->logprobs[r->n_known - r->n_prompt] = d->logprobs;
  r->n_known++;
  steps.counts.drawn++;
  if (steps.counts.drawn == 1) steps.counts.prompted = pd_seconds();
  if ((pd_options.stop || r->turns) && pd_end_tokens[d->token]) {
    r->end = PD_AT_STOP;
  } else {
    r->n_result = r->n_known;
    if (!pd.rank && pd_text_add(r)) r->end = PD_AT_STOP;
  }
}

static void share_ends(void) {
  static char *ended;
  if (!ended) ended = pd_allocate((size_t)n_slots());
  for (int64_t b = 0; b < n_slots(); b++) ended[b] = steps.slot[b].draws && steps.slot[b].r->end == PD_AT_STOP;
  pd_broadcast(ended, (size_t)n_slots(), 0, "the texts that end");
  for (int64_t b = 0; b < n_slots(); b++)
    if (ended[b]) steps.slot[b].r->end = PD_AT_STOP;
}

static void take_drawn(void) {
  bool draws = false;
  for (int64_t b = 0; b < n_slots(); b++) draws |= steps.slot[b].draws;
  if (!draws) return;
  pd_broadcast(steps.drawn, sizeof *steps.drawn * (size_t)n_slots(), pd_rank_of(pd_generated()->stage, 0),
               "the next token");
  for (int64_t b = 0; b < n_slots(); b++)
    if (steps.slot[b].draws) add_token(&steps.slot[b], &steps.drawn[b]);
  if (pd_options.n_stop_texts) share_ends();
  for (struct slot *s = steps.slot; s < steps.slot + n_slots(); s++) {
    struct pd_request *r = s->r;
    if (!s->draws) continue;
    if (r->end == PD_OPEN && r->n_known >= r->capacity)
      r->end = r->capacity < r->n_prompt + pd_options.tokens ? PD_AT_CONTEXT : PD_AT_LENGTH;
    pd_result_grows(r);
    if (r->end == PD_OPEN) continue;
    s->r = NULL;
    end(r);
  }
}

/* ---- the end ---------------------------------------------------------------------------------------------- */

/* Of one prompt, which all samples have. */
static void tell_speed(void) {
  double now = pd_seconds(), drawing = now - steps.counts.prompted;
  int64_t computed = steps.counts.prompts / n_slots();
  char of[64] = "";
  if (computed < steps.counts.longest)
    snprintf(of, sizeof of, ", the last of %lld,", (long long)steps.counts.longest);
  pd_note("%lld token%s of prompt%s in %.2f s, %lld token%s in %.2f s: %.1f tokens/s", (long long)computed,
          computed == 1 ? "" : "s", of, steps.counts.prompted - steps.counts.started,
          (long long)steps.counts.drawn, steps.counts.drawn == 1 ? "" : "s", drawing,
          (double)steps.counts.drawn / drawing);
}

static void tell_prompts(void) {
  double seconds = pd_seconds() - steps.counts.started;
  pd_note("%lld prompt%s: %lld tokens of prompts and %lld new tokens in %.2f s: %.1f tokens/s",
          (long long)pd_n_requests, pd_n_requests == 1 ? "" : "s", (long long)steps.counts.prompts,
          (long long)steps.counts.drawn, seconds, (double)(steps.counts.prompts + steps.counts.drawn) / seconds);
}

static void finish(void) {
  pd_results_close();
  if (pd.rank) return;
  if (steps.counts.full)
    pd_note("the context of %lld tokens is full. help: continue with its newer half with --window",
            (long long)pd_generated()->context);
  if (!steps.counts.drawn || pd_options.chat) return;
  if (pd_options.prompts)
    tell_prompts();
  else
    tell_speed();
}

bool pd_generation_next(int64_t k) {
  if (k == 1)
    start();
  else
    take_drawn();
  fill_slots();
  choose_rows();
  while (!steps.fed && pd_options.chat && pd_chat_turn(steps.last_turn)) {
    fill_slots();
    choose_rows();
  }
  if (!steps.fed) finish();
  return steps.fed > 0;
}

/* ---- inputs and logits ------------------------------------------------------------------------------------- */

static void load_position(int input, int64_t r, int32_t *to) {
  const struct pd_generation *g = pd_generated();
  const struct row *of = r < steps.n_rows && steps.row[r].slot >= 0 ? &steps.row[r] : NULL;
  const struct slot *s = of ? &steps.slot[of->slot] : NULL;
  if (input == g->sequence)
    *to = s ? of->slot : (int32_t)n_slots();
  else if (input == g->position)
    *to = s ? (int32_t)(of->token - s->window) : 0;
  else
    *to = s ? s->r->tokens[of->token] : 0;
}

/* Without caches, row b is slot b. */
static void load_window(int64_t b, int64_t n, int32_t *to) {
  const struct slot *s = &steps.slot[b];
  for (int64_t i = 0; i < n; i++) to[i] = s->r && s->window + i < s->fed ? s->r->tokens[s->window + i] : 0;
}

/* A source of numbers; those of free slots are zeros. */
static void load_features(int64_t b, float *to) {
  const struct pd_request *r = steps.slot[b].r;
  const size_t bytes = sizeof *to * (size_t)pd.stage->inputs[pd_generated()->source].elements;
  if (r)
    memcpy(to, r->features, bytes);
  else
    memset(to, 0, bytes);
}

/* The source of slot b, or what is computed from it; free slots have padding. */
static void load_source(int input, int64_t b, int worker, void *to) {
  const struct pd_generation *g = pd_generated();
  const struct pd_input *in = &pd.stage->inputs[g->source];
  const struct pd_request *r = steps.slot[b].r;
  static int32_t *source;
  (void)worker;
  if (!source) source = pd_allocate(sizeof *source * (size_t)in->elements);
  for (int64_t i = 0; i < in->elements; i++)
    source[i] = r && i < r->n_source ? r->source[i] : g->pad >= 0 ? (int32_t)g->pad : 0;
  if (input == g->source)
    memcpy(to, source, sizeof *source * (size_t)in->elements);
  else
    pd_derive(pd.stage->inputs, input, source, pd.seed, 0, to);
}

static bool is_of_source(int input) {
  const struct pd_generation *g = pd_generated();
  return g->encoder && input != g->tokens && (!cached() || (input != g->position && input != g->sequence));
}

static void load_tokens(const void *of, int64_t b, int worker, void *to) {
  const int input = *(const int *)of;
  if (is_of_source(input) && pd_reads_features())
    load_features(b, to);
  else if (is_of_source(input))
    load_source(input, b, worker, to);
  else if (cached())
    load_position(input, b, to);
  else
    load_window(b, pd.stage->inputs[input].elements, to);
}

void pd_generation_load(int input, int64_t k, void *to) {
  (void)k;
  pd_load_samples(input, to, false, load_tokens, &input);
}

static void draw(struct slot *s, const float *logits) {
  const struct pd_options *o = &pd_options;
  const struct pd_sampling how = {.temperature = (float)o->temperature,
                                  .top_k = o->top_k,
                                  .top_p = (float)o->top_p};
  static int32_t *order;
  int64_t classes = pd_generated()->classes;
  struct drawn *to = &steps.drawn[s - steps.slot];
  if (!order) order = pd_allocate(sizeof *order * (size_t)classes);
  int64_t token = pd_choose_token(logits, classes, &how, pd.seed, s->r->number, s->r->n_known, order);
  if (token < 0) pd_fail("the logits of token %lld are non-finite", (long long)s->r->n_known);
  to->token = (int32_t)token;
  if (o->logprobs) pd_take_logprobs(logits, classes, token, (int32_t)o->logprobs, &to->logprobs);
}

void pd_generation_logits(int figure, int64_t k, const float *logits, int64_t n) {
  (void)figure, (void)k;
  int64_t width = pd_generated()->logits, each = n / pd.stage->microbatch;
  for (int64_t r = 0; r < steps.n_rows; r++) {
    if (steps.row[r].slot < 0) continue;
    struct slot *s = &steps.slot[steps.row[r].slot];
    if (!s->draws || steps.row[r].token + 1 != s->r->n_known) continue;
    int64_t at = cached() ? r * each : steps.row[r].slot * each + (steps.row[r].token - s->window) * width;
    draw(s, pd_view(logits + at, pd_generated()->classes, false));
  }
}
