/* The optional operands of attention (attention_operands.c). */
#ifndef PDC_ATTENTION_H
#define PDC_ATTENTION_H

#include "ops/rules.h"

/* The optional operands come after the required ones. The attribute "$optional" has a bit for each that is there. */
typedef enum { MASK, DOCUMENTS, BIAS, SINKS, N_OPTIONAL } Optional;

/* Reports operands that do not fit; operand, axis: the ones to show, or -1. Returns false. */
bool attention_fails(ShapeRule *r, const char *why, int operand, int axis);
/* Whether a bias [heads, .., ..] has a number for each distance of a key from a query. */
bool attention_by_distance(const Shape *bias, const Shape *q, const Shape *k);
/* Fills in "$optional". False after a diagnostic. */
bool attention_check_optional(ShapeRule *r);

#endif
