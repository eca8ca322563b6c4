/* Functions and layers over the whole range of floats against double:
 *   tails data              writes x.npy, row.npy and c.npy, what tails.pdm reads
 *   tails check FILE        compares what it saved after one update, FILE, with the definitions in double
 * A result may be off by `bound` times what rounding its operands to floats costs at that point, its scale: for
 * most functions the result itself. So a function that loses its tail fails, however small the tail is. */
#include "../golden/tensors.h"

#include <math.h>
#include <stdbool.h>

enum { POINTS = 8192, ROWS = 64, WIDTH = 256, KINDS = 8, ELEMENTS = ROWS * WIDTH };
static float points[POINTS], rows[ELEMENTS], upstream[ELEMENTS];

/* Mean and deviation of rows; each kind is an eighth of the rows, and a channel. */
static const struct {
  double mean, deviation;
} kinds[KINDS] = {{0, 1}, {1e4, 1}, {1e3, 1e-2}, {-1e4, 1e-1}, {0, 1e15}, {1e15, 1e15}, {0, 1e-15}, {1e-3, 1e-3}};
static int kind_of(int i) { return i / (ELEMENTS / KINDS); }

static double uniform(void) {
  static uint64_t state = 1;
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (double)(state >> 11) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(1 - uniform())) * cos(2 * M_PI * uniform()); }

/* Half the points are dealt to all exponents from denormals to 2^56, half of them lie between -110 and 110. */
static void make(void) {
  for (int i = 0; i < POINTS / 2; i++)
    points[i] = (float)ldexp(i % 2 ? -1 - uniform() : 1 + uniform(), i / 20 - 149);
  for (int i = POINTS / 2; i < POINTS; i++) points[i] = (float)(220 * uniform() - 110);
  for (int i = 0; i < ELEMENTS; i++) {
    rows[i] = (float)(kinds[kind_of(i)].mean + kinds[kind_of(i)].deviation * normal());
    upstream[i] = (float)normal();
  }
}

static void write_npy(const char *path, const float *x, int n) {
  FILE *file = fopen(path, "wb");
  char header[119];
  snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, %d), }", n);
  if (!file) fail(2, "%s cannot be written", path);
  fprintf(file, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, header);
  fwrite(x, sizeof *x, (size_t)n, file);
  if (fclose(file)) fail(2, "%s cannot be written", path);
}

/* ---- functions ------------------------------------------------------------------------------ */

typedef struct Truth {
  double y, dy, y_scale, dy_scale; /* result, derivative, and what errors of each are compared with */
} Truth;

static double logistic(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }

/* y (1 - y) has lost what 1 - y has lost where y is near 1. */
static Truth of_sigmoid(double x) {
  double y = logistic(x);
  return (Truth){y, y * logistic(-x), y, y};
}

static Truth of_silu(double x) {
  double s = logistic(x);
  return (Truth){x * s, s + x * s * logistic(-x), fabs(x) * s, s * (1 + fmin(fabs(x), 110))};
}

static Truth of_softplus(double x) {
  double y = fmax(x, 0) + log1p(exp(-fabs(x)));
  return (Truth){y, logistic(x), y, logistic(x)};
}

static Truth of_elu(double x) {
  double y = x > 0 ? x : expm1(x), dy = x > 0 ? 1 : exp(x);
  return (Truth){y, dy, fabs(y), dy};
}

/* The argument of the sigmoid is rounded: that costs as much as it is large. */
static Truth of_gelu_tanh(double x) {
  double k = 2 * sqrt(2 / M_PI), z = k * (x + 0.044715 * x * x * x), dz = k * (1 + 3 * 0.044715 * x * x);
  double s = logistic(z), off = 1 + fmin(fabs(z), 110), step = s == 1 || s == 0 ? 0 : x * dz * s * logistic(-z);
  double rest = x > 0 ? fmin(fabs(x * dz), 500) : fabs(step);
  return (Truth){x * s, s + step, fabs(x) * s * off, (s + rest) * off};
}

/* The argument of erfc is rounded: that costs as much as its square is large, where the result is small. */
static Truth of_gelu(double x) {
  double cdf = 0.5 * erfc(-x / sqrt(2)), bell = exp(-0.5 * x * x) / sqrt(2 * M_PI), off = 1 + fmin(x * x, 220);
  return (Truth){x * cdf, cdf + x * bell, fabs(x) * cdf * (x < 0 ? off : 1), cdf + fabs(x) * bell * off};
}

static Truth of_tanh(double x) { return (Truth){tanh(x), 1 / (cosh(x) * cosh(x)), fabs(tanh(x)), 1}; }

/* Of the larger of x and -80, far below which the sigmoid is no normal float. */
static Truth of_log_sigmoid(double x) {
  x = fmax(x, -80);
  double y = fmin(x, 0) - log1p(exp(-fabs(x)));
  return (Truth){y, logistic(-x), 1 + fabs(y), 1};
}

/* ---- layers: y and dx of a row ------------------------------------------------------------- */

typedef struct Row {
  const float *x, *c;
  int n;
  double y[ELEMENTS], dx[ELEMENTS];
} Row;

/* y = (x - shift) r, and with what c gives of the sums that r and shift are made of. */
static void normalise(Row *r, double shift, bool centers) {
  double squares = 0, sum_c = 0, sum_cy = 0;
  for (int i = 0; i < r->n; i++) squares += (r->x[i] - shift) * (r->x[i] - shift);
  double scale = 1 / sqrt(squares / r->n + 1e-5);
  for (int i = 0; i < r->n; i++) {
    r->y[i] = (r->x[i] - shift) * scale;
    sum_c += r->c[i];
    sum_cy += r->c[i] * r->y[i];
  }
  for (int i = 0; i < r->n; i++)
    r->dx[i] = scale * (r->c[i] - (centers ? sum_c / r->n : 0) - r->y[i] * sum_cy / r->n);
}

static void of_centered(Row *r) {
  double sum = 0;
  for (int i = 0; i < r->n; i++) sum += r->x[i];
  normalise(r, sum / r->n, true);
}

static void of_rms_norm(Row *r) { normalise(r, 0, false); }

static void of_softmax(Row *r) {
  double largest = -INFINITY, sum = 0, sum_cy = 0;
  for (int i = 0; i < r->n; i++) largest = fmax(largest, r->x[i]);
  for (int i = 0; i < r->n; i++) sum += exp(r->x[i] - largest);
  for (int i = 0; i < r->n; i++) r->y[i] = exp(r->x[i] - largest) / sum, sum_cy += r->y[i] * r->c[i];
  for (int i = 0; i < r->n; i++) r->dx[i] = r->y[i] * (r->c[i] - sum_cy);
}

/* Batch norm's mean is a float: half its last place in units of the deviation is what a channel of the kind may be
 * off. */
static double of_rounded_mean(int kind) { return fabs(kinds[kind].mean) * 0x1p-24 / kinds[kind].deviation; }
static double of_nothing(int kind) { return (void)kind, 0; }

/* ---- the comparison --------------------------------------------------------------------------- */

static const struct {
  const char *name;
  Truth (*truth)(double x);
  double bound;
} functions[] = {{"sigmoid", of_sigmoid, 4e-7},     {"silu", of_silu, 4e-7},
                 {"softplus", of_softplus, 4e-7},   {"elu", of_elu, 2e-7},
                 {"gelu_tanh", of_gelu_tanh, 2e-6}, {"gelu", of_gelu, 4e-7},
                 {"tanh", of_tanh, 4e-7},           {"log_sigmoid", of_log_sigmoid, 4e-7}};

static const struct {
  const char *name;
  int width;
  void (*truth)(Row *r);
  double (*rounded)(int kind);
  double bound; /* of the row's largest result, or derivative */
} layers[] = {{"layer_norm", WIDTH, of_centered, of_nothing, 1e-6},
              {"rms_norm", WIDTH, of_rms_norm, of_nothing, 1e-6},
              {"softmax", WIDTH, of_softmax, of_nothing, 1e-6},
              {"batch_norm", ELEMENTS / KINDS, of_centered, of_rounded_mean, 2e-6}};

/* The gradient of NAME_y.value or NAME_x.from.base, whose rate is 1. */
static const float *saved(const File *f, const char *name, const char *end, int n) {
  char key[64];
  size_t have = 0;
  snprintf(key, sizeof key, "%s%s", name, end);
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(f->header, key);
  const float *x = tensor ? values(f, tensor, &have) : NULL;
  if (have != (size_t)n) fail(2, "%s: %s is missing", f->path, key);
  return x;
}

static int report(const char *name, const char *what, double worst, double bound, double at) {
  printf("%-12s %-10s %.2g of its scale at %g, allowed %.2g\n", name, what, worst, at, bound);
  return !(worst <= bound);
}

static int check_function(const File *f, int i) {
  const char *name = functions[i].name;
  const float *y = saved(f, name, "_y.value", POINTS), *dx = saved(f, name, "_x.base", POINTS);
  double worst[2] = {0}, at[2] = {0};
  for (int k = 0; k < POINTS; k++) {
    double x = points[k];
    Truth t = functions[i].truth(x);
    double tiny = 0x1p-126 * (1 + fmin(fabs(x), 110)); /* below it floats have fewer digits */
    double error[2] = {fabs(-y[k] - t.y) / (t.y_scale + tiny), fabs(-dx[k] - t.dy) / (t.dy_scale + tiny)};
    for (int of = 0; of < 2; of++)
      if (!(error[of] <= worst[of])) worst[of] = error[of], at[of] = x;
  }
  return report(name, "result", worst[0], functions[i].bound, at[0]) |
         report(name, "derivative", worst[1], functions[i].bound, at[1]);
}

static double largest_error(const float *ours, const double *truth, int n) {
  double largest = 0, error = 0;
  for (int i = 0; i < n; i++) {
    largest = fmax(largest, fabs(truth[i]));
    if (!(fabs(-ours[i] - truth[i]) <= error)) error = fabs(-ours[i] - truth[i]);
  }
  return error == 0 ? 0 : error / largest;
}

static int check_layer(const File *f, int i) {
  const char *name = layers[i].name;
  const float *y = saved(f, name, "_y.value", ELEMENTS), *dx = saved(f, name, "_x.from.base", ELEMENTS);
  static Row r;
  int width = layers[i].width, bad = 0;
  for (int kind = 0; kind < KINDS; kind++) {
    double worst[2] = {0}, bound = layers[i].bound + layers[i].rounded(kind);
    for (int at = kind * (ELEMENTS / KINDS); at < (kind + 1) * (ELEMENTS / KINDS); at += width) {
      r = (Row){.x = rows + at, .c = upstream + at, .n = width};
      layers[i].truth(&r);
      double error[2] = {largest_error(y + at, r.y, width), largest_error(dx + at, r.dx, width)};
      for (int of = 0; of < 2; of++)
        if (!(error[of] <= worst[of])) worst[of] = error[of];
    }
    char what[64];
    snprintf(what, sizeof what, "(%g, %g)", kinds[kind].mean, kinds[kind].deviation);
    printf("%-12s %-16s result %.2g of the largest, derivative %.2g, allowed %.2g\n", name, what, worst[0],
           worst[1], bound);
    bad |= !(worst[0] <= bound) | !(worst[1] <= bound);
  }
  return bad;
}

int main(int argc, char **argv) {
  program = "tails";
  make();
  if (argc == 2 && !strcmp(argv[1], "data")) {
    write_npy("x.npy", points, POINTS);
    write_npy("row.npy", rows, ELEMENTS);
    write_npy("c.npy", upstream, ELEMENTS);
    return 0;
  }
  if (argc != 3 || strcmp(argv[1], "check")) fail(2, "usage: tails data | tails check FILE");
  File f = open_tensors(argv[2]);
  int bad = 0;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) bad |= check_function(&f, (int)i);
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) bad |= check_layer(&f, (int)i);
  return bad;
}
