/* Offloading of parts (compiler/plan/offload/spilling.h). Random models have few enough pieces to try all cuts,
 * with all resident shares in steps of a tenth. The time of pipelines with all memory available equals the
 * schedule's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "plan/offload/spilling.h"
#include "random.h"
#include "sample.h"
#include "schedule/program.h"

enum { MOST = 7 };

typedef struct Model {
  SpillProblem p;
  double forward[MOST], backward[MOST], none[MOST + 1];
  int64_t saved[MOST], inputs[MOST], work[MOST], activations[MOST + 1], returned[MOST + 1];
  SpillParam param[2 * MOST];
  int piece[2 * MOST][2];
} Model;

static double between(double least, double most) { return least + (most - least) * (double)below(1000) / 1000; }

static void add_param(Model *m, int piece, int also) {
  int i = m->p.n_params++, n = 1 + (also >= 0);
  int64_t bytes = 4096 * (int64_t)(1 + below(100));
  m->piece[i][0] = piece;
  m->piece[i][1] = also;
  m->param[i] = (SpillParam){.elements = bytes / 4,
                             .weights = bytes,
                             .gradient = bytes,
                             .state = (int64_t)below(3) * bytes,
                             .update = between(0, 2e-9) * (double)bytes,
                             .n_readers = n,
                             .n_uses = n,
                             .reader = m->piece[i],
                             .use = m->piece[i]};
  m->param[i].square_at_home = m->param[i].update / 2;
  m->param[i].update_at_home = 4 * m->param[i].update;
}

static void make(Model *m) {
  *m = (Model){.p = {.n = 3 + (int)below(MOST - 2)}};
  SpillProblem *p = &m->p;
  for (int k = 0; k < p->n; k++) {
    m->forward[k] = between(1e-5, 1e-3);
    m->backward[k] = m->forward[k] * between(1.5, 2.5);
    m->saved[k] = (int64_t)below(200000);
    m->work[k] = (int64_t)below(100000);
    m->activations[k] = m->returned[k] = k ? 1 + (int64_t)below(60000) : 0;
    add_param(m, k, k == 0 && below(2) ? p->n - 1 : -1);
  }
  p->forward = m->forward, p->backward = m->backward;
  p->receive = p->receive_gradient = m->none;
  p->saved = m->saved, p->inputs = m->inputs, p->work = m->work;
  p->activations = m->activations, p->returned = m->returned;
  p->page = 4096;
  p->param = m->param;
  p->microbatches = 1 + (int64_t)below(4);
  p->read = between(0.2e-9, 4e-9);
  p->write = between(0.2e-9, 4e-9);
}

/* All cuts, as bits; calls `each` with those into two or more parts. */
static SpillChoice choice_of(const SpillProblem *p, int cuts) {
  SpillChoice c = {.parts = 1};
  for (int k = 1; k < p->n; k++)
    if (cuts >> (k - 1) & 1)
      c.start[c.parts++] = k;
  c.start[c.parts] = p->n;
  return c;
}

/* The saved activations of parts, as bits: none, or in some problems any; the last part has none. */
static int ways_to_keep(const SpillProblem *p, const SpillChoice *c) {
  return p->keeping == KEEP_FREE ? 1 << (c->parts - 1) : 1;
}

static void keep(SpillChoice *c, int parts) {
  for (int i = 0; i < c->parts; i++)
    c->keeps[i] = parts >> i & 1;
}

static int64_t least_of_all(const SpillProblem *p) {
  SpillProblem none = *p;
  int64_t least = INT64_MAX;
  none.limit = 0;
  for (int cuts = 1; cuts < 1 << (p->n - 1); cuts++) {
    SpillChoice c = choice_of(p, cuts);
    int64_t needs = spill_time(&none, &c).least;
    least = needs < least ? needs : least;
  }
  return least;
}

static double shortest_of_all(const SpillProblem *p) {
  double best = INFINITY;
  for (int cuts = 1; cuts < 1 << (p->n - 1); cuts++)
    for (int kept = 0; kept <= 100; kept += 10) {
      SpillChoice c = choice_of(p, cuts);
      c.kept = kept;
      for (int parts = 0; parts < ways_to_keep(p, &c); parts++) {
        keep(&c, parts);
        best = fmin(best, spill_time(p, &c).seconds);
      }
    }
  return best;
}

/* A plan's last search is thorough; other searches only choose microbatch and stages for it. */
static void compare_with_every_choice(Keeping keeping, int problems, bool at_home, bool thorough) {
  static Model m;
  double worst = 0, sum = 0;
  int n = 0;
  for (int i = 0; i < problems; i++) {
    ArenaMark mark = arena_mark();
    make(&m);
    m.p.keeping = keeping;
    m.p.thorough = thorough;
    m.p.at_home = m.p.both_ways = at_home;
    int64_t least = least_of_all(&m.p);
    m.p.limit = least + (int64_t)((double)least * between(0, 1.5));
    if (!taken()) {
      arena_release(mark);
      continue;
    }
    double best = shortest_of_all(&m.p);
    SpillChoice c;
    SpillTime time;
    assert_true(spill_search(&m.p, &c, &time));
    assert_true(time.seconds >= fmax(fmax(time.compute, time.transfer), time.host) * (1 - 1e-9));
    assert_true((time.host > 0) == at_home);
    worst = fmax(worst, time.seconds / best - 1);
    sum += time.seconds / best - 1;
    n++;
    arena_release(mark);
  }
  print_message("%d problems, %s: longer than the best of all by %.2f %% on average, %.2f %% at most\n", n,
                thorough ? "thoroughly" : "quickly", 100 * sum / n, 100 * worst);
  assert_true(sum / n < 0.002);
  assert_true(worst < (thorough ? 0.02 : 0.05));
}

static void search_is_near_the_best(void **unused) {
  (void)unused;
  compare_with_every_choice(KEEP_NONE, 120, false, true);
  compare_with_every_choice(KEEP_NONE, 60, false, false);
}

static void search_with_parts_that_keep_is_near_the_best(void **unused) {
  (void)unused;
  compare_with_every_choice(KEEP_FREE, 12, false, true);
}

static void search_is_near_the_best_where_the_host_updates(void **unused) {
  (void)unused;
  compare_with_every_choice(KEEP_NONE, 60, true, true);
}

/* Two parts with a parameter each, all memory and an instant link. The host computes both norms, then both updates
 * in sequence. Each part computes once its parameter is updated, so the first part's forward passes overlap the
 * second update. */
static void computing_goes_on_beside_the_host(void **unused) {
  (void)unused;
  static Model m;
  for (int i = 0; i < 100; i++) {
    ArenaMark mark = arena_mark();
    const double microbatches = 1 + (double)below(4);
    m = (Model){.p = {.n = 2, .microbatches = (int64_t)microbatches, .limit = INT64_MAX / 4, .page = 4096}};
    SpillChoice c = {.parts = 2, .kept = 100, .start = {0, 1, 2}};
    for (int k = 0; k < 2; k++) {
      m.forward[k] = between(1e-5, 1e-3), m.backward[k] = between(1e-5, 1e-3);
      add_param(&m, k, -1);
      m.param[k].elements = m.param[0].elements; /* one group each */
      m.param[k].square_at_home = between(0, 1e-3), m.param[k].update_at_home = between(0, 4e-3);
    }
    SpillProblem *p = &m.p;
    p->forward = m.forward, p->backward = m.backward, p->receive = p->receive_gradient = m.none;
    p->saved = m.saved, p->inputs = m.inputs, p->work = m.work, p->activations = p->returned = m.activations;
    p->param = m.param, p->both_ways = p->at_home = true;
    const SpillParam *first = &m.param[0], *second = &m.param[1];
    const double rerun = microbatches * m.forward[0]; /* before its backward pass */
    const double wanted = first->square_at_home + second->square_at_home + first->update_at_home +
                          fmax(microbatches * m.forward[0], second->update_at_home) + rerun +
                          microbatches * (m.forward[1] + m.backward[1] + m.backward[0]);
    const SpillTime time = spill_time(p, &c);
    if (fabs(time.seconds - wanted) > 1e-9 * wanted)
      fail_msg("%.9g s, not %.9g", time.seconds, wanted);
    arena_release(mark);
  }
}

/* With updates on the host, state used only by the update does not reach the device, and gradients do not return
 * there. */
static void what_the_host_updates_is_read_by_passes_alone(void **unused) {
  (void)unused;
  static Model m;
  for (int i = 0; i < 100; i++) {
    ArenaMark mark = arena_mark();
    make(&m);
    m.p.limit = INT64_MAX / 4, m.p.at_home = m.p.both_ways = true;
    SpillChoice c = choice_of(&m.p, (1 << (m.p.n - 1)) - 1);
    int64_t weights = 0, gradients = 0;
    for (int k = 0; k < m.p.n_params; k++) {
      weights += m.param[k].weights;
      gradients += m.param[k].gradient * m.param[k].n_uses;
    }
    c.kept = 100;
    const SpillTime time = spill_time(&m.p, &c);
    assert_int_equal(time.read, weights);
    assert_int_equal(time.written, gradients);
    arena_release(mark);
  }
}

/* With more memory, the result is at most 2 % slower. */
static void more_memory_is_no_slower(void **unused) {
  (void)unused;
  static Model m;
  for (int i = 0; i < 40; i++) {
    ArenaMark mark = arena_mark();
    make(&m);
    int64_t least = least_of_all(&m.p);
    double before = INFINITY;
    for (int k = 0, n = taken() ? 6 : 0; k < n; k++) {
      SpillChoice c;
      SpillTime time;
      m.p.limit = least + least * k / 3;
      assert_true(spill_search(&m.p, &c, &time));
      assert_true(time.seconds <= before * 1.02);
      before = fmin(before, time.seconds);
    }
    arena_release(mark);
  }
}

/* ---- pipelines ------------------------------------------------------------------------------------------- */

enum { MOST_OF_STAGES = 4 };

/* A stage with one part and one parameter per piece. */
static void make_stage(Model *m, SpillStage *s, int parts, int64_t microbatches, bool last) {
  *m = (Model){
      .p = {.n = parts, .hands_on = !last, .microbatches = microbatches, .limit = INT64_MAX / 4, .page = 4096}};
  *s = (SpillStage){.choice = {.parts = parts, .kept = 100}, .send = between(0, 1)};
  for (int k = 0; k < parts; k++) {
    m->forward[k] = between(0.1, 2);
    m->backward[k] = between(0.1, 3);
    m->activations[k] = m->returned[k] = k ? 1000 : 0;
    add_param(m, k, -1);
    s->choice.start[k + 1] = k + 1;
    s->choice.keeps[k] = below(2) || microbatches == 1; /* a single microbatch goes backward at once */
  }
  SpillProblem *p = &m->p;
  p->forward = m->forward, p->backward = m->backward;
  p->receive = p->receive_gradient = m->none;
  p->saved = m->saved, p->inputs = m->inputs, p->work = m->work;
  p->activations = m->activations, p->returned = m->returned;
  p->param = m->param;
  s->problem = *p;
}

static void set_times(const SpillStage *s, const Program *p, StageTimes *times) {
  for (int k = 0; k < p->chunks; k++) {
    StageTimes *t = &times[program_part(p, k)];
    *t = (StageTimes){.forward = s->problem.forward[k], .backward = s->problem.backward[k], .send = s->send};
    t->recompute = spill_reruns(&s->problem, &s->choice, k) ? t->forward : 0;
    times[p->part].update += s->problem.param[k].update;
  }
}

static void a_pipeline_takes_what_its_schedule_does(void **unused) {
  (void)unused;
  static Model m[MOST_OF_STAGES];
  static SpillStage stage[MOST_OF_STAGES];
  int several = 0;
  for (int i = 0; i < 400; i++) {
    ArenaMark mark = arena_mark();
    const int n = 1 + (int)below(MOST_OF_STAGES);
    const int64_t microbatches = 1 + (int64_t)below(6);
    bool exchanges[MOST_OF_STAGES] = {false}, meets = below(2);
    int parts[MOST_OF_STAGES], all = 0;
    Pipeline p = pipeline_make(intern("spilled"), n, 1);
    for (int k = 0; k < n; k++) {
      parts[k] = 1 + (int)below(3);
      make_stage(&m[k], &stage[k], parts[k], microbatches, k == n - 1);
      for (int part = 0; part < parts[k]; part++, all++) {
        bool again = spill_reruns(&stage[k].problem, &stage[k].choice, part);
        p.keeps |= (uint64_t)!again << all;
        p.recompute[k] |= again;
      }
      exchanges[k] = k > 0 && meets;
    }
    pipeline_set_parts(&p, parts);
    p.batch = p.microbatches = microbatches, p.microbatch = 1;
    Program *programs = schedule(&p, exchanges, NO_SPAN);
    StageTimes times[3 * MOST_OF_STAGES] = {{0}};
    SpillTime time[MOST_OF_STAGES];
    for (int k = 0; k < n; k++) {
      set_times(&stage[k], &programs[k], times);
      stage[k].in_flight = programs[k].in_flight;
    }
    const double wanted = simulate_schedule(programs, times, n, INFINITY),
                 seconds = spill_pipeline_seconds(stage, n, meets, time);
    if (fabs(seconds - wanted) > 1e-9 * wanted)
      fail_msg("%d stages, %d parts, %d microbatches: %.9g s, not %.9g", n, all, (int)microbatches, seconds,
               wanted);
    several += n > 1 && all > n;
    arena_release(mark);
  }
  assert_true(several > 100);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(search_is_near_the_best),
                                     cmocka_unit_test(more_memory_is_no_slower),
                                     cmocka_unit_test(a_pipeline_takes_what_its_schedule_does),
                                     cmocka_unit_test(search_with_parts_that_keep_is_near_the_best),
                                     cmocka_unit_test(search_is_near_the_best_where_the_host_updates),
                                     cmocka_unit_test(computing_goes_on_beside_the_host),
                                     cmocka_unit_test(what_the_host_updates_is_read_by_passes_alone)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
