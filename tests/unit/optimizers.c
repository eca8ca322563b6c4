/* Compares the table of optimizers with the runtime's optimizers of the same names and with
 * docs/reference/language.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/call.h"
#include "pd_runtime.h"
#include "optimizers/lr_schedules.h"
#include "optimizers/lr_schedule.h"

typedef struct Rule {
  const char *name, *optimizer;
  int moments;
  size_t arguments;
} Rule;
#define ROW(rule, optimizer, moments) {#rule, #optimizer, moments, sizeof(struct pd_##optimizer##_arguments)},
static const Rule rules[] = {PD_ELEMENT_RULES(ROW) PD_TENSOR_RULES(ROW)};
#define ONE(rule, optimizer, moments) +1
enum { N_RULES = sizeof rules / sizeof *rules, N_ELEMENT_RULES = 0 PD_ELEMENT_RULES(ONE) };
_Static_assert((int)MAX_MOMENTS == (int)PD_MAX_MOMENTS, "one bound in the compiler and in the runtime");

static void test_rows_are_sound(void **state) {
  (void)state;
  for (int i = 0; all_optimizers[i]; i++) {
    const Optimizer *o = all_optimizers[i];
    assert_ptr_equal(optimizer_find(o->name), o);
    assert_true(o->lr > 0 && !o->rule == !!o->choose);
    for (int a = 0; a < optimizer_n_arguments(o); a++)
      for (int k = 0; k < MAX_ARGUMENT_NUMBERS; k++) {
        const OptimizerArgument *argument = &o->argument[a];
        assert_int_equal(argument->field[k] != NULL, k < argument->numbers);
        assert_true(k >= argument->numbers || within(argument->bounds, argument->standard[k]));
      }
  }
}

/* The rules that arguments select are exactly the runtime's rules. */
static void test_rules_are_the_runtimes(void **state) {
  (void)state;
  bool chosen[N_RULES] = {false};
  for (int i = 0; all_optimizers[i]; i++)
    for (int zero = 0; zero < 2; zero++) {
      Train t = {0};
      optimizer_set(&t, all_optimizers[i]);
      for (int k = 0; k < optimizer_n_numbers(t.optimizer); k++)
        t.number[k] = zero ? 0 : 0.5;
      const UpdateRule *rule = update_rule(&t);
      assert_true(rule->n_moments <= PD_MAX_MOMENTS);
      int at = 0;
      while (at < N_RULES && strcmp(rules[at].name, rule->name))
        at++;
      assert_true(at < N_RULES);
      chosen[at] = true;
      assert_string_equal(rules[at].optimizer, t.optimizer->name);
      assert_int_equal(rules[at].moments, rule->n_moments);
      assert_int_equal(rules[at].arguments, (size_t)optimizer_n_numbers(t.optimizer) * sizeof(double));
      for (int m = 0; m < rule->n_moments; m++)
        assert_true(at >= N_ELEMENT_RULES || !rule->moment_shape[m]);
      assert_true(!rule->scratch == (at < N_ELEMENT_RULES));
      assert_true(rule->whole_tensors == (at >= N_ELEMENT_RULES));
    }
  for (int i = 0; i < N_RULES; i++)
    assert_true(chosen[i]);
}

/* Expects "name = x" or "name = (x, y)" in a line. */
static void expect_default(const char *line, const char *name, const double *standard, int n) {
  const char *at = strstr(line, format(" %s = ", name));
  at = at ? at : strstr(line, format("(%s = ", name));
  assert_non_null(at);
  at = strchr(at, '=') + 2;
  for (int i = 0; i < n; i++) {
    char *end;
    at += strspn(at, "(, ");
    assert_true(strtod(at, &end) == standard[i] && end > at);
    at = end;
  }
}

/* A matrix has a moment per row and per column, and a vector a moment of its size: negligible beside AdamW's
 * two. */
static void test_adafactors_moments_are_small(void **state) {
  (void)state;
  const UpdateRule *r = optimizer_adafactor.rule;
  Param matrix = {.shape = {.rank = 2, .dim = {1000, 300}}}, vector = {.shape = {.rank = 1, .dim = {7}}},
        number = {.shape = {.rank = 0}}, filters = {.shape = {.rank = 4, .dim = {8, 4, 3, 5}}};
  int64_t want[][3] = {{1000, 300, 0}, {0, 0, 7}, {0, 0, 1}, {8 * 4 * 3, 8 * 4 * 5, 0}};
  const Param *params[] = {&matrix, &vector, &number, &filters};
  for (int i = 0; i < 4; i++)
    for (int m = 0; m < 3; m++) {
      Shape s = moment_shape(r, m, params[i]);
      assert_int_equal(shape_elements(&s), want[i][m]);
    }
  assert_true(r->scratch(&matrix, NULL) < 1000 * 300 && r->scratch(&number, NULL) > 0);
}

static int64_t product_scratch;
static int64_t a_product(const struct pd_matmul_shape *s) {
  assert_true(s->m > 0 && s->n > 0 && s->k > 0);
  return product_scratch;
}

/* A hidden matrix has one moment, twice X, two square matrices of its shorter side, and a product's workspace.
 * Other parameters have AdamW's two moments. */
static void test_muons_memory_is_of_hidden_matrices(void **state) {
  (void)state;
  const Library library = {.matmul = a_product};
  const UpdateRule *r = optimizer_muon.rule;
  Train t = {0};
  optimizer_set(&t, &optimizer_muon);
  for (int tall = 0; tall < 2; tall++) {
    Param p = {.shape = {.rank = 2, .dim = {tall ? 96 : 32, tall ? 32 : 96}}};
    for (p.hidden = false;; p.hidden = true) {
      Shape first = moment_shape(r, 0, &p), second = moment_shape(r, 1, &p);
      assert_int_equal(shape_elements(&first), 32 * 96);
      assert_int_equal(shape_elements(&second), p.hidden ? 0 : 32 * 96);
      product_scratch = 640;
      int64_t with = r->scratch(&p, &library);
      product_scratch = 0;
      assert_int_equal(with - r->scratch(&p, &library), p.hidden ? 640 : 0);
      assert_true(!p.hidden == !with && with < 4 * (2 * 32 * 96 + 2 * 32 * 32) + 1024);
      assert_true(r->products(&t, &p) == (p.hidden ? 5 * 2.0 * (2 * 32 * 32 * 96 + 32 * 32 * 32) : 0));
      if (p.hidden)
        break;
    }
  }
}

static void test_docs_say_arguments_and_bounds(void **state) {
  (void)state;
  const char *docs = read_file("docs/reference/language.md", NULL);
  for (int i = 0; all_optimizers[i]; i++) {
    const Optimizer *o = all_optimizers[i];
    const char *row = strstr(docs, format("\n| `%s(", o->name));
    assert_non_null(row);
    char *line = format("%.*s", (int)strcspn(row + 1, "\n"), row + 1);
    expect_default(line, "lr", &o->lr, 1);
    for (int a = 0; a < optimizer_n_arguments(o); a++) {
      const OptimizerArgument *argument = &o->argument[a];
      if (argument->truth) {
        const char *standard = argument->standard[0] != 0 ? "true" : "false";
        assert_non_null(strstr(line, format(" %s = %s,", argument->name, standard)));
        continue;
      }
      expect_default(line, argument->name, argument->standard, argument->numbers);
      assert_non_null(strstr(line, format("`%s` %s", argument->name, bounds_text(argument->bounds))));
    }
    assert_true(!o->others || strstr(line, format(" %s = none,", o->others)));
  }
}

/* ---- schedules of the learning rate ---------------------------------------------------------- */

static void test_lr_schedules_are_the_runtimes(void **state) {
  (void)state;
#define LR_ROW(name) {#name, sizeof(struct pd_lr_##name##_arguments)},
  static const struct {
    const char *name;
    size_t arguments;
  } of_runtime[] = {PD_LR_SCHEDULES(LR_ROW)};
  enum { N = sizeof of_runtime / sizeof *of_runtime };
  int n = 0;
  for (; all_lr_schedules[n]; n++) {
    const LrSchedule *s = all_lr_schedules[n];
    int at = 0;
    while (at < N && strcmp(of_runtime[at].name, s->name))
      at++;
    assert_true(at < N);
    assert_int_equal(of_runtime[at].arguments, (size_t)lr_schedule_n_arguments(s) * sizeof(double));
    assert_true(s->total < lr_schedule_n_arguments(s));
    for (int a = 0; a < lr_schedule_n_arguments(s); a++) {
      const LrArgument *argument = &s->argument[a];
      assert_true(argument->means ? !!s->example : within(argument->bounds, argument->standard));
    }
  }
  assert_int_equal(n, N);
}

static void test_docs_say_lr_schedules(void **state) {
  (void)state;
  const char *docs = read_file("docs/reference/language.md", NULL);
  for (int i = 0; all_lr_schedules[i]; i++) {
    const LrSchedule *s = all_lr_schedules[i];
    Text call = {0};
    text_add(&call, "\n| `%s(", s->name);
    for (int a = 0; a < lr_schedule_n_arguments(s); a++) {
      const LrArgument *argument = &s->argument[a];
      text_add(&call, "%s%s", a ? ", " : "", argument->name);
      if (!argument->means)
        text_add(&call, " = %g", argument->standard);
    }
    text_add(&call, ")` |");
    assert_non_null(strstr(docs, call.at));
  }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void test_bounds(void **state) {
  (void)state;
  Bounds positive = {.above = true, .most = HUGE_VAL}, share = {.most = 1}, part = {.most = 1, .below = true};
  assert_true(!within(positive, 0) && within(positive, 1e-300));
  assert_true(within(share, 0) && within(share, 1) && !within(share, 1.5) && !within(part, 1) &&
              !within(part, NAN));
  assert_string_equal(bounds_text(positive), "above 0");
  assert_string_equal(bounds_text(share), "from 0 to 1");
  assert_string_equal(bounds_text(part), "from 0 to below 1");
  assert_string_equal(bounds_text((Bounds){.above = true, .most = 1}), "above 0 and at most 1");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rows_are_sound),
      cmocka_unit_test(test_rules_are_the_runtimes),
      cmocka_unit_test(test_adafactors_moments_are_small),
      cmocka_unit_test(test_muons_memory_is_of_hidden_matrices),
      cmocka_unit_test(test_docs_say_arguments_and_bounds),
      cmocka_unit_test(test_lr_schedules_are_the_runtimes),
      cmocka_unit_test(test_docs_say_lr_schedules),
      cmocka_unit_test(test_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
