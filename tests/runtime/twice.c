/* Updates that --audit runs twice: results equal a single run's, and a wrong bit in either run is reported, for
 * elementwise rules with any number of threads and for whole-tensor rules. */
#include "update/update.h"
#include "watch/watch.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST = 40000, SECOND = 300, ALL = FIRST + SECOND, THREADS = 3 };

static const struct pd_use uses[] = {{0, 0}, {0, FIRST * sizeof(float)}};
static const struct pd_parameter parameters[] = {
    {.name = "first", .rank = 1, .dim = {FIRST}, .elements = FIRST, .decays = true, .n_uses = 1, .uses = &uses[0]},
    {.name = "second",
     .rank = 1,
     .dim = {SECOND},
     .elements = SECOND,
     .offset = FIRST * sizeof(float),
     .n_uses = 1,
     .uses = &uses[1]}};
static struct { float moment[ALL], weights[2][ALL], gradient[ALL]; } arena;
static const struct pd_nesterov_arguments arguments = {.momentum = 0.9, .weight_decay = 0.1};

static int calls, wrong_call, wrong_element; /* which call errs, from 1; 0: none */

static void err_once(float *x, int64_t n) {
  int call;
#pragma omp atomic capture
  call = ++calls;
  if (call == wrong_call && wrong_element < n) ((uint32_t *)x)[wrong_element] ^= 4;
}

static void by_elements(int64_t n, const void *step, const float *from, float *to, const float *gradient,
                        float *const *moment, const struct pd_change *change) {
  pd_nesterov_elements(n, step, from, to, gradient, moment, change);
  err_once(to, n);
}

/* The weights move by half of the gradient, and with the mean of the moments, which a tile alone does not know. */
static void by_tensor(const struct pd_tensor_update *x) {
  double sum = 0;
  for (int64_t i = 0; i < x->parameter->elements; i++) {
    x->moment[0][i] = 0.5f * x->moment[0][i] + x->gradient[i];
    sum += (double)x->moment[0][i];
  }
  for (int64_t i = 0; i < x->parameter->elements; i++)
    x->to[i] = x->from[i] - x->gradient[i] / 2 - (float)(sum / (double)x->parameter->elements);
  err_once(x->moment[0], x->parameter->elements);
}

static void fill(void) {
  for (int i = 0; i < ALL; i++) {
    arena.moment[i] = (float)(i % 7) / 8;
    arena.weights[0][i] = (float)(i % 101) / 64;
    arena.weights[1][i] = -1;
    arena.gradient[i] = (float)(i % 13) / 16 - 0.25f;
  }
  calls = 0;
}

static void update_elements(bool in_place, char *copy) {
  struct pd_nesterov_step step[2];
  for (int decays = 0; decays < 2; decays++)
    step[decays] = pd_nesterov_constants(&arguments, (struct pd_rate){.lr = 0.1}, 3, 1, decays);
  struct pd_update_arrays u = {.t = 3,
                               .end = pd.stage->n_parameters,
                               .from = arena.weights[0],
                               .to = arena.weights[!in_place],
                               .gradient = arena.gradient,
                               .step = {&step[0], &step[1]},
                               .n_steps = 2};
  pd_update_tiles(&u, by_elements, copy);
}

static void update_tensors(bool in_place, char *copy) {
  for (int i = 0; i < 2; i++) {
    size_t at = parameters[i].offset / sizeof(float);
    struct pd_tensor_update x = {.parameter = &pd.stage->parameters[i],
                                 .t = 3,
                                 .from = arena.weights[0] + at,
                                 .to = arena.weights[!in_place] + at,
                                 .gradient = arena.gradient + at,
                                 .moment = {arena.moment + at}};
    pd_update_tensor(by_tensor, &x, copy);
  }
}

static void twice_is_once(void (*update)(bool in_place, char *copy)) {
  static float want[2][ALL], moment[ALL];
  char *copy = pd_allocate(pd_update_copy_bytes()), why[PD_WHY];
  wrong_call = 0;
  for (int in_place = 0; in_place < 2; in_place++) {
    fill();
    update(in_place, NULL);
    memcpy(want, arena.weights, sizeof want);
    memcpy(moment, arena.moment, sizeof moment);
    for (int threads = 1; threads <= THREADS; threads++) {
      omp_set_num_threads(threads);
      fill();
      update(in_place, copy);
      assert_true(pd_updates_agree(3, why));
      assert_memory_equal(arena.weights, want, sizeof want);
      assert_memory_equal(arena.moment, moment, sizeof moment);
    }
  }
  free(copy);
}

/* Each of the calls errs in turn: `told` of the element that does. */
static void finds(void (*update)(bool in_place, char *copy), int all_calls, int element, const char *told) {
  char *copy = pd_allocate(pd_update_copy_bytes()), why[PD_WHY];
  wrong_element = element;
  for (wrong_call = 1; wrong_call <= all_calls; wrong_call++)
    for (int threads = 1; threads <= THREADS; threads++) {
      omp_set_num_threads(threads);
      fill();
      update(threads % 2, copy);
      assert_int_equal(calls, all_calls);
      assert_false(pd_updates_agree(3, why));
      if (!strstr(why, "--audit: step 4: two runs of the update differ in the ") || !strstr(why, told))
        fail_msg("call %d: %s", wrong_call, why);
      assert_true(pd_updates_agree(3, why)); /* it is told once */
    }
  free(copy);
}

static void elements(void **state) {
  (void)state;
  twice_is_once(update_elements);
  finds(update_elements, 2 * 4, 17, "weights of '"); /* 3 tiles and 1 */
  wrong_element = 301;                               /* the second parameter has none, so its calls do not err */
  char *copy = pd_allocate(pd_update_copy_bytes()), why[PD_WHY];
  omp_set_num_threads(1);
  wrong_call = 4; /* the second tile's second run */
  fill();
  update_elements(true, copy);
  assert_false(pd_updates_agree(3, why));
  assert_non_null(strstr(why, "weights of 'first': element 16685 has bits "));
  free(copy);
}

static void tensors(void **state) {
  (void)state;
  twice_is_once(update_tensors);
  finds(update_tensors, 2 * 2, 17, "first moments of '");
  finds(update_tensors, 2 * 2, 0, ": element 0 has bits ");
}

int main(void) {
  static const struct pd_optimizer tensor_rule = {.name = "tensors", .tensor = by_tensor};
  static const struct pd_stage stage = {.parameters = parameters,
                                        .n_parameters = 2,
                                        .n_moments = 1,
                                        .moments_stride = sizeof arena.moment,
                                        .threads = THREADS,
                                        .optimizer = &tensor_rule};
  pd.stage = &stage;
  pd.arena = (char *)&arena;
  pd_deal_tiles();
  const struct CMUnitTest tests[] = {cmocka_unit_test(elements), cmocka_unit_test(tensors)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
