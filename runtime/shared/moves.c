/* A block's uses are ranges of steps. Between two uses a block may stay resident; or it leaves, is written if it
 * changed, and is read before the next use. A block leaves before a use in the offload place, and is read after
 * it. Memory is assigned in this order: to the uses; to blocks that stay, shortest intervals first, because they
 * save as much reading as long ones; to one step of time for writes; to prefetch, in the order of need, as early
 * as possible; to more time for writes. */
#include "shared/moves.h"
#include "shared/moves_room.h"

#include <stdlib.h>

struct use {
  int64_t from, to;
  int block;
  bool reads, writes, ends;
  bool home;       /* not resident in between */
  bool stays;      /* until the next one */
  bool changed;    /* at its end: changed since the last write */
  int64_t asked;   /* reads: the step at whose begin the read is requested */
  int64_t written; /* leaves changed: the step before whose begin the write must end */
};

struct making {
  const struct pd_holding *of;
  struct use *use; /* sorted by block and step */
  int n;
  int *first; /* first use by block, with one more entry */
  struct pd_fill fill;
  void *(*take)(size_t bytes);
};

/* ---- uses ---------------------------------------------------------------------------------------- */

static void add_use(struct making *m, int block, int64_t from, int64_t to) {
  const struct pd_holding *of = m->of;
  struct pd_step s = pd_batch_step(&of->batch, from);
  int use = pd_use_of(&s, &of->block[block]);
  if (use & (PD_USES | PD_HOME))
    m->use[m->n++] = (struct use){.from = from,
                                  .to = to,
                                  .block = block,
                                  .home = use & PD_HOME,
                                  .reads = use & PD_READS,
                                  .writes = use & PD_WRITES,
                                  .ends = use & PD_ENDS};
}

/* Passes use parameters in all steps of a part. */
static void add_uses_of_parameter(struct making *m, int block) {
  const struct pd_batch *b = &m->of->batch;
  const int group = m->of->block[block].group;
  for (int unit = 0; unit < pd_batch_units(b); unit++)
    add_use(m, block, b->unit[unit], b->unit[unit] + b->microbatches - 1);
  if (group < 0) return;
  add_use(m, block, b->square[group], b->square[group]);
  add_use(m, block, pd_update_step(b, group), pd_update_step(b, group));
}

/* Blocks between two parts, or saved by a part, are used only by their microbatch's turns of these parts. */
static void add_uses_between(struct making *m, int block) {
  const struct pd_block *of = &m->of->block[block];
  const struct pd_batch *b = &m->of->batch;
  const int64_t turn = (of->slot + b->microbatches - 1) % b->microbatches;
  const int units = pd_batch_units(b), part = of->part, back = units - 1 - part,
            unit[4] = {part - 1, part, back, back + 1};
  for (int k = 0; k < 4; k++) /* the model's last part has one unit */
    if (unit[k] >= 0 && unit[k] < units && (k != 2 || back > part))
      add_use(m, block, b->unit[unit[k]] + turn, b->unit[unit[k]] + turn);
}

static void find_uses(struct making *m) {
  const struct pd_holding *of = m->of;
  size_t most = 0;
  for (int i = 0; i < of->n; i++)
    most += of->block[i].kind <= PD_BLOCK_STATE ? 2 * (size_t)of->batch.parts + 2 : 4;
  m->use = m->take(most * sizeof *m->use);
  m->first = m->take(((size_t)of->n + 1) * sizeof *m->first);
  for (int i = 0; i < of->n; i++) {
    m->first[i] = m->n;
    (of->block[i].kind <= PD_BLOCK_STATE ? add_uses_of_parameter : add_uses_between)(m, i);
  }
  m->first[of->n] = m->n;
}

/* The block's next use, and the steps between them. */
static struct use *next_of(const struct making *m, const struct use *u, int64_t *between) {
  int next = (int)(u - m->use) + 1, block = u->block;
  bool wraps = next == m->first[block + 1];
  struct use *after = &m->use[wraps ? m->first[block] : next];
  *between = after->from - u->to - 1 + (wraps ? m->fill.steps : 0);
  return after;
}

static int64_t bytes_of(const struct making *m, const struct use *u) {
  return (int64_t)pd_paged(m->of->page, m->of->block[u->block].bytes);
}

/* ---- what stays ---------------------------------------------------------------------------------- */

struct wait {
  struct use *use;
  int64_t steps; /* in halves, for a saved read and possibly a saved write */
};

static int by_length(const void *a, const void *b) {
  const struct wait *x = a, *y = b;
  if (x->steps != y->steps) return x->steps < y->steps ? -1 : 1;
  return (x->use > y->use) - (x->use < y->use);
}

static void keep_what_may_stay(struct making *m) {
  int64_t limit = (int64_t)(m->of->room / 100) * m->of->kept, between;
  struct wait *wait = m->take(((size_t)m->n + 1) * sizeof *wait);
  int n = 0;
  for (struct use *u = m->use; u < m->use + m->n; u++) {
    const struct use *next = next_of(m, u, &between);
    if (u->home || next->home) continue;
    if (between == 0)
      u->stays = !u->ends && next->reads;
    else if (next->reads && !u->ends)
      wait[n++] = (struct wait){u, between * (next->writes || next->ends ? 1 : 2)};
  }
  qsort(wait, (size_t)n, sizeof *wait, by_length);
  for (int i = 0; i < n; i++) {
    struct use *u = wait[i].use;
    int64_t bytes = bytes_of(m, u);
    next_of(m, u, &between);
    if (pd_fill_most(&m->fill, u->to + 1, u->to + between) > limit - bytes) continue;
    u->stays = true;
    pd_fill_add(&m->fill, u->to + 1, u->to + between, bytes);
  }
}

/* Two rounds, because a changed block may stay into the next batch. Changes in the offload place need no write. */
static void find_changed(struct making *m) {
  for (int block = 0; block < m->of->n; block++) {
    bool changed = false;
    for (int round = 0; round < 2; round++)
      for (struct use *u = m->use + m->first[block]; u < m->use + m->first[block + 1]; u++) {
        changed |= u->writes;
        changed &= !u->ends && !u->home;
        u->changed = changed;
        changed &= u->stays;
      }
  }
}

/* ---- reading ahead, and writing behind ------------------------------------------------------------ */

static bool is_written(const struct use *u) { return u->changed && !u->stays; }

/* Extends residency by one step, if there is room, and by preceding SQUARE steps, which take no time. */
static void give_a_step(struct making *m) {
  int64_t between;
  for (struct use *u = m->use; u < m->use + m->n; u++) {
    int64_t more = 1;
    u->written = u->to + 1;
    next_of(m, u, &between);
    if (!is_written(u) || !between) continue;
    while (more < between && pd_batch_step(&m->of->batch, u->to + more).kind == PD_STEP_SQUARE) more++;
    int64_t bytes = bytes_of(m, u);
    if (pd_fill_most(&m->fill, u->to + 1, u->to + more) > (int64_t)m->of->room - bytes) continue;
    pd_fill_add(&m->fill, u->to + 1, u->to + more, bytes);
    u->written += more;
  }
}

/* Ordered by first step. */
static int *in_order(const struct making *m) {
  const int64_t steps = m->fill.steps;
  int *order = m->take(((size_t)m->n + 1) * sizeof *order);
  int *at = m->take(((size_t)steps + 1) * sizeof *at);
  for (int i = 0; i < m->n; i++) at[m->use[i].from + 1]++;
  for (int64_t s = 0; s < steps; s++) at[s + 1] += at[s];
  for (int i = 0; i < m->n; i++) order[at[m->use[i].from]++] = i;
  return order;
}

/* The previous use of the block, possibly in the previous batch. */
static int64_t free_from(const struct making *m, const struct use *u, bool *stayed) {
  int i = (int)(u - m->use), first = m->first[u->block];
  const struct use *before = &m->use[i > first ? i - 1 : m->first[u->block + 1] - 1];
  *stayed = before->stays;
  return before->to + 1 - (i > first ? 0 : m->fill.steps);
}

static void ask_early(struct making *m, const int *order) {
  int64_t last = -m->fill.steps;
  for (int i = 0; i < m->n; i++) {
    struct use *u = &m->use[order[i]];
    bool stayed;
    int64_t since = free_from(m, u, &stayed);
    if (stayed || !u->reads || u->home) {
      u->reads = false; /* nothing to request */
      continue;
    }
    since = since > last ? since : last;
    u->asked = pd_fill_since(&m->fill, since, u->from - 1, (int64_t)m->of->room - bytes_of(m, u));
    if (u->asked < u->from) pd_fill_add(&m->fill, u->asked, u->from - 1, bytes_of(m, u));
    last = u->asked;
  }
}

static void write_late(struct making *m) {
  int64_t between;
  for (struct use *u = m->use; u < m->use + m->n; u++) {
    if (!is_written(u)) continue;
    const struct use *next = next_of(m, u, &between);
    int64_t again = u->to + 1 + between;
    if (next->reads) again -= next->from - next->asked;
    int64_t until = pd_fill_until(&m->fill, u->written, again - 1, (int64_t)m->of->room - bytes_of(m, u));
    if (until > u->written) pd_fill_add(&m->fill, u->written, until - 1, bytes_of(m, u));
    u->written = until > u->written ? until : u->written;
  }
}

/* ---- lists --------------------------------------------------------------------------------------- */

/* The step of the use's move, possibly in an adjacent batch; false: no move. */
static bool move_at(const struct use *u, enum pd_move what, int64_t *step) {
  *step = what == PD_ASKED ? u->asked : what == PD_LEAVES ? u->to : u->written;
  return what == PD_ASKED ? u->reads : what == PD_LEAVES ? !u->stays && !u->home : is_written(u);
}

static void list_move(const struct use *u, enum pd_move what, int64_t at, struct pd_moves *to) {
  to->block[what][at] = u->block;
  if (what == PD_ASKED) to->needed[at] = u->from;
  if (what == PD_LEAVES) to->changed[at] = u->changed;
}

/* Moves of this batch's uses come first: requests for the next batch are needed later. */
static void list_moves(const struct making *m, const int *order, enum pd_move what, struct pd_moves *to) {
  const int64_t steps = m->fill.steps;
  int64_t *first = to->first[what] = m->take(((size_t)steps + 2) * sizeof *first), step;
  to->block[what] = m->take(((size_t)m->n + 1) * sizeof *to->block[what]);
  for (int i = 0; i < m->n; i++)
    if (move_at(&m->use[i], what, &step)) first[(step + steps) % steps + 2]++;
  for (int64_t s = 0; s < steps; s++) first[s + 2] += first[s + 1];
  for (int earlier = 0; earlier < 2; earlier++)
    for (int i = 0; i < m->n; i++) {
      const struct use *u = &m->use[order[i]];
      if (move_at(u, what, &step) && (step < 0) == earlier)
        list_move(u, what, first[(step + steps) % steps + 1]++, to);
    }
}

/* A validation needs the weights of two adjacent parts resident; host accesses need two blocks. */
static size_t most_beside(const struct pd_holding *of) {
  size_t largest = 0, most = 0;
  for (int i = 0; i < of->n; i++) {
    size_t bytes = pd_paged(of->page, of->block[i].bytes);
    largest = bytes > largest ? bytes : largest;
  }
  for (int part = 0; part < of->batch.parts; part++) {
    struct pd_step now = {.kind = PD_STEP_VALIDATE, .part = part}, next = now;
    size_t bytes = 0;
    next.part += part + 1 < of->batch.parts;
    for (int i = 0; i < of->n; i++)
      if ((pd_use_of(&now, &of->block[i]) | pd_use_of(&next, &of->block[i])) & PD_USES)
        bytes += pd_paged(of->page, of->block[i].bytes);
    most = bytes > most ? bytes : most;
  }
  return most > 2 * largest ? most : 2 * largest;
}

void pd_moves_make(struct pd_holding *of, void *(*take)(size_t bytes), struct pd_moves *moves) {
  struct making m = {.of = of, .take = take};
  pd_batch_order(&of->batch, of->block, of->n, take);
  *moves = (struct pd_moves){.steps = of->batch.steps};
  pd_fill_start(&m.fill, moves->steps, take);
  find_uses(&m);
  for (int i = 0; i < m.n; i++)
    if (!m.use[i].home) pd_fill_add(&m.fill, m.use[i].from, m.use[i].to, bytes_of(&m, &m.use[i]));
  const size_t used = (size_t)pd_fill_most(&m.fill, 0, moves->steps - 1), beside = most_beside(of);
  moves->most = used > beside ? used : beside;
  if (of->must_fit && moves->most > of->room) return;
  const int *order = in_order(&m);
  keep_what_may_stay(&m);
  find_changed(&m);
  give_a_step(&m);
  ask_early(&m, order);
  write_late(&m);
  moves->needed = take(((size_t)m.n + 1) * sizeof *moves->needed);
  moves->changed = take((size_t)m.n + 1);
  for (enum pd_move what = 0; what < PD_N_MOVES; what++) list_moves(&m, order, what, moves);
  const size_t most = (size_t)pd_fill_most(&m.fill, 0, moves->steps - 1);
  moves->most = most > beside ? most : beside;
}

void pd_moves_there(const struct pd_moves *m, int64_t step, bool *there) {
  const int *block;
  for (int64_t i = 0; i < m->steps; i++) {
    int64_t at = (step + i) % m->steps; /* a whole batch, ending at the step */
    for (int k = pd_moves_at(m, PD_LEAVES, at, &block); k-- > 0;) there[block[k]] = false;
    for (int k = pd_moves_at(m, PD_ASKED, (at + 1) % m->steps, &block); k-- > 0;) there[block[k]] = true;
  }
}
