/* The optimizers that `train` may name: a file and a row of all_optimizers each. An Optimizer is what users write,
 * its arguments with what they may be; an UpdateRule is what a program does with it, under the same name in the
 * runtime (runtime/optimizers/), where the arithmetic is. */
#ifndef PDC_OPTIMIZER_H
#define PDC_OPTIMIZER_H

#include "graph/graph.h"

typedef struct Library Library; /* ops/call.h */

enum { MAX_OPTIMIZER_ARGUMENTS = 8, MAX_ARGUMENT_NUMBERS = 3, MAX_MOMENTS = 3 };

/* The numbers from `least` to `most`, which are among them unless said otherwise; most may be HUGE_VAL. */
typedef struct Bounds {
  double least, most;
  bool above, below; /* without `least`, without `most` */
} Bounds;

/* One number, or several of them in parentheses, each within the bounds. */
typedef struct OptimizerArgument {
  const char *name; /* "betas" */
  int numbers;
  const char *field[MAX_ARGUMENT_NUMBERS]; /* what emitted programs and dumps call them: "beta1", "beta2" */
  double standard[MAX_ARGUMENT_NUMBERS];
  Bounds bounds;
  bool whole; /* a whole number */
  bool truth; /* true or false, which are 1 and 0 */
} OptimizerArgument;

/* The shape of a moment of a parameter: of rank 0, one number; of no elements, there is none. */
typedef Shape MomentShape(const Param *of);
extern const Shape no_moment;

typedef struct UpdateRule {
  const char *name;   /* struct pd_optimizer pd_<name> of the runtime */
  bool whole_tensors; /* it sees a parameter at once; else element by element */
  int n_moments;
  MomentShape *moment_shape[MAX_MOMENTS]; /* NULL: the parameter's. Rules that go by elements have only such */
  /* How often an update reads or writes as many bytes as the parameter has, the moments apart: an elementwise rule
   * reads weights and gradient and writes weights. */
  int traffic;
  /* Bytes of scratch memory that a rule over whole tensors takes for a parameter: for norms, sums of rows and
   * columns, products, which the library does. NULL: none. */
  int64_t (*scratch)(const Param *of, const Library *library);
  /* Multiplies and adds of the matrix products in an update of a parameter. NULL: there are none. */
  double (*products)(const Train *t, const Param *of);
} UpdateRule;

struct Optimizer {
  const char *name;
  double lr; /* the standard one: every optimizer's first argument */
  OptimizerArgument
      argument[MAX_OPTIMIZER_ARGUMENTS]; /* between lr and decay, which all have; up to a NULL name */
  /* Where hidden matrices (hidden.h) are updated in one way and all other parameters in another: the other's name,
   * which is also the argument that names exceptions by a pattern. NULL: all are updated alike. */
  const char *others;
  const UpdateRule *rule;
  const UpdateRule *(*choose)(const double *number); /* instead of `rule`, where arguments decide */
  DelayCorrection correction; /* what `delay_correction = auto` is (tests/curves/delay.py) */
  /* Which of Train.number is the share of the momentum before; -1: there is no momentum that could be extrapolated. */
  int momentum;
};

extern const Optimizer *const all_optimizers[]; /* ends with NULL */
extern const Optimizer optimizer_adafactor, optimizer_adamw, optimizer_lamb, optimizer_lion, optimizer_muon,
    optimizer_nesterov, optimizer_sgd;

const Optimizer *optimizer_find(const char *name); /* NULL: there is none */
/* Makes it the training's, with its standard arguments. */
void optimizer_set(Train *t, const Optimizer *o);
int optimizer_n_arguments(const Optimizer *o);
int optimizer_n_numbers(const Optimizer *o);            /* of Train.number */
int optimizer_number(const Optimizer *o, int argument); /* an argument's first in Train.number */
const char *optimizer_field(const Optimizer *o, int number);

const UpdateRule *update_rule(const Train *t);
/* Of a moment of a parameter. */
Shape moment_shape(const UpdateRule *r, int moment, const Param *of);

bool within(Bounds b, double x);
const char *bounds_text(Bounds b); /* "at least 0", "from 0 to below 1" */

#endif
