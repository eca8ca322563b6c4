/* Compares what a stage program wrote with a golden file.
 *   compare tensors FILE GOLDEN TOLERANCE   two safetensors files: the same names, shapes and, relative to
 *                                           each golden tensor's largest magnitude, values
 *   compare digest FILE GOLDEN TOLERANCE    a safetensors file and a text of one line a tensor: its name, its
 *                                           norm and its product with cos(0), cos(1) ...; both relative to the
 *                                           norm, or to a thousandth of the largest one whose name ends alike
 *   compare array FILE GOLDEN TOLERANCE     two .npy arrays of f32 with the same header; values relative to
 *                                           the golden array's largest magnitude
 *   compare log LOG GOLDEN TOLERANCE        a log's losses and a text of one loss a line: each relative to
 *                                           its own magnitude, or 1 when that is larger
 * Prints the worst difference. Exit status: 0 within the tolerance, 1 beyond it, 2 unreadable or misused. */
#include "tensors.h"

#include <math.h>
#include <stdbool.h>

/* ---- tensors -------------------------------------------------------------------------------- */

/* The largest difference over the golden tensor's largest magnitude; infinite where a value is no number. */
static double tensor_difference(const File *ours, const cJSON *a, const File *golden, const cJSON *b,
                                size_t *where) {
  const cJSON *our_shape = cJSON_GetObjectItemCaseSensitive(a, "shape");
  const cJSON *shape = cJSON_GetObjectItemCaseSensitive(b, "shape");
  if (!cJSON_Compare(our_shape, shape, true)) fail(1, "%s: another shape than in %s", b->string, golden->path);
  size_t n, m;
  const float *x = values(ours, a, &n), *y = values(golden, b, &m);
  if (n != m) fail(1, "%s: %zu values, not %zu", b->string, n, m);
  double largest = 0, worst = 0;
  for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)y[i]));
  *where = 0;
  for (size_t i = 0; i < n; i++) {
    double difference = fabs((double)x[i] - (double)y[i]);
    if (difference <= worst) continue;
    worst = isfinite(difference) ? difference : INFINITY;
    *where = i;
  }
  return worst == 0 ? 0 : worst / largest;
}

static int compare_tensors(const char *path, const char *golden_path, double tolerance) {
  File ours = open_tensors(path), golden = open_tensors(golden_path);
  double worst = 0;
  const char *worst_name = "";
  int beyond = 0, n = 0;
  for (const cJSON *b = golden.header->child; b; b = b->next) {
    if (!strcmp(b->string, "__metadata__")) continue;
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(ours.header, b->string);
    if (!a) fail(1, "%s: %s is missing", path, b->string);
    size_t where;
    double difference = tensor_difference(&ours, a, &golden, b, &where);
    if (difference > tolerance || isnan(difference)) {
      printf("%s: differs by %.3g of its largest, at element %zu\n", b->string, difference, where);
      beyond++;
    }
    if (difference >= worst) worst = difference, worst_name = b->string;
    n++;
  }
  for (const cJSON *a = ours.header->child; a; a = a->next)
    if (strcmp(a->string, "__metadata__") && !cJSON_GetObjectItemCaseSensitive(golden.header, a->string))
      fail(1, "%s: %s is not in %s", path, a->string, golden_path);
  if (!n) fail(2, "%s holds no tensors", golden_path);
  printf("%d tensors, worst %.3g (%s), tolerance %.3g\n", n, worst, worst_name, tolerance);
  return beyond ? 1 : 0;
}

/* ---- digests -------------------------------------------------------------------------------- */

typedef struct Digest {
  char name[256];
  double norm, product;
} Digest;

static Digest digest_of(const File *f, const char *name) {
  Digest d = {.norm = 0};
  const cJSON *tensor = cJSON_GetObjectItemCaseSensitive(f->header, name);
  if (!tensor) fail(1, "%s: %s is missing", f->path, name);
  size_t n;
  const float *x = values(f, tensor, &n);
  for (size_t i = 0; i < n; i++) d.norm += (double)x[i] * x[i], d.product += x[i] * cos((double)i);
  d.norm = sqrt(d.norm);
  return d;
}

/* The digests of a text; *n of them. */
static Digest *read_digests(const char *path, int *n) {
  FILE *text = fopen(path, "r");
  if (!text) fail(2, "%s cannot be read", path);
  Digest *all = NULL, d;
  for (*n = 0; fscanf(text, "%255s %lf %lf", d.name, &d.norm, &d.product) == 3; ++*n) {
    all = realloc(all, (size_t)(*n + 1) * sizeof *all);
    if (!all) fail(2, "out of memory");
    all[*n] = d;
  }
  if (!*n || !feof(text)) fail(2, "%s holds no digests", path);
  fclose(text);
  return all;
}

/* What a tensor holds, a weight or a running_mean: the last part of its name. */
static const char *kind(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot ? dot + 1 : name;
}

static int compare_digest(const char *path, const char *golden_path, double tolerance) {
  File ours = open_tensors(path);
  int n, beyond = 0;
  Digest *wanted = read_digests(golden_path, &n);
  const char *worst_of = "";
  double worst = 0;
  for (int i = 0; i < n; i++) {
    Digest want = wanted[i], d = digest_of(&ours, want.name);
    double size = want.norm;
    for (int j = 0; j < n; j++)
      if (!strcmp(kind(wanted[j].name), kind(want.name))) size = fmax(size, 1e-3 * wanted[j].norm);
    double difference = fmax(fabs(d.norm - want.norm), fabs(d.product - want.product)) / size;
    if (!(difference <= tolerance)) {
      printf("%s: norm %.9g, not %.9g, product %.9g, not %.9g\n", want.name, d.norm, want.norm, d.product,
             want.product);
      beyond++;
    }
    if (difference >= worst) worst = difference, worst_of = wanted[i].name;
  }
  printf("%d tensors, worst %.3g (%s), tolerance %.3g\n", n, worst, worst_of, tolerance);
  if (cJSON_GetArraySize(ours.header) - cJSON_HasObjectItem(ours.header, "__metadata__") != n)
    fail(1, "%s holds other tensors than %s", path, golden_path);
  return beyond ? 1 : 0;
}

/* ---- arrays ----------------------------------------------------------------------------------- */

/* The elements of a .npy array, version 1; *header: its dictionary, NUL-terminated, without blanks at the end. */
static const float *read_array(const char *path, char **header, size_t *n) {
  size_t length;
  char *all = read_all(path, &length);
  size_t bytes = length < 10 ? 0 : (unsigned char)all[8] | (size_t)(unsigned char)all[9] << 8, first = 10 + bytes;
  if (length < 10 || memcmp(all, "\x93NUMPY\1", 7) || first > length || (length - first) % 4)
    fail(1, "%s is no .npy array of f32", path);
  *header = calloc(1, bytes + 1);
  float *elements = malloc(length - first + 1);
  if (!*header || !elements) fail(2, "out of memory");
  memcpy(*header, all + 10, bytes);
  while (bytes && strchr(" \n", (*header)[bytes - 1])) (*header)[--bytes] = 0;
  memcpy(elements, all + first, length - first);
  free(all);
  *n = (length - first) / 4;
  return elements;
}

static int compare_arrays(const char *path, const char *golden_path, double tolerance) {
  char *header, *wanted_header;
  size_t n, wanted_n;
  const float *ours = read_array(path, &header, &n), *wanted = read_array(golden_path, &wanted_header, &wanted_n);
  double largest = 0, worst = 0;
  if (strcmp(header, wanted_header) || n != wanted_n) fail(1, "%s: %s, not %s", path, header, wanted_header);
  for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs((double)wanted[i]));
  for (size_t i = 0; i < n; i++) {
    double difference = fabs((double)ours[i] - (double)wanted[i]) / largest;
    if (!(difference <= worst)) worst = difference;
  }
  printf("%zu elements, worst %.3g, tolerance %.3g\n", n, worst, tolerance);
  return worst <= tolerance ? 0 : 1;
}

/* ---- logs ------------------------------------------------------------------------------------- */

/* The next update's loss of a log whose lines start at *at; false at the end. */
static bool next_loss(char **at, double *loss) {
  while (**at) {
    char *end = *at + strcspn(*at, "\n");
    cJSON *line = cJSON_ParseWithLength(*at, (size_t)(end - *at));
    *at = *end ? end + 1 : end;
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(line, "step");
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(line, "loss");
    bool found = cJSON_IsNumber(step) && cJSON_IsNumber(value);
    if (found) *loss = value->valuedouble;
    cJSON_Delete(line);
    if (found) return true;
  }
  return false;
}

static int compare_log(const char *path, const char *golden_path, double tolerance) {
  size_t length;
  char *log = read_all(path, &length), *golden = read_all(golden_path, &length);
  double worst = 0, ours, wanted;
  int worst_step = 0, step = 0;
  for (char *end; wanted = strtod(golden, &end), end != golden; golden = end) {
    step++;
    if (!next_loss(&log, &ours)) fail(1, "%s ends before step %d", path, step);
    double difference = fabs(ours - wanted) / fmax(1, fabs(wanted));
    if (difference >= worst || isnan(difference)) worst = difference, worst_step = step;
    if (!(difference <= tolerance)) printf("step %d: loss %.9g, not %.9g\n", step, ours, wanted);
  }
  if (!step) fail(2, "%s holds no losses", golden_path);
  if (next_loss(&log, &ours)) fail(1, "%s goes on after step %d", path, step);
  printf("%d losses, worst %.3g (step %d), tolerance %.3g\n", step, worst, worst_step, tolerance);
  return worst <= tolerance ? 0 : 1;
}

int main(int argc, char **argv) {
  program = "compare";
  if (argc == 5 && !strcmp(argv[1], "tensors")) return compare_tensors(argv[2], argv[3], atof(argv[4]));
  if (argc == 5 && !strcmp(argv[1], "digest")) return compare_digest(argv[2], argv[3], atof(argv[4]));
  if (argc == 5 && !strcmp(argv[1], "array")) return compare_arrays(argv[2], argv[3], atof(argv[4]));
  if (argc == 5 && !strcmp(argv[1], "log")) return compare_log(argv[2], argv[3], atof(argv[4]));
  fail(2, "usage: compare tensors|digest|array|log FILE GOLDEN TOLERANCE");
}
