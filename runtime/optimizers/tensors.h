/* Updates by rules over whole tensors, as sequences of passes. Each target includes this once it has said how passes
 * run. f: a function of its work, a row and an element's number, that PD_MAP only calls.
 *   PD_MAP(f, work, rows, columns)    for every element of so many rows
 *   PD_ROW_SUMS(f, work, rows, columns, to)                      to[row]
 *   PD_COLUMN_SUMS(f, work, matrices, rows, columns, parts, to)  to[matrix][column]
 *   PD_SUM(f, work, n, parts, to)     *to, over one row of n
 * Sums are doubles, in the order of pd_scratch.h. A pass may read what those before it wrote. */

static void adafactor_tensor(const struct pd_tensor_update *u) {
  const struct pd_parameter *p = u->parameter;
  struct pd_adafactor_work x = {};
  x.s = pd_adafactor_constants((const struct pd_adafactor_arguments *)u->arguments, u->lr, u->t, u->scale,
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
  x.s = pd_lamb_constants((const struct pd_lamb_arguments *)u->arguments, u->lr, u->t, u->scale, p->decays);
  x.from = u->from, x.to = u->to, x.gradient = u->gradient;
  x.m = u->moment[0], x.v = u->moment[1];
  pd_lamb_lay_out(&x, p->elements, u->scratch);
  PD_SUM(pd_lamb_weight, x, p->elements, x.parts, x.weights);
  PD_SUM(pd_lamb_moments, x, p->elements, x.parts, x.steps);
  PD_MAP(pd_lamb_rate, x, 1, 1);
  PD_MAP(pd_lamb_weights, x, 1, p->elements);
}
