#ifndef PDC_SIMPLIFY_RULES_H
#define PDC_SIMPLIFY_RULES_H

#include "simplify/rewrite.h"

/* A value equal to the single output of a node just written to w->to, or -1 if no rule applies. Rules see through
 * a node only within its run, and never through a forward node with a parameter input, because it is a use. Nodes
 * that rules build are simplified in turn. */
int rule_apply(Rewrite *w, int node);

#endif
