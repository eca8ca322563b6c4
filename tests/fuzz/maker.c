/* Makes models of small matrices, each computed from others. A statement's first byte selects its kind; the
 * following bytes select matrices and sizes. */
#include "maker.h"

#include "base/base.h"

enum { MOST_MATRICES = 48, MOST_WEIGHTS = 16, MOST_STATEMENTS = 24, MOST_ELEMENTS = 64 };

typedef struct Matrix {
  int name, rows, columns;
} Matrix;

typedef struct Maker {
  const uint8_t *data;
  size_t size, at;
  Text text;
  Matrix matrix[MOST_MATRICES], weight[MOST_WEIGHTS];
  int n, n_weights, names;
  bool smooth;
} Maker;

/* An index below n; 0 after the end of the input. */
static int choose(Maker *m, int n) { return m->at < m->size ? m->data[m->at++] % n : 0; }

static Matrix pick(Maker *m) { return m->matrix[m->n - 1 - choose(m, m->n < 8 ? m->n : 8)]; }

/* A matrix of the same shape, possibly the same one. */
static Matrix pick_like(Maker *m, Matrix a) {
  int first = choose(m, m->n);
  for (int i = 0; i < m->n; i++) {
    Matrix b = m->matrix[(first + i) % m->n];
    if (b.rows == a.rows && b.columns == a.columns) return b;
  }
  return a;
}

/* Registers the next matrix after its statement; one that is too large is ignored. */
static void made(Maker *m, int rows, int columns) {
  if (rows * columns <= MOST_ELEMENTS && m->n < MOST_MATRICES)
    m->matrix[m->n++] = (Matrix){m->names, rows, columns};
  m->names++;
}

static void weight(Maker *m, int rows, int columns) {
  text_add(&m->text, "  param w%d[%d, %d] = normal(0.5);\n", m->n_weights, rows, columns);
  m->weight[m->n_weights] = (Matrix){m->n_weights, rows, columns};
  m->n_weights++;
}

/* ---- statements -------------------------------------------------------------------------------- */

static void function(Maker *m, Matrix a) {
  static const char *const smooth[] = {"tanh(v%d)",
                                       "sin(v%d)",
                                       "cos(v%d)",
                                       "sigmoid(v%d)",
                                       "erf(v%d)",
                                       "square(v%d)",
                                       "-v%d",
                                       "erfc(v%d)",
                                       "neg(v%d)",
                                       "silu(v%d)",
                                       "gelu(v%d)",
                                       "exp(0.3 * v%d)",
                                       "log1p(square(v%d))",
                                       "1 - v%d",
                                       "expm1(0.2 * v%d)",
                                       "v%d * 0.5 + 1.25",
                                       "2 / (1 + square(v%d))",
                                       "sqrt(1 + square(v%d))",
                                       "rsqrt(1 + square(v%d))",
                                       "log(1 + square(v%d))",
                                       "softmax(v%d)"};
  static const char *const broken[] = {"abs(v%d)",
                                       "relu(v%d)",
                                       "elu(v%d)",
                                       "leaky_relu(v%d)",
                                       "maximum(v%d, 0.1)",
                                       "detach(v%d)",
                                       "floor(3 * v%d + 0.123)",
                                       "round(2 * v%d + 0.123)",
                                       "0.5 * randn_like(v%d)",
                                       "rand_like(v%d)"};
  enum { SMOOTH = sizeof smooth / sizeof *smooth, ALL = SMOOTH + sizeof broken / sizeof *broken };
  int which = choose(m, ALL);
  m->smooth &= which < SMOOTH;
  text_add(&m->text, "  v%d = ", m->names);
  char *pattern = format("%s", which < SMOOTH ? smooth[which] : broken[which - SMOOTH]), *place;
  for (place = pattern; place[0] != 'v' || place[1] != '%'; place++)
    ;
  text_add(&m->text, "%.*sv%d%s;\n", (int)(place - pattern), pattern, a.name, place + 3);
  made(m, a.rows, a.columns);
}

static void two(Maker *m, Matrix a) {
  enum { SMOOTH = 4, ALL = 7 };
  int which = choose(m, ALL), b = pick_like(m, a).name;
  m->smooth &= which < SMOOTH;
  text_add(&m->text, "  v%d = ", m->names);
  switch (which) {
  case 0: text_add(&m->text, "v%d + v%d", a.name, b); break;
  case 1: text_add(&m->text, "v%d - v%d", a.name, b); break;
  case 2: text_add(&m->text, "v%d * v%d", a.name, b); break;
  case 3: text_add(&m->text, "v%d / (1 + square(v%d))", a.name, b); break;
  case 4: text_add(&m->text, "maximum(v%d, v%d)", a.name, b); break;
  case 5: text_add(&m->text, "minimum(v%d, v%d)", a.name, b); break;
  default: text_add(&m->text, "select(greater(v%d, v%d), v%d, 0.5 * v%d)", a.name, b, a.name, b);
  }
  text_add(&m->text, ";\n");
  made(m, a.rows, a.columns);
}

/* Combines with a broadcast row, column or element. */
static void broadcast(Maker *m, Matrix a) {
  static const char *const how[] = {"+", "*", "-"};
  const char *sign = how[choose(m, 3)];
  switch (choose(m, 6)) {
  case 0: text_add(&m->text, "  v%d = v%d %s sum(v%d, axis = -1);\n", m->names, a.name, sign, a.name); break;
  case 5: text_add(&m->text, "  v%d = v%d %s sum(v%d, axis = [0, 1]);\n", m->names, a.name, sign, a.name); break;
  case 1: text_add(&m->text, "  v%d = v%d %s mean(v%d, axis = 0);\n", m->names, a.name, sign, a.name); break;
  case 2: text_add(&m->text, "  v%d = v%d %s mean(mean(v%d, axis = 0));\n", m->names, a.name, sign, a.name); break;
  default:
    if (m->n_weights == MOST_WEIGHTS) return;
    weight(m, choose(m, 2) ? a.rows : 1, choose(m, 2) ? a.columns : 1);
    text_add(&m->text, "  v%d = v%d %s w%d;\n", m->names, a.name, sign, m->n_weights - 1);
  }
  made(m, a.rows, a.columns);
}

static void product(Maker *m, Matrix a) {
  int columns = 1 + choose(m, 6), how = choose(m, 5);
  if (how == 4) {
    text_add(&m->text, "  v%d = einsum(\"i k, j k -> j i\", v%d, v%d);\n", m->names, a.name, pick_like(m, a).name);
    made(m, a.rows, a.rows);
    return;
  }
  for (int i = 0; how == 0 && i < m->n_weights; i++) /* reuses an existing weight */
    if (m->weight[i].rows == a.columns) {
      text_add(&m->text, "  v%d = v%d @ w%d;\n", m->names, a.name, m->weight[i].name);
      made(m, a.rows, m->weight[i].columns);
      return;
    } else if (m->weight[i].columns == a.columns) {
      text_add(&m->text, "  v%d = v%d @ w%d.T;\n", m->names, a.name, m->weight[i].name);
      made(m, a.rows, m->weight[i].rows);
      return;
    }
  if (how == 1 || m->n_weights == MOST_WEIGHTS) {
    text_add(&m->text, "  v%d = v%d @ v%d.T;\n", m->names, a.name, pick_like(m, a).name);
    made(m, a.rows, a.rows);
    return;
  }
  weight(m, how == 2 ? columns : a.columns, how == 2 ? a.columns : columns);
  text_add(&m->text, "  v%d = v%d @ w%d%s;\n", m->names, a.name, m->n_weights - 1, how == 2 ? ".T" : "");
  made(m, a.rows, columns);
}

static void shape(Maker *m, Matrix a) {
  switch (choose(m, 3)) {
  case 0:
    text_add(&m->text, "  v%d = transpose(v%d, 0, 1);\n", m->names, a.name);
    made(m, a.columns, a.rows);
    break;
  case 1:
    text_add(&m->text, "  v%d = reshape(v%d, [%d, -1]);\n", m->names, a.name, a.columns);
    made(m, a.columns, a.rows);
    break;
  default:
    text_add(&m->text, "  v%d = reshape(v%d, [1, %d]);\n", m->names, a.name, a.rows * a.columns);
    made(m, 1, a.rows * a.columns);
  }
}

static void part(Maker *m, Matrix a) {
  bool rows = choose(m, 2);
  int size = rows ? a.rows : a.columns, first = choose(m, size), n = 1 + choose(m, size - first);
  if (!rows && size % 2 == 0 && choose(m, 2)) {
    text_add(&m->text, "  v%d, v%d = split(v%d, 2);\n", m->names, m->names + 1, a.name);
    made(m, a.rows, size / 2);
    made(m, a.rows, size / 2);
    return;
  }
  text_add(&m->text, rows ? "  v%d = v%d[%d..%d, ..];\n" : "  v%d = v%d[.., %d..%d];\n", m->names, a.name, first,
           first + n);
  made(m, rows ? n : a.rows, rows ? a.columns : n);
}

static void join(Maker *m, Matrix a) {
  int axis = choose(m, 2), before = choose(m, 3), after = choose(m, 3);
  if (choose(m, 2)) {
    text_add(&m->text, "  v%d = pad(v%d, %d, %d, %d);\n", m->names, a.name, axis, before, after);
    made(m, a.rows + (axis ? 0 : before + after), a.columns + (axis ? before + after : 0));
    return;
  }
  text_add(&m->text, "  v%d = concat(v%d, v%d, axis = %d);\n", m->names, a.name, pick_like(m, a).name, axis);
  made(m, axis ? a.rows : 2 * a.rows, axis ? 2 * a.columns : a.columns);
}

/* Attention of one head, with a bias of scores or by distance, and a sink. */
static void attend(Maker *m, Matrix a) {
  const bool by_distance = choose(m, 2), causal = choose(m, 2);
  const int rows = by_distance ? 1 : a.rows, columns = by_distance ? 2 * a.rows - 1 : a.rows;
  if (m->n_weights + 2 > MOST_WEIGHTS) return;
  weight(m, rows, columns);
  weight(m, 1, 1);
  text_add(&m->text,
           "  q%d = reshape(v%d, [1, %d, %d]);\n"
           "  v%d = reshape(scaled_dot_product_attention(q%d, q%d, q%d, bias = reshape(w%d, [1, %d, %d]), "
           "sinks = reshape(w%d, [1]), causal = %s), [%d, %d]);\n",
           m->names, a.name, a.rows, a.columns, m->names, m->names, m->names, m->names, m->n_weights - 2, rows,
           columns, m->n_weights - 1, causal ? "true" : "false", a.rows, a.columns);
  made(m, a.rows, a.columns);
}

static void layer(Maker *m, Matrix a) {
  int columns = 1 + choose(m, 6);
  switch (choose(m, 5)) {
  case 0:
    text_add(&m->text, "  v%d = l%d: linear(v%d, %d);\n", m->names, m->names, a.name, columns);
    made(m, a.rows, columns);
    return;
  case 1: text_add(&m->text, "  v%d = l%d: layer_norm(v%d);\n", m->names, m->names, a.name); break;
  case 2: text_add(&m->text, "  v%d = l%d: block(v%d, %d);\n", m->names, m->names, a.name, a.columns); break;
  case 3:
    text_add(&m->text, "  v%d = v%d;\n  for i in 0..%d { v%d = h%d[i]: block(v%d, %d); }\n", m->names, a.name,
             1 + choose(m, 3), m->names, m->names, m->names, a.columns);
    break;
  default: /* uses the same parameters twice */
    text_add(&m->text, "  v%d = l%d: block(v%d, %d);\n  v%d = l%d(v%d, %d);\n", m->names, m->names, a.name,
             a.columns, m->names, m->names, m->names, a.columns);
  }
  made(m, a.rows, a.columns);
}

/* A loop over the rows, in either direction, perhaps with a weight, a value of each sample from outside and kept states
 * of every second step. */
static void loop(Maker *m, Matrix a) {
  int how = choose(m, 32), columns = a.columns;
  const char *product = "", *outside = "", *keep = "";
  if (how & 1 && m->n_weights < MOST_WEIGHTS) {
    weight(m, columns, columns);
    product = format(" + s @ w%d.T", m->n_weights - 1);
  }
  if (how & 2) outside = format(" + mean(v%d, axis = 0)[0]", pick_like(m, a).name);
  if (how & 4 && a.rows % 2 == 0) keep = ", keep = 2";
  text_add(&m->text, "  v%d, last%d = scan(row in v%d, s = full(0.3, [%d]), reverse = %s%s) {\n", m->names,
           m->names, a.name, columns, how & 8 ? "true" : "false", keep);
  text_add(&m->text, "    s = tanh(row + 0.5 * s%s%s);\n    return s * sigmoid(row);\n  }\n", product, outside);
  if (how & 16) text_add(&m->text, "  v%d = v%d + last%d;\n", m->names, m->names, m->names);
  made(m, a.rows, columns);
}

const char *make_model_text(const uint8_t *data, size_t size, bool *smooth) {
  static void (*const statements[])(Maker *, Matrix) = {function, two,  broadcast, product, shape,
                                                        part,     join, layer,     attend,  loop};
  Maker m = {.data = data, .size = size, .smooth = true};
  int rows = 1 + choose(&m, 4), columns = 1 + choose(&m, 6);
  text_add(
      &m.text,
      "use nn;\n"
      "layer block(x, n) {\n  h = tanh(up: linear(x, n));\n  return x + down: linear(h, n, bias = false);\n}\n"
      "model made {\n  input v0[%d, %d];\n  param scale[%d] = ones;\n  v1 = v0 * scale;\n",
      rows, columns, columns);
  m.names = 1;
  made(&m, rows, columns);
  for (int i = 0; i < MOST_STATEMENTS && m.at < m.size; i++)
    statements[choose(&m, sizeof statements / sizeof *statements)](&m, pick(&m));
  text_add(&m.text, "  loss square(v%d);\n", m.matrix[m.n - 1].name);
  if (choose(&m, 2)) text_add(&m.text, "  loss tanh(v%d);\n", pick(&m).name);
  text_add(&m.text, "}\ntrain made { batch = 4; optimizer = sgd(lr = 0.1); }\n");
  *smooth = m.smooth;
  return m.text.at;
}
