#include "shared/pattern.h"

#include <string.h>

bool pd_pattern_next(const char **pattern, struct pd_range *alternative) {
  const char *at = *pattern;
  if (!at) return false;
  size_t n = strcspn(at, "|");
  *pattern = at[n] ? at + n + 1 : NULL;
  while (n > 0 && at[n - 1] == ' ') n--;
  while (n > 0 && *at == ' ') at++, n--;
  *alternative = (struct pd_range){at, n};
  return true;
}

static bool has_room(struct pd_range alternative) {
  size_t wildcards = 0;
  for (size_t i = 0; i < alternative.n; i++) wildcards += alternative.at[i] == '*' || alternative.at[i] == '?';
  return wildcards <= PD_MAX_WILDCARDS;
}

/* After a mismatch the last * takes one more character; earlier ones need not change. */
bool pd_alternative_is(struct pd_range alternative, struct pd_range name, struct pd_range *wildcard) {
  const char *p = alternative.at;
  struct pd_range unused[1];
  size_t i = 0, k = 0, seen = 0;           /* in the alternative, in the name, wildcards so far */
  size_t star = 0, taken = 0, of_star = 0; /* after the last *: its end in the name, its number + 1 */
  if (wildcard && !has_room(alternative)) return false;
  while (k < name.n || i < alternative.n) {
    struct pd_range *w = wildcard ? wildcard + seen : unused;
    if (i < alternative.n && p[i] == '*') {
      *w = (struct pd_range){name.at + k, 0};
      star = ++i;
      taken = k;
      of_star = ++seen;
    } else if (i < alternative.n && k < name.n && p[i] == '?') {
      *w = (struct pd_range){name.at + k++, 1};
      i++;
      seen++;
    } else if (i < alternative.n && k < name.n && p[i] == name.at[k]) {
      i++;
      k++;
    } else if (of_star && taken < name.n) {
      if (wildcard) wildcard[of_star - 1].n++;
      k = ++taken;
      i = star;
      seen = of_star;
    } else
      return false;
  }
  return true;
}

bool pd_alternative_matches(struct pd_range alternative, const char *name) {
  for (const char *first = name; alternative.n; first++) {
    for (const char *end = first;; end++) {
      end += strcspn(end, ".");
      if (pd_alternative_is(alternative, (struct pd_range){first, (size_t)(end - first)}, NULL)) return true;
      if (!*end) break;
    }
    first += strcspn(first, ".");
    if (!*first) break;
  }
  return false;
}

bool pd_pattern_matches(const char *pattern, const char *name) {
  struct pd_range alternative;
  while (pd_pattern_next(&pattern, &alternative))
    if (pd_alternative_matches(alternative, name)) return true;
  return false;
}
