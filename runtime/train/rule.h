/* Rules over named numbers, as "validation_loss > best * 1.1 and step >= 500":
 *   rule = all {"or" all}; all = test {"and" test}; test = sum ("<" | "<=" | ">" | ">=") sum;
 *   sum = product {("+" | "-") product}; product = factor {("*" | "/") factor};
 *   factor = NUMBER | NAME | "-" factor | "(" sum ")" */
#ifndef PD_RULE_H
#define PD_RULE_H

#include "shared/why.h"

struct pd_named_number {
  const char *name;
  double value;
};

/* True if the text is a rule over these names, else false after filling `why`. *holds: the rule's value. A
 * comparison with NaN is false. */
bool pd_rule(const char *text, const struct pd_named_number *numbers, int n, bool *holds, char *why);

#endif
