/* The choice of tokens: frequencies against the probabilities that Hugging Face's warpers leave
 * (make_sampling.py), and what else the header promises.
 *   sampling FOLDER */
#include "generate/sampling.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, DRAWS = 4000, SEED = 7 };
static int failures;
static int32_t order[MOST];

static void check(bool ok, const char *what, int line) {
  if (ok) return;
  fprintf(stderr, "FAIL: %s (%d)\n", what, line);
  failures++;
}

/* Draws of a quarter of the positions each by four samples; Pearson's statistic of the tokens that can be
 * expected. */
static void check_frequencies(const float *logits, const double *p, int n, const struct pd_sampling *s, int line) {
  int count[MOST] = {0}, freedom = -1;
  double statistic = 0;
  for (int i = 0; i < DRAWS; i++) {
    int64_t token = pd_choose_token(logits, n, s, SEED, i % 4, i / 4, order);
    if (token < 0 || token >= n || p[token] == 0) {
      check(false, "a token that is not allowed", line);
      return;
    }
    count[token]++;
  }
  for (int i = 0; i < n; i++) {
    double expected = p[i] * DRAWS;
    if (p[i] > 0 && expected < 5) check(count[i] < 30, "a rare token is frequent", line);
    if (expected < 5) continue;
    freedom++;
    statistic += (count[i] - expected) * (count[i] - expected) / expected;
  }
  /* the seed is fixed; another one exceeds this in one of a thousand cases */
  check(statistic < freedom + 4.5 * sqrt(2.0 * (freedom > 0 ? freedom : 1)) + 3, "other frequencies", line);
}

static int read_cases(const char *path) {
  FILE *in = fopen(path, "r");
  double temperature, top_k, top_p;
  int n, line = 0;
  while (in && fscanf(in, "%lf %lf %lf %d", &temperature, &top_k, &top_p, &n) == 4 && n > 0 && n <= MOST) {
    float logits[MOST];
    double p[MOST];
    for (int i = 0; i < n; i++)
      if (fscanf(in, "%f", &logits[i]) != 1) return 0;
    for (int i = 0; i < n; i++)
      if (fscanf(in, "%lf", &p[i]) != 1) return 0;
    struct pd_sampling s = {(float)temperature, (int64_t)top_k, (float)top_p};
    check_frequencies(logits, p, n, &s, ++line);
  }
  if (in) fclose(in);
  return line;
}

static void largest_is_taken(void) {
  struct pd_sampling greedy = {.top_k = 1, .top_p = 0.1f};
  float tied[] = {1, 3, -INFINITY, 3, 2}, nan[] = {1, NAN, 0}, infinite[] = {0, INFINITY},
        none[] = {-INFINITY, -INFINITY};
  for (int64_t at = 0; at < 20; at++) check(pd_choose_token(tied, 5, &greedy, 1, at, at, order) == 1, "greedy", 0);
  for (int t = 0; t < 2; t++, greedy.temperature = 1, greedy.top_k = 0, greedy.top_p = 1) {
    check(pd_choose_token(nan, 3, &greedy, 1, 0, 0, order) == -1, "NaN", t);
    check(pd_choose_token(infinite, 2, &greedy, 1, 0, 0, order) == -1, "infinity", t);
    check(pd_choose_token(none, 2, &greedy, 1, 0, 0, order) == -1, "no token", t);
  }
}

/* Seed, sample and position each make another choice, and nothing else does. */
static void choices_depend_on_their_numbers(void) {
  float logits[MOST] = {0};
  struct pd_sampling s = {.temperature = 1, .top_p = 1};
  int same[3] = {0};
  for (int64_t i = 0; i < 1000; i++) {
    int64_t token = pd_choose_token(logits, MOST, &s, 1, i, 5, order);
    check(token == pd_choose_token(logits, MOST, &s, 1, i, 5, order), "another choice the second time", 0);
    same[0] += token == pd_choose_token(logits, MOST, &s, 2, i, 5, order);
    same[1] += token == pd_choose_token(logits, MOST, &s, 1, i + 1, 5, order);
    same[2] += token == pd_choose_token(logits, MOST, &s, 1, i, 6, order);
  }
  for (int i = 0; i < 3; i++)
    check(same[i] < 40, "choices that should differ", i); /* 1000 / 64 are to be expected */
}

int main(int argc, char **argv) {
  char path[512];
  snprintf(path, sizeof path, "%s/sampling.cases", argc > 1 ? argv[1] : ".");
  check(read_cases(path) == 104, "the number of cases", 0);
  largest_is_taken();
  choices_depend_on_their_numbers();
  return failures != 0;
}
