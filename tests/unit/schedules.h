/* Cases of schedules, and execution of their Programs with numbers. */
#ifndef TEST_SCHEDULES_H
#define TEST_SCHEDULES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/program.h"

enum { MAX_STAGES = 8, MAX_REPLICAS = 4, MOST_CHUNKS = 4, MAX_PARTS = MAX_STAGES * MOST_CHUNKS };

typedef struct Case {
  const char *schedule;
  int stages;
  int64_t microbatches;
  unsigned recompute, exchanges; /* bit i: stage i */
  const char *replicas;          /* a digit per stage; NULL: 1 each */
  unsigned ahead;                /* bit i: `ahead` of stage i is 2 */
  int chunks;                    /* 0: 1 */
  const char *parts;             /* offloaded: a digit per stage; NULL: `chunks` each */
  bool vertical_sync;
  unsigned keeps; /* offloaded, bit p: part p of the model does not recompute */
  bool sharded;   /* each replica updates a shard of the weights */
  bool at_home;   /* offloaded: the host updates */
} Case;

/* One replica and one chunk per stage. */
static Case plain(const char *schedule, int stages, int64_t microbatches, unsigned recompute, unsigned exchanges) {
  return (Case){.schedule = schedule,
                .stages = stages,
                .microbatches = microbatches,
                .recompute = recompute,
                .exchanges = exchanges};
}

static int replicas_of(Case c, int stage) { return c.replicas ? c.replicas[stage] - '0' : 1; }
static int chunks_of(Case c) { return c.chunks ? c.chunks : 1; }
static int parts_in(Case c) { /* of all stages */
  int parts = 0;
  for (int i = 0; i < c.stages; i++)
    parts += c.parts ? c.parts[i] - '0' : chunks_of(c);
  return parts;
}

static const Pipeline *pipeline_of(Case c) {
  static int replicas[MAX_STAGES], ahead[MAX_STAGES], kept[MAX_STAGES], parts[MAX_STAGES];
  static bool recompute[MAX_STAGES];
  static Pipeline p;
  for (int i = 0; i < c.stages; i++) {
    replicas[i] = replicas_of(c, i);
    ahead[i] = 1 + (c.ahead >> i & 1);
    recompute[i] = c.recompute >> i & 1;
  }
  p = (Pipeline){.schedule = intern(c.schedule),
                 .batch = c.microbatches,
                 .microbatch = 1,
                 .microbatches = c.microbatches,
                 .vertical_sync = c.vertical_sync,
                 .shard_optimizer = c.sharded,
                 .keeps = c.keeps,
                 .at_home = c.at_home,
                 .chunks = chunks_of(c),
                 .n_stages = c.stages,
                 .replicas = replicas,
                 .ahead = ahead,
                 .kept = kept,
                 .recompute = recompute};
  for (int i = 0; c.parts && i < c.stages; i++)
    parts[i] = c.parts[i] - '0';
  if (c.parts)
    pipeline_set_parts(&p, parts);
  return &p;
}

static Program *make(Case c) {
  static bool exchanges[MAX_STAGES];
  for (int i = 0; i < c.stages; i++)
    exchanges[i] = c.exchanges >> i & 1;
  return schedule(pipeline_of(c), exchanges, NO_SPAN);
}

static char *describe(Case c) {
  return format("%s d %d M %d recompute %x exchanges %x replicas %s ahead %x chunks %d parts %s keeps %x%s%s%s",
                c.schedule, c.stages, (int)c.microbatches, c.recompute, c.exchanges, c.replicas ? c.replicas : "1",
                c.ahead, chunks_of(c), c.parts ? c.parts : "", c.keeps, c.vertical_sync ? " vertical sync" : "",
                c.sharded ? " sharded" : "", c.at_home ? " at home" : "");
}

static bool is(Case c, const char *schedule) { return !strcmp(c.schedule, schedule); }
static bool takes_replicas(Case c) { return !is(c, "interleaved") && !is(c, "zb_h1") && !is(c, "spilled"); }

/* Parts of offloading stages: as many as chunks, or fewer. */
static const char *some_parts(Case c) {
  char *digits = alloc(MAX_STAGES + 1);
  for (int i = 0; i < c.stages; i++)
    digits[i] = (char)('1' + ((unsigned)i * 5 + c.keeps % 64 + c.recompute) % (unsigned)chunks_of(c));
  return digits;
}

/* Removes unsupported settings. M becomes the schedule's minimum plus `more` times its multiple. */
static Case allowed(Case c, int64_t more) {
  if (!takes_replicas(c))
    c.replicas = NULL;
  if (!is(c, "interleaved") && !is(c, "spilled"))
    c.chunks = 0;
  c.keeps &= is(c, "spilled") ? ~0u : 0;
  c.at_home &= is(c, "spilled");
  c.parts = is(c, "spilled") && c.stages > 1 ? some_parts(c) : NULL;
  if (is(c, "zb_h1") || is(c, "forward"))
    c.recompute = 0;
  if (!is(c, "pipedream"))
    c.vertical_sync = false;
  else if (c.exchanges)
    c.vertical_sync = true;
  int64_t least, multiple;
  schedule_needs(pipeline_of(c), &least, &multiple);
  c.microbatches = least + more * multiple;
  return c;
}

static unsigned random_below(unsigned *state, unsigned n) {
  *state = *state * 1664525u + 1013904223u;
  return (*state >> 8) % n;
}

/* A random case that trains. */
static Case random_case(unsigned *state) {
  int n;
  const char *const *names = schedule_names(&n);
  Case c = {0};
  do
    c.schedule = names[random_below(state, (unsigned)n)];
  while (is(c, "forward"));
  c.stages = 1 + (int)random_below(state, MAX_STAGES);
  unsigned mask = (1u << c.stages) - 1;
  c.recompute = random_below(state, 3) ? 0 : random_below(state, 256) & mask;
  unsigned some = random_below(state, 2) ? 255 : random_below(state, 256);
  c.exchanges = random_below(state, 2) ? 0 : some & mask & ~1u;
  if (random_below(state, 2)) {
    char *digits = alloc(MAX_STAGES + 1);
    for (int i = 0; i < c.stages; i++)
      digits[i] = (char)('1' + random_below(state, MAX_REPLICAS));
    c.replicas = digits;
  }
  c.ahead = random_below(state, 2) ? 0 : random_below(state, 256);
  c.chunks = 1 + (int)random_below(state, MOST_CHUNKS);
  c.keeps = random_below(state, 2) ? 0 : random_below(state, 1 << 16) * 0x10001u;
  c.vertical_sync = random_below(state, 2);
  c.sharded = c.replicas && random_below(state, 2);
  c.at_home = c.keeps ? c.keeps & 1 : c.exchanges & 2;
  return allowed(c, random_below(state, 3) ? random_below(state, 8) : 0);
}

/* Enough batches to use every version's buffer twice. */
static int64_t batches_of(const Program *programs) {
  return 4 + 2 * (programs->versions > 5 ? programs->versions : 2);
}

/* ---- executed with numbers ------------------------------------------------------------------------ */

/* Part s of the model multiplies by its weight w_s; the loss of microbatch k is (.. w_1 w_0 x_k - y_k)^2 / 2. */
enum { MOST_BATCHES = 128, MOST_MICROBATCHES = 4096, MAX_COPIES = 256, MAX_RANKS = MAX_STAGES * MAX_REPLICAS };
static double rate_of(int64_t microbatches, int parts) { return 0.05 / (double)(microbatches * parts); }
static double sample_x(int64_t k) { return 1 + (double)(k * 7 % 11) / 16; }
static double sample_y(int64_t k) { return 2 - (double)(k * 5 % 13) / 16; }
static double first_weight(int part) { return 1 + (double)(part * 3 % 7 - 3) / 64; }

typedef struct Memory { /* of one chunk */
  double weights[MAX_COPIES], accumulators[MAX_COPIES], received[MAX_COPIES], saved[MAX_COPIES],
      saved_result[MAX_COPIES], sent[MAX_COPIES], gradient_received[MAX_COPIES], gradient_sent[MAX_COPIES],
      deferred[MAX_COPIES];
} Memory;

typedef struct Worker {
  const Program *p;
  Stream stream;
  Step step;
  bool over;
  Memory memory[MOST_CHUNKS];
} Worker;

/* Messages by sending part of the model and microbatch; NAN: not sent. */
static double down[MAX_PARTS][MOST_MICROBATCHES + 1], up[MAX_PARTS][MOST_MICROBATCHES + 1];
static double handed_over[MAX_PARTS][MOST_BATCHES][MAX_REPLICAS]; /* gradients by batch */
static int ranks_handed_over[MAX_STAGES][MOST_BATCHES], ranks_updated[MAX_STAGES][MOST_BATCHES];

static double *weight(Worker *w, int chunk, int64_t version) {
  return &w->memory[chunk].weights[version % w->p->versions];
}

static int64_t own(const Worker *w, int64_t k) { return (k - 1) / w->p->replicas + 1; }
static int part_held(const Worker *w, int chunk) {
  return w->p->offload.on ? w->p->part + chunk : w->p->part + chunk * w->p->n_stages;
}
static int last_part(const Program *p) { return p->parts - 1; }

/* Whether the shards of the weights are complete on the stage's replicas. */
static bool has_weights(const Worker *w, int64_t version) {
  return !w->p->sharded || version == 0 || ranks_updated[w->p->stage][version - 1] == w->p->replicas;
}

static void forward(Worker *w, int64_t k) {
  Memory *m = &w->memory[w->step.chunk];
  const Slots *s = &w->p->slots[w->step.chunk];
  int part = part_held(w, w->step.chunk);
  double in = part == 0                               ? sample_x(k)
              : w->p->offload.on && w->step.chunk > 0 ? down[part - 1][k]
                                                      : m->received[own(w, k) % s->received];
  m->saved[own(w, k) % s->saved] = in;
  double result = in * *weight(w, w->step.chunk, program_version(w->p, k));
  m->saved_result[own(w, k) % s->saved] = m->sent[own(w, k) % s->sent] = result;
}

static void add_weight_gradient(Worker *w, int64_t k, double gradient) {
  Memory *m = &w->memory[w->step.chunk];
  double product = gradient * m->saved[own(w, k) % w->p->slots[w->step.chunk].saved];
  double *sum = &m->accumulators[(k - 1) / w->p->period % w->p->accumulators];
  *sum = (own(w, k) - 1) % (w->p->period / w->p->replicas) ? *sum + product : product;
}

static void backward(Worker *w, int64_t k) {
  const Program *p = w->p;
  int chunk = w->step.chunk;
  Memory *m = &w->memory[chunk];
  const Slots *s = &p->slots[chunk];
  int part = part_held(w, chunk);
  double gradient = part == last_part(p)                     ? m->saved_result[own(w, k) % s->saved] - sample_y(k)
                    : p->offload.on && chunk + 1 < p->chunks ? up[part + 1][k]
                                                             : m->gradient_received[own(w, k) % s->gradients];
  m->deferred[own(w, k) % s->deferred] = gradient;
  if (!p->split_backward)
    add_weight_gradient(w, k, gradient);
  m->gradient_sent[own(w, k) % s->returned] = gradient * *weight(w, chunk, program_version(p, k));
}

static bool all_handed_over(const Program *programs, int stage, int64_t batch) {
  return ranks_handed_over[stage][batch] == programs[stage].replicas;
}

static bool update(Worker *w, const Program *programs, int64_t batch) {
  const Program *p = w->p;
  for (int i = 0; i < p->n_stages; i++)
    if ((p->waits || i == p->stage) && !all_handed_over(programs, i, batch))
      return false;
  for (int c = 0; c < p->chunks; c++) {
    double sum = 0;
    for (int r = 0; r < p->replicas; r++)
      sum += r == w->stream.replica ? w->memory[c].accumulators[batch % p->accumulators]
                                    : handed_over[part_held(w, c)][batch][r];
    *weight(w, c, batch + 1) = *weight(w, c, batch) - rate_of(p->period, last_part(p) + 1) * sum;
  }
  ranks_updated[p->stage][batch]++;
  return true;
}

static void hand_over(Worker *w, int64_t batch) {
  for (int c = 0; c < w->p->chunks; c++)
    handed_over[part_held(w, c)][batch][w->stream.replica] = w->memory[c].accumulators[batch % w->p->accumulators];
  ranks_handed_over[w->p->stage][batch]++;
}

/* False: the message has not arrived. */
static bool take_message(double message, double *to) {
  if (isnan(message))
    return false;
  *to = message;
  return true;
}

static bool work(Worker *w, const Program *programs) {
  const Program *p = w->p;
  int64_t k = w->step.number, j = own(w, k);
  int chunk = w->step.chunk, part = part_held(w, chunk);
  Memory *m = &w->memory[chunk];
  const Slots *s = &p->slots[chunk];
  switch (w->step.action) {
  case DO_RECEIVE:
    if (part > 0 && !take_message(down[part - 1][k], &m->received[j % s->received]))
      return false;
    break;
  case DO_FORWARD:
  case DO_RECOMPUTE:
    if (!has_weights(w, program_version(p, k)))
      return false;
    forward(w, k);
    break;
  case DO_SEND: down[part][k] = m->sent[j % s->sent]; break;
  case DO_RECEIVE_GRADIENT:
    if (part < last_part(p) && !take_message(up[part + 1][k], &m->gradient_received[j % s->gradients]))
      return false;
    break;
  case DO_BACKWARD: backward(w, k); break;
  case DO_SEND_GRADIENT: up[part][k] = m->gradient_sent[j % s->returned]; break;
  case DO_WEIGHTS: add_weight_gradient(w, k, m->deferred[j % s->deferred]); break;
  case DO_UPDATE:
    if (!update(w, programs, k))
      return false;
    break;
  case DO_EXCHANGE: hand_over(w, k); break;
  case DO_PROMOTE:
  case DO_DEMOTE: break;
  }
  w->over = !stream_next(&w->stream, &w->step);
  return true;
}

/* Updates between the newest weights and stage i's. Under pipedream, a microbatch's forward follows the backward
 * that the newest update waited for by n_i turns of its rank. */
static int64_t delay_of(Case c, int i) {
  int64_t n[MAX_STAGES];
  for (int s = c.stages - 1; s >= 0; s--) {
    int64_t w = replicas_of(c, s), next = s + 1 < c.stages ? replicas_of(c, s + 1) : 0;
    int64_t more = w > next ? w : next;
    n[s] = s + 1 < c.stages ? (n[s + 1] * next + (1 + (c.ahead >> s & 1)) * more + w - 1) / w : 1;
  }
  int64_t oldest = 0, turns = c.microbatches / replicas_of(c, i), delay = (n[i] - 1 + turns - 1) / turns;
  for (int s = 0; s < c.stages; s++)
    oldest = fmax(oldest, ceil((double)((n[s] - 1) * replicas_of(c, s)) / (double)c.microbatches));
  return is(c, "2bw") ? 1 : !is(c, "pipedream") ? 0 : c.vertical_sync ? oldest : delay;
}

/* Row t: the weights after t updates, W(t+1) = opt(W(t), grad f_t), with each stage's version of the weights in
 * the gradient. */
static void train_by_definition(Case c, int64_t batches, double after[MOST_BATCHES + 1][MAX_PARTS]) {
  int parts = parts_in(c);
  for (int i = 0; i < parts; i++)
    after[0][i] = first_weight(i);
  for (int64_t t = 0; t < batches; t++) {
    double w[MAX_PARTS], sum[MAX_PARTS][MAX_REPLICAS] = {{0}}, in[MAX_PARTS + 1];
    for (int i = 0; i < parts; i++)
      w[i] = after[t > delay_of(c, i % c.stages) ? t - delay_of(c, i % c.stages) : 0][i];
    for (int64_t k = t * c.microbatches + 1; k <= (t + 1) * c.microbatches; k++) {
      in[0] = sample_x(k);
      for (int i = 0; i < parts; i++)
        in[i + 1] = in[i] * w[i];
      double gradient = in[parts] - sample_y(k);
      for (int i = parts - 1; i >= 0; gradient *= w[i--])
        sum[i][(k - 1) % replicas_of(c, i % c.stages)] += gradient * in[i];
    }
    for (int i = 0; i < parts; i++) {
      double whole = 0;
      for (int r = 0; r < replicas_of(c, i % c.stages); r++)
        whole += sum[i][r];
      after[t + 1][i] = after[t][i] - rate_of(c.microbatches, parts) * whole;
    }
  }
}

static int start_workers(Case c, const Program *programs, int64_t batches, Worker *workers) {
  int n = 0;
  for (int i = 0; i < parts_in(c); i++)
    for (int64_t k = 0; k <= batches * c.microbatches; k++)
      down[i][k] = up[i][k] = NAN;
  memset(ranks_handed_over, 0, sizeof ranks_handed_over);
  memset(ranks_updated, 0, sizeof ranks_updated);
  for (int i = 0; i < c.stages; i++)
    for (int r = 0; r < programs[i].replicas; r++) {
      Worker *w = &workers[n++];
      memset(w, 0, sizeof *w);
      w->p = &programs[i];
      w->stream = (Stream){.program = &programs[i], .replica = r, .batches = batches};
      for (int chunk = 0; chunk < programs[i].chunks; chunk++)
        w->memory[chunk].weights[0] = first_weight(part_held(w, chunk));
      w->over = !stream_next(&w->stream, &w->step);
    }
  return n;
}

static void check_trains(Case c, const Program *programs) {
  static Worker workers[MAX_RANKS];
  static double after[MOST_BATCHES + 1][MAX_PARTS];
  int64_t batches = batches_of(programs);
  assert_true(batches <= MOST_BATCHES && batches * c.microbatches <= MOST_MICROBATCHES);
  assert_true(programs->in_flight < MAX_COPIES);
  int n = start_workers(c, programs, batches, workers), left = n;
  unsigned state = 12345;
  for (int idle = 0; left > 0 && idle < 10000;) { /* interleaves ranks at random */
    Worker *one = &workers[random_below(&state, (unsigned)n)];
    idle = !one->over && work(one, programs) ? 0 : idle + 1;
    left -= idle == 0 && one->over;
  }
  train_by_definition(c, batches, after);
  for (int i = 0; i < n; i++) {
    Worker *w = &workers[i];
    if (!w->over)
      fail_msg("%s: stage %d.%d hangs", describe(c), w->p->stage, w->stream.replica);
    for (int chunk = 0; chunk < w->p->chunks; chunk++)
      if (*weight(w, chunk, batches) != after[batches][part_held(w, chunk)])
        fail_msg("%s: stage %d.%d, chunk %d ends with weight %.17g, not %.17g", describe(c), w->p->stage,
                 w->stream.replica, chunk, *weight(w, chunk, batches), after[batches][part_held(w, chunk)]);
  }
}

#endif
