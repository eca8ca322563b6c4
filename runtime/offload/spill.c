/* Offload (docs/guide/offload.md) for any target. A step of the batch, which is a turn or a group of parameters,
 * first waits for its blocks and requests the reads that are due; at its end it releases blocks that leave.
 * spilled.h defines the blocks of a step, moves.h the time of each move, and the target moves blocks (spill.h).
 * Between steps the host may access any parameter (pd_view and others): its block becomes resident until two more
 * blocks were requested. After other uses of the memory, by a validation, another model or host accesses, missing
 * blocks are read again. */
#include "offload/spill.h"
#include "run/upward.h"
#include "sharp/turn.h"
#include "update/update.h"
#include "shared/moves.h"
#include "transfer.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, N_VISITS = 2 };

struct pd_spill_blocks pd_spill_blocks;
enum { N_BETWEEN = 3 };

static struct {
  struct pd_spill_block *blocks;
  int n_blocks, n_of_parameters; /* blocks of parameters precede all other blocks */
  int *first_between
      [N_BETWEEN]; /* by part: first block of activations, of their gradients, of saved values; -1: none */
  int n_groups;
  int *group_of, *group_first; /* group by parameter; first parameter by group, with one more entry */
  struct pd_batch batch;
  struct pd_moves moves;
  int64_t reached;   /* current or next step of the batch */
  size_t held_bytes; /* bytes resident for steps */
  bool as_planned;   /* residency follows the moves */
  bool in_step;
  bool *there;                              /* by block, for pd_moves_there() */
  struct pd_spill_block *visited[N_VISITS]; /* the latest first */
  bool goes_on;
  struct pd_step after; /* the unit that just ended */
} offload = {.goes_on = true};

bool pd_spills(void) { return offload.n_blocks > 0; }
bool pd_updates_at_home(void) { return offload.n_blocks > 0 && pd.stage->spilled->at_home; }
static size_t paged(const struct pd_spill_block *b) { return pd_paged(pd.stage->spilled->page, b->block.bytes); }
static int parts(void) { return pd.stage->spilled->parts; }

/* ---- blocks ------------------------------------------------------------------------------------ */

static void add(enum pd_block_kind kind, size_t offset, size_t bytes, uint64_t used_by, int parameter) {
  struct pd_block b = {.kind = kind, .offset = offset, .bytes = bytes, .parts = used_by};
  b.group = parameter >= 0 ? offload.group_of[parameter] : -1;
  if (bytes) offload.blocks[offload.n_blocks++] = (struct pd_spill_block){.block = b, .parameter = parameter};
}

static size_t in_arena(const void *at) { return (size_t)((const char *)at - pd.arena); }

static void add_parameter(int i) {
  const struct pd_stage *s = pd.stage;
  const struct pd_parameter *p = &s->parameters[i];
  const struct pd_spilled_parameter *of = &s->spilled->parameters[i];
  size_t f32 = (size_t)p->elements * sizeof(float);
  add(PD_BLOCK_WEIGHTS, in_arena(pd_weights_at(p, 0)), p->bf16 ? f32 / 2 : f32, of->parts, i);
  offload.blocks[offload.n_blocks - 1].block.shared = of->gradients_stay;
  if (p->frozen) return;
  for (int use = 0; use < p->n_uses && !of->gradients_stay; use++) {
    add(PD_BLOCK_GRADIENT, in_arena(pd_accumulators(0)) + p->uses[use].offset, f32, (uint64_t)1 << of->uses[use],
        i);
    offload.blocks[offload.n_blocks - 1].block.sums = use > 0 && use + 1 == p->n_uses;
    offload.blocks[offload.n_blocks - 1].block.added = use + 1 < p->n_uses;
  }
  for (int m = 0; m < s->n_moments && pd_is_trained(p); m++) {
    const float *moment = pd_moment_at(p, m);
    if (moment)
      add(PD_BLOCK_STATE, in_arena(moment), (size_t)pd_moment_shape(p, m).elements * sizeof(float), 0, i);
  }
  if (s->has_masters) add(PD_BLOCK_STATE, s->masters + p->state, f32, 0, i);
  if (pd_average_at(p)) add(PD_BLOCK_STATE, in_arena(pd_average_at(p)), f32, of->parts, i);
}

static int by_offset(const void *a, const void *b) {
  const struct pd_spill_block *x = a, *y = b;
  return (x->block.offset > y->block.offset) - (x->block.offset < y->block.offset);
}

/* As pdc's allocate/spill.c does. */
static void join_neighbours(void) {
  struct pd_block *all = pd_allocate(sizeof *all * (size_t)offload.n_blocks);
  qsort(offload.blocks, (size_t)offload.n_blocks, sizeof *offload.blocks, by_offset);
  for (int i = 0; i < offload.n_blocks; i++) all[i] = offload.blocks[i].block;
  int n = pd_join_blocks(all, offload.n_blocks, pd.stage->spilled->page);
  for (int i = 0, from = 0; i < n; i++) {
    while (offload.blocks[from].block.offset != all[i].offset) from++;
    offload.blocks[i] = (struct pd_spill_block){.block = all[i], .parameter = offload.blocks[from].parameter};
  }
  offload.n_blocks = n;
  free(all);
}

/* One slot per microbatch, in order. */
static void add_between(enum pd_block_kind kind) {
  for (int part = 0; part < parts(); part++) {
    const struct pd_cut *c = &pd.stage->spilled->cuts[part];
    const size_t at[] = {c->activations, c->returned, c->saved},
                 bytes[] = {c->activations_bytes, c->returned_bytes, c->saved_bytes};
    const int of = kind - PD_BLOCK_ACTIVATIONS;
    offload.first_between[of][part] = bytes[of] ? offload.n_blocks : -1;
    for (int slot = 0; bytes[of] && slot < pd.stage->microbatches; slot++) {
      add(kind, at[of] + (size_t)slot * bytes[of], bytes[of], 0, -1);
      struct pd_block *b = &offload.blocks[offload.n_blocks - 1].block;
      b->part = part;
      b->slot = slot;
      b->rereads = kind == PD_BLOCK_ACTIVATIONS && c[-1].keeps;
    }
  }
}

static int64_t find_homes(void) {
  int64_t bytes = 0;
  for (int i = 0; i < offload.n_blocks; i++) {
    offload.blocks[i].home = bytes;
    bytes += (int64_t)(offload.blocks[i].block.bytes + PAGE - 1) / PAGE * PAGE;
  }
  return bytes;
}

/* The first part with a gradient of the parameter. */
static int first_part(int parameter) {
  const struct pd_spilled_parameter *of = &pd.stage->spilled->parameters[parameter];
  int part = parts();
  for (int use = 0; use < pd.stage->parameters[parameter].n_uses && !of->gradients_stay; use++)
    part = of->uses[use] < part ? of->uses[use] : part;
  return part < parts() ? part : -1;
}

/* As pdc's allocate/spill.c does. */
static void make_groups(void) {
  const struct pd_stage *s = pd.stage;
  struct pd_grouping g = {0};
  offload.group_of = pd_allocate(sizeof *offload.group_of * (size_t)s->n_parameters);
  offload.group_first = pd_allocate(sizeof *offload.group_first * (size_t)(s->n_parameters + 1));
  for (int i = 0; i < s->n_parameters; i++)
    if (!s->parameters[i].frozen && s->parameters[i].elements > g.most) g.most = s->parameters[i].elements;
  for (int i = 0; i < s->n_parameters; i++) {
    offload.group_of[i] = s->parameters[i].frozen ? -1 : pd_group_of(&g, s->parameters[i].elements, first_part(i));
    if (g.groups > offload.n_groups) offload.group_first[offload.n_groups++] = i;
  }
  offload.group_first[offload.n_groups] = s->n_parameters;
}

static int most_blocks(void) {
  const struct pd_stage *s = pd.stage;
  int n = N_BETWEEN * parts() * (int)s->microbatches;
  for (int i = 0; i < s->n_parameters; i++) n += 3 + s->n_moments + s->parameters[i].n_uses;
  return n;
}

/* The last stage has the model's last part. */
static void decide_moves(void) {
  const struct pd_stage *of_rank = pd.stage;
  const struct pd_spilled *s = of_rank->spilled;
  struct pd_block *all = pd_allocate(sizeof *all * (size_t)offload.n_blocks);
  for (int i = 0; i < offload.n_blocks; i++) all[i] = offload.blocks[i].block;
  struct pd_holding of = {.block = all, .n = offload.n_blocks, .page = s->page, .room = s->room, .kept = s->kept};
  of.batch = (struct pd_batch){.parts = s->parts,
                               .turns = of_rank->stage == of_rank->n_stages - 1,
                               .microbatches = of_rank->microbatches,
                               .groups = offload.n_groups,
                               .at_home = s->at_home};
  pd_moves_make(&of, pd_allocate, &offload.moves);
  offload.batch = of.batch;
  offload.there = pd_allocate((size_t)offload.n_blocks);
}

bool pd_spill_start(char *why) {
  const struct pd_spilled *s = pd.stage->spilled;
  if (!s || pd.emulate) return true;
  const char *place = pd_options.spill ? pd_options.spill : s->place ? s->place : pd_spill_usual_place();
  if (!place)
    return pd_refuse(why, "--spill DIR, the offload directory, is missing: the plan offloads parameters");
  if (pd_options.checkpoint_background)
    return pd_refuse(
        why,
        "--checkpoint-background needs all of the state resident, but the plan offloads part of it. help: leave "
        "out --checkpoint-background");
  make_groups();
  offload.blocks = pd_allocate(sizeof *offload.blocks * (size_t)most_blocks());
  for (int i = 0; i < N_BETWEEN; i++)
    offload.first_between[i] = pd_allocate(sizeof **offload.first_between * (size_t)parts());
  for (int i = 0; i < pd.stage->n_parameters; i++) add_parameter(i);
  join_neighbours();
  offload.n_of_parameters = offload.n_blocks;
  add_between(PD_BLOCK_ACTIVATIONS);
  add_between(PD_BLOCK_RETURNED);
  add_between(PD_BLOCK_SAVED);
  pd_spill_blocks = (struct pd_spill_blocks){offload.blocks, offload.n_blocks};
  decide_moves();
  pd_sharp_in_parts();
  return pd_spill_place_start(place, find_homes(), why);
}

const char *pd_spill_name(const struct pd_spill_block *b, char *to, size_t n) {
  static const char *const what[] = {[PD_BLOCK_WEIGHTS] = "weights",
                                     [PD_BLOCK_GRADIENT] = "gradient",
                                     [PD_BLOCK_STATE] = "optimizer's state",
                                     [PD_BLOCK_ACTIVATIONS] = "activations",
                                     [PD_BLOCK_RETURNED] = "activations' gradients"};
  if (b->parameter >= 0)
    snprintf(to, n, "the %s of '%s'", what[b->block.kind], pd.stage->parameters[b->parameter].name);
  else if (b->block.kind == PD_BLOCK_SAVED)
    snprintf(to, n, "what part %d has saved", b->block.part);
  else
    snprintf(to, n, "the %s between parts %d and %d", what[b->block.kind], b->block.part - 1, b->block.part);
  return to;
}

/* ---- blocks resident for steps ------------------------------------------------------------------ */

static void leave(struct pd_spill_block *b) {
  if (b->held) offload.held_bytes -= paged(b);
  b->held = false;
  pd_spill_request(b, b->dirty ? PD_SPILL_WRITE : PD_SPILL_DROP);
}

static void come(struct pd_spill_block *b, enum pd_spill_request how) {
  if (b->here) return;
  pd_spill_request(b, how);
  b->dirty = false;
  b->held = true;
  offload.held_bytes += paged(b);
}

/* Releases blocks that these steps do not use; NULL: all blocks. */
static void release_others(const struct pd_step *one, const struct pd_step *other) {
  for (int i = 0; i < offload.n_blocks; i++) {
    bool used =
        one && ((pd_use_of(one, &offload.blocks[i].block) | pd_use_of(other, &offload.blocks[i].block)) & PD_USES);
    if (offload.blocks[i].held && !used) leave(&offload.blocks[i]);
  }
  offload.as_planned = false;
}

static void await_all_written(void) {
  for (int i = 0; i < offload.n_blocks; i++) pd_spill_await_written(&offload.blocks[i]);
}

/* ---- the host looks at parameters -------------------------------------------------------------- */

static void leave_visited(int at) {
  if (offload.visited[at]) leave(offload.visited[at]);
  offload.visited[at] = NULL;
}

struct pd_spill_block *pd_spill_block_at(const void *at) {
  const size_t offset = in_arena(at);
  int low = 0, high = offload.n_blocks;
  while (low < high) {
    int middle = (low + high) / 2;
    const struct pd_block *b = &offload.blocks[middle].block;
    if (b->offset + b->bytes <= offset)
      low = middle + 1;
    else
      high = middle;
  }
  return low < offload.n_blocks && offload.blocks[low].block.offset <= offset ? &offload.blocks[low] : NULL;
}

/* Two blocks for host access are resident besides the blocks of steps; if that exceeds the planned memory, blocks
 * of steps are released. */
static void make_room(const struct pd_spill_block *b) {
  size_t bytes = offload.held_bytes + paged(b) + (offload.visited[0] ? paged(offload.visited[0]) : 0);
  if (offload.in_step || !offload.held_bytes || bytes <= offload.moves.most) return;
  release_others(NULL, NULL);
  await_all_written();
}

static void visit(struct pd_spill_block *b) {
  int at = 0;
  while (at < N_VISITS && offload.visited[at] != b) at++;
  if (at == N_VISITS && b->here) { /* a step has it */
    pd_spill_await(b);
    return;
  }
  if (at == N_VISITS) {
    leave_visited(--at);
    make_room(b);
    pd_spill_request(b, PD_SPILL_READ);
    b->dirty = false;
  }
  memmove(offload.visited + 1, offload.visited, (size_t)at * sizeof *offload.visited);
  offload.visited[0] = b;
  pd_spill_await(b);
}

void pd_spill_look(const void *at, bool changes) {
  if (!offload.n_blocks) return;
  struct pd_spill_block *b = pd_spill_block_at(at);
  if (!b) return;
  visit(b);
  b->dirty |= changes;
}

/* ---- steps ------------------------------------------------------------------------------------- */

/* Calls `each` for the blocks that a step may use: all blocks of parameters, and the blocks of its slot before and
 * after its part. */
static void for_blocks(const struct pd_step *s, void (*each)(struct pd_spill_block *b, int use)) {
  for (int i = 0; i < offload.n_of_parameters; i++)
    each(&offload.blocks[i], pd_use_of(s, &offload.blocks[i].block));
  if (s->kind == PD_STEP_SQUARE || s->kind == PD_STEP_UPDATE) return;
  for (int way = 0; way < N_BETWEEN; way++)
    for (int part = s->part; part <= s->part + 1 && part < parts(); part++)
      if (offload.first_between[way][part] >= 0) {
        struct pd_spill_block *b = &offload.blocks[offload.first_between[way][part] + s->slot];
        each(b, pd_use_of(s, &b->block));
      }
}

/* Releases blocks that the step uses in the offload place. */
static void fetch(struct pd_spill_block *b, int use) {
  if (use & PD_USES) come(b, use & PD_READS ? PD_SPILL_READ : PD_SPILL_ROOM);
  if (use & PD_HOME && b->here) leave(b);
}

static void take(struct pd_spill_block *b, int use) {
  if (!(use & PD_USES)) return;
  pd_spill_await(b);
  b->dirty |= (use & PD_WRITES) != 0;
}

static void end(struct pd_spill_block *b, int use) {
  if (use & PD_ENDS) b->dirty = false;
}

/* Requests blocks that should be resident at the batch's step; blocks that stay across batches are read on use. */
static void ask_again(int64_t step) {
  const int *block;
  memset(offload.there, 0, (size_t)offload.n_blocks);
  pd_moves_there(&offload.moves, step, offload.there);
  for (int64_t i = 1; i <= offload.moves.steps; i++) {
    int n = pd_moves_at(&offload.moves, PD_ASKED, (step + i) % offload.moves.steps, &block);
    for (int k = 0; k < n; k++)
      if (offload.there[block[k]]) come(&offload.blocks[block[k]], PD_SPILL_READ);
  }
  offload.as_planned = true;
}

/* The steps of a part and their squares are a unit. After it another model may use the rank
 * (docs/guide/many-models.md): this model's blocks are released for the other model's, which are read during the
 * unit's last step. */
static bool is_last_of_unit(const struct pd_step *s, const struct pd_step *next) {
  return next->kind != PD_STEP_SQUARE && (s->kind != next->kind || s->part != next->part);
}

/* Memory that passes work in, which a waiting model does not need. */
static void give_back_workspace(void) {
  const struct pd_spilled *s = pd.stage->spilled;
  pd_spill_unused(s->workspace, s->workspace + s->workspace_bytes);
}

static void read_ahead(void) { for_blocks(&offload.after, fetch); }

/* With a trace the host waits in place of the device, to record the time. */
static void await_blocks(const struct pd_step *now) {
  double start = pd_seconds();
  for_blocks(now, take);
  if (!pd_options.trace || !pd.training) return;
  pd_device_wait("blocks to arrive");
  pd_trace(PD_BLOCKS, pd_updates.done, -1, start, pd_seconds());
}

static void begin(const struct pd_step *now, const struct pd_step *next) {
  for_blocks(now, fetch);
  await_blocks(now);
  offload.goes_on = !is_last_of_unit(now, next) || pd_sharp_goes_on_after();
  offload.in_step = true;
}

static void end_turn(const struct pd_step *now, const struct pd_step *next) {
  offload.in_step = false;
  if (!offload.goes_on) {
    release_others(NULL, NULL);
    give_back_workspace();
  }
  offload.after = *next;
  if (is_last_of_unit(now, next)) pd_sharp_part_ends(read_ahead);
}

static void begin_step(int64_t i) {
  struct pd_step now = pd_batch_step(&offload.batch, i), next = pd_batch_step(&offload.batch, i + 1);
  const int *block;
  i %= offload.batch.steps;
  for (int k = 0; k < N_VISITS; k++) leave_visited(k);
  if (offload.as_planned) {
    for (int n = pd_moves_at(&offload.moves, PD_DUE, i, &block); n-- > 0;)
      pd_spill_await_written(&offload.blocks[block[n]]);
  } else {
    release_others(&now, &now);
    await_all_written();
  }
  begin(&now, &next);
  if (!offload.goes_on) return;
  if (!offload.as_planned) ask_again(i);
  int n = pd_moves_at(&offload.moves, PD_ASKED, i, &block);
  for (int k = 0; k < n; k++) come(&offload.blocks[block[k]], PD_SPILL_READ);
}

static void end_step(int64_t i) {
  struct pd_step now = pd_batch_step(&offload.batch, i), next = pd_batch_step(&offload.batch, i + 1);
  const int *block;
  pd_memory_sample();
  for_blocks(&now, end);
  int n = pd_moves_at(&offload.moves, PD_LEAVES, i % offload.batch.steps, &block);
  for (int k = 0; k < n; k++)
    if (offload.blocks[block[k]].held) leave(&offload.blocks[block[k]]);
  offload.reached = (i + 1) % offload.batch.steps;
  end_turn(&now, &next);
}

/* Parts of a validation, between batches: two adjacent parts are resident. */
static void validation_steps(int64_t part, struct pd_step *now, struct pd_step *next) {
  *now = (struct pd_step){.kind = PD_STEP_VALIDATE, .part = (int)part - 1};
  *next = (struct pd_step){.kind = PD_STEP_VALIDATE, .part = (int)part};
  if (part == parts())
    *next = pd_batch_step(&offload.batch, 0); /* another validation may follow, or the next batch */
}

static void begin_validation(int64_t part) {
  struct pd_step now, next;
  validation_steps(part, &now, &next);
  for (int k = 0; k < N_VISITS; k++) leave_visited(k);
  release_others(&now, &now);
  await_all_written();
  begin(&now, &next);
  if (offload.goes_on) for_blocks(&next, fetch);
}

static void end_validation(int64_t part) {
  struct pd_step now, next;
  validation_steps(part, &now, &next);
  pd_memory_sample();
  release_others(&next, &next);
  end_turn(&now, &next);
}

/* The first backward turns are of the last part. If that is the model's last part, its forward turns have no
 * separate steps. */
static int64_t step_of(enum pd_work work, int64_t turn) {
  const int64_t i = (turn - 1) % (offload.batch.parts * offload.batch.microbatches),
                unit = i / offload.batch.microbatches;
  return offload.batch.unit[unit + (work == PD_BACKWARD ? pd_forward_units(&offload.batch) : 0)] +
         i % offload.batch.microbatches;
}

void pd_promote(enum pd_work work, int64_t turn) {
  if (!offload.n_blocks) return;
  if (work == PD_VALIDATE)
    begin_validation(turn);
  else
    begin_step(step_of(work, turn));
}

void pd_demote(enum pd_work work, int64_t turn) {
  if (!offload.n_blocks) return;
  if (work == PD_VALIDATE) {
    end_validation(turn);
    return;
  }
  end_step(step_of(work, turn));
  if (work == PD_BACKWARD) pd_combine_ready(pd_updates.exchanged);
}

/* Ends the step of the previous group, if any. */
static struct pd_step next_group(int done) {
  if (done > 0) end_step(offload.reached);
  return pd_batch_step(&offload.batch, offload.reached);
}

static bool begin_group(const struct pd_step *s, int *first, int *end) {
  begin_step(offload.reached);
  *first = offload.group_first[s->group];
  *end = offload.group_first[s->group + 1];
  return true;
}

bool pd_spill_next_squared(int done, bool all, int *first, int *end) {
  const struct pd_step s = next_group(done);
  return s.kind == PD_STEP_SQUARE && (all || s.part >= 0) && begin_group(&s, first, end);
}

bool pd_spill_next_updated(int done, int *first, int *end) {
  const struct pd_step s = next_group(done);
  return done < offload.n_groups && begin_group(&s, first, end);
}
