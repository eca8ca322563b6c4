/* The log (JSON lines) and the progress on the terminal, both by rank 0. */
#define _GNU_SOURCE
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "messages/messages.h"
#include "sharp/turn.h"
#include "train/train.h"
#include "watch/watch.h"
#include "transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
  FILE *log_file;
  double peak;          /* operations per second of all ranks; 0: unknown */
  bool in_place;        /* progress rewrites one line */
  bool line_open;       /* the progress line has no newline yet */
  double last_progress; /* time of the last line without rewriting */
  double seconds_spent; /* spent in steps_spent updates */
  int64_t steps_spent;
} logging;

static void line(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void line(const char *format, ...) {
  if (!logging.log_file) return;
  va_list args;
  va_start(args, format);
  vfprintf(logging.log_file, format, args);
  va_end(args);
  bool whole = format[strlen(format) - 1] == '\n'; /* concurrent readers get whole lines */
  if (whole && fflush(logging.log_file)) pd_fail("cannot write log '%s': %s", pd_options.log, strerror(errno));
}

/* Opens the log to append. Follows symbolic links of this user or root only: another user's link could lead to any
 * file of this user. */
static int open_log(const char *path) {
  /* Opening a FIFO would wait for a reader. */
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  struct stat st;
  int fd = open(path, flags | O_NOFOLLOW, 0666);
  if (fd >= 0 || errno != ELOOP || lstat(path, &st)) return fd;
  if (st.st_uid == geteuid() || !st.st_uid) return open(path, flags, 0666);
  errno = EPERM;
  return -1;
}

bool pd_log_open(char *why) {
  if (pd.self || !pd_options.log) return true;
  int fd = open_log(pd_options.log);
  if (fd < 0 && errno == ENXIO)
    return pd_refuse(why, "cannot write log '%s': it is a FIFO or a socket without a reader", pd_options.log);
  if (fd >= 0 && !fcntl(fd, F_SETFL, O_APPEND)) logging.log_file = fdopen(fd, "a");
  return logging.log_file || pd_refuse(why, "cannot write log '%s': %s", pd_options.log, strerror(errno));
}

/* mpirun always gives ranks a pseudo-terminal, so the parent's output decides. */
static bool output_is_terminal(void) {
  char link[64], target[64] = "";
  snprintf(link, sizeof link, "/proc/%d/fd/1", (int)getppid());
  if (readlink(link, target, sizeof target - 1) < 0) return false;
  return isatty(STDOUT_FILENO) && (!strncmp(target, "/dev/pts/", 9) || !strncmp(target, "/dev/tty", 8));
}

static void line_array(const char *name, const int64_t *at) {
  line(",\"%s\":[", name);
  for (int r = 0; r < pd.ranks; r++) line("%s%lld", r ? "," : "", (long long)at[r]);
  line("]");
}

/* Bytes of the arena and, if both are in host memory, of the copies for --checkpoint-background and --audit. */
static int64_t planned_peak(int rank) {
  int64_t bytes = pd.stage->planned_peak_bytes[rank];
  if (pd_checkpoint_copies && !pd_device_name()) bytes += pd_checkpoint_copies[rank];
  if (pd_twice_bytes()) bytes += pd_twice_bytes()[rank];
  return bytes;
}

static void line_planned(void) {
  line(",\"planned_peak_bytes\":[");
  for (int r = 0; r < pd.ranks; r++) line("%s%lld", r ? "," : "", (long long)planned_peak(r));
  line("]");
}

/* " of 2, 1 replicas" where a stage has several. */
static const char *replicas_text(void) {
  static char text[256];
  size_t n = (size_t)snprintf(text, sizeof text, " of");
  for (int i = 0; i < pd.stage->n_stages && n < sizeof text; i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "%s %d", i ? "," : "", pd.stage->replicas[i]);
  if (n < sizeof text) snprintf(text + n, sizeof text - n, " replicas");
  return pd.ranks > pd.stage->n_stages ? text : "";
}

/* Truncates the log; a resumed run removes only an incomplete last line, as after a full disk. */
static bool cut_log(void) {
  struct stat st;
  if (!logging.log_file || fstat(fileno(logging.log_file), &st) || !S_ISREG(st.st_mode)) return true;
  off_t end = pd.first_step ? st.st_size : 0;
  int fd = end ? open(pd_options.log, O_RDONLY | O_CLOEXEC) : -1;
  for (char last = 0; fd >= 0 && end && pread(fd, &last, 1, end - 1) == 1 && last != '\n';) end--;
  if (fd >= 0) close(fd);
  return !ftruncate(fileno(logging.log_file), end);
}

static const struct pd_dataset *own_data(void) {
  return pd_only_evaluates() ? pd_evaluation_data : pd_training_data;
}

static const struct pd_images *own_images(void) { return own_data() ? pd_dataset_folder(own_data()) : NULL; }

/* The classes' names, in the order of their numbers. */
static void line_sources(void) {
  char *text = pd_sources_text(pd_training_data);
  if (text) line(",\"sources\":%s", text);
  free(text);
}

static void line_classes(void) {
  char *text = own_data() ? pd_classes_text(own_data()) : NULL;
  if (text) line(",\"classes\":%s", text);
  free(text);
}

void pd_log_start(double all_ranks_peak) {
  const struct pd_stage *s = pd.stage;
  logging.peak = all_ranks_peak;
  if (pd.self) return;
  logging.in_place = output_is_terminal();
  if (!cut_log()) pd_fail("cannot write log '%s': %s", pd_options.log, strerror(errno));
  line("{\"event\":\"start\",\"plan\":\"sha256:%s\",\"model\":\"%s\",\"stages\":%d,\"replicas\":[", s->plan_hash,
       s->model, s->n_stages);
  for (int i = 0; i < s->n_stages; i++) line("%s%d", i ? "," : "", s->replicas[i]);
  line("],\"schedule\":\"%s\",\"batch\":%lld,\"microbatch\":%lld,\"microbatches\":%lld,\"parameters\":%lld,"
       "\"threads\":%d,\"seed\":%llu",
       s->schedule, (long long)s->batch, (long long)s->microbatch, (long long)s->microbatches,
       (long long)s->model_parameters, pd_device_threads(), (unsigned long long)pd.seed);
  if (pd_device_name()) line(",\"device\":\"%s\"", pd_device_name());
  const struct pd_binding *binding = pd_device_binding();
  if (binding) line(",\"processors\":\"%s\",\"bound_by\":\"%s\"", binding->processors, binding->by);
  if (pd_messages_travel()) line(",\"messages\":\"%s\"", pd_messages_travel());
  if (logging.peak > 0)
    line(",\"peak_flops\":%.4g,\"peak_source\":\"%s\"", logging.peak, pd_options.peak > 0 ? "given" : "measured");
  if (pd.first_step) line(",\"first_step\":%lld", (long long)pd.first_step);
  if (own_data()) line(",\"samples\":%lld", (long long)pd_dataset_samples(own_data()));
  line_sources();
  line_classes();
  line_planned();
  if (pd_checkpoint_copies) line_array("checkpoint_copy_bytes", pd_checkpoint_copies);
  if (pd_twice_bytes()) line_array("audit_copy_bytes", pd_twice_bytes());
  line("}\n");
  if (pd_training_data && !pd_options.quiet) {
    printf("%s: %lld parameters, %d stage%s%s, %s, batch %lld = %lld microbatch%s of %lld, %lld samples\n",
           s->model, (long long)s->model_parameters, s->n_stages, s->n_stages == 1 ? "" : "s", replicas_text(),
           s->schedule, (long long)s->batch, (long long)s->microbatches, s->microbatches == 1 ? "" : "es",
           (long long)s->microbatch, (long long)pd_dataset_samples(pd_training_data));
    fflush(stdout);
  }
  pd_tensorboard_start(pd.first_step + 1);
  logging.last_progress = pd_seconds();
}

/* ---- figures --------------------------------------------------------------------------------- */

double pd_model_loss(const double *mean) {
  double loss = 0;
  for (int i = 0; i < pd.stage->n_losses; i++) loss += mean[i];
  return loss;
}

double pd_metric_value(int figure, const double *mean) {
  const struct pd_figure *f = &pd.stage->figures[figure];
  return f->of_mean ? f->of_mean(mean[figure]) : mean[figure];
}

/* JSON has no non-finite numbers. */
static void metric_fields(const char *prefix, const double *mean) {
  for (int i = pd.stage->n_losses; i < pd.stage->n_figures; i++) {
    double x = pd_metric_value(i, mean);
    pd_tensorboard_scalar(prefix, pd.stage->figures[i].metric, x);
    line(",\"%s%s\":", prefix, pd.stage->figures[i].metric);
    if (isfinite(x))
      line("%.9g", x);
    else
      line("null");
  }
}

/* "loss 2.3026  accuracy 0.1250": the first metrics for the terminal; the log has all. */
static void print_figures(const double *mean, int metrics) {
  int first = pd.stage->n_losses;
  if (first) printf("loss %.4f", pd_model_loss(mean));
  for (int i = first; i < pd.stage->n_figures && i < first + metrics; i++)
    printf("%s%s %.4f", i ? "  " : "", pd.stage->figures[i].metric, pd_metric_value(i, mean));
}

/* ---- progress -------------------------------------------------------------------------------- */

static void close_line(void) {
  if (logging.line_open) putchar('\n');
  logging.line_open = false;
}

static void progress(int64_t t, const double *mean, double lr) {
  enum { PLAIN_SECONDS = 5 };
  double now = pd_seconds(), since = now - logging.last_progress;
  bool last = t + 1 == pd.steps,
       due = last || t == pd.first_step || since > (logging.in_place ? 0.1 : PLAIN_SECONDS);
  if (pd_options.quiet || !due) return;
  logging.last_progress = now;
  const struct pd_stage *s = pd.stage;
  double rate = logging.seconds_spent > 0 ? (double)(logging.steps_spent * s->batch) / logging.seconds_spent : 0;
  int left = rate > 0 ? (int)((double)((pd.steps - t - 1) * s->batch) / rate) : 0;
  printf("%sstep %lld/%lld  ", logging.in_place ? "\r" : "", (long long)(t + 1), (long long)pd.steps);
  print_figures(mean, 1);
  printf("  lr %.3g", lr);
  if (s->tokens_per_sample)
    printf("  %.0f tokens/s", rate * (double)s->tokens_per_sample);
  else
    printf("  %.4g samples/s", rate);
  if (logging.peak > 0) printf("  mfu %.3f", rate * s->flops_per_sample / logging.peak);
  printf("  %d:%02d left%s", left / 60, left % 60, logging.in_place ? "\033[K" : "\n");
  logging.line_open = logging.in_place;
  if (last) close_line();
  fflush(stdout);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* TensorBoard's event of an update, whose metrics are already added. */
static void update_scalars(int64_t t, const double *mean, double norm, double lr, double rate, double seconds) {
  const struct pd_stage *s = pd.stage;
  pd_tensorboard_scalar("", "loss", pd_model_loss(mean));
  pd_tensorboard_scalar("", "grad_norm", norm);
  pd_tensorboard_scalar("", "lr", lr);
  pd_tensorboard_scalar("", "samples_per_s", rate);
  if (s->tokens_per_sample) pd_tensorboard_scalar("", "tokens_per_s", rate * (double)s->tokens_per_sample);
  pd_tensorboard_scalar("", "ms", seconds * 1e3);
  if (logging.peak > 0) pd_tensorboard_scalar("", "mfu", rate * s->flops_per_sample / logging.peak);
  pd_tensorboard_write(t + 1);
}

void pd_log_update(int64_t t, const double *mean, double norm, double lr, double seconds) {
  const struct pd_stage *s = pd.stage;
  if (pd.self) return;
  pd_sharp_tell(t + 1, false, pd_model_loss(mean));
  double rate = seconds > 0 ? (double)s->batch / seconds : 0;
  line("{\"step\":%lld,\"loss\":%.9g", (long long)(t + 1), pd_model_loss(mean));
  metric_fields("", mean);
  line(",\"grad_norm\":%.9g,\"lr\":%.9g,\"samples_per_s\":%.4g", norm, lr, rate);
  if (s->tokens_per_sample) line(",\"tokens_per_s\":%.0f", rate * (double)s->tokens_per_sample);
  line(",\"ms\":%.3f", seconds * 1e3);
  if (logging.peak > 0) line(",\"mfu\":%.4g", rate * s->flops_per_sample / logging.peak);
  update_scalars(t, mean, norm, lr, rate, seconds);
  line("}\n");
  logging.seconds_spent += seconds;
  logging.steps_spent++;
  progress(t, mean, lr);
}

void pd_log_validation(int64_t t, const double *mean, int64_t samples, double seconds) {
  if (pd.self) return;
  pd_sharp_tell(t + 1, true, pd_model_loss(mean));
  line("{\"step\":%lld,\"validation_loss\":%.9g", (long long)(t + 1), pd_model_loss(mean));
  metric_fields("validation_", mean);
  pd_tensorboard_scalar("validation_", "loss", pd_model_loss(mean));
  pd_tensorboard_write(t + 1);
  line(",\"samples\":%lld,\"ms\":%.3f}\n", (long long)samples, seconds * 1e3);
  if (pd_options.quiet) return;
  close_line();
  printf("step %lld/%lld  validation ", (long long)(t + 1), (long long)pd.steps);
  print_figures(mean, 1);
  printf(" over %lld samples\n", (long long)samples);
  fflush(stdout);
}

void pd_log_prediction(const struct pd_prediction *p, int64_t samples, const char *path) {
  line("{\"event\":\"prediction\",\"output\":\"%s\",\"samples\":%lld}\n", p->name, (long long)samples);
  if (pd_options.quiet) return;
  printf("%s: %lld rows of %lld in %s\n", p->name, (long long)samples, (long long)p->elements, path);
  fflush(stdout);
}

void pd_log_evaluation(const double *mean, int64_t samples, double seconds) {
  const struct pd_stage *s = pd.stage;
  if (pd.self) return;
  double rate = seconds > 0 ? (double)samples / seconds : 0;
  line("{\"event\":\"evaluation\"");
  if (s->n_losses) line(",\"loss\":%.9g", pd_model_loss(mean));
  metric_fields("", mean);
  line(",\"samples\":%lld,\"samples_per_s\":%.4g", (long long)samples, rate);
  if (s->tokens_per_sample) line(",\"tokens_per_s\":%.0f", rate * (double)s->tokens_per_sample);
  line(",\"ms\":%.3f}\n", seconds * 1e3);
  if (pd_options.quiet) return;
  print_figures(mean, s->n_figures);
  printf(" over %lld samples", (long long)samples);
  if (s->tokens_per_sample)
    printf(", %.0f tokens/s\n", rate * (double)s->tokens_per_sample);
  else
    printf(", %.4g samples/s\n", rate);
  fflush(stdout);
}

static void line_images(const struct pd_rank_end *of_rank) {
  line(",\"image_seconds\":[");
  for (int r = 0; r < pd.ranks; r++) line("%s%.3f", r ? "," : "", of_rank[r].image_seconds);
  line("]");
  if (!pd_options.skip_broken) return;
  line(",\"skipped_images\":[");
  for (int r = 0; r < pd.ranks; r++) line("%s%lld", r ? "," : "", (long long)of_rank[r].broken_images);
  line("]");
}

static void line_streams(const struct pd_rank_end *of_rank) {
  line(",\"data_seconds\":[");
  for (int r = 0; r < pd.ranks; r++) line("%s%.3f", r ? "," : "", of_rank[r].data_seconds);
  line("]");
}

static void line_ends(const struct pd_rank_end *of_rank) {
  struct pd_device_count counts[PD_DEVICE_COUNTS];
  int n = pd_device_counts(counts);
  line(",\"peak_bytes\":[");
  for (int r = 0; r < pd.ranks; r++) line("%s%lld", r ? "," : "", (long long)of_rank[r].peak_bytes);
  line("]");
  line_planned();
  if (own_images()) line_images(of_rank);
  if (pd_training_data && pd_dataset_streams(pd_training_data)) line_streams(of_rank);
  for (int i = 0; i < n; i++) {
    line(",\"%s\":[", counts[i].name);
    for (int r = 0; r < pd.ranks; r++) line("%s%lld", r ? "," : "", (long long)of_rank[r].counts[i]);
    line("]");
  }
}

void pd_log_finish(const struct pd_rank_end *of_rank, double seconds) {
  if (pd.self) return;
  const struct pd_stage *s = pd.stage;
  double rate = logging.seconds_spent > 0 ? (double)(logging.steps_spent * s->batch) / logging.seconds_spent : 0;
  line("{\"event\":\"end\",\"steps\":%lld,\"seconds\":%.3f", (long long)pd.steps, seconds);
  if (pd_stopped_by() || pd_stopped_by_rule())
    line(",\"stopped_by\":\"%s\"", pd_stopped_by() ? pd_stopped_by_name() : "--stop-when");
  if (!pd_only_evaluates()) line(",\"samples_per_s\":%.4g", rate);
  if (s->tokens_per_sample && !pd_only_evaluates())
    line(",\"tokens_per_s\":%.0f", rate * (double)s->tokens_per_sample);
  if (logging.peak > 0) line(",\"mfu\":%.4g", rate * s->flops_per_sample / logging.peak);
  line_ends(of_rank);
  line("}\n");
  if (logging.log_file && fclose(logging.log_file))
    pd_fail("cannot write log '%s': %s", pd_options.log, strerror(errno));
  pd_tensorboard_finish();
  if (pd_options.quiet || s->generation) return;
  if (!pd_only_evaluates()) printf("%lld updates in ", (long long)(pd.steps - pd.first_step));
  printf("%.1f s; memory, measured of planned:", seconds);
  for (int r = 0; r < pd.ranks; r++)
    printf(" %.1f of %.1f MiB%s", (double)of_rank[r].peak_bytes / (1 << 20), (double)planned_peak(r) / (1 << 20),
           r + 1 < pd.ranks ? "," : "\n");
  fflush(stdout);
}
