/* --audit K, for passes: in every Kth update all passes of one of this rank's microbatches, a different one each
 * time, run twice from the same memory and must give the same bits, because passes depend only on the memory that
 * they read. A pass is a loop over pd_begin and pd_end (pd_runtime.h), in which pd_begin
 *   keeps     a copy of the parts that the pass will write, and the pass runs;
 *   exchanges results and copy, and the pass runs again;
 *   compares  both results.
 * Updates also run twice, in the same memory (updates_twice.c). Messages continue in between: messages in flight
 * use other parts, or other slots. Figures are counted once, after the comparison. */
#include "messages/messages.h"
#include "run/upward.h"
#include "update/update.h"
#include "watch/watch.h"

#include <stdlib.h>
#include <string.h>

static struct {
  char *kept;        /* size of the largest write of a pass or an update; NULL: no repetition */
  int64_t *all_kept; /* bytes by rank; NULL: no repetition on any rank */
  enum { ONCE, FIRST, SECOND } run;
  struct {
    enum pd_work work;
    int64_t k, t;
    int chunk;
    double first_ended;
  } now; /* the pass that runs twice */
  struct {
    int figure;
    const float *elements;
    int64_t n;
  } * figures; /* the pass has ended its second run */
  int n_figures;
  bool differs;
} twice;

/* ---- parts ----------------------------------------------------------------------------------- */

static bool is_written(const struct pd_part *p, enum pd_work work, int chunk) {
  return (p->passes >> work & 1) && (p->chunk == chunk || p->chunk == PD_EVERY_CHUNK);
}

/* The address of a part's bytes that the pass writes. */
static char *part_at(const struct pd_part *p) {
  int64_t slot = (p->by_batch ? twice.now.t : twice.now.k) % p->slots;
  return pd.arena + p->offset + (size_t)slot * p->bytes;
}

/* Calls `each` for the parts that the pass writes and for the bytes of each that are kept. */
static void for_parts(void (*each)(char *at, char *other, size_t bytes)) {
  char *other = twice.kept;
  for (int i = 0; i < pd.stage->n_parts; i++) {
    const struct pd_part *p = &pd.stage->parts[i];
    if (!is_written(p, twice.now.work, twice.now.chunk)) continue;
    each(part_at(p), other, p->bytes);
    other += pd_copy_step(p->bytes);
  }
}

static void keep(char *at, char *other, size_t bytes) { pd_copy_bytes(other, at, bytes); }
static void exchange(char *at, char *other, size_t bytes) { pd_exchange_bytes(at, other, bytes); }

static void compare(char *at, char *other, size_t bytes) { twice.differs |= !pd_same_bytes(at, other, bytes); }

/* The copy of an address; NULL: the pass does not write it. */
static const char *kept_of(const char *address) {
  const char *other = twice.kept;
  for (int i = 0; i < pd.stage->n_parts; i++) {
    const struct pd_part *p = &pd.stage->parts[i];
    if (!is_written(p, twice.now.work, twice.now.chunk)) continue;
    const char *at = part_at(p);
    if (address >= at && address < at + p->bytes) return other + (address - at);
    other += pd_copy_step(p->bytes);
  }
  return NULL;
}

/* ---- what differs ---------------------------------------------------------------------------- */

/* Ends the launch if the elements, of `size` bytes each, are not the same. */
static void check(const char *what, const char *name, const char *at, int64_t elements, size_t size) {
  const char *other = kept_of(at);
  struct pd_difference d;
  if (!other || !pd_differ(at, other, (size_t)elements * size, size, &d)) return;
  pd_fail(
      "--audit: step %lld: two runs of %s differ in %s'%s': element %lld has bits %0*x, then %0*x: a processor "
      "or the memory of this host makes errors. help: test this host's hardware",
      (long long)(twice.now.t + 1), pd_last_work(), what, name, (long long)d.element, d.digits, d.first, d.digits,
      d.second);
}

/* In the order of computation, so that the first difference is the cause of later ones. */
static void name_what_differs(void) {
  const struct pd_stage *s = pd.stage;
  bool forward = twice.now.work == PD_FORWARD || twice.now.work == PD_RECOMPUTE;
  for (int i = 0; i < s->n_tensors && forward; i++) {
    const struct pd_tensor *x = &s->tensors[i];
    if (x->chunk == twice.now.chunk)
      check("", x->name, pd.arena + x->offset + (size_t)(twice.now.k % x->slots) * x->stride, x->elements,
            x->bf16 ? 2 : sizeof(float));
  }
  for (int i = s->n_parameters - 1; i >= 0; i--)
    for (int j = s->parameters[i].n_uses - 1; j >= 0; j--) {
      const struct pd_parameter *p = &s->parameters[i];
      if (p->uses[j].stage == s->stage)
        check("the gradient of ", p->name, pd_accumulators(twice.now.t) + p->uses[j].offset, p->elements,
              sizeof(float));
    }
  for (int i = 0; i < s->n_parts; i++)
    if (is_written(&s->parts[i], twice.now.work, twice.now.chunk))
      check("its ", s->parts[i].name, part_at(&s->parts[i]), (int64_t)(s->parts[i].bytes / sizeof(float)),
            sizeof(float));
}

/* ---- the run --------------------------------------------------------------------------------- */

static int64_t most_written(void) {
  const struct pd_stage *s = pd.stage;
  int64_t most = 0;
  for (int work = PD_FORWARD; work <= PD_WEIGHTS; work++)
    for (int chunk = 0; chunk < s->chunks; chunk++) {
      int64_t bytes = 0;
      for (int i = 0; i < s->n_parts; i++)
        if (is_written(&s->parts[i], (enum pd_work)work, chunk)) bytes += (int64_t)pd_copy_step(s->parts[i].bytes);
      if (bytes > most) most = bytes;
    }
  return most;
}

void pd_twice_start(void) {
  if (!pd_options.audit || pd_only_evaluates() || pd_options.emulate) return;
  const bool spills = pd.stage->spilled != NULL;
  if (spills)
    pd_warn("--audit verifies offloaded blocks at each transfer, but repeats no pass and no update: the model is "
            "offloaded");
  if (spills && pd.ranks == 1) return;
  int64_t mine = spills ? 0 : most_written(), update = spills ? 0 : (int64_t)pd_update_copy_bytes();
  if (mine < update) mine = update;
  twice.all_kept = pd_allocate(sizeof *twice.all_kept * (size_t)pd.ranks);
  MPI_Request request;
  MPI_Iallgather(&mine, 1, MPI_INT64_T, twice.all_kept, 1, MPI_INT64_T, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to exchange the sizes that --audit keeps", -1, NULL, -1);
  if (spills) return;
  twice.kept = pd_copy_room((size_t)mine);
  twice.figures = pd_allocate(sizeof *twice.figures * (size_t)pd.stage->n_figures);
}

const int64_t *pd_twice_bytes(void) { return twice.all_kept; }

char *pd_twice_copy(int64_t t) { return twice.kept && (t + 1) % pd_options.audit == 0 ? twice.kept : NULL; }

void pd_twice_begin(enum pd_work work, int64_t turn) {
  if (!twice.kept || work > PD_WEIGHTS) return;
  struct pd_turn of = pd_turn(turn, work != PD_FORWARD);
  int64_t own = pd_own_microbatches(), t = (of.k - 1) / own;
  if ((t + 1) % pd_options.audit || (of.k - 1) % own != t / pd_options.audit % own) return;
  twice.run = FIRST;
  twice.now.work = work, twice.now.k = of.k, twice.now.t = t, twice.now.chunk = of.chunk;
  twice.n_figures = 0;
  for_parts(keep);
}

bool pd_twice_again(void) {
  if (twice.run == FIRST) {
    twice.now.first_ended = pd_seconds();
    for_parts(exchange);
    twice.run = SECOND;
    return true;
  }
  if (twice.run == ONCE) return false;
  twice.differs = false;
  for_parts(compare);
  if (twice.differs) name_what_differs();
  twice.run = ONCE;
  pd_trace(PD_AUDIT, twice.now.t, -1, twice.now.first_ended, pd_seconds());
  for (int i = 0; i < twice.n_figures; i++)
    pd_figure(twice.figures[i].figure, twice.now.k, twice.figures[i].elements, twice.figures[i].n);
  return false;
}

bool pd_runs_twice(void) { return twice.run != ONCE; }

bool pd_twice_takes(int figure, const float *elements, int64_t n) {
  if (twice.run == ONCE) return false;
  if (twice.run == FIRST) return true;
  twice.figures[twice.n_figures].figure = figure, twice.figures[twice.n_figures].elements = elements,
  twice.figures[twice.n_figures++].n = n;
  return true;
}
