/* Start and end of a run, with the checks that all ranks make together. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "generate/generate.h"
#include "messages/messages.h"
#include "run/launcher.h"
#include "shared/openmp.h"
#include "sharp/turn.h"
#include "train/train.h"
#include "transfer.h"
#include "update/update.h"
#include "watch/watch.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double started;

/* Ends the launch without memory, because cJSON would silently drop members. */
static void *json_memory(size_t bytes) {
  void *p = malloc(bytes);
  if (!p) pd_fail("out of memory: cannot get %zu bytes", bytes);
  return p;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The rank for messages before MPI is open (pd_comm_open): from the launcher's environment, else the stage's first
 * rank. */
static int launched_rank(void) {
  const char *number = pd_launched_as();
  return number ? atoi(number) : pd_rank_of(pd.stage->stage, 0);
}

static void start_mpi(int *argc, char ***argv) {
  pd_watch_begin("for all ranks to start");
  pd_mpi_start(argc, argv);
  pd_comm_open(pd.stage->stage);
  pd_watch_end();
  pd_catch_bus_errors();
}

/* Values that must be equal on all ranks; one record per rank is gathered. */
struct same {
  char plan[128];
  int64_t steps, validate_every, checkpoint_every, crop, resize, pad, document_end, audit;
  double resized_crop, color;
  uint64_t seed, names; /* names: hash of texts and patterns */
  int32_t stage, flags;
  int32_t offloads; /* whether the stage offloads */
};

/* FNV-1a, 64 bits, of texts and their ends. */
static uint64_t hash_texts(uint64_t h, char *const *texts, int n) {
  for (int i = 0; i < n; i++)
    for (const char *c = texts[i];; c++) {
      h = (h ^ (unsigned char)*c) * 0x100000001b3u;
      if (!*c) break;
    }
  return h;
}

static struct same *gather_same(const struct pd_stage *s, const struct pd_options *o) {
  struct same mine = {.steps = o->steps,
                      .validate_every = o->validate_every,
                      .checkpoint_every = o->checkpoint_every,
                      .crop = o->augment.crop,
                      .resize = o->resize,
                      .resized_crop = o->augment.resized_crop,
                      .color = o->augment.color,
                      .audit = o->audit,
                      .pad = o->pad,
                      .document_end = o->documents.joined ? -1 : o->documents.end,
                      .seed = o->seed,
                      .names = hash_texts(hash_texts(o->n_rename, o->rename, o->n_rename), o->init_partial,
                                          o->n_init_partial),
                      .stage = s->stage,
                      .offloads = s->spilled != NULL};
  if (o->save_only) mine.names = hash_texts(mine.names, (char *[]){(char *)o->save_only}, 1);
  if (o->stop_when) mine.names = hash_texts(mine.names, (char *[]){(char *)o->stop_when}, 1);
  mine.flags = o->evaluate << 12 | (o->n_data > 0) | (o->n_validation > 0) << 1 | (o->n_init > 0) << 2 |
               (o->save || o->save_raw) << 3 | o->emulate << 4 | (o->peak > 0) << 5 |
               (o->checkpoint != NULL) << 6 | o->resume << 7 | (o->trace != NULL) << 8 | o->augment.flip << 9 |
               (o->comm && !strcmp(o->comm, "nccl")) << 10 | (o->comm && !strcmp(o->comm, "mpi")) << 11 |
               o->token_bytes << 13 | o->check_messages << 16 | o->resume_or_start << 17 | o->resume_anyway << 18 |
               o->checkpoint_optional << 19 | (o->comm && !strcmp(o->comm, "shared")) << 20 |
               (o->comm != NULL) << 21 | o->skip_broken << 22 | o->in_file_order << 23;
  snprintf(mine.plan, sizeof mine.plan, "%s", s->plan_hash);
  struct same *all = pd_allocate(sizeof *all * (size_t)pd.everyone);
  MPI_Request request;
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to exchange their plans", -1, NULL, -1);
  return all;
}

static bool check_launch(const struct same *all, char *why) {
  int planned = pd_planned_ranks() * pd_tensor_degree();
  if (pd.everyone != planned)
    return pd_refuse(why, "launched with %d rank%s, but the plan has %d. help: use mpirun -n %d", pd.everyone,
                     pd.everyone == 1 ? "" : "s", planned, planned);
  bool ok = true;
  for (int r = 0; r < pd.everyone && ok; r++) {
    if (strcmp(all[r].plan, all[0].plan))
      ok = pd_refuse(
          why,
          "the plan of rank %d (%.12s) differs from the plan of rank 0 (%.12s). help: build again and launch "
          "every rank from the same directory",
          r, all[r].plan, all[0].plan);
    else if (all[r].stage != pd_stage_of(r / pd_tensor_degree()))
      ok = pd_refuse(
          why,
          "rank %d runs the program of stage %d, not of stage %d. help: launch every rank with the build "
          "directory's '%s'",
          r, all[r].stage, pd_stage_of(r / pd_tensor_degree()), pd.stage->inference ? "infer" : "train");
    else if (all[r].steps != all[0].steps || all[r].validate_every != all[0].validate_every ||
             all[r].checkpoint_every != all[0].checkpoint_every || all[r].seed != all[0].seed ||
             all[r].names != all[0].names || all[r].flags != all[0].flags || all[r].crop != all[0].crop ||
             all[r].pad != all[0].pad || all[r].document_end != all[0].document_end ||
             all[r].audit != all[0].audit || all[r].resize != all[0].resize ||
             all[r].resized_crop != all[0].resized_crop || all[r].color != all[0].color)
      ok = pd_refuse(
          why,
          "the options of rank %d differ from the options of rank 0. help: launch all ranks with the same options",
          r);
  }
  return ok;
}

static bool check_evaluation(const struct pd_stage *s, struct pd_options *o, char *why) {
  o->steps = 0;
  if (!o->n_data) return pd_refuse(why, "--data PATH is missing");
  if (!pd_predict_options(why)) return false;
  if (!s->n_figures && !o->n_predict && !o->emulate)
    return pd_refuse(why, "the model has no loss to evaluate. help: write its outputs with --predict");
  if (!o->n_init && !o->resume && !o->emulate)
    return pd_refuse(why, "--init FILE is missing: there are no weights to evaluate");
  return true;
}

static bool check_options(const struct pd_stage *s, struct pd_options *o, char *why) {
  if (s->generation) return pd_generation_check(o, why);
  if (pd_only_evaluates()) return check_evaluation(s, o, why);
  if (o->steps < 0 && s->lr_total > 0) o->steps = s->lr_total;
  if (o->steps < 0)
    return pd_refuse(why, "--steps N is missing: the model's learning rate schedule has no length");
  if (o->steps > INT64_MAX / 4 / s->batch)
    return pd_refuse(why, "--steps %lld of %lld samples exceeds the largest sample count", (long long)o->steps,
                     (long long)s->batch);
  if (o->steps > 0 && !o->n_data && !o->emulate) return pd_refuse(why, "--data PATH is missing");
  return pd_stop_check(why);
}

static void copy_file(const char *from, const char *to) {
  char why[PD_WHY];
  if (!pd_copy_file(from, to, why)) pd_fail("%s", why);
}

/* Copies the plan, whose path the launcher passes in PD_PLAN, and the model's picture next to it, if any, to
 * --run's directory. */
static void keep_plan(void) {
  const char *from = getenv("PD_PLAN");
  if (pd.self || !pd_options.plan) return;
  if (!from) {
    pd_note("PD_PLAN is not set: the plan is not copied to '%s'", pd_options.run);
    return;
  }
  copy_file(from, pd_options.plan);
  const char *slash = strrchr(from, '/'), *name = "model.svg";
  char *picture = pd_allocate((size_t)(slash ? slash + 1 - from : 0) + strlen(name) + 1);
  sprintf(picture, "%.*s%s", slash ? (int)(slash + 1 - from) : 0, from, name);
  if (access(picture, F_OK) == 0) copy_file(picture, pd_options.picture);
  free(picture);
}

static void start_weights(void) {
  const struct pd_stage *s = pd.stage;
  pd_clear_padding();
  if (pd_options.resume && pd_resume()) return;
  if (pd_options.n_init) {
    pd_load_weights();
    return;
  }
  if (s->inference) return; /* --emulate */
  for (int i = 0; i < s->n_parameters; i++) pd_start_fresh(&s->parameters[i]);
}

static void finish_mpi(void) {
  pd_watch_begin("for all ranks to end");
  pd_mpi_finish();
  pd_watch_end();
}

static double total_peak(void) {
  double mine = 0, sum = pd_options.peak;
  if (sum > 0 || pd_options.emulate || !pd.steps) return sum;
  mine = pd_measure_peak();
  MPI_Request request;
  MPI_Iallreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to measure their peak", -1, NULL, -1);
  return sum;
}

/* Reads the options and connects the ranks. */
static void start_rank(int argc, char **argv) {
  char why[PD_WHY] = "";
  pd.rank = pd.self = launched_rank();
  pd_parse_options(&pd_options, argc, argv, why);
  pd_signals_prepare();
  pd_end_with_launcher(pd_leave_nothing);
  cJSON_InitHooks(&(cJSON_Hooks){json_memory, free});
  pd_device_prepare();
  start_mpi(&argc, &argv);
  pd.replica = pd.rank - pd_rank_of(pd.stage->stage, 0);
  pd_agree(why);
  if (pd_openmp_ignored && !pd_openmp_is_blank(pd_openmp_ignored))
    pd_warn("%s is not a number of threads and is ignored", pd_openmp_ignored);
}

static void end_with_help(void) {
  if (!pd.self) pd_print_usage(pd.stage);
  if (fflush(stdout) || ferror(stdout)) pd_fail("cannot write to standard output: %s", strerror(errno));
  finish_mpi();
  exit(0);
}

/* Ends the launch unless the options are good and equal on all ranks. Returns whether any rank offloads. */
static bool check_ranks(void) {
  char why[PD_WHY] = "";
  const bool complete = check_options(pd.stage, &pd_options, why);
  struct same *all = gather_same(pd.stage, &pd_options);
  bool offloads = false;
  if (complete) check_launch(all, why);
  for (int r = 0; r < pd.everyone; r++) offloads |= all[r].offloads;
  pd_agree(why);
  free(all);
  return offloads;
}

static void take_options(struct pd_options *o) {
  if (pd.tensor_rank) o->trace = o->log = o->tensorboard = NULL; /* the first pipeline's */
  o->quiet |= pd.tensor_rank != 0;
  pd.steps = o->steps;
  pd.seed = o->seed;
  pd.emulate = o->emulate;
}

/* Opens device, data and transports. */
static void start_devices(void) {
  char why[PD_WHY] = "";
  const bool generates = pd.stage->generation;
  if (pd_device_start(why)) (generates ? pd_generation_read : pd_data_start)(why);
  pd_agree(why);
  pd_transfers_start(why);
  pd_agree(why);
  if (generates) {
    pd_generation_share();
  } else {
    pd_agree_on_files(0);
    pd_agree_on_folder();
  }
}

static void start_outputs(void) {
  char why[PD_WHY] = "";
  pd_outputs_check(why);
  pd_agree(why);
  pd_save_start(why);
  pd_agree(why);
  pd_checkpoint_start(why);
  pd_agree(why);
}

void pd_start(const struct pd_stage *stage, int argc, char **argv) {
  pd = (struct pd_run){.stage = stage, .training = true};
  start_rank(argc, argv);
  if (pd_options.help) end_with_help();
  const bool offloads = check_ranks();
  take_options(&pd_options);
  pd_sharp_enter();
  if (pd_options.spill && !offloads) pd_warn("--spill has no effect: the parameters of all ranks are resident");
  start_devices();
  start_weights();
  if (pd_only_evaluates()) pd.steps = pd.first_step;
  pd.evaluate = pd_evaluation_data && pd.first_step >= pd.steps;
  start_outputs();
  pd_twice_start();
  if (!stage->inference) pd_optimizer_start();
  keep_plan();
  pd_predict_start();
  double peak = total_peak();
  pd_log_start(peak);
  pd_train_start();
  pd_comm_start();
  pd_memory_sample();
  pd_trace_start();
  pd_signals_start();
  started = pd_seconds();
}

/* Writes --save's files of a completed training, and audits the weights before and after. */
static void save_weights(void) {
  if (pd_stopped_by()) return;
  pd_audit_verify(pd_updates.done);
  if (pd_options.save) pd_save_weights(pd_options.save, false);
  if (pd_options.save_raw) pd_save_weights(pd_options.save_raw, true);
  if (pd_options.save || pd_options.save_raw) pd_audit_verify(pd_updates.done);
}

/* The exit status: 0, or the status of a training that a signal stopped. */
static int say_how_it_ends(void) {
  enum {
    TRY_AGAIN = 75,
    SIGNALLED = 128
  }; /* EX_TEMPFAIL of sysexits.h: --resume can continue; the shell's status of a signal */
  if (!pd_stopped_by()) return 0;
  if (!pd.self && pd_options.checkpoint)
    fprintf(
        stderr,
        "pd: rank 0 (stage 0): %s: stopped after update %lld of %lld with a checkpoint in '%s'. help: continue "
        "with --resume\n",
        pd_stopped_by_name(), (long long)pd.steps, (long long)pd_options.steps, pd_options.checkpoint);
  else if (!pd.self)
    fprintf(
        stderr,
        "pd: rank 0 (stage 0): %s: stopped after update %lld of %lld without a checkpoint: --checkpoint DIR was "
        "not given\n",
        pd_stopped_by_name(), (long long)pd.steps, (long long)pd_options.steps);
  return pd_options.checkpoint ? TRY_AGAIN : SIGNALLED + pd_stopped_by();
}

static struct pd_rank_end rank_end(void) {
  struct pd_rank_end end = {.peak_bytes = pd_memory_peak(),
                            .broken_images = pd_tell_broken(),
                            .image_seconds = pd_ahead_seconds(),
                            .data_seconds = pd_data_seconds()};
  struct pd_device_count counts[PD_DEVICE_COUNTS];
  for (int i = 0, n = pd_device_counts(counts); i < n; i++) end.counts[i] = counts[i].n;
  return end;
}

int pd_finish(void) {
  double seconds = pd_seconds() - started;
  pd_train_catch_up();
  pd_ahead_finish();
  pd_read_ahead_finish();
  pd_checkpoint_finish();
  pd_optimizer_shards_finish();
  pd_comm_finish();
  pd_predict_finish();
  save_weights();
  pd_memory_sample();
  struct pd_rank_end mine = rank_end(), *all = pd_allocate(sizeof *all * (size_t)pd.ranks);
  MPI_Request request;
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to finish", -1, NULL, -1);
  pd_signals_finish();
  pd_log_finish(all, seconds);
  pd_trace_finish();
  free(all);
  pd_unlock_all();
  pd_device_finish();
  int status = say_how_it_ends();
  finish_mpi();
  return status;
}
