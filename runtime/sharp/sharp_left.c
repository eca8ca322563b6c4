/* The results of a launch of several models. */
#define _GNU_SOURCE /* cpu_set_t */
#include "sharp/sharp_left.h"
#include "run/run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* ---- how models end ---------------------------------------------------------------------------- */

enum { SIGNALLED = 128 }; /* base of exit statuses for signals, as pd_finish returns them */

bool pd_sharp_is_good(int status) { return WIFEXITED(status) && !WEXITSTATUS(status); }

bool pd_sharp_was_stopped(int status) {
  return WIFEXITED(status) && (WEXITSTATUS(status) == PD_SHARP_TRY_AGAIN || WEXITSTATUS(status) > SIGNALLED);
}

static const char *how_it_ended(int status) {
  return pd_sharp_is_good(status)       ? "finished"
         : pd_sharp_was_stopped(status) ? "stopped by a signal"
         : WIFSIGNALED(status)          ? "killed"
                                        : "failed";
}

/* ---- files --------------------------------------------------------------------------------------- */

bool pd_sharp_keep_plan(const char *run, char *why) {
  const char *from = getenv("PD_PLAN");
  char to[4096];
  if (!from) return true; /* started without its launcher */
  if (snprintf(to, sizeof to, "%s/plan.json", run) >= (int)sizeof to)
    return pd_refuse(why, "the path of --run '%s' is too long", run);
  return pd_copy_file(from, to, why);
}

static void write_number(FILE *f, const char *name, double x) {
  if (isfinite(x))
    fprintf(f, ",\"%s\":%.9g", name, x);
  else
    fprintf(f, ",\"%s\":null", name);
}

static void write_model(FILE *f, const struct pd_sharp_left *l, int model) {
  const struct pd_sharp_result *r = &l->table->result[model];
  fprintf(f, "%s\n{\"name\":\"%s\",\"step\":%lld,\"steps\":%lld", model ? "," : "", l->models[model].name,
          (long long)r->step, (long long)r->steps);
  write_number(f, "loss", r->loss);
  write_number(f, "validation_loss", r->validation_loss);
  write_number(f, "seconds", l->table->s.model[model].busy);
  fprintf(f, ",\"ended\":\"%s\"}", how_it_ended(r->status));
}

static void write_events(FILE *f, const struct pd_sharp_left *l) {
  const struct pd_sharp *s = &l->table->s;
  for (int r = 0; r < l->n_ranks; r++)
    fprintf(f, "%s\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":%d,\"args\":{\"name\":\"rank %d\"}}",
            r ? "," : "", r, r);
  for (int64_t i = 0; i < s->n_spans && i < PD_SHARP_SPANS; i++)
    fprintf(f, ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":0,\"tid\":%d,\"ts\":%.0f,\"dur\":%.0f}",
            l->models[s->span[i].model].name, s->span[i].rank, 1e6 * (s->span[i].start - l->start),
            1e6 * (s->span[i].end - s->span[i].start));
}

bool pd_sharp_write_timeline(const struct pd_sharp_left *l, const char *path, char *why) {
  const struct pd_sharp *s = &l->table->s;
  struct pd_output out;
  int64_t dropped = s->n_spans > PD_SHARP_SPANS ? s->n_spans - PD_SHARP_SPANS : 0;
  if (pd_output_open(&out, path)) {
    fprintf(out.file, "{\"otherData\":{\"ranks\":%d,\"dropped\":%lld", l->n_ranks, (long long)dropped);
    write_number(out.file, "seconds", l->seconds);
    fprintf(out.file, ",\"models\":[");
    for (int i = 0; i < l->n_models; i++) write_model(out.file, l, i);
    fprintf(out.file, "]},\n\"traceEvents\":[");
    write_events(out.file, l);
    fprintf(out.file, "\n]}\n");
  }
  if (!pd_output_close(&out, out.file && !ferror(out.file)))
    return pd_refuse(why, "cannot write '%s': %s", path, strerror(errno));
  if (dropped) pd_note("'%s' has the first %d spans of %lld", path, PD_SHARP_SPANS, (long long)s->n_spans);
  return true;
}

/* ---- the last lines ------------------------------------------------------------------------------ */

static void print_model(const struct pd_sharp_left *l, int model) {
  const struct pd_sharp_result *r = &l->table->result[model];
  printf("  %-24s %6lld of %lld updates", l->models[model].name, (long long)r->step, (long long)r->steps);
  if (isfinite(r->loss)) printf("  loss %.4f", r->loss);
  if (isfinite(r->validation_loss)) printf("  validation %.4f", r->validation_loss);
  printf("  %.1f s of work", l->table->s.model[model].busy);
  if (!pd_sharp_is_good(r->status)) printf(", %s", how_it_ended(r->status));
  printf("\n");
}

void pd_sharp_print_summary(const struct pd_sharp_left *l) {
  printf("%d models on %d rank%s in %.1f s; ranks worked", l->n_models, l->n_ranks, l->n_ranks == 1 ? "" : "s",
         l->seconds);
  for (int r = 0; r < l->n_ranks; r++) printf(" %.0f %%", 100 * l->table->s.rank[r].busy / l->seconds);
  printf(" of it\n");
  for (int i = 0; i < l->n_models; i++) print_model(l, i);
  fflush(stdout);
}
