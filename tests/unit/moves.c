/* Offloading of blocks (runtime/shared/moves.h) for random models, memory limits and resident shares. Every block
 * that a batch's steps use is in memory with the right contents, and memory stays within the promised limit. The
 * effect of steps is computed here a second time, from the blocks' kinds. For small models, the bytes moved are
 * compared with the minimum over all choices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "shared/moves.h"
#include "random.h"

enum { MOST_BLOCKS = 1000, STEADY = 1, BATCHES = 4 };

static int some(int n) { return (int)below((uint64_t)n); }

/* ---- random models ------------------------------------------------------------------------------------- */

typedef struct Model {
  struct pd_holding of;
  struct pd_block block[MOST_BLOCKS];
} Model;

static struct pd_block *add(Model *m, enum pd_block_kind kind, uint64_t parts, int group, size_t bytes) {
  struct pd_block *b = &m->block[m->of.n++];
  *b = (struct pd_block){.kind = kind, .parts = parts, .group = group, .bytes = bytes};
  return b;
}

static void add_parameter(Model *m, int group) {
  size_t bytes = 1 + (size_t)some(60000);
  int parts = m->of.batch.parts, home = some(parts);
  uint64_t used = (uint64_t)1 << home;
  if (some(4) == 0)
    used |= (uint64_t)1 << some(parts);
  add(m, PD_BLOCK_WEIGHTS, used, group, bytes);
  if (group < 0)
    return;
  for (int p = 0; p < parts; p++)
    if (used >> p & 1) {
      struct pd_block *gradient = add(m, PD_BLOCK_GRADIENT, (uint64_t)1 << p, group, bytes);
      gradient->sums = (used & (((uint64_t)1 << p) - 1)) != 0;
      gradient->added = used >> p > 1;
    }
  for (int i = some(3); i > 0; i--)
    add(m, PD_BLOCK_STATE, some(2) ? used : 0, group, bytes);
}

static void add_between(Model *m, enum pd_block_kind kind) {
  for (int part = 1; part < m->of.batch.parts; part++) {
    size_t bytes = 1 + (size_t)some(30000);
    for (int slot = 0; slot < m->of.batch.microbatches; slot++) {
      struct pd_block *b = add(m, kind, 0, -1, bytes);
      b->part = part;
      b->slot = slot;
    }
  }
}

/* Some parts save values for their backward passes, which then also read the values passed on. The last part's
 * backward pass follows at once. */
static void add_saved(Model *m) {
  uint64_t keeps = below((uint64_t)1 << pd_forward_units(&m->of.batch));
  for (int i = 0; i < m->of.n; i++) {
    struct pd_block *b = &m->block[i];
    b->rereads = b->kind == PD_BLOCK_ACTIVATIONS && keeps >> (b->part - 1) & 1;
  }
  for (int part = 0; part < m->of.batch.parts; part++) {
    size_t bytes = 1 + (size_t)some(50000);
    for (int slot = 0; slot < m->of.batch.microbatches && keeps >> part & 1; slot++) {
      struct pd_block *b = add(m, PD_BLOCK_SAVED, 0, -1, bytes);
      b->part = part;
      b->slot = slot;
    }
  }
}

static void make(Model *m) {
  *m = (Model){.of = {.block = m->block,
                      .page = 4096,
                      .batch = {.parts = 2 + some(5),
                                .turns = some(3) > 0,
                                .microbatches = 1 + some(4),
                                .groups = 1 + some(5),
                                .at_home = some(2) > 0}}};
  for (int group = 0; group < m->of.batch.groups; group++)
    for (int i = 1 + some(3); i > 0; i--)
      add_parameter(m, group);
  if (some(2))
    add_parameter(m, -1);
  add_between(m, PD_BLOCK_ACTIVATIONS);
  add_between(m, PD_BLOCK_RETURNED);
  if (some(2))
    add_saved(m);
}

/* ---- effects of steps ------------------------------------------------------------------------------------- */

static size_t bytes_of(const Model *m, int block) { return pd_paged(m->of.page, m->block[block].bytes); }

/* Numbers represent contents: of a block before a step, and after it. */
typedef struct Run {
  const Model *m;
  const struct pd_moves *moves;
  bool here[MOST_BLOCKS], leaving[MOST_BLOCKS];
  int64_t in_memory[MOST_BLOCKS], home[MOST_BLOCKS], wanted[MOST_BLOCKS], counter;
  int64_t read, written; /* bytes of the last batch */
  bool dirty[MOST_BLOCKS];
} Run;

static void check_memory(const Run *r) {
  size_t bytes = 0;
  for (int i = 0; i < r->m->of.n; i++)
    bytes += r->here[i] || r->leaving[i] ? bytes_of(r->m, i) : 0;
  assert_true(bytes <= r->moves->most);
}

static void ask(Run *r, int block) {
  assert_false(r->here[block]);
  r->here[block] = true;
  r->dirty[block] = false;
  r->in_memory[block] = r->home[block];
  r->read += (int64_t)bytes_of(r->m, block);
}

/* The host copy is up to date: the block is not in memory and not in transfer. */
static void work_at_home(Run *r, int use, int block) {
  assert_false(r->here[block] || r->leaving[block]);
  if (use & PD_READS)
    assert_int_equal(r->home[block], r->wanted[block]);
  if (use & PD_WRITES)
    r->wanted[block] = r->home[block] = ++r->counter;
}

static void work(Run *r, const struct pd_step *s, int block, int64_t batch) {
  int use = pd_use_of(s, &r->m->block[block]);
  assert_false(use & PD_USES && use & PD_HOME);
  if (use & PD_HOME)
    work_at_home(r, use, block);
  if (!(use & PD_USES))
    return;
  if (!r->here[block]) { /* undefined if overwritten; in the first batch, blocks that stay later are not yet in
                         memory */
    assert_true(!(use & PD_READS) || batch < STEADY);
    r->here[block] = true;
    r->dirty[block] = false;
    r->in_memory[block] = use & PD_READS ? r->home[block] : -1;
  }
  if (use & PD_READS)
    assert_int_equal(r->in_memory[block], r->wanted[block]);
  if (use & PD_WRITES) {
    r->wanted[block] = r->in_memory[block] = ++r->counter;
    r->dirty[block] = true;
  }
  if (use & PD_ENDS)
    r->dirty[block] = false;
}

static void leave(Run *r, int block) {
  assert_true(r->here[block]);
  r->here[block] = false;
  if (!r->dirty[block])
    return;
  r->home[block] = r->in_memory[block];
  r->leaving[block] = true;
  r->written += (int64_t)bytes_of(r->m, block);
}

static void step(Run *r, int64_t at, int64_t batch) {
  const struct pd_holding *of = &r->m->of;
  const int *block;
  struct pd_step s = pd_batch_step(&of->batch, at);
  for (int i = pd_moves_at(r->moves, PD_DUE, at, &block); i-- > 0;)
    r->leaving[block[i]] = false;
  int n = pd_moves_at(r->moves, PD_ASKED, at, &block);
  for (int i = 0; i < n; i++)
    if (batch >= STEADY || !r->here[block[i]])
      ask(r, block[i]);
  for (int i = 0; i < of->n; i++)
    work(r, &s, i, batch);
  check_memory(r);
  n = pd_moves_at(r->moves, PD_LEAVES, at, &block);
  for (int i = 0; i < n; i++)
    leave(r, block[i]);
}

static void run(const Model *m, const struct pd_moves *moves, Run *r) {
  *r = (Run){.m = m, .moves = moves};
  for (int64_t batch = 0; batch < BATCHES; batch++) {
    r->read = r->written = 0;
    for (int64_t at = 0; at < moves->steps; at++)
      step(r, at, batch);
  }
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static size_t all_bytes(const Model *m) {
  size_t bytes = 0;
  for (int i = 0; i < m->of.n; i++)
    bytes += bytes_of(m, i);
  return bytes;
}

static struct pd_moves moves_in(Model *m, size_t room, int kept) {
  struct pd_moves moves;
  m->of.room = room;
  m->of.kept = kept;
  pd_moves_make(&m->of, alloc, &moves);
  return moves;
}

static void contents_and_memory_hold(void **unused) {
  (void)unused;
  static Model m;
  static Run r;
  for (int i = 0; i < 3000; i++) {
    ArenaMark mark = arena_mark();
    make(&m);
    size_t least = moves_in(&m, 0, 0).most, all = all_bytes(&m);
    for (int k = 0; k < 6; k++) {
      size_t room = k == 0 ? least : least + (size_t)some((int)(all + 100 - least + 1));
      struct pd_moves moves = moves_in(&m, room, k == 1 ? 100 : some(101));
      assert_true(moves.most <= (room > least ? room : least));
      run(&m, &moves, &r);
    }
    arena_release(mark);
  }
}

/* Blocks updated by the host are read once more and their gradients written; blocks used only by the update stay
 * on the host. */
static void where_all_fits_nothing_else_moves(void **unused) {
  (void)unused;
  static Model m;
  static Run r;
  int at_home = 0;
  for (int i = 0; i < 300; i++) {
    int64_t read = 0, written = 0;
    make(&m);
    for (int k = 0; k < m.of.n && m.of.batch.at_home; k++) {
      read += m.block[k].kind == PD_BLOCK_WEIGHTS && m.block[k].group >= 0 ? (int64_t)bytes_of(&m, k) : 0;
      written += m.block[k].kind == PD_BLOCK_GRADIENT ? (int64_t)bytes_of(&m, k) : 0;
    }
    struct pd_moves moves = moves_in(&m, all_bytes(&m) + 100, 100);
    run(&m, &moves, &r);
    assert_int_equal(r.read, read);
    assert_int_equal(r.written, written);
    at_home += written > 0;
  }
  assert_true(at_home > 100);
}

/* Reads are issued early. With room for two of the largest step, no read is issued as late as its step, except of
 * blocks evicted just before. */
static void reading_ahead_takes_what_room_there_is(void **unused) {
  (void)unused;
  static Model m;
  for (int i = 0; i < 300; i++) {
    make(&m);
    m.of.batch.at_home = false; /* the first part may wait for the last group */
    size_t least = moves_in(&m, 0, 0).most;
    struct pd_moves tight = moves_in(&m, least, 0), wide = moves_in(&m, 3 * least, 0);
    int64_t late = 0;
    const struct pd_holding *of = &m.of;
    for (int64_t at = 0; at < wide.steps; at++) {
      const int *block;
      struct pd_step s = pd_batch_step(&of->batch, at);
      for (int k = pd_moves_at(&wide, PD_ASKED, at, &block); k-- > 0;)
        late += (pd_use_of(&s, &m.block[block[k]]) & PD_USES) != 0;
    }
    assert_int_equal(late, 0);
    assert_true(wide.most >= tight.most);
  }
}

/* Whether a group's gradients are complete before step `at`; `behind`: the last step that added to one, -1: none
 * is offloaded. */
static bool is_complete_before(const Model *m, int group, int64_t at, int64_t *behind) {
  *behind = -1;
  for (int64_t i = 0; i < m->of.batch.steps; i++) {
    const struct pd_step s = pd_batch_step(&m->of.batch, i);
    for (int k = 0; k < m->of.n && s.kind == PD_STEP_BACKWARD; k++)
      if (m->block[k].kind == PD_BLOCK_GRADIENT && m->block[k].group == group && m->block[k].parts >> s.part & 1)
        *behind = i;
  }
  return *behind < at;
}

/* Norms of gradients follow the part that completes them. On the host they follow one part later, to allow for the
 * transfer; those of other stages' gradients follow all parts. */
static void squares_come_as_gradients_are_complete(void **unused) {
  (void)unused;
  static Model m;
  int early = 0;
  for (int i = 0; i < 300; i++) {
    make(&m);
    const bool all_shared = some(4) == 0;
    for (int k = 0; k < m.of.n; k++)
      m.block[k].shared = all_shared && m.block[k].kind == PD_BLOCK_WEIGHTS;
    struct pd_batch *b = &m.of.batch;
    pd_batch_order(b, m.block, m.of.n, alloc);
    for (int64_t at = 0; at < b->steps; at++) {
      const struct pd_step s = pd_batch_step(b, at);
      int64_t behind, others = 0;
      if (s.kind != PD_STEP_SQUARE)
        continue;
      assert_int_equal(b->square[s.group], at);
      assert_true(is_complete_before(&m, s.group, at, &behind));
      for (int64_t j = behind + 1; j < at; j++)
        others += pd_batch_step(b, j).kind == PD_STEP_BACKWARD;
      const bool last = pd_batch_step(b, behind >= 0 ? behind : 0).part == 0;
      if (all_shared)
        assert_true(at >= b->steps - 2 * b->groups);
      else
        assert_int_equal(others, b->at_home && !last ? b->microbatches : 0);
      early += at < b->steps - 2 * b->groups;
    }
  }
  assert_true(early > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(contents_and_memory_hold),
                                     cmocka_unit_test(squares_come_as_gradients_are_complete),
                                     cmocka_unit_test(where_all_fits_nothing_else_moves),
                                     cmocka_unit_test(reading_ahead_takes_what_room_there_is)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
