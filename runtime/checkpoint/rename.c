/* --rename OLD=NEW: patterns of whole names; wildcards carry over their text. */
#include "shared/pattern.h"
#include "checkpoint/sources.h"

#include <stdlib.h>
#include <string.h>

static bool is_wildcard(char c) { return c == '*' || c == '?'; }

bool pd_rename_check(const char *rename, char *why) {
  const char *equals = strchr(rename, '='), *old = rename, *new = equals ? equals + 1 : "";
  if (!equals || equals == rename || !*new || strchr(new, '='))
    return pd_refuse(why, "--rename needs OLD=NEW, not '%.300s'", rename);
  int n = 0;
  do {
    while (old < equals && !is_wildcard(*old)) old++;
    while (*new && !is_wildcard(*new)) new ++;
    char in_old = old < equals ? *old++ : 0, in_new = *new ? *new ++ : 0;
    if (in_old != in_new)
      return pd_refuse(why, "--rename '%.300s': both names need the same wildcards in the same order", rename);
    if (!in_old) return true;
  } while (++n <= PD_MAX_WILDCARDS);
  return pd_refuse(why, "--rename '%.300s': more than %d wildcards", rename, PD_MAX_WILDCARDS);
}

char *pd_renamed(const char *rename, const char *name) {
  struct pd_range kept[PD_MAX_WILDCARDS];
  const char *equals = strchr(rename, '=');
  if (!pd_alternative_is((struct pd_range){rename, (size_t)(equals - rename)},
                         (struct pd_range){name, strlen(name)}, kept))
    return NULL;
  /* texts of wildcards do not overlap */
  char *renamed = malloc(strlen(equals) + strlen(name) + 1), *at = renamed;
  if (!renamed) return NULL;
  for (const char *c = equals + 1, *end = c + strlen(c); c < end; c++) {
    const struct pd_range *k = kept;
    if (!is_wildcard(*c)) {
      *at++ = *c;
      continue;
    }
    for (const char *before = equals + 1; before < c; before++) k += is_wildcard(*before);
    memcpy(at, k->at, k->n);
    at += k->n;
  }
  *at = 0;
  return renamed;
}
