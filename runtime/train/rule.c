/* Rules are parsed at each evaluation: they are short and rarely evaluated. */
#include "train/rule.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NESTED = 100 };

struct reader {
  const char *text, *at;
  const struct pd_named_number *numbers;
  int n, depth;
  char *why; /* empty without an error */
};

static void refuse(struct reader *r, const char *wanted) {
  if (!*r->why) pd_refuse(r->why, "'%.300s' is not a rule: %s at '%.100s'", r->text, wanted, r->at);
}

/* Skips spaces, and this sign or word if present. */
static bool take(struct reader *r, const char *word) {
  size_t n = strlen(word);
  while (isspace((unsigned char)*r->at)) r->at++;
  bool longer = isalpha((unsigned char)*word) && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_');
  if (strncmp(r->at, word, n) || longer) return false;
  r->at += n;
  return true;
}

static double read_sum(struct reader *r);

static double read_name(struct reader *r) {
  size_t length = 0;
  while (isalnum((unsigned char)r->at[length]) || r->at[length] == '_' || (length && r->at[length] == '.'))
    length++;
  for (int i = 0; i < r->n; i++)
    if (strlen(r->numbers[i].name) == length && !strncmp(r->numbers[i].name, r->at, length)) {
      r->at += length;
      return r->numbers[i].value;
    }
  refuse(r, length ? "unknown number" : "a number is missing");
  return NAN;
}

static double read_factor(struct reader *r) {
  double x = NAN;
  if (++r->depth > MOST_NESTED) {
    refuse(r, "too many nested parentheses");
  } else if (take(r, "-")) {
    x = -read_factor(r);
  } else if (take(r, "(")) {
    x = read_sum(r);
    if (!take(r, ")")) refuse(r, "')' is missing");
  } else if (isdigit((unsigned char)*r->at) || *r->at == '.') {
    char *end;
    x = strtod(r->at, &end);
    if (end == r->at) refuse(r, "a number is missing");
    r->at = end;
  } else {
    x = read_name(r);
  }
  r->depth--;
  return x;
}

static double read_product(struct reader *r) {
  double x = read_factor(r);
  while (!*r->why)
    if (take(r, "*"))
      x *= read_factor(r);
    else if (take(r, "/"))
      x /= read_factor(r);
    else
      break;
  return x;
}

static double read_sum(struct reader *r) {
  double x = read_product(r);
  while (!*r->why)
    if (take(r, "+"))
      x += read_product(r);
    else if (take(r, "-"))
      x -= read_product(r);
    else
      break;
  return x;
}

static bool read_test(struct reader *r) {
  double x = read_sum(r);
  if (take(r, "<=")) return x <= read_sum(r);
  if (take(r, ">=")) return x >= read_sum(r);
  if (take(r, "<")) return x < read_sum(r);
  if (take(r, ">")) return x > read_sum(r);
  refuse(r, "'<', '<=', '>' or '>=' is missing");
  return false;
}

static bool read_all(struct reader *r) {
  bool holds = read_test(r);
  while (!*r->why && take(r, "and")) holds &= read_test(r);
  return holds;
}

bool pd_rule(const char *text, const struct pd_named_number *numbers, int n, bool *holds, char *why) {
  char none[PD_WHY] = "";
  struct reader r = {.text = text, .at = text, .numbers = numbers, .n = n, .why = why ? why : none};
  *holds = read_all(&r);
  while (!*r.why && take(&r, "or")) *holds |= read_all(&r);
  if (!*r.why && *r.at) refuse(&r, "'and', 'or' or the end is missing");
  return !*r.why;
}
