/* Programs with one defect, or changed at random, are refused or train as defined. */
#include "schedules.h"

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
static void fewer_gradients(Program *p) { p[1].slots[0].gradients = p[1].slots[0].returned = 1; }
static void fewer_versions(Program *p) { p[2].versions = 1; }
static void more_versions(Program *p) { p[2].versions = 3; }
static void fewer_accumulators(Program *p) { p[2].accumulators = 1; }
static void no_delays(Program *p) {
  for (int i = 0; i < 4; i++)
    p[i].delay = 0, p[i].versions = 2;
}
static void one_without_delay(Program *p) { p[1].delay = 0; }
static void two_of_delay(Program *p) {
  for (int i = 0; i < 4; i++)
    p[i].delay = 2, p[i].versions = 3;
}
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
static void never_drains(Program *p) {
  for (int i = 0; i < 4; i++)
    p[i].per_batch = false;
}
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
static void stages_exchanged(Program *p) {
  Program one = p[1];
  p[1] = p[2], p[2] = one;
}

/* Defects, each with a part of the expected reason. All have four stages; stage 1 recomputes. */
static const struct {
  const char *name;
  const char *schedule;
  int microbatches;
  void (*break_it)(Program *p);
  const char *reason;
} broken[] = {
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
    {"in flight beyond 2bw's bound", "2bw", 3, far_too_many_in_flight, "and 2 could be"},
    {"periods that differ", "2bw", 6, other_period, "differ"},
    {"a lag of more than a batch", "2bw", 6, lag_beyond_batch, "still to be used"},
    {"a lag that 2bw's M does not allow", "2bw", 3, lag_before_next_weights, "no update has made"},
    {"one stage without a lag", "2bw", 6, one_without_lag, "to validate"},
    {"flush that never drains", "flush", 6, never_drains, "0 updates old"},
    {"one stage never drains", "flush", 6, one_never_drains, "differ"},
    {"send before forward", "2bw", 6, sends_first, "sent before it was computed"},
    {"forward before receive", "flush", 6, forwards_before_receiving, "received activations' slot"},
    {"backward before its gradient", "2bw", 6, backwards_before_receiving, "received gradients' slot"},
    {"gradient sent first", "2bw", 6, sends_gradient_first, "sent before it was computed"},
    {"backward before forward", "flush", 6, backwards_before_forward, "out of order"},
    {"recomputation after backward", "2bw", 6, recomputes_late, "saved values' slot"},
    {"update before exchange", "2bw", 3, updates_before_exchange, "before the batch's exchange"},
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

static void one_received(Program *p) { p[1].slots[0].received = 1; }
static void drains(Program *p) { p[2].loop[2] = p[2].loop[1]; }
static void never_sends(Program *p) { omit(&p[2], 1, DO_SEND); }
static void no_promotion(Program *p) { omit(p, 0, DO_PROMOTE); }
static void no_promotion_back(Program *p) { omit(p, 2, DO_PROMOTE); }
static void no_demotion(Program *p) { omit(p, 0, DO_DEMOTE); }
static void promotes_late(Program *p) { swap(p, 0, DO_PROMOTE, DO_FORWARD); }
static void recomputes_unpromoted(Program *p) { swap(p, 2, DO_PROMOTE, DO_RECOMPUTE); }
static void demotes_early(Program *p) { swap(p, 2, DO_BACKWARD, DO_DEMOTE); }
static void never_recomputes(Program *p) { omit(p, 2, DO_RECOMPUTE); }
static void promotes_at_once(Program *p) { p->loop[1] = (Loop){.n = 1, .action = {DO_PROMOTE}}; }
static void fewer_kept(Program *p) { p->slots[0].saved--; }
static void keeps_another(Program *p) { p->offload.keeps |= 2; }
static void last_keeps(Program *p) {
  p->offload.keeps |= 4, p->slots[2].saved = p->slots[2].inputs = (int)p->period;
}
static void last_goes_backward_later(Program *p) { p->in_flight = program_turns(p); }
static void last_is_not_promoted(Program *p) { omit(p, 1, DO_PROMOTE); }
static void last_is_demoted_between(Program *p) { swap(p, 1, DO_BACKWARD, DO_DEMOTE); }
static void updates_at_home(Program *p) { p->offload.host_updates = true; }
static void fewer_between_parts(Program *p) { p->slots[1].received--; }
static void fewer_received_from_a_stage(Program *p) { p[1].slots[0].received--; }
static void fewer_sent_to_a_stage(Program *p) { p[0].slots[1].sent--; }
static void receives_nothing(Program *p) { omit(&p[1], 0, DO_RECEIVE); }
static void receives_no_gradients(Program *p) { omit(&p[0], 2, DO_RECEIVE_GRADIENT); }
static void returns_from_two_slots(Program *p) { p[2].slots[0].returned = 2; }
static void part_of_another(Program *p) { p[1].part--; }
static void turns_round_early(Program *p) { p[1].in_flight = program_turns(&p[1]); }
static void one_streams(Program *p) { p[1].forward_only = true; }

/* The reason without required meetings of ranks; otherwise the reason why they cannot meet. */
static void check_refused(const char *name, Case c, void (*break_it)(Program *p), const char *reason) {
  Program *p = make(c);
  int64_t batches = batches_of(p);
  char *why = NULL;
  assert_non_null(p);
  break_it(p);
  if (verify_schedule(p, c.stages, batches, &why))
    fail_msg("%s (%s): not refused", name, describe(c));
  char *met = why;
  if (run_schedule(p, NULL, c.stages, batches, NULL, NULL, &why))
    why = met;
  if (!strstr(why, reason))
    fail_msg("%s: refused for '%s', not for '%s'", name, why, reason);
}

static void test_broken_programs_are_refused(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
    check_refused(broken[i].name, plain(broken[i].schedule, 4, broken[i].microbatches, 0x2, 0xe),
                  broken[i].break_it, broken[i].reason);
}

/* ---- replicas, chunks, stashed weights, gradients of weights -------------------------------------------- */

static void d_less_i_in_flight(Program *p) {
  for (int i = 0; i < 3; i++)
    p[i].in_flight = 3 - i;
}
static void fewer_deferred(Program *p) { p[2].slots[0].deferred--; }
static void fewer_saved_for_weights(Program *p) { p[3].slots[0].saved--; }
static void fewer_received_for_weights(Program *p) { p[3].slots[0].received--; }
static void fewer_inputs_for_weights(Program *p) { p[3].slots[0].inputs--; }
static void fewer_sent_for_weights(Program *p) { p[2].slots[0].sent--; }
static void fewer_gradients_for_weights(Program *p) { p[2].slots[0].gradients--; }
static void weights_before_backward(Program *p) { swap(&p[0], 1, DO_WEIGHTS, DO_BACKWARD); }
static void no_weights(Program *p) { omit(&p[1], 2, DO_WEIGHTS); }
static void weights_left(Program *p) { p[2].loop[3].n = 0, p[2].weights_lag = 0; }
static void weights_without_a_split(Program *p) { p[1].loop[1].action[p[1].loop[1].n++] = DO_WEIGHTS; }
static void update_before_weights(Program *p) { swap(&p[0], 2, DO_WEIGHTS, DO_UPDATE); }
static void one_unsplit(Program *p) { p[1].split_backward = false; }
static void other_chunks(Program *p) { p[1].chunks = 1; }
static void many_chunks(Program *p) { p[0].chunks = MAX_CHUNKS + 1; }
static void fewer_saved_in_chunk(Program *p) { p[0].slots[0].saved--; }
static void fewer_saved_in_last_chunk(Program *p) { p[1].slots[1].saved--; }
static void fewer_received_in_chunk(Program *p) { p[1].slots[0].received--; }
static void fewer_sent_in_chunk(Program *p) { p[0].slots[0].sent--; }
static void fewer_gradients_in_chunk(Program *p) { p[0].slots[0].gradients--; }
static void too_few_in_flight(Program *p) { p[0].in_flight -= 4; }
static void odd_replicas(Program *p) { p[1].replicas = 5; }
static void newest_at_stage_0(Program *p) { p[0].delay = 0, p[0].versions = 1; }
static void one_stash_less(Program *p) { p[0].versions--; }
static void stash_without_sync(Program *p) { p[0].delay++, p[0].versions++; }
static void fewer_exchanges(Program *p) { p[3].exchanges--; }
static void one_accumulator(Program *p) { p[3].accumulators--; }
static void begins_early(Program *p) { p[0].bucket = 1; }
static void replicas_without_lag(Program *p) {
  p[1].lag = 0;
  swap(&p[1], 1, DO_UPDATE, DO_EXCHANGE);
}

static void test_broken_programs_of_all_kinds_are_refused(void **state) {
  (void)state;
  const Case zb = plain("zb_h1", 4, 8, 0, 0), two = plain("2bw", 4, 8, 0, 0),
             stream = plain("forward", 4, 4, 0, 0);
  const Case chunks = {.schedule = "interleaved", .stages = 4, .microbatches = 8, .chunks = 2};
  const Case replicas = {.schedule = "2bw", .stages = 3, .microbatches = 12, .replicas = "131"};
  const Case parallel = {.schedule = "2bw", .stages = 1, .microbatches = 8, .replicas = "2"};
  const Case pairs = {.schedule = "2bw", .stages = 2, .microbatches = 8, .replicas = "22"};
  const Case stashed = plain("pipedream", 4, 1, 0, 0);
  const Case synchronous = {
      .schedule = "pipedream", .stages = 4, .microbatches = 1, .exchanges = 0xe, .vertical_sync = true};
  const Case spilled = {.schedule = "spilled", .stages = 1, .microbatches = 3, .chunks = 3};
  const Case keeps = {.schedule = "spilled", .stages = 1, .microbatches = 3, .chunks = 3, .keeps = 5};
  const Case stages = {
      .schedule = "spilled", .stages = 3, .microbatches = 9, .chunks = 3, .parts = "231", .keeps = 2};
  const struct {
    const char *name;
    Case c;
    void (*break_it)(Program *p);
    const char *reason;
  } cases[] = {
      {"d - i in flight with replicas", replicas, d_less_i_in_flight, "no rank can go on"},
      {"deferred slots", zb, fewer_deferred, "deferred values' slot"},
      {"saved slots until the weights' gradients", zb, fewer_saved_for_weights, "saved values' slot"},
      {"received slots until the weights' gradients", zb, fewer_received_for_weights,
       "received activations' slot"},
      {"input slots until the weights' gradients", zb, fewer_inputs_for_weights, "inputs' slot"},
      {"sent slots until the weights' gradients", zb, fewer_sent_for_weights, "sent activations' slot"},
      {"gradient slots until the weights' gradients", zb, fewer_gradients_for_weights, "gradients"},
      {"weights' gradients before backward", zb, weights_before_backward, "sent before it was computed"},
      {"no weights' gradients", zb, no_weights, "cursors"},
      {"weights' gradients left at the end", zb, weights_left, "before the batch's exchange"},
      {"weights' gradients without a split", two, weights_without_a_split, "cursors"},
      {"update before the weights' gradients", zb, update_before_weights, "exchange"},
      {"one stage without a split", zb, one_unsplit, "cursors"},
      {"chunks that differ", chunks, other_chunks, "differ in their chunks"},
      {"too many chunks", chunks, many_chunks, "65 chunks"},
      {"saved slots of a chunk", chunks, fewer_saved_in_chunk, "saved values' slot"},
      {"saved slots of the last chunk", chunks, fewer_saved_in_last_chunk, "saved values' slot"},
      {"received slots of a chunk", chunks, fewer_received_in_chunk, "received activations' slot"},
      {"sent slots of a chunk", chunks, fewer_sent_in_chunk, "activations"},
      {"gradient slots of a chunk", chunks, fewer_gradients_in_chunk, "received gradients' slot"},
      {"too few in flight over chunks", chunks, too_few_in_flight, "no rank can go on"},
      {"replicas that M does not go round", pairs, odd_replicas, "not divisible by 5"},
      {"newest weights where stages stash", stashed, newest_at_stage_0, "updates old"},
      {"a stash too small", stashed, one_stash_less, "versions of weights"},
      {"a stash too large", stashed, stash_without_sync, "updates old"},
      {"exchange buffers", synchronous, fewer_exchanges, "still to be used"},
      {"accumulators under vertical sync", synchronous, one_accumulator, "overwrites gradients"},
      {"received slots of a stream", stream, one_received, "received activations' slot"},
      {"a stream that drains", stream, drains, "one loop that receives, computes and sends"},
      {"a stream that never sends", stream, never_sends, "one loop that receives, computes and sends"},
      {"a stream beside a training", two, one_streams, "one loop that receives, computes and sends"},
      {"parts that are not promoted", spilled, no_promotion, "that was not promoted"},
      {"parts that are not promoted on the way back", spilled, no_promotion_back, "not promoted"},
      {"parts that are not demoted", spilled, no_demotion, "promotes a turn that is not the next one"},
      {"parts that are promoted late", spilled, promotes_late, "that was not promoted"},
      {"recomputation before the part is there", spilled, recomputes_unpromoted, "that was not promoted"},
      {"demotion before the backward pass", spilled, demotes_early, "that was not promoted"},
      {"parts that are not recomputed", spilled, never_recomputes, "no memory is reserved for its activations"},
      {"promotion in another loop", spilled, promotes_at_once, "cursors"},
      {"promotion where nothing spills", two, promotes_at_once, "cursors"},
      {"all turns forward first", spilled, last_goes_backward_later, "promotes a turn that is not the next one"},
      {"a last part that is not promoted", spilled, last_is_not_promoted, "that was not promoted"},
      {"a last part that is demoted between its passes", spilled, last_is_demoted_between,
       "that was not promoted"},
      {"a last part that keeps", keeps, last_keeps, "keeps no saved values"},
      {"slots of a part that keeps", keeps, fewer_kept, "slots for saved values"},
      {"a part that keeps in one slot", keeps, keeps_another, "slots for saved values"},
      {"parts that keep values without offload", two, keeps_another, "kept only under --spill"},
      {"host updates without offload", two, updates_at_home, "updates on the host need --spill"},
      {"slots between parts", spilled, fewer_between_parts, "slots between parts"},
      {"slots from another stage", stages, fewer_received_from_a_stage, "received activations' slot"},
      {"slots to another stage", stages, fewer_sent_to_a_stage, "sent activations' slot"},
      {"parts that receive nothing", stages, receives_nothing, "received activations' slot"},
      {"parts that receive no gradients", stages, receives_no_gradients, "received gradients' slot"},
      {"slots that are full before gradients are taken", stages, returns_from_two_slots, "no rank can go on"},
      {"a part on two stages", stages, part_of_another, "is on 2 stages"},
      {"a stage that turns round before the last", stages, turns_round_early, "cursors"},
      {"buckets whose buffers are in use", parallel, begins_early, "buffers are still to be used"},
      {"buckets before weights' gradients", zb, begins_early, "gradients that are not complete"},
      {"one stage of replicas without lag", pairs, replicas_without_lag, "to validate"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_refused(cases[i].name, cases[i].c, cases[i].break_it, cases[i].reason);
}

/* Memory is minimal: with one copy less of anything, the program is refused. Exceptions: gradients, because the
 * last stage could send and wait with a single slot, and the output of an offloaded part that recomputes. */
static void test_no_copy_is_spare(void **state) {
  (void)state;
  unsigned random = 7;
  int refused = 0;
  for (int n = 0; n < 1800; n++) {
    Case c = random_case(&random);
    Program *programs = make(c), *p = &programs[random_below(&random, (unsigned)c.stages)];
    int chunk = (int)random_below(&random, (unsigned)p->chunks);
    Slots *s = &p->slots[chunk];
    int *copies[] = {&s->saved, &s->received, &s->sent, &s->inputs, &s->deferred, &p->accumulators, &p->exchanges};
    int *one = copies[random_below(&random, sizeof copies / sizeof *copies)];
    if (--*one == 0 || (one == &s->sent && p->offload.on && program_reruns(p, chunk)))
      continue;
    char *why;
    if (verify_schedule(programs, c.stages, batches_of(programs), &why))
      fail_msg("%s: stage %d would do with %d", describe(c), p->stage, *one);
    refused++;
  }
  assert_true(refused > 500);
}

/* Stages 0 and 3 share a parameter: the last update lags, and the stages between follow. */
static void test_all_lag_where_one_waits(void **state) {
  (void)state;
  Program *p = make(plain("2bw", 4, 6, 0, 0x8));
  for (int i = 0; i < 4; i++) {
    assert_int_equal(p[i].lag, i + 1);
    assert_int_equal(p[i].waits, i == 3);
  }
  one_without_lag(p);
  char *why = NULL;
  assert_false(verify_schedule(p, 4, 5, &why));
  assert_non_null(strstr(why, "to validate"));
  p = make(plain("2bw", 4, 6, 0, 0));
  for (int i = 0; i < 4; i++)
    assert_int_equal(p[i].lag, 0);
}

/* Blocking sends in 1F1B's order: two stages that both send first. */
static void test_deadlock_is_found(void **state) {
  (void)state;
  Program *p = make(plain("2bw", 3, 6, 0, 0));
  p[0].in_flight = 1; /* stage 0 waits for a gradient that stage 1 sends only after its second forward */
  p[0].loop[0].n = p[0].loop[2].n = 0;
  p[1].loop[1] = (Loop){.name = "steady state",
                        .n = 8,
                        .action = {DO_RECEIVE, DO_FORWARD, DO_SEND, DO_RECEIVE_GRADIENT, DO_BACKWARD,
                                   DO_SEND_GRADIENT, DO_EXCHANGE, DO_UPDATE}};
  char *why = NULL;
  assert_false(verify_schedule(p, 3, 3, &why));
  assert_non_null(strstr(why, "no rank can go on"));
}

/* Randomly changed programs: if verify_schedule accepts one, it must train as defined. */
static void mutate(Case c, Program *programs, unsigned *state) {
  Program *p = &programs[random_below(state, (unsigned)c.stages)];
  Slots *s = &p->slots[random_below(state, (unsigned)p->chunks)];
  int *slots[] = {&s->saved,    &s->received, &s->sent,     &s->gradients,
                  &s->returned, &s->inputs,   &s->deferred, &p->accumulators};
  int64_t *numbers[] = {&p->in_flight, &p->lag, &p->weights_lag, &p->delay};
  int change = random_below(state, 2) ? 1 : -1;
  Loop *l = &p->loop[random_below(state, N_LOOPS)];
  switch (random_below(state, 4)) {
  case 0:
  case 1: *slots[random_below(state, sizeof slots / sizeof *slots)] += change; break;
  case 2: *numbers[random_below(state, sizeof numbers / sizeof *numbers)] += change; break;
  default:
    if (l->n > 1) {
      Action *a = &l->action[random_below(state, (unsigned)(l->n - 1))], b = a[0];
      a[0] = a[1], a[1] = b;
    }
  }
}

static void test_mutants_that_pass_still_train(void **state) {
  (void)state;
  unsigned random = 1;
  int accepted = 0, refused = 0;
  for (int n = 0; n < 4000; n++) {
    Case c = random_case(&random);
    Program *p = make(c);
    mutate(c, p, &random);
    char *why;
    if (verify_schedule(p, c.stages, batches_of(p), &why))
      check_trains(c, p), accepted++;
    else
      refused++;
  }
  assert_true(accepted > 500 && refused > 500);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_broken_programs_are_refused),
      cmocka_unit_test(test_broken_programs_of_all_kinds_are_refused),
      cmocka_unit_test(test_no_copy_is_spare),
      cmocka_unit_test(test_all_lag_where_one_waits),
      cmocka_unit_test(test_deadlock_is_found),
      cmocka_unit_test(test_mutants_that_pass_still_train),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
