/* The sum of a stage's gradients over its replicas. What they accumulate is divided among them: replica r gets
 * everyone's shard r and adds them up, replica 0's first. Then it sends the sum back to all, unless it is the one that
 * updates these weights (shards.c), and no other stage needs it. Where all sums go back each moves 2 (w - 1) / w of a set,
 * out and in. The order of the additions does not depend on timing, nor on how shards are cut, so that all replicas come
 * to the same bits, in every run. Where replicas see each other's accumulators there are no messages, and all sums stand
 * everywhere: host/replicas.c.
 * No buffer is received into while it is being sent: a shard's sum comes back in the second round, once the
 * whole first round is through; sums are made in the rank's own shard, which the first round sends to nobody. */
#include "internal.h"
#include "transfer.h"

#include <stdlib.h>

enum { LINE = 16 }; /* floats */

/* A run of floats in an accumulator set. */
struct span {
  size_t at, n;
};
/* In rising order, not touching. */
struct spans {
  struct span *span;
  int n;
  size_t floats; /* of all */
};

static struct spans *summed, *spread; /* by replica: what it adds up; what of that goes back to all */
static size_t room;                   /* floats of a replica's shard, as received */

static size_t to_lines(size_t floats) { return (floats + LINE - 1) / LINE * LINE; }

/* ---- shards --------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
  const struct span *x = a, *y = b;
  return (x->at > y->at) - (x->at < y->at);
}

static void join(struct spans *s) {
  int n = 0;
  if (s->n) qsort(s->span, (size_t)s->n, sizeof *s->span, by_place);
  for (int i = 0; i < s->n; i++) {
    s->floats += s->span[i].n;
    if (n && s->span[n - 1].at + s->span[n - 1].n == s->span[i].at)
      s->span[n - 1].n += s->span[i].n;
    else
      s->span[n++] = s->span[i];
  }
  s->n = n;
}

/* The uses of parameters that a replica updates a part of. */
static struct spans shard_of_parts(int replica, bool (*taken)(const struct pd_parameter *p)) {
  const struct pd_stage *s = pd.stage;
  struct spans all = {0};
  int uses = 0;
  for (int i = 0; i < s->n_parameters; i++) uses += s->parameters[i].n_uses;
  all.span = pd_allocate(sizeof *all.span * (size_t)(uses + 1));
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    struct pd_slice part = pd_part_of(p, replica);
    for (int u = 0; u < p->n_uses && part.n && taken(p); u++)
      if (p->uses[u].stage == s->stage)
        all.span[all.n++] =
            (struct span){p->uses[u].offset / sizeof(float) + (size_t)part.first, to_lines((size_t)part.n)};
  }
  join(&all);
  return all;
}

/* One run: the last shards may be shorter, or empty. */
static struct span run_of_set(int replica, size_t *each) {
  size_t all = pd.stage->accumulators_stride / sizeof(float), w = (size_t)pd_replicas();
  *each = (all / LINE + w - 1) / w * LINE;
  size_t first = (size_t)replica * *each, n = first < all ? all - first : 0;
  return (struct span){first, n < *each ? n : *each};
}

struct pd_shard pd_shard(int64_t t, int replica) {
  size_t each;
  struct span run = run_of_set(replica, &each);
  return (struct pd_shard){(float *)pd_accumulators(t) + run.at, run.n};
}

static struct spans shard_of_set(int replica) {
  struct spans all = {pd_allocate(sizeof *all.span), 1, 0};
  *all.span = run_of_set(replica, &all.floats);
  return all;
}

static bool any(const struct pd_parameter *p) { return p != NULL; }

void pd_reduce_start(void) {
  size_t w = (size_t)pd_replicas();
  summed = pd_allocate(sizeof *summed * w);
  spread = pd_allocate(sizeof *spread * w);
  for (int r = 0; r < pd_replicas(); r++) {
    summed[r] = pd.stage->shards ? shard_of_parts(r, any) : shard_of_set(r);
    spread[r] = pd.stage->shards ? shard_of_parts(r, pd_has_remote) : summed[r];
    room = summed[r].floats > room ? summed[r].floats : room;
  }
}

/* ---- messages -------------------------------------------------------------------------------------- */

/* Where the shards of the other replicas are received: in the replicas' order. */
static float *received(int64_t t) { return (float *)(pd.arena + pd.stage->reduced + pd_exchange_set(t)); }
static float *accumulated(int64_t t, size_t at) { return (float *)pd_accumulators(t) + at; }

/* Of a round in which replicas send what of theirs is in each other's shards, or the other way round. */
int pd_reduce_messages(void) {
  int n = 0;
  if (!pd.stage->accumulators_stride) return 0;
  for (int q = 0; q < pd_replicas(); q++)
    if (q != pd.replica) n += summed[q].n + summed[pd.replica].n;
  return n;
}

size_t pd_reduce_bytes(void) {
  size_t most = 0;
  for (int r = 0; r < pd_replicas(); r++)
    for (int i = 0; i < summed[r].n; i++) most = summed[r].span[i].n > most ? summed[r].span[i].n : most;
  return most * sizeof(float);
}

static struct pd_message message(bool sent, int replica, int64_t t, int round, float *at, size_t floats) {
  int tag = (int)(t % 1024) * 2 + round;
  return (struct pd_message){pd_rank_of(pd.stage->stage, replica), sent, tag, at, floats * sizeof(float)};
}

int pd_reduce_gather(int64_t t, struct pd_message *to) {
  const struct spans *mine = &summed[pd.replica];
  int n = 0;
  for (int i = 1; i < pd_replicas(); i++) { /* starting behind itself, so that not all send to one */
    int q = (pd.replica + i) % pd_replicas();
    float *at = received(t) + (size_t)(q < pd.replica ? q : q - 1) * room;
    for (int j = 0; j < mine->n; j++) {
      to[n++] = message(false, q, t, 0, at, mine->span[j].n);
      at += mine->span[j].n;
    }
    for (int j = 0; j < summed[q].n; j++) {
      const struct span *s = &summed[q].span[j];
      to[n++] = message(true, q, t, 0, accumulated(t, s->at), s->n);
    }
  }
  return n;
}

int pd_reduce_spread(int64_t t, struct pd_message *to) {
  const struct spans *mine = &summed[pd.replica], *back = &spread[pd.replica];
  const float *others = received(t);
  int n = 0;
  for (int j = 0; j < mine->n; j++) {
    pd_add_replicas(accumulated(t, mine->span[j].at), others, room, mine->span[j].n);
    others += mine->span[j].n;
  }
  for (int i = 1; i < pd_replicas(); i++) {
    int q = (pd.replica + i) % pd_replicas();
    for (int j = 0; j < spread[q].n; j++) {
      const struct span *s = &spread[q].span[j];
      to[n++] = message(false, q, t, 1, accumulated(t, s->at), s->n);
    }
    for (int j = 0; j < back->n; j++)
      to[n++] = message(true, q, t, 1, accumulated(t, back->span[j].at), back->span[j].n);
  }
  return n;
}
