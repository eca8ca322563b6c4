/* Blocks that come and go, by the formula of runtime/spilled.h, and whether a batch's work finds in them what
 * it needs: that is said here once more, from what the passes compute. Every part has a parameter; one more is
 * tied, used by the first part and the last. Reading ahead takes what is at home when it begins, which is the
 * worst that it can see. */
#include "schedule/spill.h"
#include "spilled.h"

enum { NOTHING = -1 }; /* what a block holds whose bytes nobody has written */

typedef struct Piece {
  struct pd_block block;
  bool here, changed; /* in memory; and there not what is at home */
  int64_t holds, home;
} Piece;

struct Spill {
  const Program *p;
  int parts, groups;
  int64_t at; /* of the batch's steps, the one under way */
  Piece *weights, *state, *gradient, *activations, *returned;
  bool promoted; /* the step under way */
};

/* ---- blocks --------------------------------------------------------------------------------------------- */

/* The tied parameter stands behind those of the parts, and has two gradients. */
static int tied(const Spill *s) { return s->parts; }

static Piece parameter_piece(enum pd_block_kind kind, uint64_t parts, int group, int64_t holds) {
  return (Piece){.block = {.kind = kind, .parts = parts, .group = group}, .holds = NOTHING, .home = holds};
}

static Piece *between(const Spill *s, Piece *pieces, int part, int64_t slot) {
  return part > 0 && part < s->parts ? &pieces[part * s->p->period + slot] : NULL;
}

Spill *spill_start(const Program *p) {
  Spill *s = alloc(sizeof *s);
  int n = p->chunks;
  *s = (Spill){.p = p, .parts = n, .groups = n};
  s->weights = alloc((size_t)(n + 1) * sizeof(Piece));
  s->state = alloc((size_t)(n + 1) * sizeof(Piece));
  s->gradient = alloc((size_t)(n + 2) * sizeof(Piece));
  s->activations = alloc((size_t)(n * p->period) * sizeof(Piece));
  s->returned = alloc((size_t)(n * p->period) * sizeof(Piece));
  uint64_t last = (uint64_t)1 << (n - 1);
  for (int i = 0; i <= n; i++) {
    uint64_t parts = i < n ? (uint64_t)1 << i : 1 | last;
    int group = i < n ? i : 0;
    s->weights[i] = parameter_piece(PD_BLOCK_WEIGHTS, parts, group, 0);
    s->state[i] = parameter_piece(PD_BLOCK_STATE, 0, group, 0);
    s->gradient[i] = parameter_piece(PD_BLOCK_GRADIENT, i < n ? parts : 1, group, NOTHING);
  }
  s->gradient[n + 1] = parameter_piece(PD_BLOCK_GRADIENT, last, 0, NOTHING);
  for (int i = 0; i < n; i++)
    for (int64_t slot = 0; slot < p->period; slot++) {
      struct pd_block b = {.kind = PD_BLOCK_ACTIVATIONS, .part = i, .slot = (int)slot, .group = -1};
      s->activations[i * p->period + slot] = (Piece){.block = b, .holds = NOTHING, .home = NOTHING};
      b.kind = PD_BLOCK_RETURNED;
      s->returned[i * p->period + slot] = (Piece){.block = b, .holds = NOTHING, .home = NOTHING};
    }
  return s;
}

static struct pd_step step_at(const Spill *s, int64_t i) {
  return pd_batch_step(s->parts, s->p->period, s->groups, i);
}

/* Calls `each` for every block that either step may use: all of parameters, and what is between parts of their
 * slots. */
static void for_pieces(Spill *s, const struct pd_step *of, const struct pd_step *next,
                       void (*each)(Piece *p, const struct pd_step *of, const struct pd_step *next)) {
  for (int i = 0; i <= s->parts; i++)
    each(&s->weights[i], of, next), each(&s->state[i], of, next);
  for (int i = 0; i <= s->parts + 1; i++)
    each(&s->gradient[i], of, next);
  const struct pd_step *both[2] = {of, next};
  for (int i = 0; i < 2; i++)
    for (int part = both[i]->part; part <= both[i]->part + 1; part++) {
      Piece *a = between(s, s->activations, part, both[i]->slot),
            *b = between(s, s->returned, part, both[i]->slot);
      if (a)
        each(a, of, next), each(b, of, next);
    }
}

/* ---- coming and going ------------------------------------------------------------------------------------ */

static void fetch(Piece *p, int use) {
  if (!(use & PD_USES) || p->here)
    return;
  p->here = true;
  p->changed = false;
  p->holds = use & PD_READS ? p->home : NOTHING;
}

static void fetch_both(Piece *p, const struct pd_step *of, const struct pd_step *next) {
  fetch(p, pd_use_of(of, &p->block));
  fetch(p, pd_use_of(next, &p->block));
}

static void release(Piece *p, const struct pd_step *of, const struct pd_step *next) {
  int use = pd_use_of(of, &p->block);
  if (!(use & PD_USES) || pd_use_of(next, &p->block) & PD_USES)
    return;
  if (p->changed && !(use & PD_ENDS))
    p->home = p->holds;
  *p = (Piece){.block = p->block, .home = p->home, .holds = NOTHING};
}

static void promote(Spill *s) {
  struct pd_step now = step_at(s, s->at), next = step_at(s, s->at + 1);
  for_pieces(s, &now, &next, fetch_both);
  s->promoted = true;
}

static void demote(Spill *s) {
  struct pd_step now = step_at(s, s->at), next = step_at(s, s->at + 1);
  for_pieces(s, &now, &next, release);
  s->at = (s->at + 1) % pd_batch_steps(s->parts, s->p->period, s->groups);
  s->promoted = false;
}

/* Whether the turn is the one whose step is under way. */
static bool is_under_way(const Spill *s, const Step *step) {
  struct pd_step now = step_at(s, s->at);
  bool turn = now.kind == PD_STEP_FORWARD || now.kind == PD_STEP_BACKWARD;
  return turn && now.part == step->chunk && now.slot == step->number % s->p->period;
}

const char *spill_promote(Spill *s, const Step *step) {
  if (s->promoted || !is_under_way(s, step))
    return "promotes what is not next; part";
  promote(s);
  return NULL;
}

const char *spill_demote(Spill *s, const Step *step) {
  if (!s->promoted || !is_under_way(s, step))
    return "demotes what was not promoted; part";
  demote(s);
  return NULL;
}

/* ---- work ------------------------------------------------------------------------------------------------ */

static bool has(const Piece *p, int64_t what) { return p->here && p->holds == what; }

static bool set(Piece *p, int64_t what) {
  p->holds = what;
  p->changed = true;
  return p->here;
}

/* What a batch's accumulators hold after so many microbatches. */
static int64_t added(const Spill *s, int64_t batch, int64_t microbatches) {
  return batch * (s->p->period + 1) + microbatches;
}

static bool uses_tied(const Spill *s, int part) { return part == 0 || part == s->parts - 1; }

static const char *check_passes(Spill *s, const Step *step, bool recomputed) {
  int64_t k = step->number, version = (k - 1) / s->p->period, slot = k % s->p->period;
  int part = step->chunk;
  Piece *in = between(s, s->activations, part, slot), *out = between(s, s->activations, part + 1, slot);
  if (!s->promoted || !is_under_way(s, step))
    return "works on what was not promoted; part";
  if (!has(&s->weights[part], version) || (uses_tied(s, part) && !has(&s->weights[tied(s)], version)))
    return "the weights are not in memory; part";
  if (in && !has(in, k))
    return "the activations of the part before are not in memory; part";
  if (out && (recomputed ? !has(out, k) : !set(out, k)))
    return "there is no memory for its activations; part";
  return NULL;
}

static bool accumulate(Spill *s, Piece *gradient, int64_t k) {
  int64_t batch = (k - 1) / s->p->period, before = (k - 1) % s->p->period;
  return (before == 0 || has(gradient, added(s, batch, before))) && set(gradient, added(s, batch, before + 1));
}

static const char *check_backward(Spill *s, const Step *step) {
  int64_t k = step->number, slot = k % s->p->period;
  int part = step->chunk;
  const char *why = check_passes(s, step, true);
  Piece *in = between(s, s->returned, part + 1, slot), *out = between(s, s->returned, part, slot);
  if (why)
    return why;
  if (in && !has(in, k))
    return "the gradients of the next part are not in memory; part";
  if (out && !set(out, k))
    return "there is no memory for the gradients that it returns; part";
  bool adds = accumulate(s, &s->gradient[part], k);
  for (int use = 0; use < 2; use++)
    if (part == (use ? s->parts - 1 : 0))
      adds &= accumulate(s, &s->gradient[tied(s) + use], k);
  return adds ? NULL : "its accumulators are not in memory; part";
}

static bool is_complete(const Spill *s, int parameter, int64_t batch) {
  int64_t whole = added(s, batch, s->p->period);
  return has(&s->gradient[parameter], whole) && (parameter < tied(s) || has(&s->gradient[parameter + 1], whole));
}

/* One step of the sums of squares, or of the update. */
static const char *work_on_group(Spill *s, int group, int64_t batch, bool updates) {
  struct pd_step now = step_at(s, s->at);
  if (now.kind != (updates ? PD_STEP_UPDATE : PD_STEP_SQUARE) || now.group != group)
    return "comes before the passes of the batch; part";
  promote(s);
  for (int i = 0; i <= s->parts; i++) {
    if (s->weights[i].block.group != group)
      continue;
    if (!is_complete(s, i, batch))
      return "the gradients are not in memory; part";
    if (updates && (!has(&s->weights[i], batch) || !has(&s->state[i], batch)))
      return "the weights to update are not in memory; part";
    if (updates)
      set(&s->weights[i], batch + 1), set(&s->state[i], batch + 1);
  }
  demote(s);
  return NULL;
}

const char *spill_check(Spill *s, const Step *step) {
  const char *why = NULL;
  switch (step->action) {
  case DO_FORWARD:
  case DO_RECOMPUTE: return check_passes(s, step, false);
  case DO_BACKWARD: return check_backward(s, step);
  case DO_EXCHANGE:
  case DO_UPDATE:
    for (int g = 0; g < s->groups && !why; g++)
      why = work_on_group(s, g, step->number, step->action == DO_UPDATE);
    return why;
  default: BUG("'%s' works on nothing", action_name(step->action));
  }
}
