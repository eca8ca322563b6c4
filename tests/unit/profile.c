/* Profiles: from timed kernels to pieces, the file and its mistakes, and planning with it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model.h"
#include "measure/measure.h"

static Graph *graph;
static Pieces pieces;
static char *path;

static Target pretended = {.threads = 1};

/* Instead of a machine: any kernel of a microbatch of b takes b milliseconds, tanh ten times as long. */
static double pretended_seconds(const Kernel *k, int64_t b) {
  bool slow = false;
  for (int i = 0; i < k->terms.n; i++)
    slow |= k->terms.at[i].node && k->terms.at[i].node->op == &op_tanh;
  return (double)b * (slow ? 1e-2 : 1e-3);
}

/* On a GPU every call is a product, and an attention, of one size for each microbatch and kernel's name, but one that all
 * have. */
static void pretend_products(Text *t, const Kernel *k, int64_t b) {
  if (pretended.backend != &backend_cuda || k->kind != KERNEL_CALL)
    return;
  text_add(t, "algorithm 66 %lld 35 1 0 1 4294967295 0 65535 2e-05 3e-05 bf16 %s of %lld\n", (long long)b + 10,
           k->name, (long long)b);
  text_add(t, "algorithm 0 0 0 8 2 0 0 0 0 1e-05 1e-05 f32 [1, 1] @ [1, 1]\n");
  text_add(t, "attention 5 14,2,24,31 %lld 1e-05 2e-05 backward of %s of %lld\n", (long long)b * 256, k->name,
           (long long)b);
  text_add(t, "attention 1 - 0 3e-05 4e-05 forward [1, 1]\n");
}

static char *pretend(void *context, const char *text) {
  const int64_t sizes[] = {1, 2, 3, 4, 6, 12};
  int *calls = context;
  (*calls)++;
  assert_non_null(strstr(text, "main"));
  Text t = {0};
  if (pretended.backend == &backend_cuda)
    text_add(&t, "library 130100 A \"GPU\" of theirs\ncudnn 91900 A \"GPU\" of theirs\n");
  text_add(&t, "update 3e-9\napart 4e-9\nnorm 1e-9\nto_device 5e-11\nfrom_device 8e-11\nat_home 2e-11\n");
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    StageKernels *k = fuse(graph, &pieces, 0, pieces.n, 0, 1, sizes[i], false, false, pretended);
    for (int j = 0; j < k->forward.n + k->backward.n; j++) {
      const Kernel *kernel = j < k->forward.n ? &k->forward.at[j] : &k->backward.at[j - k->forward.n];
      text_add(&t, "%s %.9g\n", kernel->signature, pretended_seconds(kernel, sizes[i]));
      pretend_products(&t, kernel, sizes[i]);
    }
  }
  return t.at;
}

static PlanRequest request(void) {
  return (PlanRequest){
      .workers = 2, .recompute = RECOMPUTE_AUTO, .target = {.threads = 1}, .compiler = "a compiler, version 1"};
}

static int build(void **unused) {
  (void)unused;
  graph = model_build((ModelOptions){.blocks = 6, .tied = true, .batch = 12});
  pieces = cut(graph);
  path = format("/tmp/pdc-profile-%ld.json", (long)getpid());
  int calls = 0;
  PlanRequest q = request();
  bool made = profile_make(graph, &pieces, &q, path, pretend, &calls, NULL);
  return made && calls == 1 ? 0 : -1;
}

static int remove_file(void **unused) {
  (void)unused;
  return unlink(path);
}

static const Target target = {.backend = &backend_c, .threads = 1};
static ProfileSignature now(void) { return profile_signature(graph, &pieces, target, "a compiler, version 1"); }

static const Profile *read_profile(void) {
  ProfileSignature s = now();
  return profile_read(path, &pieces, &s, false);
}

/* ---- the table -------------------------------------------------------------- */

/* What the machine does at best, to pretend. */
typedef struct Best {
  double products, memory;
} Best;

static char *pretend_rates(void *context, const char *text) {
  const Best *best = context;
  int calls = 0;
  assert_non_null(strstr(text, "pd_memory_rate"));
  return format("%sproducts %.17g\noperations %.17g\nmemory %.17g\n", pretend(&calls, text), best->products,
                best->products, best->memory);
}

static char *table_of(Best best) {
  char *text = NULL;
  size_t n = 0;
  FILE *out = open_memstream(&text, &n);
  PlanRequest q = request();
  assert_true(profile_make(graph, &pieces, &q, "/dev/null", pretend_rates, &best, out));
  fclose(out);
  return text;
}

typedef struct TableRow {
  double calls, ms, share, allowed, reached, gap;
} TableRow;

/* The first row of that name; false: there is none. */
static bool row_of(const char *table, const char *name, TableRow *r) {
  for (const char *line = table; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
      return sscanf(line + strlen(name), "%lf %lf %lf %% %lf %lf %% %lf", &r->calls, &r->ms, &r->share,
                    &r->allowed, &r->reached, &r->gap) == 6;
  return false;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-3 + 1e-4 * fabs(b); }

/* Products count as mfu does: six operations a parameter and token. */
static void products_are_allowed_their_operations(void **unused) {
  (void)unused;
  const double tokens = 12 * MODEL_LENGTH, weights = 6 * MODEL_WIDTH * MODEL_WIDTH + MODEL_CLASSES * MODEL_WIDTH;
  const char *table = table_of((Best){1e6, 1e15});
  TableRow products, gradients;
  assert_true(row_of(table, "matmul", &products) && row_of(table, "weight_gradient", &gradients));
  assert_true(near(products.allowed + gradients.allowed, 1e3 * 6 * tokens * weights / 1e6));
  assert_true(near(gradients.allowed * 2, products.allowed));
  assert_true(near(products.reached, round(100 * products.allowed / products.ms)));
  assert_non_null(strstr(table, "bound by"));
}

/* An update by adamw reads weights, gradients and both moments, and writes all but gradients. */
static void updates_are_allowed_their_bytes(void **unused) {
  (void)unused;
  const double weights = 6 * MODEL_WIDTH * MODEL_WIDTH + MODEL_CLASSES * MODEL_WIDTH;
  const char *table = table_of((Best){1e15, 1e6});
  TableRow update, norm;
  assert_true(row_of(table, "update", &update) && row_of(table, "norm", &norm));
  assert_true(near(update.allowed, 1e3 * 7 * 4 * weights / 1e6) && near(norm.allowed, 1e3 * 4 * weights / 1e6));
  assert_true(update.gap == 0 && near(update.ms, 1e3 * 3e-9 * weights));
}

/* All of a batch's time is in the kinds, and the first rows have the largest gaps. */
static void rows_are_all_of_a_batch_by_their_gaps(void **unused) {
  (void)unused;
  const char *table = table_of((Best){1e12, 1e12}), *kinds = strstr(table, "kind "),
             *end = strstr(table, "kernel ");
  double batch, sum = 0, last = INFINITY;
  assert_int_equal(sscanf(strstr(table, ": ") + 2, "%lf", &batch), 1);
  for (const char *line = strchr(kinds, '\n') + 1; line < end && *line != '\n'; line = strchr(line, '\n') + 1) {
    TableRow r;
    char *name = format("%.*s", (int)strcspn(line, " "), line);
    assert_true(row_of(line, name, &r) && r.gap <= last);
    sum += r.ms;
    last = r.gap;
  }
  assert_true(batch > 0 && fabs(sum - batch) < 0.01);
}

/* ---- measuring ------------------------------------------------------------- */

static void every_kernel_counts_once(void **unused) {
  (void)unused;
  const Profile *profile = read_profile();
  assert_non_null(profile);
  assert_true(profile->sizes.n >= 2);
  for (int i = 0; i < profile->sizes.n; i++) {
    const MeasuredSize *m = &profile->sizes.at[i];
    StageKernels *k = fuse(graph, &pieces, 0, pieces.n, 0, 1, m->microbatch, false, false, (Target){.threads = 1});
    double forward = 0, backward = 0, of_pieces = 0, of_pieces_back = 0, listed = 0;
    for (int j = 0; j < k->forward.n; j++)
      forward += pretended_seconds(&k->forward.at[j], m->microbatch);
    for (int j = 0; j < k->backward.n; j++)
      backward += pretended_seconds(&k->backward.at[j], m->microbatch);
    for (int j = 0; j < pieces.n; j++) {
      of_pieces += m->forward[j];
      of_pieces_back += m->backward[j];
    }
    for (int j = 0; j < m->kernels.n; j++)
      listed += m->kernels.at[j].seconds * (double)m->kernels.at[j].count;
    assert_true(fabs(of_pieces - forward) <= 1e-6 * forward);
    assert_true(fabs(of_pieces_back - backward) <= 1e-6 * backward);
    assert_true(fabs(listed - forward - backward) <= 1e-6 * listed);
  }
}

/* Blocks are alike, so are their costs: a middle block costs what its neighbour does. */
static void equal_blocks_cost_the_same(void **unused) {
  (void)unused;
  const MeasuredSize *m = &read_profile()->sizes.at[0];
  int a = piece_find(&pieces, "h.2"), b = piece_find(&pieces, "h.3"), c = piece_find(&pieces, "h.4");
  assert_int_equal(b - a, c - b);
  for (int i = 0; i < b - a; i++) {
    assert_true(fabs(m->forward[a + i] - m->forward[b + i]) <= 1e-9);
    assert_true(fabs(m->backward[a + i] - m->backward[b + i]) <= 1e-9);
  }
}

static void a_program_that_fails_is_diagnosed(void **unused) {
  (void)unused;
  ProfileSignature s = now();
  PlanRequest q = request();
  int before = error_count();
  assert_null(profile_read("/no/such/file", &pieces, &s, false));
  int calls = 0;
  assert_false(profile_make(graph, &pieces, &q, "/no/such/folder/x.json", pretend, &calls, NULL));
  assert_int_equal(error_count(), before + 2);
  diagnostics_flush();
}

static char *print_nonsense(void *context, const char *text) {
  (void)text;
  return context;
}

static void nonsense_is_no_measurement(void **unused) {
  (void)unused;
  const char *const texts[] = {"",
                               "abc",
                               "abc \n",
                               "abc def\n",
                               "abc -1\n",
                               "abc nan\n",
                               " 1\n",
                               "only-one 0.5\n",
                               "algorithm 1 2 3 1 0 0 0 0 0 1e-5 1e-5 before any kernel\n",
                               "k 1\nalgorithm 1 2 3 1 0 0 0 0 0 1e-5 1e-5 of no library\n",
                               "k 1\nlibrary 1 x\nalgorithm 1 2 3 1 1 0 0 0 0 1e-5 1e-5 without an order\n",
                               "attention 1 - 0 1e-5 1e-5 before any kernel\n",
                               "k 1\nattention 1 - 0 1e-5 1e-5 of no library\n",
                               "k 1\ncudnn 1 x\nattention 1 24 0 1e-5 1e-5 half a knob\n",
                               "k 1\ncudnn 1 x\nattention 1 1,2,3,4,5,6,7,8,9,1 0 1e-5 1e-5 too many knobs\n",
                               "k 1\ncudnn 1 x\nattention 1 24,7 0 1e-5 -1e-5 no seconds\n",
                               "k 1\ncudnn 1 x\nattention 1 24,7 999999999 1e-5 1e-5 too much workspace\n",
                               "k 1\ncudnn 1 x\nattention 1 24,7 0 1e-5 1e-5 \n",
                               "k 1\nlibrary 1 x\nalgorithm 1 2 3 1 0 0 0 0 1e-5 1e-5 with a number too few\n",
                               "k 1\nlibrary 1 x\nalgorithm 1 2 3 1 0 0 0 0 0 1e-5 0 in no time\n",
                               "k 1\nlibrary 1 x\nalgorithm 1 2 3 1 0 0 0 0 0 1e-5 1e-5 \n",
                               "k 1\nlibrary x\n"};
  PlanRequest q = request();
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    int before = error_count();
    assert_false(
        profile_make(graph, &pieces, &q, "/tmp/never-written.json", print_nonsense, (void *)texts[i], NULL));
    assert_int_equal(error_count(), before + 1);
  }
  assert_int_not_equal(access("/tmp/never-written.json", F_OK), 0);
  diagnostics_flush();
}

/* ---- planning with it ------------------------------------------------------------- */

static void plans_use_measured_costs(void **unused) {
  (void)unused;
  PlanRequest q = request();
  q.profile = path;
  q.workers = 0;
  q.stages = 2;
  Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_non_null(plan);
  assert_non_null(strstr(plan->costs, path));
  const MeasuredSize *m = profile_at(read_profile(), plan->pipeline.microbatch);
  assert_non_null(m);
  double stage = 0, all = 0;
  for (int i = 0; i < pieces.n; i++) {
    stage += i < plan->stage[0].end_piece ? m->forward[i] : 0;
    all += m->forward[i] + m->backward[i];
  }
  assert_true(fabs(stage - plan->stage[0].forward_seconds) <= 1e-9);
  /* tanh outweighs everything, and there are six: three and three */
  double first = plan->stage[0].forward_seconds + plan->stage[0].backward_seconds;
  assert_true(fabs(first / all - 0.5) < 0.06);
}

static double update_seconds(const char *profile, const char *schedule) {
  PlanRequest q = request();
  q.profile = profile;
  q.schedule = schedule;
  q.workers = 0;
  q.stages = 1;
  Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_non_null(plan);
  return plan->stage[0].update_seconds / (double)stage_parameters(graph, &pieces, plan->stage);
}

/* The good profile with what stands from one text to the next left out. */
static const char *profile_without(const char *from, const char *to) {
  const char *good = read_file(path, NULL), *at = strstr(good, from), *next = at ? strstr(at, to) : NULL;
  assert_true(at && next);
  char *older = format("%.*s%s", (int)(at - good), good, next), *other = format("%s.older", path);
  assert_true(write_file(other, older, strlen(older)));
  return other;
}

/* The measured update is the rule's, which has other memory to write to where there are several versions of the weights,
 * and that of the gradient's squares, which are summed whether or not it is clipped. Older profiles have the rule alone, or
 * none, and are planned with counted updates. */
static void updates_cost_what_was_measured(void **unused) {
  (void)unused;
  assert_true(graph->train.clip_norm <= 0);
  assert_true(fabs(update_seconds(path, "flush") / 4e-9 - 1) < 1e-3);
  assert_true(fabs(update_seconds(path, "2bw") / 5e-9 - 1) < 1e-3);
  const char *older = profile_without("\"apart_ns\"", "\"norm_ns\"");
  assert_true(fabs(update_seconds(older, "2bw") / 4e-9 - 1) < 1e-3);
  older = profile_without("  \"update\"", "  \"microbatches\"");
  assert_true(update_seconds(older, "2bw") < 4e-9);
  unlink(older);
}

/* Measured with the kernels where a GPU's model spills, and what its plan moves blocks at: without it, the data sheet's. */
static void the_link_is_measured(void **unused) {
  (void)unused;
  const char *file = format("%s.link", path);
  PlanRequest q = request();
  int calls = 0;
  q.target = pretended = (Target){.backend = &backend_cuda, .threads = 1};
  q.workers = 1;
  assert_null(strstr(profile_program(graph, &pieces, &q), "pd_time_link();"));
  q.spill = "host";
  assert_non_null(strstr(profile_program(graph, &pieces, &q), "pd_time_link();"));
  assert_true(profile_make(graph, &pieces, &q, file, pretend, &calls, NULL));
  q.schedule = "spilled";
  q.split = "h[2],h[4]";
  Plan *plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(plan && strstr(plan->why, " GB/s each way"));
  q.profile = file;
  plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(plan && strstr(plan->why, "20.00 and 12.50 GB/s, both at once"));
  pretended = (Target){.threads = 1};
  unlink(file);
}

/* ---- algorithms of products, on GPUs -------------------------------------------------- */

static const Target on_gpu = {.backend = &backend_cuda, .threads = 1};

/* A profile for a GPU, with algorithms: its path. */
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

/* Each microbatch has those of its kernels, every product once, as they were printed; the file says the same. */
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

/* A plan has its microbatch's; its file keeps them whatever profile there is. */
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

/* A plan has its microbatch's, and its file keeps them. */
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
  assert_int_equal(again->target.workspaces->n, m->attentions.n); /* this microbatch's alone */
  assert_int_equal(again->attentions->library.version, 91900);
  q.plan = NULL;
  const Plan *without = plan_make(graph, &pieces, &q, NULL, 0);
  assert_null(without->attentions);
  assert_null(without->target.workspaces);
  unlink(file);
  unlink(saved);
}

/* Text of which one place is changed; NULL: the place is not there. */
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
  /* of processors no plan has them */
  const char *other = changed_text(plan, "\"target\": \"cuda\"", "\"target\": \"c\"");
  assert_true(write_file(saved, other, strlen(other)));
  q.target = target;
  int before = error_count();
  assert_null(plan_make(graph, &pieces, &q, NULL, 0));
  assert_int_equal(error_count(), before + 1);
  unlink(file);
  unlink(saved);
  diagnostics_flush();
}

/* Every kernel of both passes is a step of the size's pass, at places within the memory. */
static void passes_have_all_kernels(void **unused) {
  (void)unused;
  PlanRequest q = request();
  q.microbatch = 2;
  const char *text = profile_program(graph, &pieces, &q);
  StageKernels *k = fuse(graph, &pieces, 0, pieces.n, 0, 1, 2, false, false, (Target){.threads = 1});
  const char *from = strstr(text, "steps_0[] = {"), *end = strstr(from, "};");
  int steps = 0;
  for (const char *c = strchr(from, '\n'); c && c < end; c = strchr(c + 1, '\n'))
    steps++;
  assert_int_equal(steps, k->forward.n + k->backward.n + 1);
  const char *memory = strstr(text, "pd_map_arena(");
  long long bytes = atoll(memory + strlen("pd_map_arena("));
  const char *at = strstr(text, "places_0[] = {"), *places_end = strstr(at, "};");
  for (const char *c = strchr(at, '\n'); c < places_end;) {
    char *after;
    long long place = strtoll(c, &after, 10);
    assert_true(after == c || (place >= 0 && place < bytes));
    c = after + (after == c || *after);
  }
}

static void microbatches_that_were_not_measured_are_not_used(void **unused) {
  (void)unused;
  PlanRequest q = request();
  q.profile = path;
  q.stages = 13;
  q.target.threads = 1;
  int before = error_count();
  assert_null(
      plan_make(graph, &pieces, &q, NULL, 0)); /* 12 microbatches of 1, which is not among the four largest */
  assert_int_equal(error_count(), before + 1);
  diagnostics_flush();
}

/* ---- the file ------------------------------------------------------------- */

static void what_is_written_reads_back(void **unused) {
  (void)unused;
  const Profile *profile = read_profile();
  assert_non_null(profile);
  assert_string_equal(profile_write(profile, &pieces), read_file(path, NULL));
}

static void another_machine_is_refused(void **unused) {
  (void)unused;
  ProfileSignature s[6] = {now(), now(), now(), now(), now(), now()};
  s[0].model = intern("other");
  s[1].machine = intern("other");
  s[2].threads = 2;
  s[3].compiler = intern("other");
  s[4].library = intern("other");
  s[5].target = intern("cuda bf16");
  for (int i = 0; i < 6; i++) {
    int before = error_count();
    assert_null(profile_read(path, &pieces, &s[i], false));
    assert_int_equal(error_count(), before + 1);
  }
  s[3].compiler = intern(""); /* not known: not compared */
  assert_non_null(profile_read(path, &pieces, &s[3], false));
  diagnostics_flush();
}

static void another_model_has_another_signature(void **unused) {
  (void)unused;
  Graph *g = model_build((ModelOptions){.blocks = 5, .tied = true, .batch = 12});
  Pieces p = cut(g);
  assert_true(profile_signature(g, &p, target, NULL).model != now().model);
  g = model_build(
      (ModelOptions){.blocks = 6, .tied = true, .batch = 24, .clip = 1}); /* costs do not depend on these */
  p = cut(g);
  assert_true(profile_signature(g, &p, target, NULL).model == now().model);
}

static const Profile *read_changed(const char *text, size_t n) {
  char *other = format("%s.changed", path);
  FILE *f = fopen(other, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(text, 1, n, f), n);
  assert_int_equal(fclose(f), 0);
  ProfileSignature s = now();
  const Profile *profile = profile_read(other, &pieces, &s, false);
  unlink(other);
  return profile;
}

static void mistakes_are_diagnosed(void **unused) {
  (void)unused;
  const char *good = read_file(path, NULL);
  const char *const edits[][2] = {
      {"\"forward_ms\": ", "\"forward_ms\": -1"},
      {"\"backward_ms\": ", "\"backward_ms\": \"x\", \"y\": "},
      {"\"names\": [", "\"names\": [7, "},
      {"\"names\": [\"wte\"", "\"names\": [\"h.1\""},
      {"\"names\": [\"wte\"]", "\"names\": []"},
      {"\"microbatch\": ", "\"microbatch\": 0."},
      {"\"seconds\": ", "\"seconds\": -"},
      {"\"kernels\"", "\"kernel\""},
      {"\"count\": 1 }", "\"count\": \"1\" }"},
      {"\"count\": 1 }", "\"count\": 2 }"},
      {"\"forward_ms\": ", "\"forward_ms\": 9e15"},
      {"\"element_ns\": ", "\"element_ns\": -"},
      {"\"apart_ns\": ", "\"apart_ns\": -"},
      {"\"norm_ns\"", "\"norms\""},
      {"to_device_bytes_per_second\": ", "to_device_bytes_per_second\": -"},
      {"\"from_device", "\"off_device"},
      {"update_bytes_per_second\": ", "update_bytes_per_second\": -"},
      {"\"update_bytes", "\"write_bytes"},
      {"\"signature\": {", "\"signature\": [{"},
      {"\"microbatches\": [", "\"microbatches\": [], \"x\": ["},
  };
  for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
    const char *at = strstr(good, edits[i][0]);
    assert_non_null(at);
    char *bad = format("%.*s%s%s", (int)(at - good), good, edits[i][1], at + strlen(edits[i][0]));
    int before = error_count();
    assert_null(read_changed(bad, strlen(bad)));
    assert_true(error_count() > before);
  }
  diagnostics_flush();
}

static void no_text_does_harm(void **unused) {
  (void)unused;
  size_t n;
  const char *good = read_file(path, &n);
  unsigned seed = 11;
  for (int i = 0; i < 600; i++) {
    char *text = alloc_copy(good, n + 1);
    size_t length = i % 3 ? n : (size_t)rand_r(&seed) % n;
    for (int k = 0; k < i % 5; k++)
      text[(size_t)rand_r(&seed) % n] = (char)(rand_r(&seed) % 256);
    int before = error_count();
    if (!read_changed(text, length))
      assert_true(error_count() > before);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products_are_allowed_their_operations),
      cmocka_unit_test(updates_are_allowed_their_bytes),
      cmocka_unit_test(rows_are_all_of_a_batch_by_their_gaps),
      cmocka_unit_test(every_kernel_counts_once),
      cmocka_unit_test(equal_blocks_cost_the_same),
      cmocka_unit_test(a_program_that_fails_is_diagnosed),
      cmocka_unit_test(nonsense_is_no_measurement),
      cmocka_unit_test(plans_use_measured_costs),
      cmocka_unit_test(updates_cost_what_was_measured),
      cmocka_unit_test(the_link_is_measured),
      cmocka_unit_test(products_have_the_algorithms_that_were_measured),
      cmocka_unit_test(plans_have_their_microbatchs_algorithms),
      cmocka_unit_test(mistakes_in_algorithms_are_diagnosed),
      cmocka_unit_test(attentions_are_kept_as_they_were_measured),
      cmocka_unit_test(plans_have_their_microbatchs_attentions),
      cmocka_unit_test(passes_have_all_kernels),
      cmocka_unit_test(microbatches_that_were_not_measured_are_not_used),
      cmocka_unit_test(what_is_written_reads_back),
      cmocka_unit_test(another_machine_is_refused),
      cmocka_unit_test(another_model_has_another_signature),
      cmocka_unit_test(mistakes_are_diagnosed),
      cmocka_unit_test(no_text_does_harm),
  };
  return cmocka_run_group_tests(tests, build, remove_file);
}
