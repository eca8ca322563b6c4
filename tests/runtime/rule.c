/* Rules of --stop-when (runtime/train/rule.c): values, errors, and random rules against C's arithmetic. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/rule.h"

static const struct pd_named_number numbers[] = {{"loss", 2}, {"best", 1.5}, {"since_best", 3}, {"nan", NAN}};
enum { N = sizeof numbers / sizeof *numbers };

static bool holds(const char *text) {
  char why[PD_WHY] = "";
  bool result;
  if (!pd_rule(text, numbers, N, &result, why)) fail_msg("%s", why);
  return result;
}

static void test_what_holds(void **unused) {
  (void)unused;
  assert_true(holds("loss > best * 1.1"));
  assert_false(holds("loss > best * 1.5"));
  assert_true(holds("since_best >= 3"));
  assert_false(holds("since_best>3"));
  assert_true(holds("loss < 1 or best < 2"));
  assert_false(holds("loss < 1 or best < 2 and loss < 1"));
  assert_true(holds("loss <= 2 and best<=1.5e0"));
  assert_true(holds("-(loss - 5) * 2 / 3 < 2 + .5"));
  assert_true(holds(" 1 - 2 - 3 < -3 "));
  assert_false(holds("nan < 1 or nan >= 1"));
}

static void refused(const char *text, const char *because) {
  char why[PD_WHY] = "";
  bool result;
  assert_false(pd_rule(text, numbers, N, &result, why));
  if (!strstr(why, because)) fail_msg("'%s': %s", text, why);
}

static void test_what_is_no_rule(void **unused) {
  (void)unused;
  refused("", "a number is missing at ''");
  refused("loss", "'<', '<=', '>' or '>=' is missing at ''");
  refused("losses > 1", "unknown number at 'losses > 1'");
  refused("los > 1", "unknown number");
  refused("loss > 1 best", "'and', 'or' or the end is missing at 'best'");
  refused("loss > 1 andbest < 2", "'and', 'or' or the end is missing at 'andbest < 2'");
  refused("(loss > 1", "')' is missing at '> 1'");
  refused("loss > 1 and", "a number is missing");
  refused("loss = 1", "is missing at '= 1'");
  refused(". > 1", "a number is missing");
  char deep[1000];
  memset(deep, '(', sizeof deep - 1);
  deep[sizeof deep - 1] = 0;
  refused(deep, "too many nested parentheses");
}

static uint32_t state = 7;
static uint32_t draw(uint32_t n) {
  state ^= state << 13, state ^= state >> 17, state ^= state << 5;
  return state % n;
}

/* A sum of products in the order of C, and its value. */
static double random_sum(char *to, size_t room) {
  double sum = 0;
  size_t n = 0;
  for (uint32_t i = 0, terms = 1 + draw(4); i < terms; i++) {
    double product = 0;
    bool minus = i > 0 && draw(2);
    n += (size_t)snprintf(to + n, room - n, "%s", i == 0 ? "" : minus ? " - " : "+");
    for (uint32_t k = 0, factors = 1 + draw(3); k < factors; k++) {
      double x = draw(50) / 8.0 + 0.125;
      bool over = k > 0 && draw(2);
      n += (size_t)snprintf(to + n, room - n, "%s%.3f", k == 0 ? "" : over ? " / " : "*", x);
      product = k == 0 ? x : over ? product / x : product * x;
    }
    sum = i == 0 ? product : minus ? sum - product : sum + product;
  }
  return sum;
}

static void test_random_comparisons(void **unused) {
  (void)unused;
  for (int i = 0; i < 20000; i++) {
    static const char *const signs[] = {"<", "<=", ">", ">="};
    char left[256], right[256], text[600];
    uint32_t sign = draw(4);
    double x = random_sum(left, sizeof left), y = random_sum(right, sizeof right);
    snprintf(text, sizeof text, "%s %s (%s)", left, signs[sign], right);
    assert_int_equal(holds(text), sign == 0 ? x < y : sign == 1 ? x <= y : sign == 2 ? x > y : x >= y);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_holds),
      cmocka_unit_test(test_what_is_no_rule),
      cmocka_unit_test(test_random_comparisons),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
