/* Programs of pipelines and their simulations. Searches ask for those of one form again and again, as they move its cuts:
 * each is made once, and kept until there are too many. */
#include "base/table.h"
#include "plan/planner.h"

typedef struct Known {
  Program *programs;
  Simulation *simulation; /* NULL: nobody has asked for it */
} Known;

struct KnownForms {
  Arena *arena; /* lasts, whatever is released meanwhile */
  ArenaMark empty;
  int64_t bytes;      /* taken from it, about */
  Vec(Table) by_size; /* by stages; keys are bytes of a form: */
};

/* What of a pipeline makes its Programs, beside what is the same in all of a planner's; by stage ranks, and the rest as
 * bits. */
enum { HEAD = 2, WORDS_A_STAGE = 1, REPLICAS_SHIFT = 32, AHEAD_SHIFT = 2 };

KnownForms *known_forms_new(void) {
  KnownForms *k = alloc(sizeof *k);
  k->arena = arena_new();
  Arena *before = arena_use(k->arena);
  k->empty = arena_mark();
  arena_use(before);
  return k;
}

void known_forms_trim(KnownForms *k) {
  enum { MOST = 48 << 20 };
  if (k->bytes < MOST)
    return;
  Arena *before = arena_use(k->arena);
  arena_release(k->empty);
  arena_use(before);
  *k = (KnownForms){.arena = k->arena, .empty = k->empty};
}

static int64_t *key_of(const Pipeline *p, const bool *exchanges) {
  int64_t *key = alloc((size_t)(HEAD + p->n_stages * WORDS_A_STAGE) * sizeof *key);
  key[0] = p->microbatches;
  key[1] = p->chunks;
  for (int i = 0; i < p->n_stages; i++)
    key[HEAD + i] = (int64_t)p->replicas[i] << REPLICAS_SHIFT | (int64_t)p->ahead[i] << AHEAD_SHIFT |
                    (p->recompute[i] ? 2 : 0) | (exchanges && exchanges[i] ? 1 : 0);
  return key;
}

static Program *make_programs(const Planner *r, const Pipeline *p, const bool *exchanges) {
  double start = seconds_now();
  Program *programs = schedule(p, exchanges, r->schedule_span);
  ensure(programs);
  if (r->request->watch)
    watch_add(&r->request->watch->schedule, start);
  return programs;
}

static Table *table_of(KnownForms *k, int n_stages) {
  while (k->by_size.n <= n_stages)
    push(&k->by_size, (Table){.key_bytes = (size_t)(HEAD + k->by_size.n * WORDS_A_STAGE) * sizeof(int64_t)});
  return &k->by_size.at[n_stages];
}

/* Made where nobody has asked for it. */
static Known *known_form(const Planner *r, const Pipeline *p, const bool *exchanges) {
  KnownForms *k = r->known_forms;
  ArenaMark mark = arena_mark();
  const int64_t *key = key_of(p, exchanges);
  Arena *before = arena_use(k->arena);
  Table *table = table_of(k, p->n_stages);
  Known *known = table_find(table, key);
  if (!known) {
    known = alloc(sizeof *known);
    known->programs = make_programs(r, p, exchanges);
    table_add(table, key, known);
    k->bytes += p->n_stages * (int64_t)sizeof *known->programs;
  }
  arena_use(before);
  arena_release(mark);
  return known;
}

Program *planned_programs(const Planner *r, const Pipeline *p, const bool *exchanges) {
  return r->traits.spills ? make_programs(r, p, exchanges) : known_form(r, p, exchanges)->programs;
}

double planned_seconds(const Planner *r, const Pipeline *p, const bool *exchanges, const StageTimes *times,
                       double most) {
  KnownForms *k = r->known_forms;
  Known *known = known_form(r, p, exchanges);
  double start = seconds_now();
  if (!known->simulation) {
    Arena *before = arena_use(k->arena);
    known->simulation = simulation_new(known->programs, p->n_stages);
    arena_use(before);
  }
  k->bytes -= simulation_bytes(known->simulation);
  double seconds = simulate(known->simulation, times, most);
  k->bytes += simulation_bytes(known->simulation);
  if (r->request->watch)
    watch_add(&r->request->watch->simulate, start);
  return seconds;
}
