/* Whole-tensor update rules, as sequences of passes. Each target includes this file after it defines how passes
 * run. f: a function of its work, a row and an element index; PD_MAP ignores its result.
 *   PD_MAP(f, work, rows, columns)    for every element of the rows
 *   PD_ROW_SUMS(f, work, rows, columns, to)                      to[row]
 *   PD_COLUMN_SUMS(f, work, matrices, rows, columns, parts, to)  to[matrix][column]
 *   PD_SUM(f, work, n, parts, to)     *to, over one row of n
 * Sums are doubles, in the order of pd_scratch.h. A pass may read results of earlier passes. */

#include "optimizers/pd_newton_schulz.h"

/* Rules without preparation at start. */
#define adafactor_start NULL
#define lamb_start NULL

static void adafactor_tensor(const struct pd_tensor_update *u) {
  const struct pd_parameter *p = u->parameter;
  struct pd_adafactor_work x = {};
  x.s = pd_adafactor_constants((const struct pd_adafactor_arguments *)u->arguments, u->rate, u->t, u->scale,
                               p->decays);
  x.m = pd_as_matrices(p->rank, p->dim);
  x.from = u->from, x.to = u->to, x.gradient = u->gradient;
  x.row = u->moment[0], x.column = u->moment[1], x.all = u->moment[2];
  pd_adafactor_lay_out(&x, u->scratch);
  const int64_t matrices = x.m.matrices, columns = x.m.columns, rows = matrices * x.m.rows;
  if (x.all)
    PD_MAP(pd_adafactor_variance, x, rows, columns);
  else {
    PD_ROW_SUMS(pd_adafactor_square, x, rows, columns, x.row_sums);
    PD_COLUMN_SUMS(pd_adafactor_square, x, matrices, x.m.rows, columns, x.parts, x.column_sums);
    PD_MAP(pd_adafactor_row, x, 1, rows);
    PD_MAP(pd_adafactor_column, x, 1, matrices * columns);
    PD_ROW_SUMS(pd_adafactor_row_moment, x, matrices, x.m.rows, x.means);
  }
  PD_ROW_SUMS(pd_adafactor_square_of_update, x, rows, columns, x.row_sums);
  PD_SUM(pd_adafactor_row_sum, x, rows, x.parts, x.updates);
  PD_SUM(pd_adafactor_weight, x, rows * columns, x.parts, x.weights);
  PD_MAP(pd_adafactor_rate, x, 1, 1);
  PD_MAP(pd_adafactor_weights, x, rows, columns);
}

static void lamb_tensor(const struct pd_tensor_update *u) {
  const struct pd_parameter *p = u->parameter;
  struct pd_lamb_work x = {};
  x.s = pd_lamb_constants((const struct pd_lamb_arguments *)u->arguments, u->rate, u->t, u->scale, p->decays);
  x.from = u->from, x.to = u->to, x.gradient = u->gradient;
  x.m = u->moment[0], x.v = u->moment[1];
  pd_lamb_lay_out(&x, p->elements, u->scratch);
  PD_SUM(pd_lamb_weight, x, p->elements, x.parts, x.weights);
  PD_SUM(pd_lamb_moments, x, p->elements, x.parts, x.steps);
  PD_MAP(pd_lamb_rate, x, 1, 1);
  PD_MAP(pd_lamb_weights, x, 1, p->elements);
}

/* ---- Muon ---- */

/* Matrix products for hidden matrices of one shape, created at start. */
struct newton_schulz {
  int64_t rows, columns;
  struct pd_matmul *product[PD_NEWTON_SCHULZ_PRODUCTS];
  int64_t scratch; /* bytes of the largest product */
  struct newton_schulz *next;
};
static struct newton_schulz *newton_schulz;

static struct newton_schulz *find_newton_schulz(int64_t rows, int64_t columns) {
  struct newton_schulz *n = newton_schulz;
  while (n && (n->rows != rows || n->columns != columns)) n = n->next;
  return n;
}

/* Rows and columns of a hidden matrix, or of each of several that are stacked. */
static const int64_t *matrix_of(const struct pd_parameter *p) { return p->dim + p->rank - 2; }

static void muon_start(const struct pd_parameter *p) {
  struct pd_matmul_shape shape[PD_NEWTON_SCHULZ_PRODUCTS];
  if (!p->hidden || find_newton_schulz(matrix_of(p)[0], matrix_of(p)[1])) return;
  struct newton_schulz *n = (struct newton_schulz *)pd_allocate(sizeof *n);
  n->rows = matrix_of(p)[0], n->columns = matrix_of(p)[1];
  n->next = newton_schulz;
  newton_schulz = n;
  pd_newton_schulz_products(n->rows, n->columns, shape);
  for (int i = 0; i < PD_NEWTON_SCHULZ_PRODUCTS; i++) {
    n->product[i] = pd_matmul_new(shape[i]);
    int64_t bytes = (int64_t)pd_matmul_scratch(n->product[i]);
    n->scratch = bytes > n->scratch ? bytes : n->scratch;
  }
}

static void muon_other(const struct pd_tensor_update *u) {
  const struct pd_parameter *p = u->parameter;
  struct pd_muon_other x = {};
  x.s =
      pd_muon_others_constants((const struct pd_muon_arguments *)u->arguments, u->rate, u->t, u->scale, p->decays);
  x.from = u->from, x.to = u->to, x.gradient = u->gradient;
  x.m = u->moment[0], x.v = u->moment[1];
  PD_MAP(pd_muon_others, x, 1, p->elements);
}

/* The matrix that begins at element `at` of the parameter. */
static void muon_matrix(const struct pd_tensor_update *u, const struct newton_schulz *n, int64_t at) {
  const float *no_bias = NULL;
  const int64_t elements = n->rows * n->columns;
  struct pd_muon_work x = {};
  x.s = pd_muon_constants((const struct pd_muon_arguments *)u->arguments, u->rate, n->rows, n->columns, u->scale,
                          u->parameter->decays);
  x.from = u->from + at, x.to = u->to + at, x.gradient = u->gradient + at, x.m = u->moment[0] + at;
  pd_muon_lay_out(&x, n->rows, n->columns, n->scratch, u->scratch);
  PD_SUM(pd_muon_momentum, x, elements, x.parts, x.norm);
  PD_MAP(pd_muon_normalise, x, 1, elements);
  for (int i = 0; i < x.s.steps; i++) {
    pd_matmul(n->product[PD_GRAM], x.x, x.x, no_bias, x.gram, x.library);
    pd_matmul(n->product[PD_SQUARE], x.gram, x.gram, no_bias, x.square, x.library);
    PD_MAP(pd_muon_polynomial, x, x.side, x.side);
    bool tall = n->rows > n->columns;
    pd_matmul(n->product[PD_POLYNOMIAL_TIMES_X], tall ? x.x : x.square, tall ? x.square : x.x, no_bias, x.next,
              x.library);
    float *before = x.x;
    x.x = x.next, x.next = before;
  }
  PD_MAP(pd_muon_weights, x, 1, elements);
}

static void muon_tensor(const struct pd_tensor_update *u) {
  const struct pd_parameter *p = u->parameter;
  if (!p->hidden) {
    muon_other(u);
    return;
  }
  const struct newton_schulz *n = find_newton_schulz(matrix_of(p)[0], matrix_of(p)[1]);
  for (int64_t at = 0; at < p->elements; at += n->rows * n->columns) muon_matrix(u, n, at);
}
