/* Data files, format by format, and the augmentation and normalisation of images. */
#include "data/load.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"

/* ---- files ----------------------------------------------------------------------------------- */

#define TOKENS(n, most) .token = true, .classes = most, .rank = 1, .dim = {n}, .elements = n
#define IMAGES(c, h, w) .rank = 3, .dim = {c, h, w}, .elements = (c) * (h) * (w)

static const struct pd_input text_inputs[] = {{.name = "tokens", TOKENS(4, 256)},
                                              {.name = "next", .target = true, TOKENS(4, 256)},
                                              {.name = "label", .target = true, TOKENS(1, 256)}};

static char *named(const char *name, const char *path) {
  char *argument = malloc(strlen(name) + strlen(path) + 2);
  sprintf(argument, "%s=%s", name, path);
  return argument;
}

static char *write_shard(const char *name, const uint16_t *tokens, int32_t n, int32_t claimed, int32_t magic) {
  char bytes[1024 + 256] = {0};
  memcpy(bytes, (int32_t[]){magic, 1, claimed}, 12);
  memcpy(bytes + 1024, tokens, 2 * (size_t)n);
  return write_bytes(name, bytes, 1024 + 2 * (size_t)n);
}

/* ---- windows and arrays ---------------------------------------------------------------------- */

static struct pd_dataset *open_text(char *path, char *why) {
  return pd_dataset_open(&path, 1, text_inputs, 3, reading(0, 0), why);
}

static void text_is_cut_into_windows(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  int32_t got[4];
  struct pd_dataset *d = open_text(write_bytes("text", "abcdefghijkl", 12), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 2); /* abcde, efghi; ijkl has no fifth */
  pd_dataset_read(d, 0, 1, got);
  assert_memory_equal(got, ((int32_t[]){'e', 'f', 'g', 'h'}), sizeof got);
  pd_dataset_read(d, 1, 1, got);
  assert_memory_equal(got, ((int32_t[]){'f', 'g', 'h', 'i'}), sizeof got);
  pd_dataset_read(d, 2, 1, got);
  assert_int_equal(got[0], 'i');
  assert_non_null(open_text(write_bytes("short", "abcde", 5), why));
  assert_null(open_text(write_bytes("short", "abcd", 4), why));
  assert_non_null(strstr(why, "holds 4 tokens, but one window of context 4 needs 5"));
}

static void files_are_laid_end_to_end(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  uint16_t tokens[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  char *paths[] = {write_shard("a.bin", tokens, 2, 2, 20240520), write_shard("b.bin", tokens + 2, 1, 1, 20240520),
                   write_shard("c.bin", tokens + 3, 6, 6, 20240520)};
  struct pd_dataset *d = pd_dataset_open(paths, 3, text_inputs, 3, reading(0, 0), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 2);
  for (int64_t s = 0; s < 2; s++) {
    int32_t got[4];
    pd_dataset_read(d, 1, s, got);
    for (int i = 0; i < 4; i++) assert_int_equal(got[i], 4 * s + 1 + i);
  }
}

static char *write_columns(void) { /* of two rows and three columns, the columns one after the other */
  char bytes[128 + 24] = "\x93NUMPY\x01\x00\x76";
  int n = sprintf(bytes + 10, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2, 3), }");
  memset(bytes + 10 + n, ' ', (size_t)(118 - n));
  return write_bytes("order.npy", bytes, sizeof bytes);
}

static void bad_data_is_named(void **state) {
  (void)state;
  uint16_t tokens[8] = {1, 2, 3, 4, 5, 600, 7, 8};
  int64_t labels[3] = {0, 255, 256};
  static const struct pd_input number = {.name = "x", .rank = 2, .dim = {2, 3}, .elements = 6};
  static const struct pd_input label = {.name = "label", .target = true, TOKENS(1, 256)};
  struct {
    char *path;
    const struct pd_input *inputs;
    int n;
    const char *says;
  } cases[] = {
      {"/nonexistent/file", text_inputs, 3, "cannot read '/nonexistent/file': No such file"},
      {directory, text_inputs, 3, "is a folder, but no input of the model has the shape [3, height, width]"},
      {write_bytes("empty", "", 0), text_inputs, 3, "it is empty"},
      {write_bytes("raw.bin", "abcdefgh", 8), text_inputs, 3, "not an llm.c token file"},
      {write_shard("cut.bin", tokens, 5, 8, 20240520), text_inputs, 3,
       "header says 8 tokens, but its size is for 5"},
      {write_shard("high.bin", tokens, 8, 8, 20240520), text_inputs, 3,
       "token 600 at offset 1034 is outside the model's 256"},
      {write_bytes("text2", "abcdefgh", 8), &number, 1, "'x' takes numbers. help: give one .npy array"},
      {write_bytes("no.npy", "abcdefghijklmno", 15), &number, 1, "is not a .npy array"},
      {write_bytes("nine.npy",
                   "\x93NUMPY\x09\x00\x76\x00"
                   "abcdef",
                   16),
       &number, 1, "is a .npy array of version 9: only versions 1 to 3 are supported"},
      {write_npy("columns.npy", "<f4", "(1, 2, 3), 'fortran_order': True", labels, 24), &number, 1,
       "has an unsupported .npy header"},
      {write_columns(), &number, 1, "must hold samples along its first axis, in C order"},
      {write_npy("c8.npy", "<c8", "(3,)", labels, 24), &label, 1, "elements of type '<c8': only f2"},
      {write_npy("shape.npy", "<f4", "(1, 4)", labels, 24), &number, 1,
       "holds samples of shape [4], but 'x' takes shape [2, 3]"},
      {write_npy("long.npy", "<f4", "(9, 2, 3)", labels, 24), &number, 1,
       "is cut short at offset 152: it holds 6 elements of shape (9, 2, 3)"},
      {write_npy("range.npy", "<i8", "(3,)", labels, 24), &label, 1, "token 256 at offset 144 is outside"},
      {write_npy("number.npy", "<f8", "(3, 1)", labels, 24), &label, 1,
       "floating-point numbers, but 'label' takes tokens"},
      {write_npy("one.npy", "<i8", "(3,)", labels, 24), text_inputs, 3,
       "holds 3 tokens, but one window of context 4 needs 5"},
      {write_npy("real.npy", "<f4", "(6,)", labels, 24), text_inputs, 3,
       "3 inputs and targets and needs one .npy"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "";
    assert_null(pd_dataset_open(&cases[i].path, 1, cases[i].inputs, cases[i].n, reading(0, 0), why));
    if (!strstr(why, cases[i].says)) fail_msg("expected '%s' in '%s'", cases[i].says, why);
  }
}

static void arrays_are_read_by_row(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  static const struct pd_input inputs[] = {{.name = "x", .rank = 2, .dim = {1, 2}, .elements = 2},
                                           {.name = "label", .target = true, TOKENS(1, 9)}};
  char *paths[] = {write_npy("x.npy", "<f8", "(3, 1, 2)", (double[]){0, 1, 2, 3, 4.5, 5}, 48),
                   write_npy("y.npy", "|u1", "(3,)", (uint8_t[]){6, 7, 8}, 3)};
  struct pd_dataset *d = pd_dataset_open(paths, 2, inputs, 2, reading(0, 0), why);
  assert_non_null(d);
  float x[2];
  int32_t label;
  pd_dataset_read(d, 0, 2, x);
  pd_dataset_read(d, 1, 2, &label);
  assert_true(x[0] == 4.5f && x[1] == 5 && label == 8);
}

/* Zeros, the smallest and the largest denormal, 1, pi, the largest number, infinities. */
static void halves_are_read_exactly(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  static const struct pd_input input = {.name = "x", .rank = 1, .dim = {9}, .elements = 9};
  static const uint16_t halves[] = {0, 0x8000, 1, 0x83ff, 0x3c00, 0x4248, 0x7bff, 0x7c00, 0xfc00};
  static const float want[] = {0, -0.0f, 0x1p-24f, -0x3ffp-24f, 1, 3.140625f, 65504, INFINITY, -INFINITY};
  char *path = write_npy("half.npy", "<f2", "(1, 9)", halves, sizeof halves);
  struct pd_dataset *d = pd_dataset_open(&path, 1, &input, 1, reading(0, 0), why);
  assert_non_null(d);
  float got[9];
  pd_dataset_read(d, 0, 0, got);
  assert_memory_equal(got, want, sizeof got);
  path = write_npy("nan.npy", "<f2", "(1, 9)", (uint16_t[9]){0x7e00}, sizeof halves);
  assert_non_null(d = pd_dataset_open(&path, 1, &input, 1, reading(0, 0), why));
  pd_dataset_read(d, 0, 0, got);
  assert_true(isnan(got[0]) && got[1] == 0);
}

static void tokens_need_no_header(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  int32_t got[4];
  static const struct pd_input rows[] = {{.name = "tokens", TOKENS(2, 256)}, {.name = "label", TOKENS(1, 256)}};
  uint16_t two[9] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  char *path = write_bytes("plain.bin", two, sizeof two), *other = write_bytes("label.bin", two, 8);
  struct pd_dataset *d = pd_dataset_open(&path, 1, text_inputs, 3, reading(0, 2), why);
  assert_non_null(d);
  assert_int_equal(pd_dataset_samples(d), 2);
  pd_dataset_read(d, 1, 1, got);
  assert_memory_equal(got, ((int32_t[]){5, 6, 7, 8}), sizeof got);
  uint32_t four[5] = {9, 8, 7, 6, 5};
  path = write_bytes("wide.bin", four, sizeof four);
  assert_non_null(d = pd_dataset_open(&path, 1, text_inputs, 3, reading(0, 4), why));
  pd_dataset_read(d, 0, 0, got);
  assert_memory_equal(got, ((int32_t[]){9, 8, 7, 6}), sizeof got);
  path = write_bytes("odd.bin", two, 17);
  assert_null(pd_dataset_open(&path, 1, text_inputs, 3, reading(0, 2), why));
  assert_non_null(strstr(why, "not a whole number of tokens of 2 bytes: it has 17 bytes"));
  path = write_bytes("rows.bin", two, 16);
  char *named[2] = {malloc(strlen(path) + 8), malloc(strlen(other) + 8)};
  sprintf(named[0], "tokens=%s", path);
  sprintf(named[1], "label=%s", other);
  assert_non_null(d = pd_dataset_open(named, 2, rows, 2, reading(0, 2), why));
  pd_dataset_read(d, 0, 3, got);
  assert_memory_equal(got, ((int32_t[]){6, 7}), 8);
}

/* What scripts that tokenize corpora write: one axis of integers, in several files. */
static void arrays_of_one_axis_are_windows(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  int32_t got[4];
  static const struct pd_input large[] = {{.name = "tokens", TOKENS(4, 50257)},
                                          {.name = "next", .target = true, TOKENS(4, 50257)}};
  uint16_t two[4] = {40000, 1, 2, 3};
  uint32_t four[2] = {4, 5};
  int32_t eight[3] = {6, 7, 50256};
  char *paths[] = {write_npy("run0.npy", "<u2", "(4,)", two, 8), write_npy("run1", "<u4", "(2,)", four, 8),
                   write_npy("run2.npy", "<i4", "(3,)", eight, 12)};
  struct pd_dataset *d = pd_dataset_open(paths, 3, large, 2, reading(0, 0), why);
  if (!d) fail_msg("%s", why);
  assert_int_equal(pd_dataset_samples(d), 2);
  pd_dataset_read(d, 0, 0, got);
  assert_memory_equal(got, ((int32_t[]){40000, 1, 2, 3}), sizeof got);
  pd_dataset_read(d, 1, 1, got);
  assert_memory_equal(got, ((int32_t[]){5, 6, 7, 50256}), sizeof got);
  assert_non_null(d = pd_dataset_open(paths, 2, large, 2, reading(0, 0), why)); /* as many as inputs */
  assert_int_equal(pd_dataset_samples(d), 1);
  char *rows[] = {named("tokens", paths[0]),
                  named("next", write_npy("r.npy", "<i8", "(4,)", (int64_t[4]){1, 2, 3, 4}, 32))};
  assert_non_null(d = pd_dataset_open(rows, 2, large, 2, reading(0, 0), why)); /* named: rows, not windows */
  pd_dataset_read(d, 1, 0, got);
  assert_memory_equal(got, ((int32_t[]){1, 2, 3, 4}), sizeof got);
}

/* Formats that would be read as text, by content, whatever their names; not what only begins like one. */
static void foreign_formats_are_named(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t n;
    const char *name, *says;
  } cases[] = {
#define CASE(bytes, name, says) {bytes, sizeof bytes - 1, name, says}
      CASE("PAR1abcdabcdPAR1", "p.parquet", "is a Parquet table. help: convert it: python3 -c"),
      CASE("ARROW1\0\0abcd", "a.arrow", "is an Arrow table"),
      CASE("\xff\xff\xff\xff\x08\0\0\0abcdefgh", "s.arrow", "is an Arrow stream"),
      CASE("\xff\xff\xff\xff\x78\0\0\0\x10\0\0\0", "cut.csv", "is an Arrow stream"),
      CASE("\xfd"
           "7zXZ\0abc",
           "t.txt.xz",
           "is compressed by xz. help: read a text with --tokenizer, or unpack the file first, with unxz"),
      CASE("\x28\xb5\x2f\xfd"
           "abc",
           "t.zst", "is compressed by zstd"),
      CASE("BZh91AY&SYabc", "t.bz2", "is compressed by bzip2. help: unpack the file with bunzip2"),
      CASE("PK\3\4abcdefghijkl", "t.zip", "is a zip archive. help: unzip the file first"),
      CASE("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0a\0\0\0w/data.pkl", "w.pt", "is a PyTorch file"),
      CASE("\x80\x04N.", "t.pkl", "is a pickle"),
      CASE("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 ", "old.pt", "is a PyTorch file"),
      CASE("\x04\0\0\0\0\0\0\0{\"\"}", "w.safetensors", "is a safetensors file. help: read weights with --init"),
      CASE("GGUF\3\0\0\0abcdefg", "w.gguf", "is a GGUF file"),
      CASE("\x89HDF\r\n\x1a\nabc", "a.h5", "is an HDF5 file"),
      CASE("%PDF-1.4", "b.pdf", "is a PDF document"),
      CASE("\x89PNG\r\n\x1a\nabc", "i.png", "is a PNG image"),
      CASE("\xff\xd8\xff\xe0"
           "abc",
           "i.jpg", "is a JPEG image"),
      CASE("SQLite format 3\0abc", "d.db", "is an SQLite database"),
      CASE("\x7f"
           "ELFabc",
           "program", "is a program"),
      CASE("\xff\xfe\x41\0b\0c\0d\0e\0", "utf16.txt", "is a text in UTF-16"),
      CASE("PAR1 is a mark", "par1.txt", NULL),
      CASE("GGUF, explained", "gguf.txt", NULL),
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "", *path = write_bytes(cases[i].name, cases[i].bytes, cases[i].n);
    struct pd_dataset *d = open_text(path, why);
    if (!cases[i].says != (d != NULL)) fail_msg("%s: '%s'", cases[i].name, why);
    if (cases[i].says && !strstr(why, cases[i].says)) fail_msg("expected '%s' in '%s'", cases[i].says, why);
    *why = 0;
    path = named("label", path);
    if (cases[i].says &&
        (pd_dataset_open(&path, 1, text_inputs + 2, 1, reading(0, 0), why) || !strstr(why, cases[i].says)))
      fail_msg("by name: '%s' in '%s'", cases[i].says, why);
  }
  char why[PD_WHY] = "", tar[512] = "file", *path;
  memcpy(tar + 257, "ustar", 5);
  assert_null(open_text(path = write_bytes("t.tar", tar, sizeof tar), why));
  assert_non_null(strstr(why, "is a tar archive. help: unpack the file first"));
  assert_non_null(pd_dataset_open(&path, 1, text_inputs, 3, reading(0, 1), why)); /* --token-type u8 */
}

/* An archive of 130 KiB whose array claims to have 128 MiB, which deflate could be: more than there is. */
static void large_arrays_are_counted(void **state) {
  (void)state;
  enum { PACKED = 131 << 10, LOCAL = 31, CLAIMED = 128 << 20 };
  char *file = calloc(1, LOCAL + PACKED + 47 + 22), *entry = file + LOCAL + PACKED, *end = entry + 47,
       why[PD_WHY] = "";
  memcpy(file, "PK\3\4", 4);
  file[26] = 1, file[30] = 'x';
  memcpy(entry, "PK\1\2", 4);
  memcpy(entry + 10, (uint16_t[]){8}, 2);
  memcpy(entry + 20, (uint32_t[]){PACKED, CLAIMED}, 8);
  entry[28] = 1, entry[46] = 'x';
  memcpy(end, "PK\5\6", 4);
  memcpy(end + 12, (uint32_t[]){47, LOCAL + PACKED}, 8);
  char *path = write_bytes("bomb.npz", file, LOCAL + PACKED + 47 + 22);
  free(file);
  struct rlimit before, small;
  long long pages = 0;
  FILE *statm = fopen("/proc/self/statm", "r");
  assert_int_equal(fscanf(statm, "%lld", &pages), 1);
  fclose(statm);
  assert_false(getrlimit(RLIMIT_AS, &before));
  small = before;
  small.rlim_cur = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + CLAIMED / 2);
  assert_false(setrlimit(RLIMIT_AS, &small));
  static const struct pd_input input = {.name = "x", .rank = 1, .dim = {9}, .elements = 9};
  struct pd_dataset *d = pd_dataset_open(&path, 1, &input, 1, reading(0, 0), why);
  assert_false(setrlimit(RLIMIT_AS, &before));
  assert_null(d);
  if (!strstr(why, "bomb.npz': 'x' unpacks to 0.1 GiB in every rank's memory, but this rank has 0.1 GiB left. "
                   "help: numpy.savez"))
    fail_msg("%s", why);
}

/* A byte is no token of a model that has more than 256. */
static void bytes_are_tokens_of_models_of_bytes(void **state) {
  (void)state;
  static const struct pd_input large[] = {{.name = "tokens", TOKENS(4, 32000)},
                                          {.name = "next", .target = true, TOKENS(4, 32000)}};
  char why[PD_WHY] = "", *path = write_bytes("text", "abcdefghijkl", 12), *by_name = named("tokens", path);
  static const char says[] = "is text, whose tokens are the 256 byte values, but 'tokens' has 32000 classes";
  assert_null(pd_dataset_open(&path, 1, large, 2, reading(0, 0), why));
  assert_non_null(strstr(why, says));
  assert_non_null(strstr(why, "train on bytes with --token-type u8"));
  assert_null(pd_dataset_open(&by_name, 1, large, 1, reading(0, 0), why));
  assert_non_null(strstr(why, says));
  assert_non_null(pd_dataset_open(&path, 1, large, 2, reading(0, 1), why));
}

/* ---- idx ------------------------------------------------------------------------------------- */

/* n bytes of data that count from 0, in `axes` axes. */
static char *write_idx(const char *name, int axes, const int *dim, int n) {
  unsigned char bytes[4096] = {0, 0, 8, (unsigned char)axes};
  for (int i = 0; i < axes; i++) bytes[7 + 4 * i] = (unsigned char)dim[i];
  for (int i = 0; i < n; i++) bytes[4 + 4 * axes + i] = (unsigned char)i;
  return write_bytes(name, bytes, 4 + 4 * (size_t)axes + (size_t)n);
}

static const struct pd_input image_inputs[] = {{.name = "image", IMAGES(1, 4, 5)},
                                               {.name = "label", .target = true, TOKENS(1, 10)}};

static void idx_images_are_read(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  char *paths[] = {write_idx("train-images-idx3-ubyte", 3, (int[]){3, 4, 5}, 60),
                   write_idx("train-labels-idx1-ubyte", 1, (int[]){3}, 3)};
  static const struct pd_input flat[] = {{.name = "image", .rank = 1, .dim = {20}, .elements = 20},
                                         {.name = "label", .target = true, TOKENS(1, 10)}};
  for (int i = 0; i < 2; i++) {
    struct pd_dataset *d = pd_dataset_open(paths, 2, i ? flat : image_inputs, 2, reading(0, 0), why);
    if (!d) fail_msg("%s", why);
    float pixels[20];
    int32_t label;
    assert_int_equal(pd_dataset_samples(d), 3);
    pd_dataset_read(d, 0, 2, pixels);
    pd_dataset_read(d, 1, 2, &label);
    for (int j = 0; j < 20; j++) assert_true(pixels[j] == (float)(40 + j) / 255);
    assert_int_equal(label, 2);
  }
}

/* ---- CIFAR-10 -------------------------------------------------------------------------------- */

enum { RECORD = 3073 };
static const struct pd_input cifar_inputs[] = {{.name = "label", .target = true, TOKENS(1, 10)},
                                               {.name = "image", IMAGES(3, 32, 32)}};

/* Record r has label r + first; its pixel i is 7 i + r, modulo 256. */
static char *write_cifar(const char *name, int records, int first) {
  unsigned char *bytes = malloc((size_t)records * RECORD);
  for (int r = 0; r < records; r++) {
    bytes[r * RECORD] = (unsigned char)(r + first);
    for (int i = 0; i < RECORD - 1; i++) bytes[r * RECORD + 1 + i] = (unsigned char)(7 * i + r);
  }
  return write_bytes(name, bytes, (size_t)records * RECORD);
}

static void cifar_records_give_image_and_label(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  char *a = write_cifar("data_batch_1.bin", 2, 0), *b = write_cifar("data_batch_2.bin", 3, 5);
  char *in_order[] = {a, b};
  char *by_name[] = {named("image", a), named("label", a), named("image", b), named("label", b)};
  for (int i = 0; i < 2; i++) {
    struct pd_dataset *d = i ? pd_dataset_open(by_name, 4, cifar_inputs, 2, reading(0, 0), why)
                             : pd_dataset_open(in_order, 2, cifar_inputs, 2, reading(0, 0), why);
    if (!d) fail_msg("%s", why);
    static float pixels[RECORD - 1];
    int32_t label;
    assert_int_equal(pd_dataset_samples(d), 5);
    pd_dataset_read(d, 0, 4, &label);
    pd_dataset_read(d, 1, 4, pixels);
    assert_int_equal(label, 7);
    for (int j = 0; j < RECORD - 1; j++) assert_true(pixels[j] == (float)((7 * j + 2) % 256) / 255);
  }
}

/* ---- names and lines ------------------------------------------------------------------------- */

static const struct pd_input pair_inputs[] = {{.name = "source", TOKENS(6, 256)},
                                              {.name = "before", TOKENS(4, 256)},
                                              {.name = "next", .target = true, TOKENS(4, 256)}};

static void lines_are_padded(void **state) {
  (void)state;
  char why[PD_WHY] = "", source[200] = "abcde\n\nfg\n", target[200] = "xyz\n\nu";
  for (int i = 3; i < 40; i++) { /* beyond the first mark */
    sprintf(source + strlen(source), "%d\n", i);
    sprintf(target + strlen(target), "\n%d", i);
  }
  char *from = write_bytes("from.txt", source, strlen(source));
  char *to = write_bytes("to.txt", target, strlen(target));
  char *arguments[] = {named("next", to), named("source", from), named("before", to)};
  struct pd_dataset *d = pd_dataset_open(arguments, 3, pair_inputs, 3, reading(1, 0), why);
  if (!d) fail_msg("%s", why);
  assert_int_equal(pd_dataset_samples(d), 40);
  static const struct {
    int64_t sample;
    int32_t source[6], before[4], next[4];
  } cases[] = {{0, {'a', 'b', 'c', 'd', 'e', '\n'}, {'x', 'y', 'z', '\n'}, {'x', 'y', 'z', '\n'}},
               {1, {'\n', 1, 1, 1, 1, 1}, {'\n', 1, 1, 1}, {'\n', 1, 1, 1}},
               {2, {'f', 'g', '\n', 1, 1, 1}, {'u', '\n', 1, 1}, {'u', '\n', 1, 1}},
               {39, {'3', '9', '\n', 1, 1, 1}, {'3', '9', '\n', 1}, {'3', '9', '\n', 1}}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    int32_t got[6];
    pd_dataset_read(d, 0, cases[i].sample, got);
    assert_memory_equal(got, cases[i].source, sizeof cases[i].source);
    pd_dataset_read(d, 1, cases[i].sample, got);
    assert_memory_equal(got, cases[i].before, sizeof cases[i].before);
    pd_dataset_read(d, 2, cases[i].sample, got);
    assert_memory_equal(got, cases[i].next, sizeof cases[i].next);
  }
}

static void named_files_are_rows(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  uint16_t tokens[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  int64_t more[8] = {20, 21, 22, 23, 24, 25, 26, 27};
  char *arguments[] = {named("before", write_npy("before.npy", "<i8", "(2, 4)", more, 64)),
                       named("source", write_shard("source.bin", tokens, 12, 12, 20240520)),
                       named("next", write_npy("next1.npy", "<i4", "(1, 4)", more, 16)),
                       named("next", write_npy("next2.npy", "<i8", "(1, 4)", more + 4, 32))};
  struct pd_dataset *d = pd_dataset_open(arguments, 4, pair_inputs, 3, reading(0, 0), why);
  if (!d) fail_msg("%s", why);
  int32_t got[6];
  assert_int_equal(pd_dataset_samples(d), 2);
  pd_dataset_read(d, 0, 1, got);
  assert_memory_equal(got, ((int32_t[]){6, 7, 8, 9, 10, 11}), sizeof got);
  pd_dataset_read(d, 1, 1, got);
  assert_memory_equal(got, ((int32_t[]){24, 25, 26, 27}), 16);
  pd_dataset_read(d, 2, 1, got);
  assert_memory_equal(got, ((int32_t[]){24, 25, 26, 27}), 16);
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* Opens up to three files; fails unless the refusal says so. */
static void refuses(const struct pd_input *inputs, int n_inputs, const char *says, char *a, char *b, char *c) {
  char why[PD_WHY] = "", *paths[] = {a, b, c};
  assert_null(pd_dataset_open(paths, c ? 3 : b ? 2 : 1, inputs, n_inputs, reading(0, 0), why));
  if (!strstr(why, says)) fail_msg("expected '%s' in '%s'", says, why);
}

static void broken_images_are_named(void **state) {
  (void)state;
  char *labels = write_idx("labels-ubyte", 1, (int[]){3}, 3);
  char *good = write_idx("good-ubyte", 3, (int[]){3, 4, 5}, 60);
  const struct pd_input *in = image_inputs;
  refuses(in, 2, "is cut short at offset 3", write_bytes("a-ubyte", "\0\0\x08", 3), labels, NULL);
  refuses(in, 2, "at offset 0 it has 01 02 instead of 00 00", write_bytes("a-ubyte", "\1\2\3\4", 4), labels, NULL);
  refuses(in, 2, "elements of type 0d at offset 2", write_bytes("a-ubyte", "\0\0\x0d\3", 4), labels, NULL);
  refuses(in, 2, "0 axes at offset 3", write_bytes("a-ubyte", "\0\0\x08\0", 4), labels, NULL);
  refuses(in, 2, "is cut short at offset 9: its header has 16", write_bytes("a-ubyte", "\0\0\x08\3\0\0\0\3\0", 9),
          labels, NULL);
  refuses(in, 2, "is cut short at offset 75: its header says 3 samples of 20 bytes",
          write_idx("a-ubyte", 3, (int[]){3, 4, 5}, 59), labels, NULL);
  refuses(in, 2, "3 samples of 20 bytes, but more follow at offset 76",
          write_idx("a-ubyte", 3, (int[]){3, 4, 5}, 61), labels, NULL);
  refuses(in, 2, "holds samples of shape [5, 4], but 'image' takes shape [1, 4, 5]",
          write_idx("a-ubyte", 3, (int[]){3, 5, 4}, 60), labels, NULL);
  refuses(in, 2, "holds 2 samples, but", good, write_idx("b-ubyte", 1, (int[]){2}, 2), NULL);
  refuses(in, 2, "token 10 at offset 18 is outside the model's 10 classes",
          write_idx("c-ubyte", 3, (int[]){11, 4, 5}, 220), write_idx("b-ubyte", 1, (int[]){11}, 11), NULL);
  refuses(in, 2,
          "is compressed by gzip. help: read a text with --tokenizer, or unpack the file first, with gunzip",
          write_bytes("a-ubyte.gz", "\x1f\x8b\x08", 3), labels, NULL);
  refuses(in, 2, "have several formats. help: name each file's input, as in image=PATH", good,
          write_bytes("text", "abc", 3), NULL);
  refuses(in, 2, "needs one .npy array or idx file for each, in this order, but 1 is given", good, NULL, NULL);
  refuses(in, 2, "shape [3, 32, 32], but 'image' takes shape [1, 4, 5]", write_cifar("c.bin", 1, 0), NULL, NULL);
  in = cifar_inputs;
  refuses(in, 2, "records have 3073 bytes, but the record at offset 0 has 3", write_bytes("c.bin", "abc", 3), NULL,
          NULL);
  refuses(in, 2, "token 10 at offset 6146 is outside the model's 10", write_cifar("c.bin", 3, 8), NULL, NULL);
}

/* A file that another program writes to while it is mapped: what is read stays in it, and is missed where it is
 * gone. */
static void lines_that_go_are_missed(void **state) {
  (void)state;
  enum { LINES = 100, BYTES = 2 * LINES };
  static const struct pd_input in = {.name = "few", TOKENS(4, 256)};
  char text[BYTES], why[PD_WHY] = "";
  for (int numbers = 0; numbers < 2; numbers++) {
    for (int i = 0; i < BYTES; i++) text[i] = i % 2 ? '\n' : '7';
    char *path = write_bytes("lines", text, BYTES);
    struct pd_array a = {.path = path, .map = pd_map_file(path, &a.size, why)};
    int64_t marks[LINES / PD_MARK + 1];
    struct pd_lines lines = {.n = pd_count_lines(&a), .marks = marks, .numbers = numbers};
    assert_int_equal(lines.n, LINES);
    assert_true(pd_mark_lines(&a, &in, &lines, why));
    int32_t got[4];
    assert_true(pd_read_line(&a, &lines, LINES - 1, &in, 0, got, why));
    FILE *out = fopen(path, "r+b"); /* the same file: the map shows the change */
    assert_non_null(out);
    memset(text + 2, '8', BYTES - 2);
    assert_int_equal(fwrite(text, 1, BYTES, out), BYTES);
    fclose(out);
    assert_true(pd_read_line(&a, &lines, 0, &in, 0, got, why));
    for (int64_t i = 1; i < LINES; i++) {
      *why = 0;
      assert_false(pd_read_line(&a, &lines, i, &in, 0, got, why));
      if (i % PD_MARK > 1 && !strstr(why, "was changed while it was in use: line ")) fail_msg("%s", why);
    }
    assert_false(pd_mark_lines(&a, &in, &lines, why));
    pd_unmap_file(a.map, a.size);
  }
}

static void broken_pairs_are_named(void **state) {
  (void)state;
  char *from = write_bytes("from.txt", "abc\nabcde\n", 10);
  char *next = named("next", write_bytes("to.txt", "a\nb", 3));
  const struct pd_input *in = pair_inputs;
  uint16_t tokens[5] = {0};
  refuses(in + 1, 2, "line 2, at offset 4, has more tokens than the 4 of a sample of 'before'",
          named("before", from), next, NULL);
  refuses(in + 1, 2, "holds 2 samples, but", named("before", write_bytes("one.txt", "a", 1)), next, NULL);
  refuses(in + 1, 2, "there is no file for 'before'. help: give before=PATH", next, NULL, NULL);
  refuses(in + 1, 2, "names no input or target of the model", next, named("bfore", from), NULL);
  refuses(in + 1, 2, "no such file, and no input or target has the name 'bfore'", named("bfore", from), NULL,
          NULL);
  refuses(in + 1, 2, "holds 5 tokens, which is not a multiple of the 4 tokens of a sample of 'before'",
          named("before", write_shard("odd.bin", tokens, 5, 5, 20240520)), next, NULL);
  static const struct pd_input few[] = {{.name = "few", TOKENS(4, 98)},
                                        {.name = "ten", TOKENS(4, 10)},
                                        {.name = "number", .rank = 1, .dim = {4}, .elements = 4}};
  refuses(few, 1, "token 98 at offset 1 is outside the model's 98", named("few", write_bytes("abc", "abc", 3)),
          NULL, NULL);
  refuses(few + 1, 1, "'ten' has 10 classes, but lines also need the newline, 10", named("ten", from), NULL, NULL);
  refuses(few + 2, 1, "holds tokens, but 'number' takes numbers", named("number", from), NULL, NULL);
  assert_string_equal(pd_data_path(few, 3, "ten=a=b"), "a=b");
  assert_string_equal(pd_data_path(few, 3, "one=a"), "one=a");
}

/* ---- random changes of images ---------------------------------------------------------------- */

/* Every change is a shift by up to `crop` pixels, mirrored or not, the same for every channel; all occur, about
 * equally often, and depend on seed and sample alone. */
static void images_are_cropped_and_mirrored(void **state) {
  (void)state;
  enum { H = 5, W = 6, CROP = 2, RUNS = 10000, KINDS = 2 * 5 * 5 };
  static const struct pd_input in = {.name = "image", IMAGES(2, H, W)};
  struct pd_augment a = {.flip = true, .crop = CROP};
  float from[2][H][W], got[2][H][W], again[2][H][W];
  int seen[KINDS] = {0}, changed = 0;
  for (int i = 0; i < 2 * H * W; i++) (&from[0][0][0])[i] = (float)(i + 1);
  for (int64_t s = 0; s < RUNS; s++) {
    pd_augment_image(&a, &in, 3, s, &from[0][0][0], &got[0][0][0]);
    pd_augment_image(&a, &in, 3, s, &from[0][0][0], &again[0][0][0]);
    assert_memory_equal(got, again, sizeof got);
    pd_augment_image(&a, &in, 4, s, &from[0][0][0], &again[0][0][0]);
    changed += !!memcmp(got, again, sizeof got);
    int kind = -1;
    for (int k = 0; k < KINDS; k++) {
      int down = k / 2 / 5 - CROP, right = k / 2 % 5 - CROP, ok = 1;
      for (int c = 0; c < 2; c++)
        for (int y = 0; y < H; y++)
          for (int x = 0; x < W; x++) {
            int row = y + down, column = (k % 2 ? W - 1 - x : x) + right;
            bool inside = row >= 0 && row < H && column >= 0 && column < W;
            ok &= got[c][y][x] == (inside ? from[c][row][column] : 0);
          }
      if (ok) kind = k;
    }
    assert_in_range(kind, 0, KINDS - 1);
    seen[kind]++;
  }
  for (int k = 0; k < KINDS; k++) assert_in_range(seen[k], 130, 270); /* 200 expected, deviation 14 */
  assert_in_range(changed, RUNS * 96 / 100, RUNS);
  a = (struct pd_augment){.flip = false};
  pd_augment_image(&a, &in, 3, 1, &from[0][0][0], &got[0][0][0]);
  assert_memory_equal(got, from, sizeof got);
}

static void only_images_are_changed(void **state) {
  (void)state;
  char why[PD_WHY] = "";
  struct pd_augment a = {.crop = 4};
  assert_false(pd_augment_fits(&a, text_inputs, 3, false, why));
  assert_non_null(strstr(why, "no input of shape [channels, height, width]"));
  assert_false(pd_augment_fits(&a, image_inputs, 2, false, why));
  assert_non_null(strstr(why, "crop=4: 'image' has images of 4 x 5"));
  assert_true(pd_augment_fits(&a, cifar_inputs, 2, false, why));
  a = (struct pd_augment){.resized_crop = 0.08};
  assert_false(pd_augment_fits(&a, cifar_inputs, 2, false, why));
  assert_non_null(strstr(why, "--augment resized_crop: --data has no image files"));
  assert_false(pd_is_image(&cifar_inputs[0]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(text_is_cut_into_windows),  cmocka_unit_test(files_are_laid_end_to_end),
      cmocka_unit_test(bad_data_is_named),         cmocka_unit_test(arrays_are_read_by_row),
      cmocka_unit_test(halves_are_read_exactly),   cmocka_unit_test(tokens_need_no_header),
      cmocka_unit_test(idx_images_are_read),       cmocka_unit_test(cifar_records_give_image_and_label),
      cmocka_unit_test(lines_are_padded),          cmocka_unit_test(named_files_are_rows),
      cmocka_unit_test(lines_that_go_are_missed),  cmocka_unit_test(broken_images_are_named),
      cmocka_unit_test(broken_pairs_are_named),    cmocka_unit_test(images_are_cropped_and_mirrored),
      cmocka_unit_test(only_images_are_changed),   cmocka_unit_test(arrays_of_one_axis_are_windows),
      cmocka_unit_test(foreign_formats_are_named), cmocka_unit_test(bytes_are_tokens_of_models_of_bytes),
      cmocka_unit_test(large_arrays_are_counted),
  };
  return run_in_folder(tests);
}
