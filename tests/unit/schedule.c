/* Schedules: every generated Program passes verify_schedule, trains as docs/schedules.md says when it is
 * executed with numbers, reads back as dumped; Programs broken in one place are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/program.h"

enum { MAX_STAGES = 8 };

typedef struct Case {
  const char *schedule;
  int stages;
  int64_t microbatches;
  unsigned recompute, exchanges; /* bit i: stage i */
} Case;

static Program *make(Case c) {
  static StagePlan stage[MAX_STAGES];
  static bool exchanges[MAX_STAGES];
  for (int i = 0; i < c.stages; i++) {
    stage[i] = (StagePlan){.replicas = 1, .ahead = 1, .recompute = c.recompute >> i & 1};
    exchanges[i] = c.exchanges >> i & 1;
  }
  Plan plan = {.schedule = intern(c.schedule), .batch = c.microbatches, .microbatch = 1,
               .microbatches = c.microbatches, .n_stages = c.stages, .stage = stage};
  return schedule(&plan, exchanges, NO_SPAN);
}

static char *describe(Case c) {
  return format("%s d %d M %d recompute %x exchanges %x", c.schedule, c.stages, (int)c.microbatches, c.recompute,
                c.exchanges);
}

/* Calls `check` for every schedule, 1 to 8 stages, several M, and patterns of recomputation and exchange. */
static void each_case(void (*check)(Case c, const Program *programs)) {
  static const unsigned patterns[] = {0x00, 0xff, 0xaa, 0x55, 0xfe, 0x80, 0x0c};
  int n, cases = 0;
  const char *const *names = schedule_names(&n);
  for (int s = 0; s < n; s++)
    for (int d = 1; d <= MAX_STAGES; d++)
      for (int64_t m = schedule_least_microbatches(names[s], d); m <= 2 * d + 3; m++)
        for (size_t r = 0; r < sizeof patterns / sizeof *patterns; r++)
          for (size_t e = 0; e < sizeof patterns / sizeof *patterns; e++) {
            Case c = {names[s], d, m, patterns[r], patterns[e] & ~1u};
            check(c, make(c));
            cases++;
          }
  assert_true(cases > 5000);
}

static void check_verified(Case c, const Program *programs) {
  char *why = NULL;
  assert_non_null(programs);
  if (!verify_schedule(programs, c.stages, 5, &why))
    fail_msg("%s: %s", describe(c), why);
}

static void test_generated_programs_hold(void **state) {
  (void)state;
  each_case(check_verified);
}

/* ---- executed with numbers ------------------------------------------------------------------------ */

/* Stage i multiplies by its weight w_i; the loss of microbatch k is (w_0 .. w_{d-1} x_k - y_k)^2 / 2. */
enum { BATCHES = 5, MAX_MICROBATCHES = BATCHES * 32, MAX_COPIES = 64 };
static const double rate = 0.01;
static double sample_x(int64_t k) { return 1 + (double)(k * 7 % 11) / 16; }
static double sample_y(int64_t k) { return 2 - (double)(k * 5 % 13) / 16; }
static double first_weight(int i) { return 1 + (double)i / 32; }

typedef struct Worker {
  const Program *p;
  Stream stream;
  Step step;
  bool over;
  double weights[MAX_COPIES], accumulators[MAX_COPIES], received[MAX_COPIES], saved[MAX_COPIES], sent[MAX_COPIES],
      gradient_received[MAX_COPIES], gradient_sent[MAX_COPIES];
  double down[MAX_MICROBATCHES + 1], up[MAX_MICROBATCHES + 1]; /* messages that have left this stage */
  int64_t n_down, n_up;
} Worker;

static double *weight(Worker *w, int64_t version) { return &w->weights[version % w->p->versions]; }

static void forward(Worker *w, int64_t k) {
  double in = w->p->stage ? w->received[k % w->p->slots[0].received] : sample_x(k);
  w->saved[k % w->p->slots[0].saved] = in;
  w->sent[k % w->p->slots[0].sent] = in * *weight(w, program_version(w->p, k));
}

static void backward(Worker *w, int64_t k) {
  const Program *p = w->p;
  double in = w->saved[k % p->slots[0].saved];
  double gradient = p->stage < p->n_stages - 1 ? w->gradient_received[k % p->slots[0].gradients]
                                               : w->sent[k % p->slots[0].sent] - sample_y(k);
  double *sum = &w->accumulators[(k - 1) / p->period % p->accumulators];
  *sum = (k - 1) % p->period ? *sum + gradient * in : gradient * in;
  w->gradient_sent[k % p->slots[0].gradients] = gradient * *weight(w, program_version(p, k));
}

/* False when it must wait for a message. */
static bool work(Worker *all, Worker *w) {
  const Program *p = w->p;
  int64_t k = w->step.number;
  switch (w->step.action) {
  case DO_RECEIVE:
    if (w[-1].n_down < k)
      return false;
    w->received[k % p->slots[0].received] = w[-1].down[k];
    break;
  case DO_FORWARD: case DO_RECOMPUTE: forward(w, k); break;
  case DO_SEND: w->down[++w->n_down] = w->sent[k % p->slots[0].sent]; break;
  case DO_RECEIVE_GRADIENT:
    if (w[1].n_up < k)
      return false;
    w->gradient_received[k % p->slots[0].gradients] = w[1].up[k];
    break;
  case DO_BACKWARD: backward(w, k); break;
  case DO_SEND_GRADIENT: w->up[++w->n_up] = w->gradient_sent[k % p->slots[0].gradients]; break;
  case DO_UPDATE:
    if (p->waits && all->n_up < (k + 1) * p->period)
      return false;
    *weight(w, k + 1) = *weight(w, k) - rate * w->accumulators[k % p->accumulators];
    break;
  case DO_EXCHANGE: break;
  }
  w->over = !stream_next(&w->stream, &w->step);
  return true;
}

/* Row t: the d weights after t updates, straight from W(t+1) = opt(W(t), grad f_t(W(max(t - delay, 0)))). */
static void train_by_definition(int d, int64_t m, int delay, double after[BATCHES + 1][MAX_STAGES]) {
  for (int i = 0; i < d; i++)
    after[0][i] = first_weight(i);
  for (int t = 0; t < BATCHES; t++) {
    const double *w = after[t > delay ? t - delay : 0];
    double sum[MAX_STAGES] = {0}, in[MAX_STAGES + 1];
    for (int64_t k = t * m + 1; k <= (t + 1) * m; k++) {
      in[0] = sample_x(k);
      for (int i = 0; i < d; i++)
        in[i + 1] = in[i] * w[i];
      double gradient = in[d] - sample_y(k);
      for (int i = d - 1; i >= 0; gradient *= w[i--])
        sum[i] += gradient * in[i];
    }
    for (int i = 0; i < d; i++)
      after[t + 1][i] = after[t][i] - rate * sum[i];
  }
}

static void check_trains(Case c, const Program *programs) {
  static Worker w[MAX_STAGES];
  memset(w, 0, sizeof w);
  for (int i = 0; i < c.stages; i++) {
    w[i].p = &programs[i];
    w[i].stream = (Stream){.program = &programs[i], .batches = BATCHES};
    w[i].weights[0] = first_weight(i);
    w[i].over = !stream_next(&w[i].stream, &w[i].step);
  }
  unsigned random = 12345;
  for (int left = c.stages, idle = 0; left > 0 && idle < 10000;) { /* stages interleaved at random */
    random = random * 1103515245u + 12345u;
    Worker *one = &w[(random >> 16) % (unsigned)c.stages];
    idle = !one->over && work(w, one) ? 0 : idle + 1;
    left = 0;
    for (int i = 0; i < c.stages; i++)
      left += !w[i].over;
  }
  double after[BATCHES + 1][MAX_STAGES];
  train_by_definition(c.stages, c.microbatches, !strcmp(c.schedule, "2bw"), after);
  for (int i = 0; i < c.stages; i++) {
    if (!w[i].over)
      fail_msg("%s: stage %d hangs", describe(c), i);
    if (*weight(&w[i], BATCHES) != after[BATCHES][i])
      fail_msg("%s: stage %d ends with weight %.17g, not %.17g", describe(c), i, *weight(&w[i], BATCHES),
               after[BATCHES][i]);
  }
}

static void test_programs_train_as_defined(void **state) {
  (void)state;
  each_case(check_trains);
}

/* ---- what the generators promise ------------------------------------------------------------------- */

static void test_numbers_of_2bw(void **state) {
  (void)state;
  Program *p = make((Case){"2bw", 4, 4, 0x2, 0xe});
  static const int in_flight[] = {4, 3, 2, 1}, lag[] = {0, 1, 2, 3}, accumulators[] = {1, 2, 2, 2},
                   saved[] = {4, 1, 2, 1}, received[] = {1, 4, 3, 2}, sent[] = {4, 3, 2, 1};
  for (int i = 0; i < 4; i++) {
    assert_int_equal(p[i].in_flight, in_flight[i]);
    assert_int_equal(p[i].lag, lag[i]);
    assert_int_equal(p[i].accumulators, accumulators[i]);
    assert_int_equal(p[i].slots[0].saved, saved[i]);
    assert_int_equal(p[i].slots[0].received, received[i]);
    assert_int_equal(p[i].slots[0].sent, sent[i]);
    assert_int_equal(p[i].slots[0].gradients, 2);
    assert_int_equal(p[i].versions, 2);
  }
}

static void test_last_stage_never_recomputes(void **state) {
  (void)state;
  Program *p = make((Case){"flush", 3, 4, 0x7, 0});
  for (int a = 0; a < p[2].loop[1].n; a++)
    assert_true(p[2].loop[1].action[a] != DO_RECOMPUTE);
  assert_int_equal(p[2].loop[0].n, 0);
  assert_int_equal(p[2].loop[2].n, 0);
}

/* stderr, where diagnostics go, is left alone: the count says that they were given. */
static void test_requests_refused(void **state) {
  (void)state;
  int before = error_count();
  assert_null(make((Case){"2bw", 5, 3, 0, 0}));
  assert_int_equal(error_count(), before + 1);
  assert_null(make((Case){"1bw", 2, 4, 0, 0}));
  assert_int_equal(error_count(), before + 2);
  assert_non_null(make((Case){"2bw", 5, 4, 0, 0}));
  assert_true(schedule_known("flush"));
  assert_false(schedule_known("flusch"));
}

/* ---- broken programs --------------------------------------------------------------------------------- */

static Action *find(Program *p, int loop, Action a) {
  for (int i = 0; i < p->loop[loop].n; i++)
    if (p->loop[loop].action[i] == a)
      return &p->loop[loop].action[i];
  fail_msg("stage %d, loop %d has no %s", p->stage, loop, action_name(a));
  return NULL;
}

static void swap(Program *p, int loop, Action a, Action b) {
  Action *at_a = find(p, loop, a), *at_b = find(p, loop, b);
  *at_a = b;
  *at_b = a;
}

static void omit(Program *p, int loop, Action a) {
  Action *at = find(p, loop, a), *end = p->loop[loop].action + --p->loop[loop].n;
  memmove(at, at + 1, (size_t)(end - at) * sizeof *at);
}

static void fewer_saved(Program *p) { p[0].slots[0].saved--; }
static void fewer_received(Program *p) { p[1].slots[0].received--; }
static void fewer_inputs(Program *p) { p[0].slots[0].inputs--; }
static void fewer_sent(Program *p) { p[1].slots[0].sent--; }
static void fewer_gradients(Program *p) { p[1].slots[0].gradients = 1; }
static void fewer_versions(Program *p) { p[2].versions = 1; }
static void more_versions(Program *p) { p[2].versions = 3; }
static void fewer_accumulators(Program *p) { p[2].accumulators = 1; }
static void no_delays(Program *p) { for (int i = 0; i < 4; i++) p[i].delay = 0, p[i].versions = 2; }
static void one_without_delay(Program *p) { p[1].delay = 0; }
static void two_of_delay(Program *p) { for (int i = 0; i < 4; i++) p[i].delay = 2, p[i].versions = 3; }
static void more_in_flight(Program *p) { p[0].in_flight++; }
static void none_in_flight(Program *p) { p[3].in_flight = 0; }
static void far_too_many_in_flight(Program *p) {
  p[0].in_flight += 2, p[0].slots[0].saved += 2, p[0].slots[0].sent += 2, p[0].slots[0].inputs += 2;
}
static void other_period(Program *p) { p[1].period++; }
static void lag_beyond_batch(Program *p) { p[3].lag = p[3].period + 1; }
static void lag_before_next_weights(Program *p) { p[1].lag = 3; }
static void one_without_lag(Program *p) {
  p[2].lag = 0;
  p[2].waits = false;
  for (int loop = 1; loop < 3; loop++)
    swap(&p[2], loop, DO_UPDATE, DO_EXCHANGE);
}
static void never_drains(Program *p) { for (int i = 0; i < 4; i++) p[i].per_batch = false; }
static void one_never_drains(Program *p) { p[2].per_batch = false; }
static void sends_first(Program *p) { swap(&p[1], 1, DO_FORWARD, DO_SEND); }
static void forwards_before_receiving(Program *p) { swap(&p[1], 1, DO_RECEIVE, DO_FORWARD); }
static void backwards_before_receiving(Program *p) { swap(&p[2], 2, DO_RECEIVE_GRADIENT, DO_BACKWARD); }
static void sends_gradient_first(Program *p) { swap(&p[2], 1, DO_BACKWARD, DO_SEND_GRADIENT); }
static void backwards_before_forward(Program *p) { swap(&p[3], 1, DO_FORWARD, DO_BACKWARD); }
static void recomputes_late(Program *p) { swap(&p[1], 1, DO_RECOMPUTE, DO_BACKWARD); }
static void updates_before_exchange(Program *p) { swap(&p[0], 2, DO_UPDATE, DO_EXCHANGE); }
static void exchanges_before_last_update(Program *p) { swap(&p[3], 1, DO_UPDATE, DO_EXCHANGE); }
static void no_send(Program *p) { omit(&p[0], 1, DO_SEND); }
static void no_gradient_sent(Program *p) { omit(&p[2], 2, DO_SEND_GRADIENT); }
static void no_receive(Program *p) { omit(&p[2], 0, DO_RECEIVE); }
static void no_gradient_received(Program *p) { omit(&p[0], 1, DO_RECEIVE_GRADIENT); }
static void no_forward(Program *p) { omit(&p[3], 1, DO_FORWARD); }
static void no_backward(Program *p) { omit(&p[0], 2, DO_BACKWARD); }
static void no_recomputation(Program *p) { omit(&p[1], 1, DO_RECOMPUTE); }
static void no_exchange(Program *p) { omit(&p[0], 2, DO_EXCHANGE); }
static void no_steady_update(Program *p) { omit(&p[1], 1, DO_UPDATE); }
static void updates_twice(Program *p) { p[1].loop[1].action[p[1].loop[1].n++] = DO_UPDATE; }
static void sends_twice(Program *p) { p[1].loop[1].action[p[1].loop[1].n++] = DO_SEND; }
static void receives_at_stage_0(Program *p) { p[0].loop[0].action[p[0].loop[0].n++] = DO_RECEIVE; }
static void stages_exchanged(Program *p) { Program one = p[1]; p[1] = p[2], p[2] = one; }

/* What is broken, and a part of the reason that must be given. All on four stages; stage 1 recomputes. */
static const struct { const char *name; const char *schedule; int microbatches; void (*break_it)(Program *p);
                      const char *reason; } broken[] = {
  {"saved slots", "2bw", 6, fewer_saved, "saved values' slot"},
  {"saved slots", "flush", 6, fewer_saved, "saved values' slot"},
  {"received slots", "2bw", 6, fewer_received, "received activations' slot"},
  {"received slots", "sequential", 2, fewer_received, "received activations' slot"},
  {"input slots", "2bw", 6, fewer_inputs, "inputs' slot"},
  {"sent slots, recomputing", "2bw", 6, fewer_sent, "overwrites the activations to send"},
  {"gradient slots", "flush", 6, fewer_gradients, "received gradients' slot"},
  {"one version", "2bw", 6, fewer_versions, "1 versions of weights"},
  {"three versions", "2bw", 6, more_versions, "3 versions of weights"},
  {"one accumulator under a lag", "2bw", 6, fewer_accumulators, "overwrites gradients"},
  {"2bw without delay", "2bw", 6, no_delays, "0 updates old"},
  {"one stage without delay", "2bw", 6, one_without_delay, "stage 1: weights are 0 updates old"},
  {"2bw with two updates of delay", "2bw", 6, two_of_delay, "2 updates old"},
  {"flush with one update of delay", "flush", 6, two_of_delay, "2 updates old"},
  {"more in flight than slots", "2bw", 6, more_in_flight, "slot"},
  {"none in flight", "2bw", 6, none_in_flight, "out of range"},
  {"in flight beyond 2bw's bound", "2bw", 3, far_too_many_in_flight, "no update has made"},
  {"periods that differ", "2bw", 6, other_period, "differ"},
  {"a lag of more than a batch", "2bw", 6, lag_beyond_batch, "still to be used"},
  {"a lag that 2bw's M does not allow", "2bw", 3, lag_before_next_weights, "no update has made"},
  {"one stage without a lag", "2bw", 6, one_without_lag, "no validation can follow: gradients"},
  {"flush that never drains", "flush", 6, never_drains, "0 updates old"},
  {"one stage never drains", "flush", 6, one_never_drains, "differ"},
  {"send before forward", "2bw", 6, sends_first, "sent before it was computed"},
  {"forward before receive", "flush", 6, forwards_before_receiving, "received activations' slot"},
  {"backward before its gradient", "2bw", 6, backwards_before_receiving, "received gradients' slot"},
  {"gradient sent first", "2bw", 6, sends_gradient_first, "sent before it was computed"},
  {"backward before forward", "flush", 6, backwards_before_forward, "out of order"},
  {"recomputation after backward", "2bw", 6, recomputes_late, "saved values' slot"},
  {"update before exchange", "2bw", 6, updates_before_exchange, "before the batch's exchange"},
  {"update before exchange", "flush", 6, updates_before_exchange, "before the batch's exchange"},
  {"exchange before the last update", "2bw", 3, exchanges_before_last_update, "still to be used"},
  {"no send", "2bw", 6, no_send, "cursors"},
  {"no gradient sent", "flush", 6, no_gradient_sent, "cursors"},
  {"no receive", "2bw", 6, no_receive, "received activations' slot"},
  {"no gradient received", "2bw", 6, no_gradient_received, "received gradients' slot"},
  {"no forward", "sequential", 2, no_forward, "sent before it was computed"},
  {"no backward", "flush", 6, no_backward, "sent before it was computed"},
  {"no recomputation", "2bw", 6, no_recomputation, "saved values' slot"},
  {"no exchange", "flush", 6, no_exchange, "before the batch's exchange"},
  {"no update in the steady state", "2bw", 6, no_steady_update, "no update has made"},
  {"two updates at once", "2bw", 6, updates_twice, "updated out of order"},
  {"two sends", "2bw", 6, sends_twice, "cursors"},
  {"stage 0 receives", "2bw", 6, receives_at_stage_0, "no stage before"},
  {"stages in the wrong order", "2bw", 6, stages_exchanged, "program 1 is of stage 2"},
};

static void test_broken_programs_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    Case c = {broken[i].schedule, 4, broken[i].microbatches, 0x2, 0xe};
    Program *p = make(c);
    char *why = NULL;
    broken[i].break_it(p);
    if (verify_schedule(p, c.stages, 5, &why))
      fail_msg("%s (%s): not refused", broken[i].name, describe(c));
    if (!strstr(why, broken[i].reason))
      fail_msg("%s: refused for '%s', not for '%s'", broken[i].name, why, broken[i].reason);
  }
}

/* Stages 0 and 3 share a parameter: the last update lags, and the stages between go along. */
static void test_all_lag_where_one_waits(void **state) {
  (void)state;
  Program *p = make((Case){"2bw", 4, 6, 0, 0x8});
  for (int i = 0; i < 4; i++) {
    assert_int_equal(p[i].lag, i);
    assert_int_equal(p[i].waits, i == 3);
  }
  one_without_lag(p);
  char *why = NULL;
  assert_false(verify_schedule(p, 4, 5, &why));
  assert_non_null(strstr(why, "no validation can follow"));
  p = make((Case){"2bw", 4, 6, 0, 0});
  for (int i = 0; i < 4; i++)
    assert_int_equal(p[i].lag, 0);
}

/* Blocking sends in 1F1B's order: two stages that each want to hand over first. */
static void test_deadlock_is_found(void **state) {
  (void)state;
  Program *p = make((Case){"2bw", 3, 6, 0, 0});
  p[0].in_flight = 1; /* stage 0 waits for a gradient that stage 1 gives only after its second forward */
  p[0].loop[0].n = p[0].loop[2].n = 0;
  p[1].loop[1] = (Loop){.name = "steady state", .n = 8,
                        .action = {DO_RECEIVE, DO_FORWARD, DO_SEND, DO_RECEIVE_GRADIENT, DO_BACKWARD,
                                   DO_SEND_GRADIENT, DO_EXCHANGE, DO_UPDATE}};
  char *why = NULL;
  assert_false(verify_schedule(p, 3, 3, &why));
  assert_non_null(strstr(why, "no stage can go on"));
}

/* Programs changed at random: whatever verify_schedule accepts must still train as defined. */
static void test_mutants_that_pass_still_train(void **state) {
  (void)state;
  unsigned random = 1;
  int accepted = 0, refused = 0;
  for (int n = 0; n < 20000; n++) {
    random = random * 1664525u + 1013904223u;
    unsigned r = random >> 8;
    int n_names, d = 2 + (int)(r % 3), loop = (int)(r / 3 % 3), stage = (int)(r / 9 % (unsigned)d);
    const char *const *names = schedule_names(&n_names);
    Case c = {names[r / 64 % (unsigned)n_names], d, 4, r / 256, r / 512 & ~1u};
    Program *p = make(c);
    Loop *l = &p[stage].loop[loop];
    int *numbers[] = {&p[stage].slots[0].saved, &p[stage].slots[0].received, &p[stage].slots[0].sent,
                      &p[stage].slots[0].gradients, &p[stage].slots[0].inputs, &p[stage].accumulators};
    if (r / 1024 % 2)
      *numbers[r / 2048 % 6] += r / 4096 % 2 ? 1 : -1;
    else if (l->n > 1) {
      Action *a = &l->action[r / 2048 % (unsigned)(l->n - 1)], b = a[0];
      a[0] = a[1], a[1] = b;
    }
    char *why;
    if (verify_schedule(p, d, BATCHES, &why))
      check_trains(c, p), accepted++;
    else
      refused++;
  }
  assert_true(accepted > 1000 && refused > 1000);
}

/* ---- time ------------------------------------------------------------------------------------------- */

static double seconds(Case c, double forward, double backward, double send) {
  StageTimes times[MAX_STAGES];
  for (int i = 0; i < c.stages; i++)
    times[i] = (StageTimes){.forward = forward, .backward = backward, .recompute = forward, .send = send};
  return simulate_schedule(make(c), times, c.stages);
}

static void assert_near(double a, double b) {
  if (fabs(a - b) > 1e-9 * fabs(b))
    fail_msg("%.12g is not %.12g", a, b);
}

static void test_predicted_times(void **state) {
  (void)state;
  assert_near(seconds((Case){"2bw", 4, 8, 0, 0}, 1, 2, 0), 8 * 3);             /* no bubble */
  assert_near(seconds((Case){"2bw", 4, 8, 0, 0xe}, 1, 2, 0), 8 * 3);           /* the lag hides the exchange */
  assert_near(seconds((Case){"flush", 4, 8, 0, 0}, 1, 2, 0), (8 + 3) * 3);     /* (M + d - 1)(F + B) */
  assert_near(seconds((Case){"sequential", 4, 8, 0, 0}, 1, 2, 0), 8 * 4 * 3);  /* M d (F + B) */
  assert_near(seconds((Case){"sequential", 2, 8, 0, 0}, 1, 2, 0.5), 8 * 7);    /* and a transfer each way */
  assert_near(seconds((Case){"2bw", 4, 8, 0xff, 0}, 1, 2, 0), 8 * 4);          /* recomputation is one more F */
  assert_near(seconds((Case){"2bw", 4, 8, 0, 0}, 1, 2, 0.5), 8 * 3.75);        /* transfers on the round trip */
  assert_near(seconds((Case){"2bw", 1, 8, 0, 0}, 1, 2, 0), 8 * 3);
}

static void test_update_without_lag_stalls(void **state) {
  (void)state;
  Case c = {"2bw", 4, 8, 0, 0xe};
  Program *p = make(c);
  for (int i = 0; i < 4; i++)
    p[i].lag = 0;
  for (int i = 1; i < 4; i++)
    for (int l = i == 3; l < 3; l++)
      for (int a = 0; a + 1 < p[i].loop[l].n; a++)
        if (p[i].loop[l].action[a] == DO_UPDATE)
          p[i].loop[l].action[a] = DO_EXCHANGE, p[i].loop[l].action[a + 1] = DO_UPDATE;
  StageTimes times[4];
  for (int i = 0; i < 4; i++)
    times[i] = (StageTimes){.forward = 1, .backward = 2};
  assert_true(simulate_schedule(p, times, 4) > 8 * 3 + 1);
}

/* ---- dumps -------------------------------------------------------------------------------------------- */

static char *dumped(const Program *p, int n) {
  char *text;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  for (int i = 0; i < n; i++)
    program_dump(&p[i], out);
  fclose(out);
  return text;
}

static void check_reads_back(Case c, const Program *programs) {
  char *text = dumped(programs, c.stages);
  int n;
  Program *read = program_read("dump", text, &n);
  assert_non_null(read);
  assert_int_equal(n, c.stages);
  char *again = dumped(read, n);
  assert_string_equal(text, again);
  for (int i = 0; i < n; i++)
    for (int l = 0; l < 3; l++)
      assert_memory_equal(read[i].loop[l].action, programs[i].loop[l].action, sizeof programs[i].loop[l].action);
  free(text);
  free(again);
}

static void test_dumps_read_back(void **state) {
  (void)state;
  for (int d = 1; d <= 4; d++) {
    Case flush = {"flush", d, 4, 0x5, 0}, bw = {"2bw", d, 4, 0xa, 0xe};
    check_reads_back(flush, make(flush));
    check_reads_back(bw, make(bw));
  }
}

static void test_bad_dumps_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {
    "", "program", "program 0 of 2\n", "program 0 of 1\n  per_batch x\n", "program 99999999999999999999 of 1\n",
    "program 0 of 1\n  per_batch 0\n  in_flight 1\n  period 0\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int n, before = error_count();
    assert_null(program_read("dump", bad[i], &n));
    assert_int_equal(error_count(), before + 1);
  }
  char *text = dumped(make((Case){"2bw", 2, 4, 0, 0}), 2);
  size_t length = strlen(text);
  for (size_t cut = 0; cut + 1 < length; cut++) { /* every proper prefix lacks something */
    int n;
    char *part = strndup(text, cut);
    assert_null(program_read("dump", part, &n));
    free(part);
  }
  free(text);
}

static void test_picture_shows_2bw(void **state) {
  (void)state;
  char *text;
  size_t length;
  FILE *out = open_memstream(&text, &length);
  schedule_text(make((Case){"2bw", 2, 2, 0, 2}), 2, out);
  fclose(out);
  assert_string_equal(strstr(text, "\n time") + 1,
                      " time  stage 0       stage 1\n"
                      "    0  F1.0\n"
                      "    1  F2.0          F1.0\n"
                      "    2                B1.0\n"
                      "    3                |\n"
                      "    4  B1.0          F2.0\n"
                      "    5  |             B2.0\n"
                      "    6  F3.0          |\n"
                      "    7  B2.0          F3.0\n"
                      "    8  | =>1         B3.0\n"
                      "    9  F4.0          | =>1\n"
                      "   10  B3.0          F4.0\n"
                      "   11  |             B4.0\n"
                      "   12  F5.1          |\n"
                      "   13  B4.0          F5.1\n"
                      "   14  | =>2         B5.1\n"
                      "   15  F6.1          | =>2\n"
                      "   16  B5.1          F6.1\n"
                      "   17  |             B6.1\n"
                      "   18  F7.2          |\n"
                      "   19  B6.1          F7.2\n"
                      "   20  | =>3         B7.2\n"
                      "   21  F8.2          | =>3\n"
                      "   22  B7.2          F8.2\n"
                      "   23  |             B8.2\n"
                      "   24                |\n"
                      "   25  B8.2\n"
                      "   26  | =>4          =>4\n");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_generated_programs_hold),
    cmocka_unit_test(test_programs_train_as_defined),
    cmocka_unit_test(test_numbers_of_2bw),
    cmocka_unit_test(test_last_stage_never_recomputes),
    cmocka_unit_test(test_requests_refused),
    cmocka_unit_test(test_broken_programs_are_refused),
    cmocka_unit_test(test_all_lag_where_one_waits),
    cmocka_unit_test(test_deadlock_is_found),
    cmocka_unit_test(test_mutants_that_pass_still_train),
    cmocka_unit_test(test_predicted_times),
    cmocka_unit_test(test_update_without_lag_stalls),
    cmocka_unit_test(test_dumps_read_back),
    cmocka_unit_test(test_bad_dumps_are_refused),
    cmocka_unit_test(test_picture_shows_2bw),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
