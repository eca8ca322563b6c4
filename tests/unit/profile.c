/* Profiles: timed kernels to piece costs, the file and its errors, and planning with a profile. */
#include "profiles.h"

#include <math.h>

static const Target target = {.backend = &backend_c, .threads = 1};
static ProfileSignature now(void) { return profile_signature(graph, &pieces, target, "a compiler, version 1"); }

static const Profile *read_profile(void) {
  ProfileSignature s = now();
  return profile_read(path, &pieces, &s, false);
}

/* ---- the table -------------------------------------------------------------- */

/* Simulated best rates of the machine. */
typedef struct Best {
  double products, memory;
} Best;

static char *pretend_rates(void *context, const char *text) {
  const Best *best = context;
  int calls = 0;
  assert_non_null(strstr(text, "pd_memory_rate"));
  const char *printed = format("%sproducts %.17g\noperations %.17g\nmemory %.17g\n", pretend_kernels(&calls, text),
                               best->products, best->products, best->memory);
  return with_end(printed, text);
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

/* The first row of that name; false: none. */
static bool row_of(const char *table, const char *name, TableRow *r) {
  for (const char *line = table; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
    if (!strncmp(line, name, strlen(name)) && line[strlen(name)] == ' ')
      return sscanf(line + strlen(name), "%lf %lf %lf %% %lf %lf %% %lf", &r->calls, &r->ms, &r->share,
                    &r->allowed, &r->reached, &r->gap) == 6;
  return false;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-3 + 1e-4 * fabs(b); }

/* A product's operation count is as in mfu: six per parameter and token. */
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

/* An adamw update reads weights, gradients and both moments, and writes all but gradients. */
static void updates_are_allowed_their_bytes(void **unused) {
  (void)unused;
  const double weights = 6 * MODEL_WIDTH * MODEL_WIDTH + MODEL_CLASSES * MODEL_WIDTH;
  const char *table = table_of((Best){1e15, 1e6});
  TableRow update, norm;
  assert_true(row_of(table, "update", &update) && row_of(table, "norm", &norm));
  assert_true(near(update.allowed, 1e3 * 7 * 4 * weights / 1e6) && near(norm.allowed, 1e3 * 4 * weights / 1e6));
  assert_true(update.gap == 0 && near(update.ms, 1e3 * 3e-9 * weights));
}

/* Kinds account for all of a batch's time, and rows are sorted by gap. */
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

/* Equal blocks have equal costs: a middle block costs the same as its neighbour. */
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

static char *print_nonsense(void *context, const char *text) { return with_end(context, text); }

/* All of the output except the last `context` bytes. */
static char *print_cut_short(void *context, const char *text) {
  int calls = 0;
  char *all = pretend(&calls, text);
  all[strlen(all) - *(const size_t *)context] = 0;
  return all;
}

static char *print_of_bf16(void *context, const char *text) {
  return format("%send c bf16\n", pretend_kernels(context, text));
}

static void outputs_without_their_end_are_refused(void **unused) {
  (void)unused;
  PlanRequest q = request();
  int before = error_count(), calls = 0;
  for (size_t cut = 1; cut < 40; cut++)
    assert_false(profile_make(graph, &pieces, &q, "/tmp/never-written.json", print_cut_short, &cut, NULL));
  assert_false(profile_make(graph, &pieces, &q, "/tmp/never-written.json", print_of_bf16, &calls, NULL));
  assert_int_equal(error_count(), before + 40);
  diagnostics_flush();
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
  /* tanh dominates, and six of them split into three and three */
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

/* The good profile without the text from `from` to `to`. */
static const char *profile_without(const char *from, const char *to) {
  const char *good = read_file(path, NULL), *at = strstr(good, from), *next = at ? strstr(at, to) : NULL;
  assert_true(at && next);
  char *older = format("%.*s%s", (int)(at - good), good, next), *other = format("%s.older", path);
  assert_true(write_file(other, older, strlen(older)));
  return other;
}

/* The measured update includes the rule and the gradient's squares. With several weight versions, the rule writes
 * other memory than it reads; squares are summed even without clipping. Older profiles have only the rule or
 * neither; then updates are counted. */
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

/* On a GPU with offloading, the link is measured with the kernels, and plans use its rate; without a measurement,
 * the data sheet's. */
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
  assert_true(plan && strstr(plan->why, " GB/s in each direction"));
  q.profile = file;
  plan = plan_make(graph, &pieces, &q, NULL, 0);
  assert_true(plan && strstr(plan->why, "20.00 and 12.50 GB/s at the same time"));
  pretended = (Target){.threads = 1};
  unlink(file);
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
  s[3].compiler = intern(""); /* unknown: not compared */
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
      cmocka_unit_test(outputs_without_their_end_are_refused),
      cmocka_unit_test(plans_use_measured_costs),
      cmocka_unit_test(updates_cost_what_was_measured),
      cmocka_unit_test(the_link_is_measured),
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
