/* Files of torch.save: tensors of every type, and hostile pickles. tests/import/make_pytorch.py writes half.pt; the numbers
 * are PyTorch's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "shared/pickle.h"
#include "shared/pytorch.h"
#include "shared/read_file.h"

typedef struct Case {
  const char *name;
  enum pd_dtype dtype;
  int rank;
  int64_t dim[2];
  float first[3];
} Case;

static void test_tensors(void **state) {
  (void)state;
  static const Case cases[] = {
      {"a", PD_DTYPE_F16, 2, {4, 6}, {-1.525390625f, -0.75f, -0.65380859375f}},
      {"b", PD_DTYPE_BF16, 2, {4, 6}, {-1.5234375f, -0.75f, -0.65234375f}},
      {"c", PD_DTYPE_F64, 2, {4, 6}, {-1.5255959033966064f, -0.7502318024635315f, -0.6539809107780457f}},
      {"d", PD_DTYPE_F32, 2, {4, 6}, {-1.5255959033966064f, -0.7502318024635315f, -0.6539809107780457f}},
      {"e", PD_DTYPE_F32, 2, {2, 6}, {-0.9797722697257996f, -1.6090962886810303f, 0.43914157152175903f}},
      {"f", PD_DTYPE_F32, 1, {24}, {-1.5255959033966064f, -0.7502318024635315f, -0.6539809107780457f}},
      {"g", PD_DTYPE_F32, 0, {0}, {3.5f}},
      {"h", PD_DTYPE_F32, 2, {0, 5}, {0}}};
  char why[PD_WHY] = "";
  size_t bytes;
  struct pd_safetensors s;
  char *file = pd_read_file("tests/import/pytorch/half.pt", &bytes, why);
  assert_non_null(file);
  if (!pd_tensors_parse(file, bytes, &s, why))
    fail_msg("%s", why);
  assert_int_equal(s.n, 8);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const Case *c = &cases[i];
    const struct pd_entry *e = pd_safetensors_find(&s, c->name);
    assert_non_null(e);
    assert_int_equal(e->dtype, c->dtype);
    assert_int_equal(e->rank, c->rank);
    for (int k = 0; k < c->rank; k++)
      assert_int_equal(e->dim[k], c->dim[k]);
    for (int64_t k = 0; k < 3 && k < e->elements; k++)
      if (pd_entry_float(e, k) != c->first[k])
        fail_msg("'%s' has %.9g at %lld, not %.9g", c->name, (double)pd_entry_float(e, k), (long long)k,
                 (double)c->first[k]);
  }
  pd_safetensors_free(&s);
  for (size_t n = 0; n < bytes; n++) { /* every shorter file */
    assert_false(pd_tensors_parse(file, n, &s, why));
    assert_true(*why != 0);
  }
  free(file);
}

static void test_pickles(void **state) {
  (void)state;
#define PICKLE(bytes) bytes, sizeof(bytes) - 1
  static const struct {
    const char *bytes;
    size_t n;
    const char *refused; /* NULL: accepted */
  } cases[] = {{PICKLE("\x80\2}q\0."), NULL},
               {PICKLE("(K\1K\2t."), NULL},
               {PICKLE("\x80\4\x95\1\0\0\0\0\0\0\0N."), NULL},
               {PICKLE(""), "byte 0 of its pickle: it ends without a result"},
               {PICKLE("."), "its stack is empty"},
               {PICKLE("K"), "it ends within a number"},
               {PICKLE("X\xff\xff\xff\xff"
                       "a."),
                "it ends within a text"},
               {PICKLE("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                       "a."),
                "it ends within a text"},
               {PICKLE("h\0."), "it reads what its memo does not have"},
               {PICKLE("Nq\7."), "it skips numbers of its memo"},
               {PICKLE("Nr\xff\xff\xff\xff."), "it skips numbers of its memo"},
               {PICKLE("t."), "it has no mark"},
               {PICKLE("u."), "it has no mark"},
               {PICKLE("NNNs."), "it sets a member of no dict"},
               {PICKLE("NNa."), "it appends to no list"},
               {PICKLE("}(Nu."), "a key has no value"},
               {PICKLE("NNR."), "it calls what is no name"},
               {PICKLE("cos\nsystem\n(U\2lstR."), "it needs 'os.system', which is neither a tensor nor a dict"},
               {PICKLE("\x8c\5posix\x8c\6system\x93)R."), "it needs 'posix.system'"},
               {PICKLE("cbuiltins\neval\n."), "it needs 'builtins.eval'"},
               {PICKLE("ctorch.\nSize\n."), "it needs 'torch..Size'"},
               {PICKLE("c__builtin__\nexec"), "it ends within a name"},
               {PICKLE("K\1Q."), "a reference outside of the pickle is not a storage"},
               {PICKLE("ctorch._utils\n_rebuild_tensor_v2\n)R."), "a tensor lacks its storage, sizes or strides"},
               {PICKLE("i."), "byte 0 of its pickle: it has an opcode that files of torch.save do not have"},
               {PICKLE("N\x82\1."), "it has an opcode"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct pd_pickle p;
    char why[PD_WHY] = "";
    bool good = pd_pickle_read(&p, (const unsigned char *)cases[i].bytes, cases[i].n, why);
    if (good != !cases[i].refused || (!good && !strstr(why, cases[i].refused)))
      fail_msg("pickle %zu: '%s', not '%s'", i, why, cases[i].refused ? cases[i].refused : "");
    pd_pickle_close(&p);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_tensors), cmocka_unit_test(test_pickles)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
