/* Patterns over the names of parameters: `freeze` and `group` of a model, options of `train`. pdc has this file,
 * too.
 *
 *   *   any characters, none and points among them
 *   ?   one character
 *   |   between alternatives; blanks around it do not count
 *
 * A name is a path, its parts joined by points: "h.0.attn.c_attn.weight". An alternative matches it when it
 * matches neighbouring parts, wherever they stand: "h.0" matches what is in h.0 and nothing in h.01, "bias"
 * matches every bias, "ln_*" whatever is in a layer whose name starts so. */
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

/* The next alternative, without blanks at its ends, in *alternative, and *pattern behind it; false behind the
 * last. An empty alternative matches nothing. */
bool pd_pattern_next(const char **pattern, struct pd_range *alternative);
/* Whether an alternative matches parts of the name. */
bool pd_alternative_matches(struct pd_range alternative, const char *name);
/* Whether one of the pattern's alternatives does. */
bool pd_pattern_matches(const char *pattern, const char *name);

/* Whether an alternative matches the whole name. Then wildcard[i] is what its i-th * or ? stands for: each as
 * little as lets the rest match. `wildcard` has PD_MAX_WILDCARDS, or is NULL; an alternative with more matches
 * nothing then. */
bool pd_alternative_is(struct pd_range alternative, struct pd_range name, struct pd_range *wildcard);

#ifdef __cplusplus
}
#endif

#endif
