/* `pdc data --show` on a terminal. */
#include "tokenize/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR = 40, SHOWN_IMAGES = 3 };

bool data_bin(const DataView *v, int bin, int64_t *from, int64_t *to) {
  *from = (bin * v->length + DATA_BINS - 1) / DATA_BINS + 1;
  *to = ((bin + 1) * v->length + DATA_BINS - 1) / DATA_BINS;
  return *from <= *to;
}

static void print_lengths(const DataView *v, FILE *out) {
  int64_t most = 1, from, to;
  for (int i = 0; i < DATA_BINS; i++)
    most = v->bins[i] > most ? v->bins[i] : most;
  fprintf(out, "%s\n", v->kind == DATA_TEXT ? "          tokens   documents" : "positions filled   rows");
  for (int i = 0; i < DATA_BINS; i++) {
    if (!data_bin(v, i, &from, &to))
      continue;
    fprintf(out, "%7lld to %-7lld %6s%s", (long long)from, (long long)to, with_commas(v->bins[i]),
            v->bins[i] ? " " : "");
    for (int64_t k = 0; k < (v->bins[i] * BAR + most - 1) / most; k++)
      fputc('#', out);
    fputc('\n', out);
  }
}

static void print_text(const char *text, FILE *out) {
  const size_t n = strlen(text);
  for (size_t i = 0, control; i < n; i += control ? control : 1) {
    control = pd_control_bytes(text + i, n - i);
    if (text[i] == '\n')
      fputs("\n  ", out);
    else if (!control)
      fputc(text[i], out);
    for (size_t k = 0; k < control && text[i] != '\n'; k++)
      fprintf(out, "\\x%02x", (unsigned char)text[i + k]);
  }
}

/* Tokens with loss stand between [[ and ]], on terminals also in green. */
static void print_sample(const DataView *v, const DataSample *s, FILE *out) {
  const bool colour = isatty(fileno(out)) && !getenv("NO_COLOR");
  const char *begin = colour ? "\033[32m[[" : "[[", *end = colour ? "]]\033[0m" : "]]";
  if (v->kind != DATA_TOKENS)
    fprintf(out, "%s %lld", v->kind == DATA_TEXT ? "document" : "row", (long long)s->row);
  if (v->kind == DATA_LABELS)
    fprintf(out, ", label %d", (int)s->label);
  if (s->second >= 0)
    fprintf(out, ", type 1 from position %lld", (long long)s->second);
  fputs(v->kind != DATA_TOKENS ? ":\n" : "", out);
  fputs("  ", out);
  for (int i = 0; i < s->runs.n; i++) {
    fputs(s->runs.at[i].loss ? begin : "", out);
    print_text(s->runs.at[i].text, out);
    fputs(s->runs.at[i].loss ? end : "", out);
  }
  fprintf(out, "%s\n", s->cut ? " ..." : "");
}

static void print_classes(const DataView *v, FILE *out) {
  for (int c = 0; c < v->classes.n; c++)
    fprintf(out, "  %s: %s\n", plain_path(v->classes.at[c].name), with_commas(v->classes.at[c].samples));
}

static void print_images(const DataView *v, FILE *out) {
  fprintf(out, "%s: %s image%s", plain_path(v->path), with_commas(v->rows), v->rows == 1 ? "" : "s");
  if (v->classes.n)
    fprintf(out, " in %d class%s\n", v->classes.n, v->classes.n == 1 ? "" : "es");
  else
    fprintf(out, " without classes\n");
  print_classes(v, out);
  for (int i = 0; i < SHOWN_IMAGES && i < v->images.n; i++) {
    const int at = v->images.n <= SHOWN_IMAGES ? i : i * (v->images.n - 1) / (SHOWN_IMAGES - 1);
    const DataImage *m = &v->images.at[at];
    fprintf(out, "%s: %s\n", plain_path(m->name),
            m->width ? format("%s, %d x %d", m->png ? "PNG" : "JPEG", m->width, m->height) : "damaged");
  }
}

static void print_arrays(const DataView *v, FILE *out) {
  fprintf(out, "%s: %s row%s\n", plain_path(v->path), with_commas(v->rows), v->rows == 1 ? "" : "s");
  for (int i = 0; i < v->arrays.n; i++) {
    const DataArray *a = &v->arrays.at[i];
    fprintf(out, "  %s%s", a->name ? plain_path(a->name) : "", a->name ? ": " : "");
    if (!a->type) {
      fprintf(out, "not numbers\n");
      continue;
    }
    fprintf(out, "%s, %.6g to %.6g, mean %.6g", a->type, a->least, a->most, a->mean);
    if (a->not_finite)
      fprintf(out, ", %s not finite", with_commas(a->not_finite));
    fputc('\n', out);
  }
}

static void print_text_figures(const DataView *v, FILE *out) {
  fprintf(out, "%s: %s document%s, %s tokens", plain_path(v->path), with_commas(v->rows), v->rows == 1 ? "" : "s",
          with_commas(v->text_tokens));
  if (v->bytes) /* 0: numbers of tokens */
    fprintf(out, ", %.2f bytes a token", (double)v->bytes / (double)v->text_tokens);
  fputc('\n', out);
  fprintf(out, "documents of %s to %s tokens\n", with_commas(v->least), with_commas(v->most));
  print_lengths(v, out);
}

/* A table of the model's inputs. */
static void print_model(const DataView *v, FILE *out) {
  int name = 0, type = 0;
  for (int i = 0; i < v->inputs.n; i++) {
    const int a = (int)strlen(v->inputs.at[i].name), b = (int)strlen(v->inputs.at[i].type);
    name = a > name ? a : name;
    type = b > type ? b : type;
  }
  fprintf(out, "%s takes %s sample%s an epoch", v->model, with_commas(v->samples_of_epoch),
          v->samples_of_epoch == 1 ? "" : "s");
  if (v->documents)
    fprintf(out, " of %s document%s, %.1f %% padding", with_commas(v->documents), v->documents == 1 ? "" : "s",
            100 * v->padding);
  fputs(":\n", out);
  for (int i = 0; i < v->inputs.n; i++)
    fprintf(out, "  %-*s  %-*s  %s\n", name, v->inputs.at[i].name, type, v->inputs.at[i].type,
            v->inputs.at[i].source);
  if (v->unread)
    fprintf(out, "  not read: %s\n", v->unread);
}

void data_print(const DataView *v, FILE *out) {
  const char *path = plain_path(v->path);
  if (v->kind == DATA_IMAGES) {
    print_images(v, out);
    if (v->model)
      print_model(v, out);
    return;
  }
  if (v->kind == DATA_ARRAYS)
    print_arrays(v, out);
  else if (v->kind == DATA_TEXT)
    print_text_figures(v, out);
  else if (v->kind == DATA_TOKENS)
    fprintf(out, "%s: %s token%s, %lld to %lld\n", path, with_commas(v->rows), v->rows == 1 ? "" : "s",
            (long long)v->least, (long long)v->most);
  else {
    fprintf(out, "%s: %s row%s of %lld positions, tokens %lld to %lld\n", path, with_commas(v->rows),
            v->rows == 1 ? "" : "s", (long long)v->length, (long long)v->least, (long long)v->most);
    if (v->kind == DATA_ROWS)
      fprintf(out, "%.1f %% with loss, ", 100 * v->loss);
    fprintf(out, "%.1f %% padding\n", 100 * v->padding);
    print_lengths(v, out);
  }
  if (v->kind == DATA_LABELS)
    fprintf(out, "%d label%s, with rows:\n", v->classes.n, v->classes.n == 1 ? "" : "s");
  print_classes(v, out);
  if (v->model)
    print_model(v, out);
  for (int i = 0; i < v->samples.n; i++)
    print_sample(v, &v->samples.at[i], out);
}

void data_print_all(const DataView *views, int n, int64_t samples, FILE *out) {
  for (int i = 0; i < n; i++) {
    DataView one = views[i];
    one.model = NULL;
    data_print(&one, out);
    fputc('\n', out);
  }
  if (samples < 0)
    return;
  DataView all = views[0];
  all.samples_of_epoch = samples;
  all.documents = 0;
  fprintf(out, "%d files together: ", n);
  print_model(&all, out);
}
