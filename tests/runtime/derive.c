/* Inputs for stage programs: derived inputs, weights of counted positions, normalised images. */
#include "data/load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "files.h"

enum { N = 8, CLASSES = 40 };
#define NUMBERS(...) \
  .n_numbers = sizeof((const double[]){__VA_ARGS__}) / sizeof(double), .numbers = (const double[]) { __VA_ARGS__ }
#define SEQUENCE(n) .rank = 1, .dim = {n}, .elements = n
#define TOKENS(n, most) .token = true, .classes = most, SEQUENCE(n)

enum { TEXT, LENGTH, PRESENT, COUNTED, SHIFTED, SEGMENTS, MASKED, CHOSEN, N_INPUTS };
static const struct pd_input inputs[N_INPUTS] = {
    [TEXT] = {.name = "text", .target = true, TOKENS(N, CLASSES)},
    [LENGTH] = {.name = "length", TOKENS(1, N + 1), .origin = PD_LENGTHS, .from = TEXT, NUMBERS(0)},
    [PRESENT] = {.name = "present", SEQUENCE(N), .origin = PD_PRESENT, .from = TEXT, NUMBERS(0)},
    [COUNTED] = {.name = "counted", SEQUENCE(N), .origin = PD_COUNTED, .from = TEXT, NUMBERS(0)},
    [SHIFTED] = {.name = "shifted", TOKENS(N, CLASSES), .origin = PD_SHIFTED, .from = TEXT, NUMBERS(9)},
    [SEGMENTS] = {.name = "segments", TOKENS(N, 2), .origin = PD_SEGMENTS, .from = MASKED, NUMBERS(2, 0)},
    [MASKED] = {.name = "masked", TOKENS(N, CLASSES), .origin = PD_MASKED, .from = TEXT, NUMBERS(3, 0.15, 0, 2)},
    [CHOSEN] = {.name = "chosen", SEQUENCE(N), .origin = PD_CHOSEN, .from = MASKED},
};

/* ---- one sample -------------------------------------------------------------------------------- */

static void tokens_are(int input, const int32_t *x, const int32_t *want) {
  int32_t got[N];
  pd_derive(inputs, input, x, 1, 0, got);
  assert_memory_equal(got, want, sizeof *got * (size_t)inputs[input].elements);
}

static void numbers_are(int input, const int32_t *x, const float *want) {
  float got[N];
  pd_derive(inputs, input, x, 1, 0, got);
  assert_memory_equal(got, want, sizeof got);
}

static void inputs_follow_from_tokens(void **state) {
  (void)state;
  const int32_t x[N] = {7, 0, 2, 5, 2, 0, 0, 0}, none[N] = {0}, full[N] = {2, 1, 1, 1, 1, 1, 1, 2};
  tokens_are(LENGTH, x, (int32_t[]){5});
  tokens_are(LENGTH, none, (int32_t[]){0});
  tokens_are(LENGTH, full, (int32_t[]){8});
  numbers_are(PRESENT, x, (float[N]){1, 1, 1, 1, 1});
  numbers_are(PRESENT, none, (float[N]){0});
  numbers_are(COUNTED, x, (float[N]){1, 0, 1, 1, 1});
  tokens_are(SHIFTED, x, (int32_t[N]){9, 7, 0, 2, 5, 2, 0, 0});
  tokens_are(SEGMENTS, x, (int32_t[N]){0, 0, 0, 1, 1, 0, 0, 0});
  tokens_are(SEGMENTS, full, (int32_t[N]){0, 1, 1, 1, 1, 1, 1, 1});
  tokens_are(SEGMENTS, none, (int32_t[N]){0});
  for (int i = 0; i < N_INPUTS; i++) assert_true(pd_is_derived(&inputs[i]) == (i != TEXT));
  assert_int_equal(pd_derived_from(inputs, CHOSEN), TEXT);
  assert_int_equal(pd_derived_from(inputs, SEGMENTS), MASKED);
}

/* Of 6 positions in 8 that may be chosen 15 in 100 are; of these 8 in 10 become the mask, 1 in 10 any token. */
static void corruption_is_berts(void **state) {
  (void)state;
  enum { RUNS = 20000 };
  const int32_t x[N] = {2, 11, 12, 13, 14, 15, 16, 0};
  int chosen = 0, masked = 0, same = 0, other = 0, seeds_differ = 0, at[N] = {0}, seen[CLASSES] = {0};
  for (int64_t s = 0; s < RUNS; s++) {
    int32_t got[N], again[N];
    float weight[N];
    pd_derive(inputs, MASKED, x, 5, s, got);
    pd_derive(inputs, CHOSEN, x, 5, s, weight);
    pd_derive(inputs, MASKED, x, 5, s, again);
    assert_memory_equal(got, again, sizeof got);
    pd_derive(inputs, MASKED, x, 6, s, again);
    seeds_differ += !!memcmp(got, again, sizeof got);
    for (int i = 0; i < N; i++) {
      assert_true(weight[i] == 1 || (weight[i] == 0 && got[i] == x[i]));
      if (weight[i] == 0) continue;
      chosen++;
      at[i]++;
      masked += got[i] == 3;
      same += got[i] == x[i];
      if (got[i] == 3 || got[i] == x[i]) continue;
      other++;
      seen[got[i]]++;
    }
  }
  assert_int_equal(at[0] + at[N - 1], 0);
  assert_in_range(chosen, 17500, 18500); /* 18000, deviation 124 */
  for (int i = 1; i + 1 < N; i++) assert_in_range(at[i], 2750, 3250);
  assert_in_range(masked * 1000 / chosen, 785, 820); /* 0.8 + 0.1 / 40 */
  assert_in_range(same * 1000 / chosen, 90, 116);
  assert_in_range(other * 1000 / chosen, 85, 107);
  for (int c = 0; c < CLASSES; c++) assert_true(c == 3 || (seen[c] > 15 && seen[c] < 85)); /* 45, deviation 7 */
  assert_in_range(seeds_differ, RUNS / 2, RUNS);
}

/* ---- batches ------------------------------------------------------------------------------------- */

/* 12 lines of 0 to 7 numbers, in which 0 is no pad. */
static char *write_numbers(void) {
  static const char text[] =
      "5\n7 8 9\n\n6 6\n1 2 0 4 5 6 7\n30\n12 2 13\n8 0\n9 9 9 9\n21 22 23 24 25 26\n4\n5 6\n";
  return write_bytes("text.ids", text, strlen(text));
}

static struct pd_stage stage;

static void start(const struct pd_input *in, int n, int64_t microbatch, char **paths, int n_paths) {
  static const int replicas[] = {1};
  char why[PD_WHY] = "";
  stage = (struct pd_stage){.n_stages = 1,
                            .replicas = replicas,
                            .batch = 4,
                            .microbatch = microbatch,
                            .microbatches = 4 / microbatch,
                            .inputs = in,
                            .n_inputs = n};
  pd = (struct pd_run){.stage = &stage, .ranks = 1, .steps = 6, .seed = 3, .training = true};
  pd_options = (struct pd_options){.data = paths, .n_data = n_paths, .validation = paths, .n_validation = n_paths};
  pd_training_data = pd_evaluation_data = NULL;
  pd_sample_base = 0;
  if (!pd_data_start(why)) fail_msg("%s", why);
}

/* 6 batches' weights of an input, and of the tokens of another: [24][N]. */
static void load_all(int input, int64_t microbatch, void *to) {
  for (int64_t k = 1; k <= 24 / microbatch; k++) pd_load(input, k, (char *)to + (k - 1) * microbatch * N * 4);
}

/* Every batch's weights are one number at its counted positions, and sum up to all positions. */
static void check_weights(const float *weight, const bool *counts, int positions) {
  double sum = 0;
  float value = 0;
  int n = 0;
  for (int i = 0; i < positions; i++) {
    assert_true((weight[i] != 0) == counts[i]);
    if (counts[i] && !value) value = weight[i];
    assert_true(!counts[i] || weight[i] == value);
    n += counts[i];
    sum += (double)weight[i];
  }
  assert_true(n == 0 ? sum == 0 : value == (float)((double)positions / n));
}

static void weights_average_to_one(void **state) {
  (void)state;
  char *path = write_numbers();
  static float weight[24 * N], whole[24 * N], chosen[24 * N];
  static int32_t text[24 * N], masked[24 * N];
  static bool counts[24 * N];
  for (int64_t microbatch = 4; microbatch; microbatch /= 2) {
    start(inputs, N_INPUTS, microbatch, &path, 1);
    load_all(TEXT, microbatch, text);
    load_all(MASKED, microbatch, masked);
    load_all(COUNTED, microbatch, weight);
    load_all(CHOSEN, microbatch, chosen);
    if (microbatch == 4) memcpy(whole, weight, sizeof whole);
    assert_memory_equal(weight, whole, sizeof whole);
    for (int i = 0; i < 24 * N; i++) counts[i] = text[i] != 0;
    for (int t = 0; t < 6; t++) check_weights(weight + t * 4 * N, counts + t * 4 * N, 4 * N);
    for (int i = 0; i < 24 * N; i++) {
      assert_true(chosen[i] != 0 || masked[i] == text[i]);
      counts[i] = chosen[i] != 0;
      assert_false(counts[i] && (text[i] == 0 || text[i] == 2));
    }
    for (int t = 0; t < 6; t++) check_weights(chosen + t * 4 * N, counts + t * 4 * N, 4 * N);
  }
  start(inputs, N_INPUTS, 2, &path, 1); /* a run that goes on behind 8 samples of others */
  pd_sample_base = 8;
  pd_load(COUNTED, 2, weight);
  assert_memory_equal(weight, whole + 10 * N, 2 * N * sizeof *weight);
}

static void validation_counts_the_whole_set(void **state) {
  (void)state;
  char *path = write_numbers();
  static float weight[12 * N], again[12 * N];
  static int32_t text[12 * N], masked[12 * N];
  static bool counts[12 * N];
  start(inputs, N_INPUTS, 2, &path, 1);
  for (int64_t s = 0; s < 12; s++) {
    pd_load_evaluation_sample(TEXT, s, 0, text + s * N);
    pd_load_evaluation_sample(COUNTED, s, 0, weight + s * N);
  }
  for (int i = 0; i < 12 * N; i++) counts[i] = text[i] != 0;
  check_weights(weight, counts, 12 * N);
  for (int64_t s = 0; s < 12; s++) {
    pd_load_evaluation_sample(CHOSEN, s, 0, weight + s * N);
    pd_load_evaluation_sample(MASKED, s, 0, masked + s * N);
  }
  pd.seed = 4; /* the choices are the sample's alone */
  for (int64_t s = 0; s < 12; s++) pd_load_evaluation_sample(CHOSEN, s, 0, again + s * N);
  assert_memory_equal(again, weight, sizeof weight);
  for (int i = 0; i < 12 * N; i++) counts[i] = weight[i] != 0;
  check_weights(weight, counts, 12 * N);
}

static void nothing_counted_gives_zeros(void **state) {
  (void)state;
  char *path = write_bytes("empty.ids", "\n\n\n\n", 4);
  float weight[4 * N];
  start(inputs, N_INPUTS, 4, &path, 1);
  pd_load(COUNTED, 1, weight);
  assert_memory_equal(weight, ((float[4 *N]){0}), sizeof weight);
}

/* PyTorch's -100 in a file of targets: no position of it counts, and the layers see a token. */
static void tokens_below_zero_are_not_counted(void **state) {
  (void)state;
  const struct pd_input with[] = {{.name = "labels", .target = true, TOKENS(2, 10)},
                                  {.name = "weight", SEQUENCE(2), .origin = PD_COUNTED, NUMBERS(-100)},
                                  {.name = "before", TOKENS(2, 10), .origin = PD_SHIFTED, NUMBERS(1)}};
  static const struct pd_input without[] = {{.name = "labels", .target = true, TOKENS(2, 10)}};
  char why[PD_WHY] = "";
  char *path = write_npy("labels.npy", "<i8", "(4, 2)", (int64_t[]){-100, 2, 3, 4, 5, -100, -100, -100}, 64);
  char *other = write_npy("other.npy", "<i4", "(4, 2)", (int32_t[]){-100, 2, 3, 4, 5, -1, 1, 1}, 32);
  int32_t labels[8], before[8];
  float weight[8];
  start(with, 3, 4, &path, 1);
  for (int64_t s = 0; s < 4; s++) {
    pd_load_evaluation_sample(0, s, 0, labels + 2 * s);
    pd_load_evaluation_sample(1, s, 0, weight + 2 * s);
    pd_load_evaluation_sample(2, s, 0, before + 2 * s);
  }
  assert_memory_equal(labels, ((int32_t[]){0, 2, 3, 4, 5, 0, 0, 0}), sizeof labels);
  assert_memory_equal(weight, ((float[]){0, 2, 2, 2, 2, 0, 0, 0}), sizeof weight);
  assert_memory_equal(before, ((int32_t[]){1, 0, 1, 3, 1, 5, 1, 0}), sizeof before);
  assert_null(pd_dataset_open(&other, 1, with, 3, reading(0, 0), why));
  assert_non_null(strstr(why, "token -1 at offset 148 is outside the model's 10 classes"));
  assert_null(pd_dataset_open(&path, 1, without, 1, reading(0, 0), why));
  assert_non_null(strstr(
      why,
      "token -100 at offset 128 is outside the model's 10 classes. help: mask it with weights of 'counted(TARGET, "
      "ignore = -100)'"));
}

/* ---- images -------------------------------------------------------------------------------------- */

enum { SIDE = 4, IMAGE = 2 * SIDE * SIDE };

static char *write_images(const char *descr, const void *pixels, size_t n) {
  return write_npy(descr[1] == 'u' ? "u1.npy" : "f4.npy", descr, "(4, 2, 4, 4)", pixels, n);
}

static const struct pd_input image = {.name = "image",
                                      .rank = 3,
                                      .dim = {2, SIDE, SIDE},
                                      .elements = IMAGE,
                                      .origin = PD_IMAGE,
                                      NUMBERS(0.5, 0.25, 0.5, 2)};

static void images_are_normalised(void **state) {
  (void)state;
  static uint8_t bytes[4][IMAGE];
  static float floats[4][IMAGE], got[4][IMAGE], other[4][IMAGE];
  for (int i = 0; i < 4 * IMAGE; i++) floats[0][i] = (float)(bytes[0][i] = (uint8_t)(2 * i)) / 255;
  char *paths[] = {write_images("|u1", bytes, sizeof bytes), write_images("<f4", floats, sizeof floats)};
  for (int kind = 0; kind < 2; kind++) {
    start(&image, 1, 4, &paths[kind], 1);
    for (int64_t s = 0; s < 4; s++) pd_load_evaluation_sample(0, s, 0, got[s]);
    for (int s = 0; s < 4; s++)
      for (int i = 0; i < IMAGE; i++)
        assert_true(got[s][i] == (i < IMAGE / 2 ? (floats[s][i] - 0.5f) / 0.5f : (floats[s][i] - 0.25f) / 2));
  }
  pd_options.augment.crop = 3; /* black comes in, which is normalised, too */
  char why[PD_WHY] = "";
  assert_true(pd_data_start(why));
  pd_load(0, 1, got);
  int black = 0;
  for (int s = 0; s < 4; s++)
    for (int i = 0; i < IMAGE; i++) {
      bool dark = i < IMAGE / 2 ? got[s][i] == -1 : got[s][i] == -0.125f;
      black += dark;
      assert_true(dark || i < IMAGE / 2 || got[s][i] >= -0.125f);
    }
  assert_in_range(black, 16, 4 * IMAGE - 4);
  for (int64_t s = 0; s < 4; s++) pd_load_evaluation_sample(0, s, 0, other[s]);
  assert_true(other[3][0] == (floats[3][0] - 0.5f) / 0.5f);
}

/* ---- files --------------------------------------------------------------------------------------- */

static void refuses(const struct pd_input *in, int n, const char *says, char *path) {
  char why[PD_WHY] = "";
  assert_null(pd_dataset_open(&path, 1, in, n, reading(0, 0), why));
  if (!strstr(why, says)) fail_msg("expected '%s' in '%s'", says, why);
}

static char *named(const char *name, const char *path) {
  char *argument = malloc(strlen(name) + strlen(path) + 2);
  sprintf(argument, "%s=%s", name, path);
  return argument;
}

static const struct pd_input pair[] = {
    {.name = "a", TOKENS(N, 128)},
    {.name = "b", TOKENS(2 * N, 128), .origin = PD_SHIFTED, NUMBERS(1)}, /* longer than a window may be */
    {.name = "c", .target = true, TOKENS(N, 128)}};

/* What is derived needs no file, however files are given, and takes none. */
static void derived_inputs_take_no_file(void **state) {
  (void)state;
  char why[PD_WHY] = "", *path = write_bytes("plain", "ABCDEFGHIJKLMNOPQRS", 19);
  struct pd_dataset *d = pd_dataset_open(&path, 1, pair, 3, reading(0, 0), why);
  if (!d) fail_msg("%s", why);
  assert_int_equal(pd_dataset_samples(d), 2);
  char *files[] = {write_bytes("a.ids", "1 2\n3\n", 6), write_bytes("c.ids", "4\n\t5  6 \r\n", 10)};
  assert_non_null(d = pd_dataset_open(files, 2, pair, 3, reading(9, 0), why));
  int32_t got[N];
  pd_dataset_read(d, 2, 1, got);
  assert_memory_equal(got, ((int32_t[N]){5, 6, 9, 9, 9, 9, 9, 9}), sizeof got);
  refuses(pair, 3, "2 inputs and targets and needs one", files[0]);
  refuses(pair, 3, "'b=x': 'b' takes no file: the model computes it from 'a'", "b=x");
  refuses(pair, 3, "there is no file for 'c'. help: give c=PATH", named("a", files[0]));
}

static void broken_numbers_are_named(void **state) {
  (void)state;
  static const struct pd_input in = {.name = "x", TOKENS(2, 50)};
  refuses(&in, 1, "line 2: the token at offset 4 is not a whole number", write_bytes("a.ids", "1 2\n-3\n", 7));
  refuses(&in, 1, "line 1: the token at offset 2 is not a whole number", write_bytes("a.ids", "1 2x", 4));
  refuses(&in, 1, "line 2: token 50 at offset 2 is outside the model's 50", write_bytes("a.ids", "1\n50", 4));
  refuses(&in, 1, "is outside the model's 50", write_bytes("a.ids", "99999999999999999999", 20));
  refuses(&in, 1, "line 3, at offset 3, has more tokens than the 2 of a sample of 'x'",
          write_bytes("a.ids", "1\n\n1 2 3\n", 9));
  refuses(&in, 1, "is empty", write_bytes("a.ids", "", 0));
  static const struct pd_input none = {.name = "x", SEQUENCE(2)};
  refuses(&none, 1, "holds tokens, but 'x' takes numbers", named("x", write_bytes("a.ids", "1", 1)));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_follow_from_tokens),
      cmocka_unit_test(corruption_is_berts),
      cmocka_unit_test(weights_average_to_one),
      cmocka_unit_test(validation_counts_the_whole_set),
      cmocka_unit_test(tokens_below_zero_are_not_counted),
      cmocka_unit_test(nothing_counted_gives_zeros),
      cmocka_unit_test(images_are_normalised),
      cmocka_unit_test(derived_inputs_take_no_file),
      cmocka_unit_test(broken_numbers_are_named),
  };
  return run_in_folder(tests);
}
