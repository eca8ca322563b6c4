/* Programs of pipelines and their simulations. Searches request the same form repeatedly while they move cuts.
 * Each is built once and cached, up to a limit. */
#include "plan/cost/cost.h"

typedef struct Known {
  Program *programs;
  Simulation *simulation; /* NULL: not requested yet */
} Known;

struct KnownForms {
  Arena *arena; /* survives releases of the current arena */
  ArenaMark empty;
  int64_t bytes; /* approximate use */
  FormTables forms;
};

enum { HEAD = 2 };

KnownForms *known_forms_new(void) {
  KnownForms *k = alloc(sizeof *k);
  *k = (KnownForms){.arena = arena_new(), .forms.head = HEAD};
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
  *k = (KnownForms){.arena = k->arena, .empty = k->empty, .forms.head = HEAD};
}

static Program *make_programs(const Planner *r, const Pipeline *p, const bool *exchanges) {
  double start = seconds_now();
  Program *programs = schedule(p, exchanges, r->schedule_span);
  ensure(programs);
  if (r->request->watch)
    watch_add(&r->request->watch->schedule, start);
  return programs;
}

/* Builds the programs on the first request. */
static Known *known_form(const Planner *r, const Pipeline *p, const bool *exchanges) {
  KnownForms *k = r->known_forms;
  ArenaMark mark = arena_mark();
  const int64_t head[HEAD] = {p->microbatches, p->chunks}, *key = form_key(&k->forms, head, p, exchanges);
  Arena *before = arena_use(k->arena);
  Table *table = form_table(&k->forms, p->n_stages);
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

/* The form with recomputation in all stages. Other stages set its time to 0, so one simulation serves all. */
static Pipeline recomputing(const Planner *r, const Pipeline *p) {
  Pipeline all = *p;
  if (!r->traits.recomputes || r->traits.spills)
    return all;
  all.recompute = alloc((size_t)p->n_stages * sizeof *all.recompute);
  for (int i = 0; i < p->n_stages; i++)
    all.recompute[i] = true;
  return all;
}

double planned_seconds(const Planner *r, const Pipeline *p, const bool *exchanges, const StageTimes *times,
                       double most) {
  KnownForms *k = r->known_forms;
  const Pipeline all = recomputing(r, p);
  Known *known = known_form(r, &all, exchanges);
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
