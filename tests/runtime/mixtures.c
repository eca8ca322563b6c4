/* Sources with shares, documents in windows, and the files that folders and patterns stand for. */
#include "data/load.h"
#include "run/upward.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"

#define TOKENS(n, most) .token = true, .classes = most, .rank = 1, .dim = {n}, .elements = n

static const double ignored[] = {-100};
static const struct pd_input numbers[] = {{.name = "tokens", TOKENS(2, 65536)},
                                          {.name = "next", .target = true, TOKENS(2, 65536)}};
static const struct pd_input counting[] = {{.name = "tokens", TOKENS(4, 256)},
                                           {.name = "next", .target = true, TOKENS(4, 256)},
                                           {.name = "weight",
                                            .target = true,
                                            .rank = 1,
                                            .dim = {4},
                                            .elements = 4,
                                            .origin = PD_COUNTED,
                                            .from = 1,
                                            .numbers = ignored,
                                            .n_numbers = 1}};

static char *text_of(const char *format, const char *path) {
  char *text = malloc(strlen(format) + strlen(path) + 1);
  sprintf(text, format, path);
  return text;
}

/* ---- mixtures -------------------------------------------------------------------------------- */

/* A source of n samples, two tokens each: sample i of source s has the tokens 100 s + i / 256 and i % 256. */
static char *write_source(int source, int64_t n) {
  enum { MOST = 20000 };
  static uint16_t tokens[2 * MOST];
  char name[32];
  for (int64_t i = 0; i < n; i++)
    tokens[2 * i] = (uint16_t)(100 * source + i / 256), tokens[2 * i + 1] = (uint16_t)(i % 256);
  snprintf(name, sizeof name, "source%d_%lld.bin", source, (long long)n);
  return write_bytes(name, tokens, 4 * (size_t)n);
}

/* order.cases: by tests/reference/sampler.py. */
static void mixtures_have_the_documented_order(void **state) {
  (void)state;
  enum { SOURCES = 3, ONE_BLOCK = 10000 };
  char line[4096];
  int cases = 0;
  FILE *in = fopen(ORDER_CASES, "r");
  assert_non_null(in);
  while (fgets(line, sizeof line, in)) {
    char why[PD_WHY] = "", *arguments[2 * SOURCES], *at = line;
    const uint64_t seed = strtoull(at, &at, 10);
    int n = 0;
    for (char *word = strtok(at, " \n"); word; word = strtok(NULL, " \n"), n++) {
      char *share = text_of("%s", word), *colon = strchr(share, ':'), prefix[64];
      const int64_t samples = strtoll(colon + 1, NULL, 10);
      *colon = 0;
      for (int input = 0; input < 2; input++) {
        snprintf(prefix, sizeof prefix, "s.%d=%s:%s=%%s", n, share, numbers[input].name);
        arguments[2 * n + input] = text_of(prefix, write_source(n, samples));
      }
    }
    struct pd_dataset *d =
        pd_dataset_open(arguments, 2 * n, numbers, 2,
                        &(struct pd_reading){.token_bytes = 2, .scan = true, .shares = true}, why);
    if (!d) fail_msg("%s", why);
    assert_non_null(fgets(line, sizeof line, in));
    int64_t number = 0;
    for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"), number++) {
      if (number == 60) number = ONE_BLOCK - 10;
      if (number == ONE_BLOCK + 10) number = 123450;
      int32_t got[2];
      pd_dataset_read(d, 1, pd_dataset_pick(d, seed, true, number), got);
      char *dot;
      const int64_t source = strtoll(word, &dot, 10), sample = strtoll(dot + 1, NULL, 10);
      if (got[0] != 100 * source + sample / 256 || got[1] != sample % 256)
        fail_msg("number %lld is tokens %d %d, not %s", (long long)number, got[0], got[1], word);
    }
    cases++;
  }
  fclose(in);
  assert_int_equal(cases, 3);
}

static void wrong_shares_are_refused(void **state) {
  (void)state;
  char *a = write_source(0, 4), *b = write_source(1, 4);
  const struct {
    char *arguments[2];
    bool shares;
    const char *says;
  } cases[] = {
      {{text_of("a=1:%s", a), b}, true, "has no share, but other files have one"},
      {{text_of("a=0:%s", a), text_of("b=1:%s", b)}, true, "the share of 'a' is not a number above 0"},
      {{text_of("a=nan:%s", a), text_of("b=1:%s", b)}, true, "the share of 'a' is not a number above 0"},
      {{text_of("a=-1:%s", a), text_of("b=1:%s", b)}, true, "the share of 'a' is not a number above 0"},
      {{text_of("a=x:%s", a), text_of("b=1:%s", b)}, true, "the share 'x' of 'a' is not a number above 0"},
      {{text_of("a=:%s", a), text_of("b=:%s", b)}, true, "the share '' of 'a' is not a number above 0"},
      {{text_of("a=1:%s", a), text_of("a=2:%s", b)}, true, "'a' has the shares 1 and 2"},
      {{text_of("a=1:%s", a), text_of("b=1:%s", b)}, false, "help: leave out 'a=1:'"},
      {{text_of("a=1:%s", a), text_of("b=1:%s.no", b)}, true, "cannot read"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY] = "", *arguments[] = {cases[i].arguments[0], cases[i].arguments[1]};
    const struct pd_reading how = {.token_bytes = 2, .shares = cases[i].shares};
    if (pd_dataset_open(arguments, 2, numbers, 2, &how, why) || !strstr(why, cases[i].says))
      fail_msg("case %zu: %s", i, why);
  }
  assert_string_equal(pd_data_path(numbers, 2, "a=1:next=x=y"), "x=y");
  assert_string_equal(pd_data_path(numbers, 2, "next=0.5:x"), "0.5:x"); /* an input's name is no source */
}

static void file_order_takes_samples_in_turn(void **state) {
  (void)state;
  char why[PD_WHY] = "", *path = text_of("tokens=%s", write_source(0, 5));
  char *arguments[] = {path, text_of("next=%s", write_source(0, 5))};
  const struct pd_reading how = {.token_bytes = 2};
  struct pd_dataset *d = pd_dataset_open(arguments, 2, numbers, 2, &how, why);
  assert_non_null(d);
  for (int64_t i = 0; i < 12; i++) assert_int_equal(pd_dataset_pick(d, 3, false, i), i % 5);
}

/* ---- documents ------------------------------------------------------------------------------- */

static char *write_documents(const uint16_t *tokens, int32_t n, int32_t end) {
  char bytes[1024 + 4096] = {0};
  memcpy(bytes, (int32_t[]){20240520, 1, n, end + 1}, 16);
  memcpy(bytes + 1024, tokens, 2 * (size_t)n);
  return write_bytes("documents.bin", bytes, 1024 + 2 * (size_t)n);
}

/* The windows of random documents against a loop over tokens. */
static void windows_end_with_their_document(void **state) {
  (void)state;
  enum { MOST = 1900, CONTEXT = 4, END = 7 };
  srand(1);
  for (int round = 0; round < 40; round++) {
    const int n = 2 + rand() % (MOST - 1), often = 1 + rand() % 30;
    uint16_t tokens[MOST + 1];
    for (int i = 0; i < n; i++) tokens[i] = rand() % often ? (uint16_t)(8 + rand() % 200) : END;
    tokens[0] = 9, tokens[1] = 8;
    char why[PD_WHY] = "", *path = write_documents(tokens, n, END);
    struct pd_dataset *d = pd_dataset_open(&path, 1, counting, 3, reading(3, 0), why);
    if (!d) fail_msg("%s", why);
    int64_t window = 0;
    for (int first = 0, end; first < n; first = end) {
      for (end = first; end < n && tokens[end] != END;) end++;
      end += end < n;
      for (int at = first; at + 1 < end; at += CONTEXT, window++) {
        int32_t x[CONTEXT], y[CONTEXT];
        pd_dataset_read(d, 0, window, x);
        pd_dataset_read(d, 1, window, y);
        for (int i = 0; i < CONTEXT; i++) {
          assert_int_equal(x[i], at + i + 1 < end ? tokens[at + i] : 3);
          assert_int_equal(y[i], at + i + 1 < end ? tokens[at + i + 1] : -100);
        }
      }
    }
    assert_int_equal(pd_dataset_samples(d), window);
  }
}

static void documents_are_joined_on_demand(void **state) {
  (void)state;
  static const uint16_t tokens[] = {1, 2, 7, 3, 4, 5, 6, 7, 1};
  char why[PD_WHY] = "", *path = write_documents(tokens, 9, 7), *text = write_bytes("text", "ab\ncde\nf", 8);
  struct pd_reading how = {.joined = true};
  int32_t got[4];
  struct pd_dataset *d = pd_dataset_open(&path, 1, counting, 3, &how, why);
  assert_int_equal(pd_dataset_samples(d), 2);
  pd_dataset_read(d, 1, 0, got);
  assert_memory_equal(got, ((int32_t[]){2, 7, 3, 4}), sizeof got);
  assert_int_equal(pd_dataset_samples(pd_dataset_open(&path, 1, counting, 2, reading(0, 0), why)),
                   2); /* all targets count */
  how = (struct pd_reading){.document_end = 10 + 1};
  assert_non_null(d = pd_dataset_open(&text, 1, counting, 3, &how, why));
  assert_int_equal(pd_dataset_samples(d), 2); /* f has no next token */
  pd_dataset_read(d, 1, 1, got);
  assert_memory_equal(got, ((int32_t[]){'d', 'e', '\n', -100}), sizeof got);
  how.document_end = 256 + 1;
  assert_null(pd_dataset_open(&text, 1, counting, 3, &how, why));
  assert_non_null(strstr(why, "--documents 256 is outside the 256 classes of 'tokens'"));
  how.document_end = 255 + 1; /* not in the text: one document */
  assert_int_equal(pd_dataset_samples(pd_dataset_open(&text, 1, counting, 3, &how, why)), 2);
  char *two[] = {path, text}; /* the end is known for one of them */
  assert_int_equal(pd_dataset_samples(pd_dataset_open(two, 2, counting, 3, reading(0, 0), why)), 4);
  char *single = write_bytes("single", "\n\n\n", 3);
  how.document_end = 10 + 1;
  assert_null(pd_dataset_open(&single, 1, counting, 3, &how, why));
  assert_non_null(strstr(why, "no document of two or more tokens"));
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void expect_list(char *argument, const char *const *want, int n) {
  char why[PD_WHY] = "", **list = &argument;
  int count = 1;
  if (!pd_expand_files("--data", &list, &count, why)) fail_msg("%s", why);
  assert_int_equal(count, n);
  for (int i = 0; i < n; i++) assert_string_equal(list[i], text_of(want[i], directory));
}

static void folders_and_patterns_stand_for_files(void **state) {
  (void)state;
  static const struct pd_stage s = {.inputs = counting, .n_inputs = 3};
  static const char *const by_number[] = {"a=2:%s/shards/part2.bin", "a=2:%s/shards/part10.bin"};
  static const char *const plain[] = {"%s/shards/part2.bin", "%s/shards/part10.bin"};
  char why[PD_WHY] = "", **list, *folder = text_of("%s/shards", directory);
  int n = 1;
  pd = (struct pd_run){.stage = &s};
  mkdir(folder, 0777);
  mkdir(text_of("%s/shards/more", directory), 0777);
  write_bytes("shards/part10.bin", "x", 1);
  write_bytes("shards/part2.bin", "x", 1);
  write_bytes("shards/.hidden", "x", 1);
  expect_list(folder, plain, 2);
  expect_list(text_of("a=2:%s/shards/", directory), by_number, 2);
  expect_list(text_of("a=2:%s/shards/part*", directory), by_number, 2);
  list = (char *[]){text_of("%s/shards/more", directory)};
  assert_false(pd_expand_files("--data", &list, &n, why));
  assert_non_null(strstr(why, "has no files"));
  write_bytes("shards/README.md", "x", 1);
  list = &folder;
  assert_false(pd_expand_files("--data", &list, &n, why));
  assert_non_null(strstr(why, "has files of several kinds"));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(mixtures_have_the_documented_order),
                                     cmocka_unit_test(wrong_shares_are_refused),
                                     cmocka_unit_test(file_order_takes_samples_in_turn),
                                     cmocka_unit_test(windows_end_with_their_document),
                                     cmocka_unit_test(documents_are_joined_on_demand),
                                     cmocka_unit_test(folders_and_patterns_stand_for_files)};
  return run_in_folder(tests);
}
