/* Schedules: every generated Program passes verify_schedule and trains as in docs/guide/schedules.md when executed
 * with numbers. Its time agrees with formulas, and its dump reads back equal. */
#include "sample.h"
#include "schedule/timing.h"
#include "schedules.h"

/* Calls `check` for every schedule, 1 to 8 stages, several M, and patterns of recomputation and exchange. */
static void each_case(void (*check)(Case c, const Program *programs)) {
  static const unsigned patterns[] = {0x00, 0xff, 0xaa, 0x0c};
  int n, cases = 0;
  const char *const *names = schedule_names(&n);
  for (int s = 0; s < n; s++)
    for (int d = 1; d <= MAX_STAGES; d++)
      for (int64_t more = 0; more <= d + 1; more++)
        for (size_t r = 0; r < sizeof patterns / sizeof *patterns; r++)
          for (size_t e = 0; e < sizeof patterns / sizeof *patterns; e++) {
            unsigned mask = (1u << d) - 1;
            Case c = plain(names[s], d, 0, patterns[r] & mask, patterns[e] & mask & ~1u);
            c.chunks = 1 + (int)more % 3;
            c = allowed(c, more);
            if (taken())
              check(c, make(c));
            cases++;
          }
  assert_true(cases > 3000);
}

static void each_random_case(int n, void (*check)(Case c, const Program *programs)) {
  unsigned state = 1;
  for (int i = 0; i < n; i++) {
    Case c = random_case(&state);
    if (taken())
      check(c, make(c));
  }
}

static void check_verified(Case c, const Program *programs) {
  char *why = NULL;
  assert_non_null(programs);
  if (!verify_schedule(programs, c.stages, batches_of(programs), &why))
    fail_msg("%s: %s", describe(c), why);
}

static void test_generated_programs_hold(void **state) {
  (void)state;
  each_case(check_verified);
  each_random_case(4000, check_verified);
}

static void check_result(Case c, const Program *programs) {
  if (!programs->forward_only)
    check_trains(c, programs);
}

static void test_programs_train_as_defined(void **state) {
  (void)state;
  each_case(check_result);
  each_random_case(1500, check_result);
}

/* ---- properties of generated programs -------------------------------------------------------------- */

static void test_numbers_of_2bw(void **state) {
  (void)state;
  Program *p = make(plain("2bw", 4, 4, 0x2, 0xe));
  static const int in_flight[] = {4, 3, 2, 1}, lag[] = {1, 2, 3, 4}, accumulators[] = {2, 2, 2, 2},
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
  p = make(plain("2bw", 4, 3, 0, 0xe)); /* no spare turn */
  for (int i = 0; i < 4; i++)
    assert_int_equal(p[i].lag, i);
}

/* Between a batch's end and its version's first use, half of the time is for sums and half for gathering updated
 * parts. */
static void test_shared_updates_lag_half_as_long(void **state) {
  (void)state;
  Case c = {.schedule = "2bw", .stages = 1, .microbatches = 16, .replicas = "2"};
  assert_int_equal(make(c)->lag, 8);
  assert_false(make(c)->sharded);
  c.sharded = true;
  Program *p = make(c);
  assert_true(p->sharded && p->waits == make(c)->waits);
  assert_int_equal(p->lag, 4); /* after at least 9 of 16 microbatches: (16 - 7) / 2 */
  c = (Case){.schedule = "2bw", .stages = 2, .microbatches = 12, .replicas = "13", .sharded = true};
  p = make(c);
  assert_true(!p[0].sharded && p[1].sharded);
}

/* Microbatch k uses stage i's weights after k - 1 - (d - 1 - i) updates; with vertical sync, all stages' after k -
 * d. */
static void test_numbers_of_pipedream(void **state) {
  (void)state;
  Case c = plain("pipedream", 4, 1, 0, 0);
  for (int i = 0; i < 4; i++) {
    Program *p = make(c);
    assert_int_equal(p[i].delay, 3 - i);
    assert_int_equal(p[i].versions, 4 - i);
    assert_int_equal(p[i].lag, 0);
  }
  c.vertical_sync = true;
  c.exchanges = 0xe;
  for (int i = 0; i < 4; i++) {
    Program *p = make(c);
    assert_int_equal(p[i].versions, 4);
    assert_int_equal(p[i].lag, i);
    assert_int_equal(p[i].accumulators, 1 + i);
    assert_int_equal(p[i].exchanges, i > 0 ? i : 1);
  }
}

/* Every stage of zb_h1 holds as much as 1F1B's first stage. */
static void test_numbers_of_zb_h1(void **state) {
  (void)state;
  Program *p = make(plain("zb_h1", 4, 8, 0, 0));
  for (int i = 0; i < 4; i++) {
    assert_int_equal(p[i].in_flight, 4 - i);
    assert_int_equal(p[i].weights_lag, i);
    assert_int_equal(p[i].slots[0].saved, 4);
    assert_int_equal(p[i].slots[0].deferred, i + 1);
    assert_int_equal(p[i].slots[0].gradients, i + 2);
  }
}

static void assert_near(double a, double b) {
  if (fabs(a - b) > 1e-9 * fabs(b))
    fail_msg("%.12g is not %.12g", a, b);
}

/* Crossing values have two slots, other values one. The slowest stage sets the pace: stage 1 takes 2, but its two
 * ranks alternate and so take 1. */
static void test_inference_streams(void **state) {
  (void)state;
  StageTimes times[4] = {{.forward = 0.5}, {.forward = 2}, {.forward = 1}, {.forward = 0.25}};
  Program *p = make(plain("forward", 4, 6, 0, 0xe));
  for (int i = 0; i < 4; i++) {
    assert_true(p[i].forward_only && p[i].versions == 1 && p[i].lag == 0);
    assert_int_equal(p[i].slots[0].received, i > 0 ? 2 : 1);
    assert_int_equal(p[i].slots[0].sent, i < 3 ? 2 : 1);
    assert_int_equal(p[i].slots[0].saved, 1);
    assert_int_equal(p[i].slots[0].inputs, 1);
  }
  assert_near(simulate_schedule(p, times, 4, INFINITY), 6 * 2);
  static const char *const replicas[] = {"1211", "2131", "3216"};
  static const double seconds[] = {6 * 1, 6 * 2, 6 * 1};
  for (int i = 0; i < 3; i++) {
    Case c = {.schedule = "forward", .stages = 4, .microbatches = 6, .replicas = replicas[i]};
    check_verified(c, make(c));
    assert_near(simulate_schedule(make(c), times, 4, INFINITY), seconds[i]);
  }
  p = make(plain("forward", 1, 1, 0, 0));
  assert_near(simulate_schedule(p, times, 1, INFINITY), 0.5);
}

/* Narayanan et al. 2021 (SC), figure 4: 4 ranks of 2 chunks, 8 microbatches in groups of 4. */
static void test_turns_over_chunks(void **state) {
  (void)state;
  Program *p = make((Case){.schedule = "interleaved", .stages = 4, .microbatches = 8, .chunks = 2});
  static const int in_flight[] = {11, 9, 7, 5};
  for (int i = 0; i < 4; i++)
    assert_int_equal(p[i].in_flight, in_flight[i]);
  for (int turn = 1; turn <= 16; turn++) {
    Turn forward = program_turn(p, 0, turn, false), backward = program_turn(p, 0, turn, true);
    assert_int_equal(forward.microbatch, (turn - 1) % 4 + 1 + (turn > 8 ? 4 : 0));
    assert_int_equal(backward.microbatch, forward.microbatch);
    assert_int_equal(forward.chunk, (turn - 1) / 4 % 2);
    assert_int_equal(backward.chunk, 1 - forward.chunk);
  }
}

/* Replicas 1, 3, 1: with d - i in flight, stage 0 would wait for stage 1's third replica. */
static void test_numbers_of_replicas(void **state) {
  (void)state;
  Program *p = make((Case){.schedule = "2bw", .stages = 3, .microbatches = 12, .replicas = "131"});
  assert_int_equal(p[0].in_flight, 9);
  assert_int_equal(p[1].in_flight, 2);
  assert_int_equal(p[2].in_flight, 1);
  for (int i = 0; i < 3; i++)
    assert_int_equal(p[i].accumulators, 2);
  assert_int_equal(program_turn(&p[1], 2, 2, false).microbatch, 6);
  Program *h = make((Case){.schedule = "2bw", .stages = 4, .microbatches = 8, .ahead = 0xf});
  for (int i = 0; i < 4; i++)
    assert_int_equal(h[i].in_flight, 7 - 2 * i);
}

static void test_last_stage_never_recomputes(void **state) {
  (void)state;
  Program *p = make(plain("flush", 3, 4, 0x7, 0));
  for (int a = 0; a < p[2].loop[1].n; a++)
    assert_true(p[2].loop[1].action[a] != DO_RECOMPUTE);
  assert_int_equal(p[2].loop[0].n, 0);
  assert_int_equal(p[2].loop[2].n, 0);
}

/* Checks the count of diagnostics, not their text on stderr. */
static void test_requests_refused(void **state) {
  (void)state;
  int before = error_count();
  assert_null(make(plain("2bw", 5, 3, 0, 0)));
  assert_int_equal(error_count(), before + 1);
  assert_null(make(plain("1bw", 2, 4, 0, 0)));
  assert_int_equal(error_count(), before + 2);
  assert_non_null(make(plain("2bw", 5, 4, 0, 0)));
  const Case refused[] = {
      {.schedule = "2bw", .stages = 2, .microbatches = 9, .replicas = "12"},
      {.schedule = "2bw", .stages = 3, .microbatches = 6, .replicas = "131"},
      {.schedule = "interleaved", .stages = 4, .microbatches = 6, .chunks = 2},
      {.schedule = "interleaved", .stages = 2, .microbatches = 4, .chunks = 2, .replicas = "22"},
      {.schedule = "zb_h1", .stages = 2, .microbatches = 4, .replicas = "21"},
      {.schedule = "zb_h1", .stages = 2, .microbatches = 4, .recompute = 1},
      {.schedule = "flush", .stages = 2, .microbatches = 4, .chunks = 2},
      {.schedule = "pipedream", .stages = 2, .microbatches = 1, .exchanges = 2},
  };
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    before = error_count();
    assert_null(make(refused[i]));
    assert_int_equal(error_count(), before + 1);
  }
  assert_true(schedule_known("flush"));
  assert_false(schedule_known("flusch"));
}

/* ---- time ------------------------------------------------------------------------------------------- */

/* Times of a whole model's passes per stage, over all its chunks; replicas share the work. */
static void set_times(Case c, double forward, double backward, double weights, double send, StageTimes *times) {
  for (int i = 0; i < parts_in(c); i++) {
    double part = (double)replicas_of(c, i % c.stages) * c.stages / parts_in(c);
    times[i] = (StageTimes){.forward = part * forward,
                            .backward = part * backward,
                            .recompute = part * forward,
                            .weights = part * weights,
                            .send = send};
  }
}

static double seconds(Case c, double forward, double backward, double send) {
  StageTimes times[MAX_STAGES * MAX_CHUNKS];
  set_times(c, forward, backward, 0, send, times);
  return simulate_schedule(make(c), times, c.stages, INFINITY);
}

static void test_predicted_times(void **state) {
  (void)state;
  assert_near(seconds(plain("2bw", 4, 8, 0, 0), 1, 2, 0), 8 * 3);            /* no bubble */
  assert_near(seconds(plain("2bw", 4, 8, 0, 0xe), 1, 2, 0), 8 * 3);          /* the lag hides the exchange */
  assert_near(seconds(plain("flush", 4, 8, 0, 0), 1, 2, 0), (8 + 3) * 3);    /* (M + d - 1)(F + B) */
  assert_near(seconds(plain("sequential", 4, 8, 0, 0), 1, 2, 0), 8 * 4 * 3); /* M d (F + B) */
  assert_near(seconds(plain("sequential", 2, 8, 0, 0), 1, 2, 0.5), 8 * 7);   /* plus a transfer each way */
  assert_near(seconds(plain("2bw", 4, 8, 0xff, 0), 1, 2, 0), 8 * 4);         /* recomputation adds one F */
  assert_near(seconds(plain("2bw", 4, 8, 0, 0), 1, 2, 0.5), 8 * 3.75);       /* transfers on the round trip */
  assert_near(seconds(plain("2bw", 1, 8, 0, 0), 1, 2, 0), 8 * 3);
}

static void test_predicted_times_of_drained_schedules(void **state) {
  (void)state;
  assert_near(seconds(plain("gpipe", 4, 8, 0, 0), 1, 2, 0), (8 + 3) * 3);
  for (int chunks = 1; chunks <= 4; chunks++) { /* the bubble of flush divided by the number of chunks */
    Case c = {.schedule = "interleaved", .stages = 4, .microbatches = 8, .chunks = chunks};
    assert_near(seconds(c, 1, 2, 0), 8 * 3 + 3 * 3.0 / chunks);
  }
  for (double b = 1; b <= 3; b++) { /* M (F + B + W) + (d - 1)(F + B - W); B excludes weight gradients */
    StageTimes times[4];
    double idle[4];
    Case c = plain("zb_h1", 4, 8, 0, 0);
    set_times(c, 1, b, 1, 0, times);
    double batch = simulate_schedule(make(c), times, 4, INFINITY);
    assert_near(batch, 8 * (2 + b) + 3 * b);
    schedule_idle(make(c), times, 4, batch, idle);
    for (int i = 0; i < 4; i++)
      assert_near(idle[i], 3 * b / batch);
  }
}

static void test_predicted_times_of_replicas(void **state) {
  (void)state;
  static const char *const replicas[] = {"131", "121", "321", "123", "222", "113"};
  for (size_t i = 0; i < sizeof replicas / sizeof *replicas; i++) {
    Case c = {.schedule = "2bw", .stages = 3, .microbatches = 24, .replicas = replicas[i]};
    assert_near(seconds(c, 1, 2, 0), 24 * 3); /* stages of equal speed: no bubble */
  }
  Case ahead = plain("2bw", 4, 8, 0, 0);
  assert_near(seconds(ahead, 1, 2, 0.5), 8 * 3.75);
  ahead.ahead = 0xf; /* 7, 5, 3, 1 in flight */
  assert_near(seconds(ahead, 1, 2, 0.5), 8 * 3);
  StageTimes times[2];
  Case pairs = {.schedule = "2bw", .stages = 2, .microbatches = 8, .replicas = "22"};
  set_times(pairs, 1, 2, 0, 0, times);
  times[0].reduce = times[1].reduce = 4; /* concurrent with the next batch */
  assert_near(simulate_schedule(make(pairs), times, 2, INFINITY), 8 * 3);
  pairs.schedule = "flush"; /* after the batch, with a bubble of one microbatch */
  assert_near(simulate_schedule(make(pairs), times, 2, INFINITY), 8 * 3 + 2 * 3 + 4);
  times[0].hidden = times[1].hidden = 1.5; /* time hidden by the last backward pass */
  assert_near(simulate_schedule(make(pairs), times, 2, INFINITY), 8 * 3 + 2 * 3 + 2.5);
  times[0].reduce = 40, times[1].reduce = 0; /* sequential exchanges: hidden time shortens none */
  Case whole = {.schedule = "2bw", .stages = 1, .microbatches = 8, .replicas = "2"};
  assert_near(simulate_schedule(make(whole), times, 1, INFINITY), 40);
}

/* The last turn starts the exchange as soon as the machine permits. */
static void test_buckets_begin_where_buffers_are_free(void **state) {
  (void)state;
  static const char *const schedules[] = {"sequential", "gpipe", "flush", "2bw", "pipedream"};
  static const char *const replicas[] = {"2", "4", "22", "12", "21", "131", "222", "32"};
  int begin = 0, wait = 0;
  for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++)
    for (size_t r = 0; r < sizeof replicas / sizeof *replicas; r++)
      for (int64_t m = 12; m <= 36; m += 12) {
        Case c = {.schedule = schedules[s],
                  .stages = (int)strlen(replicas[r]),
                  .microbatches = s == 4 ? common_multiple(replicas[r][0] - '0', 6) : m,
                  .vertical_sync = true,
                  .replicas = replicas[r]};
        Program *p = make(c);
        char *why;
        assert_non_null(p);
        for (int i = 0; i < c.stages; i++) {
          const int64_t bucket = p[i].bucket;
          assert_true(p[i].replicas > 1 || !bucket);
          if (p[i].replicas == 1)
            continue;
          p[i].bucket = 1;
          if (verify_schedule(p, c.stages, 5, &why) != (bucket > 0))
            fail_msg("%s: stage %d, bucket %d: %s", describe(c), i, (int)bucket, bucket ? why : "it may begin");
          p[i].bucket = bucket;
          begin += bucket > 0;
          wait += !bucket;
        }
      }
  assert_true(begin > 50 && wait > 10);
}

/* Varying work costs time unless ranks have slack; more turns in flight reduce the cost. */
static void test_jitter_costs(void **state) {
  (void)state;
  StageTimes times[4];
  Case c = plain("2bw", 4, 16, 0, 0);
  set_times(c, 1, 2, 0, 0, times);
  double even = simulate_schedule(make(c), times, 4, INFINITY),
         uneven = simulate_schedule_jitter(make(c), times, 4, 0.02);
  c.ahead = 0xf;
  double ahead = simulate_schedule_jitter(make(c), times, 4, 0.02);
  assert_near(simulate_schedule_jitter(make(c), times, 4, 0), even);
  assert_true(uneven > 1.005 * even && uneven < 1.05 * even);
  assert_true(ahead < uneven);
  assert_true(ahead == simulate_schedule_jitter(make(c), times, 4, 0.02));
}

static void test_update_without_lag_stalls(void **state) {
  (void)state;
  Case c = plain("2bw", 4, 8, 0, 0xe);
  Program *p = make(c);
  for (int i = 0; i < 4; i++)
    p[i].lag = 0;
  for (int i = 0; i < 4; i++)
    for (int l = i == 3; l < 3; l++)
      for (int a = 0; a + 1 < p[i].loop[l].n; a++)
        if (p[i].loop[l].action[a] == DO_UPDATE)
          p[i].loop[l].action[a] = DO_EXCHANGE, p[i].loop[l].action[a + 1] = DO_UPDATE;
  StageTimes times[4];
  for (int i = 0; i < 4; i++)
    times[i] = (StageTimes){.forward = 1, .backward = 2};
  assert_true(simulate_schedule(p, times, 4, INFINITY) > 8 * 3 + 1);
}

/* Seconds of a batch of one stage on two ranks, with F + B = 3 and eight microbatches each. */
static double shared_seconds(const char *schedule, double reduce, double update, double gather) {
  Case c = {.schedule = schedule, .stages = 1, .microbatches = 16, .replicas = "2", .sharded = true};
  StageTimes times = {.forward = 1, .backward = 2, .update = update, .reduce = reduce, .gather = gather};
  return simulate_schedule(make(c), &times, 1, INFINITY);
}

static void test_parts_are_gathered_beside_the_next_batch(void **state) {
  (void)state;
  assert_near(shared_seconds("flush", 0, 0, 0), 24);
  assert_near(shared_seconds("flush", 2, 0.5, 1), 24 + 3.5); /* sequential */
  assert_near(shared_seconds("2bw", 0, 0.5, 0), 24.5);
  assert_near(shared_seconds("2bw", 8, 0.5, 8), 24.5); /* each has four turns, 12 seconds */
  assert_near(shared_seconds("2bw", 12, 0.5, 8), 24.5);
  assert_true(shared_seconds("2bw", 8, 0.5, 20) > 25);
}

/* ---- times without verification ------------------------------------------------------------------------- */

enum { TIMED_BATCHES = 5, MOST_REPLICAS = 2 * MAX_REPLICAS };
static int drained_cases, timed_sets;
typedef struct Ends {
  const Program *programs;
  double at[MAX_STAGES][MOST_REPLICAS][TIMED_BATCHES];
} Ends;

static bool note_end(void *context, int stage, int replica, int64_t batch, double seconds) {
  Ends *ends = context;
  assert_true(replica < MOST_REPLICAS && batch < TIMED_BATCHES && ends->at[stage][replica][batch] == 0);
  ends->at[stage][replica][batch] = seconds;
  return true;
}

static bool note_event(void *context, const Event *e) {
  const Program *p = &((Ends *)context)->programs[e->stage];
  if (e->step.action == DO_UPDATE)
    return note_end(context, e->stage, e->replica, e->step.number, e->end);
  int64_t left = (p->period - e->step.number % p->period) % p->period; /* of the batch's microbatches */
  if (p->forward_only && e->step.action == DO_SEND && left < p->replicas)
    return note_end(context, e->stage, e->replica, (e->step.number - 1) / p->period, e->end);
  return true;
}

static double some_seconds(unsigned *state, int most) {
  return (double)random_below(state, (unsigned)most + 1) / 7;
}

/* The time found from the first batch equals the interval between all timed batches, and the search does not give
 * up early. */
static void check_drained(Run *first, const StageTimes *times, const Ends *timed) {
  double seconds = time_drained(first, times, INFINITY);
  if (seconds <= 0)
    return;
  drained_cases++;
  for (int i = 1; i < TIMED_BATCHES; i++)
    assert_near(timed->at[0][0][i] - timed->at[0][0][i - 1], seconds);
  assert_near(time_drained(first, times, seconds * (1 + 1e-9)), seconds);
  assert_true(time_drained(first, times, seconds * 1e-6) > seconds * (1 - 1e-9));
}

static void some_times(unsigned *state, double jitter, int parts, StageTimes *times) {
  for (int i = 0; i < parts; i++)
    times[i] = (StageTimes){.forward = some_seconds(state, 9),
                            .backward = some_seconds(state, 9),
                            .recompute = some_seconds(state, 9),
                            .weights = some_seconds(state, 9),
                            .send = some_seconds(state, 9),
                            .update = some_seconds(state, 30),
                            .reduce = some_seconds(state, 60),
                            .gather = some_seconds(state, 60),
                            .jitter = jitter};
  for (int i = 0; i < parts; i++) /* at most the time of the pass that hides it */
    times[i].hidden = fmin(times[i].reduce, times[i].backward) * random_below(state, 3) / 2;
}

/* One of several equal sets of ranks gives the batch ends of all: its rank i stands for ranks i * sets to i * sets
 * + sets - 1. */
static void check_set(Case c, Run *set, int sets, const StageTimes *times, const Ends *timed) {
  static Ends of_set;
  of_set = (Ends){.programs = timed->programs};
  assert_true(time_batches(set, times, note_end, &of_set));
  for (int i = 0; i < c.stages; i++)
    for (int k = 0; k < timed->programs[i].replicas; k++)
      if (memcmp(timed->at[i][k], of_set.at[i][k / sets], sizeof timed->at[i][k]) != 0)
        fail_msg("%s: one of %d sets ends batches at other times than all", describe(c), sets);
}

/* Recorded runs are valid for other times. */
static void check_times(Case c, const Program *programs) {
  enum { TIMES = 3 };
  static Ends checked, timed;
  static unsigned state = 7;
  StageTimes times[MAX_STAGES * MAX_CHUNKS];
  Run *all = run_new(programs, c.stages, 1, TIMED_BATCHES), *first = run_new(programs, c.stages, 1, 1);
  const int sets = programs_sets(programs, c.stages);
  Run *set = run_new(programs_of_set(programs, c.stages, sets), c.stages, sets, TIMED_BATCHES);
  char *why;
  timed_sets += sets > 1;
  for (int i = 0; i < TIMES; i++) {
    double jitter = random_below(&state, 4) ? 0 : 0.1;
    some_times(&state, jitter, parts_in(c), times);
    checked = timed = (Ends){.programs = programs};
    if (!run_schedule(programs, times, c.stages, TIMED_BATCHES, note_event, &checked, &why))
      fail_msg("%s: %s", describe(c), why);
    assert_true(time_batches(all, times, note_end, &timed));
    if (memcmp(checked.at, timed.at, sizeof timed.at) != 0)
      fail_msg("%s: batches end at other times than with checks", describe(c));
    if (jitter <= 0)
      check_set(c, set, sets, times, &timed);
    if (programs->per_batch && jitter <= 0)
      check_drained(first, times, &timed);
  }
}

static bool note_last(void *context, int stage, int replica, int64_t batch, double seconds) {
  (void)replica, (void)batch;
  ((double *)context)[stage] = seconds;
  return true;
}

static bool note_last_update(void *context, const Event *e) {
  return e->step.action != DO_UPDATE || note_last(context, e->stage, e->replica, e->step.number, e->end);
}

/* Runs too long to record are simulated anew each time, and one that was given up can continue. */
static bool give_up(void *context, int stage, int replica, int64_t batch, double seconds) {
  (void)stage, (void)replica, (void)batch, (void)seconds;
  return --*(int *)context > 0;
}

static void test_long_runs_are_timed_again(void **state) {
  (void)state;
  static const char *const names[] = {"2bw", "flush"};
  enum { STAGES = 4, BATCHES = 12, LONG = 4096, SHORT = 8 };
  for (int i = 0; i < 4; i++) {
    Program *p = make(plain(names[i % 2], STAGES, i < 2 ? LONG : SHORT, 0, 0));
    StageTimes times[STAGES];
    unsigned seed = 5;
    Run *run = run_new(p, STAGES, 1, BATCHES);
    char *why;
    for (int round = 0; round < 3; round++) {
      double ended[STAGES] = {0}, checked[STAGES] = {0};
      int left = 5;
      some_times(&seed, 0, STAGES, times);
      if (round == 1)
        assert_true(time_batches(run, times, give_up, &left));
      assert_true(time_batches(run, times, note_last, ended));
      assert_true(run_schedule(p, times, STAGES, BATCHES, note_last_update, checked, &why));
      assert_memory_equal(ended, checked, sizeof ended);
    }
  }
}

/* Two sets of ranks, or twice the previous number. */
static void check_times_twice(Case c, const Program *programs) {
  char *digits = alloc(MAX_STAGES + 1);
  (void)programs;
  for (int i = 0; i < c.stages; i++)
    digits[i] = (char)('0' + 2 * replicas_of(c, i));
  c.replicas = digits;
  c = allowed(c, c.microbatches % 3);
  check_times(c, make(c));
}

static void test_times_are_those_of_the_machine(void **state) {
  (void)state;
  each_case(check_times);
  each_random_case(400, check_times_twice);
  each_random_case(1000, check_times);
  const long every = sample_setting("EVERY", 1);
  assert_true(every * drained_cases > 100 && every * timed_sets > 200);
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
    for (int l = 0; l < N_LOOPS; l++)
      assert_memory_equal(read[i].loop[l].action, programs[i].loop[l].action, sizeof programs[i].loop[l].action);
  free(text);
  free(again);
}

static void test_dumps_read_back(void **state) {
  (void)state;
  for (int d = 1; d <= 4; d++) {
    Case flush = plain("flush", d, 4, 0x5, 0), bw = plain("2bw", d, 4, 0xa, 0xe);
    check_reads_back(flush, make(flush));
    check_reads_back(bw, make(bw));
  }
  each_random_case(200, check_reads_back);
}

static void test_bad_dumps_are_refused(void **state) {
  (void)state;
  static const char *const bad[] = {
      "",
      "program",
      "program 0 of 2\n",
      "program 0 of 1\n  per_batch x\n",
      "program 99999999999999999999 of 1\n",
      "program 0 of 1\n  per_batch 0\n  in_flight 1\n  period 0\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    int n, before = error_count();
    assert_null(program_read("dump", bad[i], &n));
    assert_int_equal(error_count(), before + 1);
  }
  char *text = dumped(make(plain("2bw", 2, 4, 0, 0)), 2);
  size_t length = strlen(text);
  for (size_t cut = 0; cut + 1 < length; cut++) { /* every proper prefix is incomplete */
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
  schedule_text(make(plain("2bw", 2, 2, 0, 2)), 2, out);
  fclose(out);
  assert_string_equal(strstr(text, "\n time") + 1, " time  stage 0       stage 1\n"
                                                   "    0  F1.0\n"
                                                   "    1  F2.0          F1.0\n"
                                                   "    2                B1.0\n"
                                                   "    3                |\n"
                                                   "    4  B1.0          F2.0\n"
                                                   "    5  |             B2.0\n"
                                                   "    6  F3.0          |\n"
                                                   "    7  B2.0          F3.0\n"
                                                   "    8  |             B3.0\n"
                                                   "    9  F4.0          |\n"
                                                   "   10  B3.0          F4.0\n"
                                                   "   11  | =>1         B4.0\n"
                                                   "   12  F5.1          | =>1\n"
                                                   "   13  B4.0          F5.1\n"
                                                   "   14  |             B5.1\n"
                                                   "   15  F6.1          |\n"
                                                   "   16  B5.1          F6.1\n"
                                                   "   17  | =>2         B6.1\n"
                                                   "   18  F7.2          | =>2\n"
                                                   "   19  B6.1          F7.2\n"
                                                   "   20  |             B7.2\n"
                                                   "   21  F8.2          |\n"
                                                   "   22  B7.2          F8.2\n"
                                                   "   23  | =>3         B8.2\n"
                                                   "   24                | =>3\n"
                                                   "   25  B8.2\n"
                                                   "   26  | =>4          =>4\n");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_generated_programs_hold),
      cmocka_unit_test(test_programs_train_as_defined),
      cmocka_unit_test(test_numbers_of_2bw),
      cmocka_unit_test(test_shared_updates_lag_half_as_long),
      cmocka_unit_test(test_numbers_of_pipedream),
      cmocka_unit_test(test_numbers_of_zb_h1),
      cmocka_unit_test(test_inference_streams),
      cmocka_unit_test(test_turns_over_chunks),
      cmocka_unit_test(test_numbers_of_replicas),
      cmocka_unit_test(test_last_stage_never_recomputes),
      cmocka_unit_test(test_requests_refused),
      cmocka_unit_test(test_predicted_times),
      cmocka_unit_test(test_predicted_times_of_drained_schedules),
      cmocka_unit_test(test_predicted_times_of_replicas),
      cmocka_unit_test(test_buckets_begin_where_buffers_are_free),
      cmocka_unit_test(test_jitter_costs),
      cmocka_unit_test(test_update_without_lag_stalls),
      cmocka_unit_test(test_parts_are_gathered_beside_the_next_batch),
      cmocka_unit_test(test_long_runs_are_timed_again),
      cmocka_unit_test(test_times_are_those_of_the_machine),
      cmocka_unit_test(test_dumps_read_back),
      cmocka_unit_test(test_bad_dumps_are_refused),
      cmocka_unit_test(test_picture_shows_2bw),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
