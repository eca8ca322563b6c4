/* The list of all optimizers, and queries on a row. */
#include "optimizers/optimizer.h"

#include <math.h>
#include <string.h>

const Shape no_moment = {.rank = 1};

const Optimizer *const all_optimizers[] = {&optimizer_adafactor, &optimizer_adamw,
                                           &optimizer_lamb,      &optimizer_lion,
                                           &optimizer_muon,      &optimizer_nesterov,
                                           &optimizer_sgd,       NULL};

const Optimizer *optimizer_find(const char *name) {
  for (int i = 0; all_optimizers[i]; i++)
    if (!strcmp(all_optimizers[i]->name, name))
      return all_optimizers[i];
  return NULL;
}

/* ---- arguments --------------------------------------------------------------------------------- */

int optimizer_n_arguments(const Optimizer *o) {
  int n = 0;
  while (n < MAX_OPTIMIZER_ARGUMENTS && o->argument[n].name)
    n++;
  return n;
}

int optimizer_number(const Optimizer *o, int argument) {
  int n = 0;
  for (int i = 0; i < argument; i++)
    n += o->argument[i].numbers;
  ensure(n <= MAX_OPTIMIZER_NUMBERS);
  return n;
}

int optimizer_n_numbers(const Optimizer *o) { return optimizer_number(o, optimizer_n_arguments(o)); }

const char *optimizer_field(const Optimizer *o, int number) {
  int argument = 0;
  for (; number >= o->argument[argument].numbers; argument++)
    number -= o->argument[argument].numbers;
  return o->argument[argument].field[number];
}

void optimizer_set(Train *t, const Optimizer *o) {
  t->optimizer = o;
  t->lr = o->lr;
  for (int i = 0; i < optimizer_n_arguments(o); i++)
    for (int k = 0; k < o->argument[i].numbers; k++)
      t->number[optimizer_number(o, i) + k] = o->argument[i].standard[k];
}

/* ---- rules ------------------------------------------------------------------------------------- */

const UpdateRule *update_rule(const Train *t) {
  return t->optimizer->choose ? t->optimizer->choose(t->number) : t->optimizer->rule;
}

bool keeps_momentum(const Train *t) {
  return t->optimizer->momentum >= 0 && t->number[t->optimizer->momentum] > 0;
}

Shape moment_shape(const UpdateRule *r, int moment, const Param *of) {
  return r->moment_shape[moment] ? r->moment_shape[moment](of) : of->shape;
}

/* ---- bounds ------------------------------------------------------------------------------------ */

bool within(Bounds b, double x) {
  return (b.above ? x > b.least : x >= b.least) && (b.below ? x < b.most : x <= b.most);
}

const char *bounds_text(Bounds b) {
  if (b.least == -HUGE_VAL)
    return "finite";
  if (b.most == HUGE_VAL)
    return format("%s %g", b.above ? "above" : "at least", b.least);
  if (b.above)
    return format("above %g and %s %g", b.least, b.below ? "below" : "at most", b.most);
  return format("from %g to %s%g", b.least, b.below ? "below " : "", b.most);
}
