/* GPU profiles: algorithms of products and cuDNN attention, in profiles and plans, and errors in both. */
#include "profiles.h"

/* ---- algorithms of products, on GPUs -------------------------------------------------- */

static const Target on_gpu = {.backend = &backend_cuda, .threads = 1};

/* The path of a GPU profile with algorithms. */
static const char *profile_on_gpu(PlanRequest *q) {
  const char *file = format("%s.gpu", path);
  int calls = 0;
  *q = request();
  q->target = pretended = on_gpu;
  q->workers = 0;
  q->stages = 2;
  assert_true(profile_make(graph, &pieces, q, file, pretend, &calls, NULL));
  pretended = (Target){.threads = 1};
  q->profile = file;
  return file;
}

static const Profile *read_on_gpu(const char *file) {
  ProfileSignature s = profile_signature(graph, &pieces, on_gpu, "a compiler, version 1");
  return profile_read(file, &pieces, &s, false);
}

static const Algorithm *algorithm_of(const AlgorithmList *list, const char *product) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->at[i].product, product))
      return &list->at[i];
  return NULL;
}

/* Each microbatch size has the algorithms of its kernels as printed, each product once; the file reads back
 * equal. */
static void products_have_the_algorithms_that_were_measured(void **unused) {
  (void)unused;
  PlanRequest q;
  const char *file = profile_on_gpu(&q);
  const Profile *profile = read_on_gpu(file);
  assert_non_null(profile);
  assert_string_equal(profile->cublaslt.device, "A \"GPU\" of theirs");
  assert_int_equal(profile->cublaslt.version, 130100);
  for (int i = 0; i < profile->sizes.n; i++) {
    const MeasuredSize *m = &profile->sizes.at[i];
    const Algorithm *common = algorithm_of(&m->algorithms, "f32 [1, 1] @ [1, 1]");
    assert_true(m->algorithms.n > 3 && common && common->number[3] == 8 && common->number[4] == 2);
    for (int k = 0; k < m->algorithms.n; k++) {
      const Algorithm *a = &m->algorithms.at[k];
      assert_ptr_equal(a, algorithm_of(&m->algorithms, a->product));
      assert_true(a == common || strstr(a->product, format(" of %lld", (long long)m->microbatch)));
      assert_true(a == common || (a->number[1] == m->microbatch + 10 && a->number[6] == UINT32_MAX &&
                                  a->number[8] == 65535 && a->seconds == 2e-5 && a->first_seconds == 3e-5));
    }
  }
  assert_string_equal(profile_write(profile, &pieces), read_file(file, NULL));
  unlink(file);
}

/* A plan has the algorithms of its microbatch, and its file keeps them with any profile. */
static void plans_have_their_microbatchs_algorithms(void **unused) {
  (void)unused;
  PlanRequest q;
  const char *file = profile_on_gpu(&q), *saved = format("%s.plan", path);
  const Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(plan && plan->algorithms);
  const MeasuredSize *m = profile_at(read_on_gpu(file), plan->pipeline.microbatch);
  assert_int_equal(plan->algorithms->of.n, m->algorithms.n);
  assert_true(algorithm_of(&plan->algorithms->of, m->algorithms.at[0].product)->number[1] == m->microbatch + 10);
  char *text = plan_json(graph, &pieces, plan);
  assert_null(strstr(text, "first_seconds"));
  assert_true(write_file(saved, text, strlen(text)));
  q.plan = saved;
  const Plan *again = plan_make(graph, &pieces, &q, NULL, 0);
  assert_string_equal(plan_json(graph, &pieces, again), text);
  q.profile = NULL;
  again = plan_make(graph, &pieces, &q, NULL, 0);
  assert_int_equal(again->algorithms->of.n, m->algorithms.n);
  char *edited = strstr(text, "\"tile\": 1");
  edited[strlen("\"tile\": ")] = '7';
  assert_true(write_file(saved, text, strlen(text)));
  q.profile = file;
  again = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(again->algorithms->of.at[0].number[1] >= 70);
  q.plan = NULL;
  q.profile = NULL;
  assert_null(plan_make(graph, &pieces, &q, NULL, 0)->algorithms);
  unlink(file);
  unlink(saved);
}

/* ---- attention by cuDNN ------------------------------------------------------------------ */

static const Attention *attention_of(const AttentionList *list, const char *name) {
  for (int i = 0; i < list->n; i++)
    if (!strcmp(list->at[i].attention, name))
      return &list->at[i];
  return NULL;
}

static void attentions_are_kept_as_they_were_measured(void **unused) {
  (void)unused;
  PlanRequest q;
  const char *file = profile_on_gpu(&q);
  const Profile *profile = read_on_gpu(file);
  assert_non_null(profile);
  assert_int_equal(profile->cudnn.version, 91900);
  int all = 0;
  for (int i = 0; i < profile->sizes.n; i++) {
    const MeasuredSize *m = &profile->sizes.at[i];
    const Attention *common = attention_of(&m->attentions, "forward [1, 1]");
    assert_true(m->attentions.n > 3 && common && common->engine == 1 && !common->n_knobs && !common->workspace);
    for (int k = 0; k < m->attentions.n; k++) {
      const Attention *a = &m->attentions.at[k];
      const int64_t knobs[] = {14, 2, 24, 31};
      assert_ptr_equal(a, attention_of(&m->attentions, a->attention));
      assert_true(a == common || strstr(a->attention, format(" of %lld", (long long)m->microbatch)));
      assert_true(a == common ||
                  (a->engine == 5 && a->n_knobs == 2 && !memcmp(a->knobs, knobs, sizeof knobs) &&
                   a->workspace == 256 * m->microbatch && a->seconds == 1e-5 && a->own_seconds == 2e-5));
    }
    all += m->attentions.n;
  }
  const Workspaces *workspaces = profile_workspaces(profile);
  assert_int_equal(workspaces->n, all);
  assert_int_equal(workspaces->at[0].bytes, 256 * profile->sizes.at[0].microbatch);
  unlink(file);
}

/* A plan has its microbatch's attentions, and its file keeps them. */
static void plans_have_their_microbatchs_attentions(void **unused) {
  (void)unused;
  PlanRequest q;
  const char *file = profile_on_gpu(&q), *saved = format("%s.plan", path);
  const Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(plan && plan->attentions);
  const MeasuredSize *m = profile_at(read_on_gpu(file), plan->pipeline.microbatch);
  assert_int_equal(plan->attentions->of.n, m->attentions.n);
  assert_non_null(plan->target.workspaces);
  char *text = plan_json(graph, &pieces, plan);
  assert_null(strstr(text, "own_seconds"));
  assert_true(write_file(saved, text, strlen(text)));
  q.plan = saved;
  q.profile = NULL;
  const Plan *again = plan_make(graph, &pieces, &q, NULL, 0);
  assert_int_equal(again->attentions->of.n, m->attentions.n);
  assert_int_equal(again->target.workspaces->n, m->attentions.n); /* only this microbatch's */
  assert_int_equal(again->attentions->library.version, 91900);
  q.plan = NULL;
  const Plan *without = plan_make(graph, &pieces, &q, NULL, 0);
  assert_null(without->attentions);
  assert_null(without->target.workspaces);
  unlink(file);
  unlink(saved);
}

/* The text with one replacement; NULL: `from` is missing. */
static char *changed_text(const char *good, const char *from, const char *to) {
  const char *at = strstr(good, from);
  return at ? format("%.*s%s%s", (int)(at - good), good, to, at + strlen(from)) : NULL;
}

static void mistakes_in_algorithms_are_diagnosed(void **unused) {
  (void)unused;
  static const char *const edits[][2] = {
      {"\"id\": 66", "\"id\": -1"},
      {"\"id\": 66", "\"id\": 4294967295"},
      {"\"tile\"", "\"tiles\""},
      {"\"stages\": 35", "\"stages\": 3.5"},
      {"\"split_k\": 1", "\"split_k\": 0"},
      {"\"split_k\": 8, \"reduction\": 2", "\"split_k\": 8, \"reduction\": 1"},
      {"\"swizzle\": 1", "\"swizzle\": true"},
      {"\"custom\": 4294967295", "\"custom\": 4294967296"},
      {"\"inner_shape\": 0", "\"inner_shape\": \"\""},
      {"\"cluster_shape\": 65535", "\"cluster_shape\": 65536"},
      {"{ \"product\": ", "{ \"x\": 1, \"product\": "},
      {"\"version\": 130100", "\"version\": 0"},
      {"\"A \\\"GPU\\\" of theirs\"", "5"},
      {"\"f32 [1, 1] @ [1, 1]\"", "[]"},
      {"\"cublaslt\"", "\"cublas\""},
      {"\"cudnn\"", "\"cudn\""},
      {"\"version\": 91900", "\"version\": 9.19"},
      {"\"engine\": 5", "\"engine\": -5"},
      {"\"engine\": 5", "\"engine\": 2147483648"},
      {"\"engine\"", "\"motor\""},
      {"\"knobs\": [14, 2, 24, 31]", "\"knobs\": [14, 2, 24]"},
      {"\"knobs\": [14, 2, 24, 31]", "\"knobs\": [14, 2, 24, 0.5]"},
      {"\"knobs\": [14, 2, 24, 31]", "\"knobs\": [14, -2]"},
      {"\"knobs\": [14, 2, 24, 31]", "\"knobs\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"},
      {"\"knobs\": [14, 2, 24, 31]", "\"knobs\": 14"},
      {"\"workspace\": ", "\"workspace\": -"},
      {"\"workspace\": ", "\"workspace\": 999999"},
      {"\"forward [1, 1]\"", "1"},
  };
  PlanRequest q;
  const char *file = profile_on_gpu(&q), *good = read_file(file, NULL), *saved = format("%s.plan", path);
  const char *plan = plan_json(graph, &pieces, plan_make(graph, &pieces, &q, NULL, 0));
  q.plan = saved;
  q.profile = NULL;
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    const char *bad = changed_text(good, edits[i][0], edits[i][1]),
               *worse = changed_text(plan, edits[i][0], edits[i][1]);
    assert_true(bad && worse && write_file(file, bad, strlen(bad)) && write_file(saved, worse, strlen(worse)));
    int before = error_count();
    assert_null(read_on_gpu(file));
    assert_int_equal(error_count(), before + 1);
    assert_null(plan_make(graph, &pieces, &q, NULL, 0));
    assert_int_equal(error_count(), before + 2);
  }
  const char *first = strstr(plan, "\"product\": ") + strlen("\"product\": ");
  const char *twice =
      changed_text(plan, "\"f32 [1, 1] @ [1, 1]\"", format("%.*s", (int)strcspn(first, ","), first));
  assert_true(write_file(saved, twice, strlen(twice)));
  assert_null(plan_make(graph, &pieces, &q, NULL, 0));
  const char *negative = changed_text(good, "\"first_seconds\": ", "\"first_seconds\": -");
  assert_true(write_file(file, negative, strlen(negative)));
  assert_null(read_on_gpu(file));
  /* plans for processors have none */
  const char *other = changed_text(plan, "\"target\": \"cuda\"", "\"target\": \"c\"");
  assert_true(write_file(saved, other, strlen(other)));
  q.target = (Target){.backend = &backend_c, .threads = 1};
  int before = error_count();
  assert_null(plan_make(graph, &pieces, &q, NULL, 0));
  assert_int_equal(error_count(), before + 1);
  unlink(file);
  unlink(saved);
  diagnostics_flush();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_have_the_algorithms_that_were_measured),
      cmocka_unit_test(plans_have_their_microbatchs_algorithms),
      cmocka_unit_test(mistakes_in_algorithms_are_diagnosed),
      cmocka_unit_test(attentions_are_kept_as_they_were_measured),
      cmocka_unit_test(plans_have_their_microbatchs_attentions),
  };
  return cmocka_run_group_tests(tests, build, remove_file);
}
