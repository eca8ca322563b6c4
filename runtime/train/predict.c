/* --predict: the model's outputs over all samples, as .npy arrays of f32 with one row per sample, in order, or as a
 * .tsv table with the class of the largest number of each row, which rank 0 writes at the end from such rows. Rank 0
 * creates each file under a temporary name and at full size. The ranks of the stage that computes an output write
 * the rows of their microbatches at their offsets, so that files do not depend on cuts and replicas. At the end
 * every rank syncs its rows, and rank 0 renames the file. All ranks must share the directory. */
#include "data/load.h"
#include "messages/messages.h"
#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 128, PATH_ROOM = sizeof((struct pd_output *)0)->beside };

static struct file {
  const char *path;     /* NULL: not requested */
  bool table;           /* .tsv; the rows are temporary */
  struct pd_output out; /* on rank 0: the rows */
  int fd;               /* on all other ranks; -1: not open */
} * files;              /* by prediction */

static int64_t row_bytes(const struct pd_prediction *p) { return p->elements * (int64_t)sizeof(float); }

/* ---- what is asked for ------------------------------------------------------------------------ */

/* The output of NAME=PATH, or the only output; -1 after filling `why`. */
static int asked_for(const char *argument, const char **path, char *why) {
  const struct pd_stage *s = pd.stage;
  const char *sign = strchr(argument, '=');
  *path = sign ? sign + 1 : argument;
  for (int i = 0; sign && i < s->n_predictions; i++)
    if (strlen(s->predictions[i].name) == (size_t)(sign - argument) &&
        !strncmp(s->predictions[i].name, argument, (size_t)(sign - argument)))
      return i;
  if (!sign && s->n_predictions == 1) return 0;
  char names[512] = "";
  for (int i = 0; i < s->n_predictions; i++) {
    size_t n = strlen(names);
    snprintf(names + n, sizeof names - n, "%s'%s'", i ? ", " : "", s->predictions[i].name);
  }
  if (!s->n_predictions)
    pd_refuse(why, "--predict: the model declares no output. help: declare one, such as 'output logits;'");
  else if (sign)
    pd_refuse(why, "--predict: '%s' names no output of the model. help: use one of %s", argument, names);
  else
    pd_refuse(why, "--predict '%s': the model has several outputs. help: use NAME=PATH, where NAME is one of %s",
              argument, names);
  return -1;
}

static bool is_table(const char *path) {
  const size_t n = strlen(path);
  return n > 4 && !strcmp(path + n - 4, ".tsv");
}

/* A file of another name would hold another format than the name says. */
static bool has_known_ending(const char *path, char *why) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  return !dot || dot == name || !strcmp(dot, ".npy") || !strcmp(dot, ".tsv") ||
         pd_refuse(why, "--predict '%s': predictions are .npy or .tsv files. help: write '%.*s.npy' or '%.*s.tsv'",
                   path, (int)(dot - path), path, (int)(dot - path), path);
}

bool pd_predict_options(char *why) {
  const struct pd_options *o = &pd_options;
  files = pd_allocate(sizeof *files * (size_t)(pd.stage->n_predictions + 1));
  for (int i = 0; i < pd.stage->n_predictions; i++) files[i].fd = -1;
  for (int i = 0; i < o->n_predict; i++) {
    const char *path;
    int asked = asked_for(o->predict[i], &path, why);
    if (asked < 0) return false;
    if (files[asked].path)
      return pd_refuse(why, "--predict: the output '%s' is given twice", pd.stage->predictions[asked].name);
    if (!has_known_ending(path, why)) return false;
    files[asked].path = path;
    files[asked].table = is_table(path);
    if (files[asked].table &&
        (pd.stage->predictions[asked].rank != 1 || pd.stage->predictions[asked].elements < 2))
      return pd_refuse(
          why,
          "--predict '%s': a table has the class of each sample, but '%s' is not one number per class. "
          "help: write a .npy file",
          path, pd.stage->predictions[asked].name);
  }
  return true;
}

const char *pd_predict_path(int prediction) { return files[prediction].path; }

/* ---- files ------------------------------------------------------------------------------------ */

/* numpy.lib.format, version 1: the header is a multiple of 64 bytes, here always HEADER. */
static void write_header(char *to, const struct pd_prediction *p, int64_t samples) {
  static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, HEADER - 10, 0};
  memset(to, ' ', HEADER);
  memcpy(to, magic, sizeof magic);
  int n = 10 + snprintf(to + 10, HEADER - 10, "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld,",
                        (long long)samples);
  for (int i = 0; i < p->rank; i++)
    n += snprintf(to + n, (size_t)(HEADER - n), "%s%lld", i ? ", " : " ", (long long)p->dim[i]);
  n += snprintf(to + n, (size_t)(HEADER - n), "), }");
  to[n] = ' ';
  to[HEADER - 1] = '\n';
}

/* Allocates the whole file, so that a full disk is reported at start. */
static bool make_file(struct file *f, const struct pd_prediction *p, int64_t samples, char *why) {
  char header[HEADER], rows[PATH_ROOM];
  write_header(header, p, samples);
  snprintf(rows, sizeof rows, "%s%s", f->path, f->table ? ".rows" : "");
  if (f->table && !pd_writable(rows, why)) return false; /* removes those of killed runs, too */
  bool ok =
      pd_output_open(&f->out, rows) && fwrite(header, 1, HEADER, f->out.file) == HEADER && !fflush(f->out.file);
  if (ok && samples) {
    int error = posix_fallocate(fileno(f->out.file), 0, HEADER + samples * row_bytes(p));
    ok = !error;
    errno = error;
  }
  return ok || pd_refuse(why, "cannot write '%s': %s", f->path, strerror(errno));
}

void pd_predict_start(void) {
  char why[PD_WHY] = "", beside[PATH_ROOM];
  for (int i = 0; i < pd.stage->n_predictions; i++) {
    struct file *f = &files[i];
    if (!f->path) continue;
    if (!pd.rank) make_file(f, &pd.stage->predictions[i], pd_dataset_samples(pd_evaluation_data), why);
    pd_agree(why);
    memcpy(beside, f->out.beside, sizeof beside);
    MPI_Request request;
    MPI_Ibcast(beside, sizeof beside, MPI_CHAR, 0, pd_comm_control, &request);
    pd_wait(1, &request, "the name of a file to predict into", -1, NULL, -1);
    f->fd = pd.rank ? open(beside, O_WRONLY | O_CLOEXEC | O_NOFOLLOW) : fileno(f->out.file);
    if (f->fd < 0) pd_refuse(why, "cannot write '%s': %s", beside, strerror(errno));
    pd_agree(why);
  }
}

static bool write_all(int fd, const char *from, int64_t bytes, int64_t at) {
  while (bytes > 0) {
    ssize_t n = pwrite(fd, from, (size_t)bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    from += n;
    at += n;
    bytes -= n;
  }
  return true;
}

void pd_predict(int prediction, int64_t v, const float *rows) {
  const struct file *f = &files[prediction];
  const struct pd_prediction *p = &pd.stage->predictions[prediction];
  if (!f->path) return;
  int64_t b = pd.stage->microbatch, first = (pd_number(v) - 1) * b;
  int64_t left = pd_dataset_samples(pd_evaluation_data) - first, n = left < b ? left : b;
  const float *x = pd_view(rows, n * p->elements, false);
  if (!write_all(f->fd, (const char *)x, n * row_bytes(p), HEADER + first * row_bytes(p)))
    pd_fail("cannot write '%s': %s", f->path, strerror(errno));
}

/* ---- tables ----------------------------------------------------------------------------------- */

static int64_t largest_of(const float *x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++)
    if (x[i] > x[best]) best = i;
  return best;
}

/* A cell of a table: control characters, invalid UTF-8 and backslashes are escaped. */
static bool write_cell(const char *text, FILE *out) {
  while (*text) {
    const int n = pd_plain_character(text);
    const unsigned char c = (unsigned char)*text;
    if (n && c != '\\') {
      if (fwrite(text, 1, (size_t)n, out) != (size_t)n) return false;
      text += n;
      continue;
    }
    const char *escape = c == '\n' ? "\\n" : c == '\t' ? "\\t" : c == '\r' ? "\\r" : c == '\\' ? "\\\\" : NULL;
    if ((escape ? fputs(escape, out) : fprintf(out, "\\x%02x", c)) < 0) return false;
    text++;
  }
  return true;
}

/* A line for each sample: the image's file, or the sample's number from 0; the class's name, or its number; and its
 * number in the row. */
static bool write_lines(int rows, const struct pd_prediction *p, FILE *out) {
  const struct pd_images *images = pd_dataset_folder(pd_evaluation_data);
  float *row = pd_allocate((size_t)row_bytes(p));
  bool ok = fprintf(out, "%s\tclass\t%s\n", images ? "file" : "sample", p->name) > 0;
  for (int64_t s = 0; ok && s < pd_dataset_samples(pd_evaluation_data); s++) {
    ok = pread(rows, row, (size_t)row_bytes(p), HEADER + s * row_bytes(p)) == row_bytes(p);
    const int64_t best = largest_of(row, p->elements);
    const char *name = pd_class_name(best);
    char sample[PATH_ROOM], number[32];
    snprintf(number, sizeof number, "%lld", (long long)best);
    if (!pd_dataset_path(pd_evaluation_data, s, sample, sizeof sample))
      snprintf(sample, sizeof sample, "%lld", (long long)s);
    ok = ok && write_cell(sample, out) && fputc('\t', out) != EOF && write_cell(name ? name : number, out) &&
         fprintf(out, "\t%.9g\n", row[best]) > 0;
  }
  free(row);
  return ok;
}

static bool finish_table(struct file *f, const struct pd_prediction *p) {
  struct pd_output table;
  const int rows = open(f->out.beside, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  bool ok = pd_output_open(&table, f->path);
  ok = ok && rows >= 0 && write_lines(rows, p, table.file);
  if (rows >= 0) close(rows);
  pd_output_close(&f->out, false);
  return pd_output_close(&table, ok);
}

void pd_predict_finish(void) {
  char why[PD_WHY] = "";
  for (int i = 0; i < pd.stage->n_predictions; i++)
    if (files[i].path && fsync(files[i].fd) && !*why)
      pd_refuse(why, "cannot write '%s': %s", files[i].path, strerror(errno));
  pd_agree(why);
  for (int i = 0; i < pd.stage->n_predictions; i++) {
    struct file *f = &files[i];
    if (!f->path) continue;
    if (pd.rank)
      close(f->fd);
    else if (!(f->table ? finish_table(f, &pd.stage->predictions[i]) : pd_output_close(&f->out, true)))
      pd_fail("cannot write '%s': %s", f->path, strerror(errno));
    else
      pd_log_prediction(&pd.stage->predictions[i], pd_dataset_samples(pd_evaluation_data), f->path);
  }
}
