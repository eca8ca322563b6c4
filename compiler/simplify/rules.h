#ifndef PDC_SIMPLIFY_RULES_H
#define PDC_SIMPLIFY_RULES_H

#include "simplify/rewrite.h"

/* A value that equals the one output of a node just written to w->to, or -1 when no rule applies. Rules
 * see through a node only within its run, and never through a forward node that reads a parameter: that
 * one is a use. New nodes they build are simplified in turn. */
int rule_apply(Rewrite *w, int node);

#endif
