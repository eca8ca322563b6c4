/* Checks offload: transfers of blocks follow runtime/shared/moves.h, and a batch's work must find its operands in
 * the blocks. The operands are derived here independently, from the computations of the passes. Every part has a
 * parameter, and one additional parameter is tied between the first part and the last. A prefetch reads the host
 * copy of its begin, which is the worst case. */
#include "schedule/spill.h"
#include "shared/moves.h"

enum { NOTHING = -1 }; /* contents of a block that was never written */

typedef struct Piece {
  struct pd_block block;
  bool here, changed; /* resident; resident copy differs from the host copy */
  int64_t holds, home;
} Piece;

struct Spill {
  const Program *p;
  struct pd_batch batch;
  int parts;
  int64_t at, steps; /* current step of the batch; completed steps */
  Piece *all;
  int n;
  Piece *weights, *state, *gradient, *activations, *returned; /* in `all` */
  /* also in `all`, by part; NULL: the part recomputes */
  Piece *saved[MAX_CHUNKS];
  struct pd_moves moves;
  bool promoted; /* the current step */
};

/* ---- blocks --------------------------------------------------------------------------------------------- */

/* The tied parameter follows those of the parts, and has two gradients. */
static int tied(const Spill *s) { return s->parts; }

static Piece *add_piece(Spill *s, enum pd_block_kind kind, uint64_t parts, int group, int64_t home) {
  Piece *piece = &s->all[s->n++];
  struct pd_block block = {.kind = kind, .bytes = 1, .parts = parts, .group = group};
  *piece = (Piece){.block = block, .holds = NOTHING, .home = home};
  return piece;
}

static Piece *between(const Spill *s, Piece *pieces, int part, int64_t slot) {
  return part > 0 && part < s->parts ? &pieces[(part - 1) * s->p->period + slot] : NULL;
}

static void add_saved(Spill *s) {
  for (int i = 0; i < s->parts; i++) {
    s->saved[i] = program_keeps(s->p, i) ? &s->all[s->n] : NULL;
    for (int64_t slot = 0; s->saved[i] && slot < s->p->period; slot++) {
      Piece *piece = add_piece(s, PD_BLOCK_SAVED, 0, -1, NOTHING);
      piece->block.part = i;
      piece->block.slot = (int)slot;
    }
  }
}

static Piece *add_between(Spill *s, enum pd_block_kind kind) {
  Piece *first = &s->all[s->n];
  for (int i = 1; i < s->parts; i++)
    for (int64_t slot = 0; slot < s->p->period; slot++) {
      Piece *piece = add_piece(s, kind, 0, -1, NOTHING);
      piece->block.part = i;
      piece->block.slot = (int)slot;
      piece->block.rereads = kind == PD_BLOCK_ACTIVATIONS && program_keeps(s->p, i - 1);
    }
  return first;
}

/* Leaves room to pin some blocks and to prefetch some, so that all kinds of moves occur. */
static void decide_moves(Spill *s) {
  struct pd_block *blocks = alloc((size_t)s->n * sizeof *blocks);
  for (int i = 0; i < s->n; i++)
    blocks[i] = s->all[i].block;
  struct pd_holding of = {.block = blocks, .n = s->n, .batch = s->batch, .page = 4096, .kept = 75};
  pd_moves_make(&of, alloc, &s->moves);
  of.room = s->moves.most * 3 / 2;
  pd_moves_make(&of, alloc, &s->moves);
  s->batch = of.batch;
}

Spill *spill_start(const Program *p) {
  Spill *s = alloc(sizeof *s);
  int n = p->chunks;
  *s = (Spill){.p = p, .parts = n};
  s->batch = (struct pd_batch){.parts = n,
                               .turns = program_ends_model(p),
                               .microbatches = p->period,
                               .groups = n,
                               .at_home = p->offload.host_updates};
  s->all = alloc((size_t)(3 * n + 4 + 3 * n * p->period) * sizeof(Piece));
  uint64_t last = (uint64_t)1 << (n - 1);
  s->weights = &s->all[s->n];
  for (int i = 0; i <= n; i++)
    add_piece(s, PD_BLOCK_WEIGHTS, i < n ? (uint64_t)1 << i : 1 | last, i < n ? i : 0, 0);
  s->state = &s->all[s->n];
  for (int i = 0; i <= n; i++)
    add_piece(s, PD_BLOCK_STATE, 0, i < n ? i : 0, 0);
  s->gradient = &s->all[s->n];
  for (int i = 0; i <= n; i++)
    add_piece(s, PD_BLOCK_GRADIENT, i < n ? (uint64_t)1 << i : 1, i < n ? i : 0, NOTHING);
  add_piece(s, PD_BLOCK_GRADIENT, last, 0, NOTHING);
  s->gradient[tied(s)].block.added = s->gradient[tied(s) + 1].block.sums = true;
  s->activations = add_between(s, PD_BLOCK_ACTIVATIONS);
  s->returned = add_between(s, PD_BLOCK_RETURNED);
  add_saved(s);
  decide_moves(s);
  return s;
}

static struct pd_step step_at(const Spill *s, int64_t i) { return pd_batch_step(&s->batch, i); }

/* ---- promotion and demotion -------------------------------------------------------------------- */

static void come(Piece *p, bool read) {
  if (p->here)
    return;
  *p = (Piece){.block = p->block, .here = true, .holds = read ? p->home : NOTHING, .home = p->home};
}

static void leave(Piece *p) {
  if (p->changed)
    p->home = p->holds;
  *p = (Piece){.block = p->block, .holds = NOTHING, .home = p->home};
}

/* In the first batch, blocks that stay later are read at their first use; in later batches they must be
 * resident. */
static void promote(Spill *s) {
  struct pd_step now = step_at(s, s->at);
  const int *block;
  int n = pd_moves_at(&s->moves, PD_ASKED, s->at, &block);
  for (int i = 0; i < n; i++)
    come(&s->all[block[i]], true);
  for (int i = 0; i < s->n; i++) {
    int use = pd_use_of(&now, &s->all[i].block);
    if (use & PD_USES && (!(use & PD_READS) || s->steps < s->moves.steps))
      come(&s->all[i], use & PD_READS);
  }
  s->promoted = true;
}

static void demote(Spill *s) {
  struct pd_step now = step_at(s, s->at);
  const int *block;
  for (int i = 0; i < s->n; i++)
    if (pd_use_of(&now, &s->all[i].block) & PD_ENDS)
      s->all[i].changed = false;
  int n = pd_moves_at(&s->moves, PD_LEAVES, s->at, &block);
  for (int i = 0; i < n; i++)
    leave(&s->all[block[i]]);
  s->at = (s->at + 1) % s->moves.steps;
  s->steps++;
  s->promoted = false;
}

/* Whether the turn belongs to the current step. */
static bool is_under_way(const Spill *s, const Step *step) {
  struct pd_step now = step_at(s, s->at);
  bool turn = now.kind == PD_STEP_FORWARD || now.kind == PD_STEP_BACKWARD;
  return turn && now.part == step->chunk && now.slot == step->number % s->p->period;
}

const char *spill_promote(Spill *s, const Step *step) {
  if (s->promoted || !is_under_way(s, step))
    return "promotes a turn that is not the next one; part";
  promote(s);
  return NULL;
}

/* ---- work ------------------------------------------------------------------------------------------------ */

static bool has(const Piece *p, int64_t what) { return p->here && p->holds == what; }
static bool has_at_home(const Piece *p, int64_t what) { return !p->here && p->home == what; }

static bool set(Piece *p, int64_t what) {
  p->holds = what;
  p->changed = true;
  return p->here;
}

/* Contents of a batch's accumulators after this many microbatches. */
static int64_t added(const Spill *s, int64_t batch, int64_t microbatches) {
  return batch * (s->p->period + 1) + microbatches;
}

static bool uses_tied(const Spill *s, int part) { return part == 0 || part == s->parts - 1; }

/* made: the step's results exist. */
static const char *check_passes(Spill *s, const Step *step, bool made) {
  int64_t k = step->number, version = (k - 1) / s->p->period, slot = k % s->p->period;
  int part = step->chunk;
  Piece *in = between(s, s->activations, part, slot), *out = between(s, s->activations, part + 1, slot);
  if (!s->promoted || !is_under_way(s, step))
    return "runs a turn that was not promoted; part";
  if (!has(&s->weights[part], version) || (uses_tied(s, part) && !has(&s->weights[tied(s)], version)))
    return "the weights are not in memory; part";
  if (in && !has(in, k))
    return "the activations of the part before are not in memory; part";
  if (out && (made ? !has(out, k) : !set(out, k)))
    return "no memory is reserved for its activations; part";
  Piece *saved = s->saved[part] ? &s->saved[part][slot] : NULL;
  if (saved && (made ? !has(saved, k) : !set(saved, k)))
    return "its saved values are not in memory; part";
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
    return "no memory is reserved for the gradients of its input; part";
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

static const char *work_on_parameter(Spill *s, int parameter, int64_t batch, bool updates) {
  Piece *weights = &s->weights[parameter], *state = &s->state[parameter];
  if (!is_complete(s, parameter, batch))
    return "the gradients are not in memory; part";
  if (updates && (!has(weights, batch) || !has(state, batch)))
    return "the weights to update are not in memory; part";
  if (updates)
    set(weights, batch + 1), set(state, batch + 1);
  return NULL;
}

/* Works on the host copy. The sum of a tied parameter's gradients replaces the last of them. */
static const char *work_at_home(Spill *s, int parameter, int64_t batch, bool updates) {
  Piece *weights = &s->weights[parameter], *state = &s->state[parameter], *gradient = &s->gradient[parameter];
  const int64_t whole = added(s, batch, s->p->period), sum = NOTHING - whole;
  const bool several = parameter == tied(s);
  if (!updates && (!has_at_home(gradient, whole) || (several && !has_at_home(&gradient[1], whole))))
    return "the host has no copy of the gradients; part";
  if (!updates && several)
    gradient[1].home = sum;
  if (updates && !has_at_home(&gradient[several], several ? sum : whole))
    return "the host has no copy of the gradients of this update; part";
  if (updates && (!has_at_home(weights, batch) || !has_at_home(state, batch)))
    return "the host has no copy of the weights of this update; part";
  if (updates)
    weights->home = state->home = batch + 1;
  return NULL;
}

/* One step of the sums of squares, or of the update. */
static const char *work_on_group(Spill *s, int64_t batch) {
  struct pd_step now = step_at(s, s->at);
  const char *why = NULL;
  promote(s);
  for (int i = 0; i <= s->parts && !why; i++)
    if (s->weights[i].block.group == now.group)
      why = (now.at_home ? work_at_home : work_on_parameter)(s, i, batch, now.kind == PD_STEP_UPDATE);
  if (!why)
    demote(s);
  return why;
}

/* All following steps of this kind. */
static const char *work_on_groups(Spill *s, enum pd_step_kind kind, int64_t batch) {
  const char *why = NULL;
  while (!why && step_at(s, s->at).kind == kind)
    why = work_on_group(s, batch);
  return why;
}

/* Squares after a pass belong to it: no other stage contributes to these gradients. */
const char *spill_demote(Spill *s, const Step *step) {
  if (!s->promoted || !is_under_way(s, step))
    return "demotes a turn that was not promoted; part";
  demote(s);
  return work_on_groups(s, PD_STEP_SQUARE, (step->number - 1) / s->p->period);
}

static const char *end_batch(Spill *s, enum pd_step_kind kind, int64_t batch) {
  const enum pd_step_kind next = step_at(s, s->at).kind;
  if (s->promoted || (next != kind && next != PD_STEP_UPDATE))
    return "comes before the passes of the batch; part";
  return work_on_groups(s, kind, batch);
}

const char *spill_check(Spill *s, const Step *step) {
  switch (step->action) {
  case DO_FORWARD:
  case DO_RECOMPUTE: return check_passes(s, step, false);
  case DO_BACKWARD: return check_backward(s, step);
  case DO_EXCHANGE: return end_batch(s, PD_STEP_SQUARE, step->number);
  case DO_UPDATE: return end_batch(s, PD_STEP_UPDATE, step->number);
  default: BUG("'%s' works on nothing", action_name(step->action));
  }
}
