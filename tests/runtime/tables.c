/* Tables of numbers: .csv and .tsv. */
#include "data/load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "files.h"

static const struct pd_input inputs[] = {
    {.name = "features", .rank = 1, .dim = {3}, .elements = 3},
    {.name = "age", .rank = 1, .dim = {1}, .elements = 1},
    {.name = "label", .target = true, .token = true, .classes = 5, .rank = 1, .dim = {1}, .elements = 1}};

static char *write_text(const char *name, const char *text) { return write_bytes(name, text, strlen(text)); }

static struct pd_dataset *open_one(char *path, char *why) {
  *why = 0;
  return pd_dataset_open(&path, 1, inputs, 3, reading(0, 0), why);
}

static void expect_rows(struct pd_dataset *d, int64_t first, const float (*want)[5], int n) {
  for (int i = 0; i < n; i++) {
    float x[3], age;
    int32_t label;
    pd_dataset_read(d, 0, first + i, x);
    pd_dataset_read(d, 1, first + i, &age);
    pd_dataset_read(d, 2, first + i, &label);
    assert_memory_equal(x, want[i], sizeof x);
    assert_true(age == want[i][3] && label == (int32_t)want[i][4]);
  }
}

static const float rows[][5] = {{1, -2.5f, 3e10f, 40, 4}, {0.1f, 0, 7, 41, 0}};

static void columns_go_to_inputs(void **state) {
  (void)state;
  static const char *const texts[][2] = {
      {"plain.csv", "a,label,b,age,c\n1,4,-2.5,40,3e10\n0.1,0,0,41,7\n"},
      {"quotes.csv",
       "\xef\xbb\xbf\"a\",\"label\",b,\"age\",c\r\n\"1\",4,-2.5,40,\"3e10\"\r\n 0.1 ,0,\"0\",41,7\r\n\r\n"},
      {"semicolons.csv", "a;label;b;age;c\n1;4;-2.5;40;3e10\n\n0.1;0;0;41;7"},
      {"tabs.tsv", "a\tlabel\tb\tage\tc\n1\t4\t-2.5\t40\t3e10\n0.1\t0\t0\t41\t7\n"},
      {"names.csv", "\"a, the first\",label,\"b\nb\",age,c\n1,4,-2.5,40,3e10\n0.1,0,0,41,7\n"},
      {"blanks.csv", "a , label,\tb, age ,\" c\"\n1, 4, -2.5, 40, 3e10\n0.1,0,0,41,7\n"},
      {"none.csv", "1,-2.5,3e10,40,4\n0.1,0,7,41,0\n"}};
  char why[PD_WHY];
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    struct pd_dataset *d = open_one(write_text(texts[i][0], texts[i][1]), why);
    if (!d) fail_msg("%s: %s", texts[i][0], why);
    assert_int_equal(pd_dataset_samples(d), 2);
    expect_rows(d, 0, rows, 2);
  }
  char *two[] = {write_text("one.csv", texts[0][1]), write_text("two.csv", texts[3][1])};
  two[1] = write_text("two.tsv", texts[3][1]);
  struct pd_dataset *d = pd_dataset_open(two, 2, inputs, 3, reading(0, 0), why);
  assert_int_equal(pd_dataset_samples(d), 4);
  expect_rows(d, 2, rows, 2);
  char *named[] = {malloc(300), malloc(300), malloc(300)};
  sprintf(named[0], "features=%s", write_text("x.csv", "p,q,r\n1,-2.5,3e10\n0.1,0,7\n"));
  sprintf(named[1], "age=%s", write_text("y.csv", "40\n41\n"));
  sprintf(named[2], "label=%s", write_text("z.csv", "label\n4\n0\n"));
  if (!(d = pd_dataset_open(named, 3, inputs, 3, reading(0, 0), why))) fail_msg("%s", why);
  expect_rows(d, 0, rows, 2);
  struct pd_input sequence[] = {inputs[2], inputs[2]}; /* a text for models of sequences */
  sequence[0].target = false;
  sequence[0].elements = sequence[0].dim[0] = 4;
  sequence[0].classes = sequence[1].classes = 256;
  assert_non_null(d = pd_dataset_open(two, 1, sequence, 2, reading(0, 0), why));
  assert_int_equal(pd_dataset_samples(d), ((int64_t)strlen(texts[0][1]) - 1) / 4);
}

static void broken_tables_are_refused(void **state) {
  (void)state;
  static const char *const cases[][2] = {
      {"a,label,b,age,c\n1,4,2,40\n", "line 2 has 4 fields, but the first line has 5"},
      {"a,label,b,age,c\n1,4,2,40,3,\n", "line 2 has 6 fields"},
      {"a,label,b,age,c\n1,4,,40,3\n", "line 2, column 3: '' is not a number"},
      {"a,label,b,age,c\n\n1,4,2,40,3\n1,4,x,40,3\n", "column 3: 'x' is not a number"},
      {"a,label,b,age,c\n1,4,0x10,40,3\n", "'0x10' is not a number"},
      {"a,label,b,age,c\n1,4.5,2,40,3\n", "column 2: '4.5' is not a whole number"},
      {"a,label,b,age,c\n1,setosa,2,40,3\n", "'setosa' is not a whole number"},
      {"a,label,b,age,c\n1,5,2,40,3\n", "outside the model's 5 classes"},
      {"a,label,b,age,c\n1,4,\"2,40,3\n", "line 2: a quoted field has no end"},
      {"a,label,b,age,c\n1,4,\"2\"x,40,3\n", "line 2: a quoted field has no end, or text behind it"},
      {"a,label,b,age,c\n1,4,nan,40,3\n", "line 2, column 3: 'nan' is not a finite number"},
      {"a,label,b,age,c\n1,4,2,40,3\n1,4,2,-Infinity,3\n", "line 3, column 4: '-Infinity' is not a finite number"},
      {"a,label,b,age,c\n1,4,1e39,40,3\n", "column 3: '1e39' is not a finite number"},
      {"a,label,b,age,b\n1,4,2,40,3\n", "has two columns with the name 'b'"},
      {"age,label,b, age,c\n1,4,2,40,3\n", "has two columns with the name 'age'"},
      {"a,label,b,age,c\n", "has no rows of numbers"},
      {"a,label,b,age\n1,4,2,40\n",
       "has 2 columns without the name of another input, but 'features' takes 3 numbers"},
      {"a,label,b,old,c\n1,4,2,40,3\n",
       "has no columns 'features' and 'age'. Its columns are a, label, b, old, c"},
      {"1,2,3,4\n", "has 4 columns, but the inputs and targets take 5 numbers"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char why[PD_WHY];
    if (open_one(write_text("broken.csv", cases[i][0]), why) || !strstr(why, cases[i][1]))
      fail_msg("case %zu: '%s' instead of '%s'", i, why, cases[i][1]);
  }
}

static void zero_bytes_are_refused(void **state) {
  (void)state;
  static const char number[] = "a,label,b,age,c\n1,4,2\0005,40,3\n", name[] = "a,la\0bel,b,age,c\n1,4,2,40,3\n";
  char why[PD_WHY];
  assert_null(open_one(write_bytes("zero.csv", number, sizeof number - 1), why));
  assert_non_null(strstr(why, "line 2, column 3: the field has a zero byte"));
  assert_null(open_one(write_bytes("zero.csv", name, sizeof name - 1), why));
  assert_non_null(strstr(why, "line 1, column 2: the field has a zero byte"));
}

/* An inference does not read targets, and their columns must not become features. */
static void columns_of_absent_inputs_are_no_features(void **state) {
  (void)state;
  struct pd_input few[] = {inputs[0], inputs[2]};
  char why[PD_WHY] = "", *path = write_text("few.csv", "a,b,label\n1,2,3\n"), *named = malloc(300);
  few[1].origin = PD_ABSENT;
  assert_null(pd_dataset_open(&path, 1, few, 2, reading(0, 0), why));
  assert_non_null(strstr(why, "has 2 columns without the name of another input, but 'features' takes 3 numbers"));
  assert_non_null(strstr(why, "Its columns are a, b, label"));
  few[1].elements = few[1].dim[0] = 2; /* a name is reserved for inputs of every size */
  assert_null(pd_dataset_open(&path, 1, few, 2, reading(0, 0), why));
  sprintf(named, "features=%s", path);
  assert_null(pd_dataset_open(&named, 1, few, 2, reading(0, 0), why));
  assert_non_null(strstr(why, "has a column with the name of 'label'"));
  path = write_text("most.csv", "a,label,b,c\n1,9,2,3\n");
  struct pd_dataset *d = pd_dataset_open(&path, 1, few, 2, reading(0, 0), why);
  if (!d) fail_msg("%s", why);
  float x[3];
  pd_dataset_read(d, 0, 0, x);
  assert_memory_equal(x, ((float[]){1, 2, 3}), sizeof x);
}

static void files_have_the_same_columns(void **state) {
  (void)state;
  char *first = write_text("q1.csv", "a,label,b,age,c\n1,4,2,40,3\n");
  const struct {
    char *path;
    const char *says; /* NULL: it is the same */
  } cases[] = {{write_text("moved.csv", "age,a,b,c,label\n1,4,2,40,3\n"), NULL},
               {write_text("swapped.csv", "b,label,a,age,c\n1,4,2,40,3\n"), "'b, a, c'"},
               {write_text("other.csv", "a,label,b,age,d\n1,4,2,40,3\n"), "'a, b, d'"},
               {write_text("bare.csv", "1,2,3,40,4\n"), NULL}};
  char why[PD_WHY] = "", mixed[2][300];
  struct pd_dataset *one = open_one(first, why);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *says = cases[i].says;
    char *both[] = {first, cases[i].path}, *shares[] = {mixed[0], mixed[1]};
    snprintf(mixed[0], sizeof mixed[0], "p=1:%s", both[0]);
    snprintf(mixed[1], sizeof mixed[1], "q=1:%s", both[1]);
    if (!pd_dataset_open(both, 2, inputs, 3, reading(0, 0), why) != (says != NULL)) fail_msg("%zu: %s", i, why);
    if (says && (!strstr(why, says) || !strstr(why, "'features' takes the columns 'a, b, c' of '")))
      fail_msg("%s", why);
    if (!pd_dataset_open(shares, 2, inputs, 3, &(struct pd_reading){.shares = true}, why) != (says != NULL))
      fail_msg("%zu with shares: %s", i, why);
    struct pd_dataset *validation = open_one(cases[i].path, why);
    assert_int_equal(pd_dataset_same_columns(one, validation, why), !says);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(columns_go_to_inputs),
                                     cmocka_unit_test(broken_tables_are_refused),
                                     cmocka_unit_test(zero_bytes_are_refused),
                                     cmocka_unit_test(columns_of_absent_inputs_are_no_features),
                                     cmocka_unit_test(files_have_the_same_columns)};
  return run_in_folder(tests);
}
