/* The optimizers of `train`: one file and one row of all_optimizers each. An Optimizer defines the arguments and their
 * bounds for users; an UpdateRule defines the update in a program, with the arithmetic under the same name in
 * runtime/optimizers/. */
#ifndef PDC_OPTIMIZER_H
#define PDC_OPTIMIZER_H

#include "graph/graph.h"

typedef struct Library Library; /* ops/call.h */

enum { MAX_OPTIMIZER_ARGUMENTS = 8, MAX_ARGUMENT_NUMBERS = 3, MAX_MOMENTS = 3 };

/* The numbers from `least` to `most`, both included by default; most may be HUGE_VAL. */
typedef struct Bounds {
  double least, most;
  bool above, below; /* exclude `least`; exclude `most` */
} Bounds;

/* One number, or several of them in parentheses, each within the bounds. */
typedef struct OptimizerArgument {
  const char *name; /* "betas" */
  int numbers;
  const char *field[MAX_ARGUMENT_NUMBERS]; /* names in emitted programs and dumps: "beta1", "beta2" */
  double standard[MAX_ARGUMENT_NUMBERS];
  Bounds bounds;
  bool whole; /* a whole number */
  bool truth; /* true or false, stored as 1 and 0 */
} OptimizerArgument;

/* The shape of a moment of a parameter. Rank 0: one number; no elements: no such moment. */
typedef Shape MomentShape(const Param *of);
extern const Shape no_moment;

typedef struct UpdateRule {
  const char *name;   /* struct pd_optimizer pd_<name> of the runtime */
  bool whole_tensors; /* needs a whole parameter; else elementwise */
  int n_moments;
  MomentShape *moment_shape[MAX_MOMENTS]; /* NULL: the parameter's shape, the only one for elementwise rules */
  /* Bytes that an update reads and writes, as a multiple of the parameter's bytes, without moments: 3 for an elementwise
   * rule, which reads weights and gradient and writes weights. */
  int traffic;
  /* Scratch bytes of a rule over whole tensors for a parameter: norms, sums of rows and columns, products of the library.
   * NULL: none. */
  int64_t (*scratch)(const Param *of, const Library *library);
  /* Multiplies and adds of the matrix products in an update of a parameter. NULL: no products. */
  double (*products)(const Train *t, const Param *of);
} UpdateRule;

struct Optimizer {
  const char *name;
  double lr; /* the standard one: every optimizer's first argument */
  OptimizerArgument
      argument[MAX_OPTIMIZER_ARGUMENTS]; /* between lr and decay, which every optimizer has; ends at a NULL name */
  /* The second method, for parameters that are not hidden matrices (hidden.h); also the argument whose pattern lists
   * exceptions. NULL: one method for all parameters. */
  const char *others;
  const UpdateRule *rule;
  const UpdateRule *(*choose)(const double *number); /* replaces `rule` if the rule depends on arguments */
  DelayCorrection correction; /* meaning of `delay_correction = auto` (tests/curves/delay.py) */
  /* Index in Train.number of the momentum's coefficient; -1: no momentum to extrapolate. */
  int momentum;
};

extern const Optimizer *const all_optimizers[]; /* ends with NULL */
extern const Optimizer optimizer_adafactor, optimizer_adamw, optimizer_lamb, optimizer_lion, optimizer_muon,
    optimizer_nesterov, optimizer_sgd;

const Optimizer *optimizer_find(const char *name); /* NULL: unknown */
/* Sets the training's optimizer, with standard arguments. */
void optimizer_set(Train *t, const Optimizer *o);
int optimizer_n_arguments(const Optimizer *o);
int optimizer_n_numbers(const Optimizer *o);            /* of Train.number */
int optimizer_number(const Optimizer *o, int argument); /* index of an argument's first number in Train.number */
const char *optimizer_field(const Optimizer *o, int number);

const UpdateRule *update_rule(const Train *t);
bool keeps_momentum(const Train *t); /* with the arguments as given: sgd(momentum = 0) keeps none */
Shape moment_shape(const UpdateRule *r, int moment, const Param *of);

bool within(Bounds b, double x);
const char *bounds_text(Bounds b); /* "at least 0", "from 0 to below 1" */

#endif
