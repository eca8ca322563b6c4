/* Patterns over parameter names: `freeze` and `group` of a model, options of `train`. Used by pdc and programs.
 *
 *   *   any number of any characters, including points
 *   ?   one character
 *   |   separates alternatives; blanks around it are ignored
 *
 * A name is a path, its parts joined by points: "h.0.attn.c_attn.weight". An alternative matches a name if
 * it matches consecutive parts: "h.0" matches all of h.0 and nothing of h.01, "bias" matches every bias, "ln_*"
 * matches all of each layer whose name starts with ln_. */
#ifndef PD_PATTERN_H
#define PD_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PD_MAX_WILDCARDS = 16 };

/* Characters of a longer text. */
struct pd_range {
  const char *at;
  size_t n;
};

/* Stores the next alternative, without surrounding blanks, in *alternative and advances *pattern; false after the
 * last. An empty alternative matches nothing. */
bool pd_pattern_next(const char **pattern, struct pd_range *alternative);
/* True if an alternative matches consecutive parts of the name. */
bool pd_alternative_matches(struct pd_range alternative, const char *name);
/* True if one of the pattern's alternatives matches. */
bool pd_pattern_matches(const char *pattern, const char *name);

/* True if an alternative matches the whole name. Then wildcard[i] is the shortest possible match of its i-th * or
 * ?. `wildcard` has PD_MAX_WILDCARDS entries, or is NULL; with it, alternatives with more wildcards match
 * nothing. */
bool pd_alternative_is(struct pd_range alternative, struct pd_range name, struct pd_range *wildcard);

#ifdef __cplusplus
}
#endif

#endif
