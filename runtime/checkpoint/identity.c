/* The identity of a training, which checkpoints record: the model's computation, settings and files. A checkpoint
 * of a different computation is refused; different settings or files are noted. */
#include "checkpoint/checkpoint.h"
#include "data/load.h"
#include "device.h"

#include "shared/checksum.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void add_number(struct pd_pairs *p, const char *name, int64_t n) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)n);
  pd_pairs_add(p, name, text);
}

static void add_share(struct pd_pairs *p, const char *name, double share) {
  char text[32];
  snprintf(text, sizeof text, "%g", share);
  if (share > 0) pd_pairs_add(p, name, text);
}

/* Options that decide samples and their order, and the sources of a mixture in their order. */
static void add_order(struct pd_pairs *to) {
  const struct pd_options *o = &pd_options;
  if (o->documents.joined) pd_pairs_add(to, "--documents", "joined");
  if (o->documents.end) add_number(to, "--documents", o->documents.end - 1);
  if (o->in_file_order) pd_pairs_add(to, "--order", "file");
  for (int i = 0; pd_training_data && i < pd_dataset_sources(pd_training_data); i++) {
    char name[32], *text = pd_source_text(pd_training_data, i);
    snprintf(name, sizeof name, "source %d", i + 1);
    pd_pairs_add(to, name, text);
    free(text);
  }
}

/* Settings of the compiler, of the plan where they change bits, and of the command line. */
static void add_settings(struct pd_pairs *to) {
  const struct pd_stage *s = pd.stage;
  const struct pd_options *o = &pd_options;
  add_number(to, "batch", s->batch);
  add_number(to, "microbatch", s->microbatch);
  pd_pairs_add(to, "schedule", s->schedule);
  if (pd_device_library()) pd_pairs_add(to, "library", pd_device_library());
  for (int i = 0; i < s->n_settings; i++) pd_pairs_add(to, s->settings[2 * i], s->settings[2 * i + 1]);
  pd_pairs_add(to, "--augment flip", o->augment.flip ? "given" : "not given");
  add_number(to, "--augment crop", o->augment.crop);
  add_share(to, "--augment resized_crop", o->augment.resized_crop);
  add_share(to, "--augment color", o->augment.color);
  if (o->resize) add_number(to, "--resize", o->resize);
  if (pd_training_data && pd_dataset_folder(pd_training_data))
    pd_pairs_add(to, "image files", pd_image_libraries());
  add_order(to);
  add_number(to, "--pad", o->pad);
  add_number(to, "--token-type", o->token_bytes);
}

/* Data files are mapped first, in the order of options. */
static void add_files(struct pd_manifest *to) {
  const struct pd_options *o = &pd_options;
  int n = o->n_data + o->n_validation < pd_mapped_files() ? o->n_data + o->n_validation : pd_mapped_files();
  to->file = pd_allocate(sizeof *to->file * (size_t)n);
  for (int i = 0; i < n; i++) {
    struct pd_mapped x = pd_mapped_file(i);
    to->file[to->n_files++] =
        (struct pd_manifest_file){pd_copy_text(i < o->n_data ? "--data" : "--validation"), pd_copy_text(x.path),
                                  (int64_t)x.size, pd_sampled_checksum(x.at, x.size)};
  }
}

const struct pd_manifest *pd_identity(void) {
  static struct pd_manifest identity;
  const struct pd_stage *s = pd.stage;
  if (identity.model) return &identity;
  identity.model = (char *)s->model;
  identity.optimizer = (char *)s->optimizer->name;
  identity.plan = (char *)s->plan_hash;
  identity.seed = pd.seed;
  for (int i = 0; i < s->n_function; i++)
    pd_pairs_add(&identity.function, s->function[2 * i], s->function[2 * i + 1]);
  add_settings(&identity.settings);
  if (pd_training_data) add_files(&identity);
  return &identity;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* A list for a message; its end may be cut off. */
struct list {
  char text[PD_WHY / 2];
  int n;
};

static void add_to(struct list *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add_to(struct list *l, const char *format, ...) {
  enum { FEW = 8 };
  size_t used = strlen(l->text);
  va_list args;
  va_start(args, format);
  if (l->n++ < FEW && used + 2 < sizeof l->text) {
    if (used) used += (size_t)snprintf(l->text + used, sizeof l->text - used, "; ");
    vsnprintf(l->text + used, sizeof l->text - used, format, args);
  } else if (l->n == FEW + 1 && used + 5 < sizeof l->text)
    strcat(l->text, " ...");
  va_end(args);
}

/* Adds the differences between pairs, by name. `only`: names without values. */
static void compare_pairs(const struct pd_pairs *then, const struct pd_pairs *now, bool only, struct list *to) {
  for (int i = 0; i < now->n; i++) {
    const char *before = pd_pair_value(then, now->at[i].name), *value = now->at[i].value;
    if (before && !strcmp(before, value)) continue;
    if (only)
      add_to(to, "'%.60s'%s", now->at[i].name, before ? "" : " (new)");
    else if (before)
      add_to(to, "%.60s %.60s, not %.60s", now->at[i].name, value, before);
    else
      add_to(to, "%.60s %.60s, which the checkpoint does not record", now->at[i].name, value);
  }
  for (int i = 0; i < then->n; i++)
    if (!pd_pair_value(now, then->at[i].name)) add_to(to, only ? "'%.60s' (gone)" : "no %.60s", then->at[i].name);
}

static void compare_files(const struct pd_manifest *then, const struct pd_manifest *now, struct list *to) {
  for (int i = 0; i < now->n_files || i < then->n_files; i++) {
    const struct pd_manifest_file *a = i < then->n_files ? &then->file[i] : NULL;
    const struct pd_manifest_file *b = i < now->n_files ? &now->file[i] : NULL;
    if (a && b && a->bytes == b->bytes && a->sample == b->sample && !strcmp(a->option, b->option)) continue;
    if (a && b)
      add_to(to, "%s '%.80s' of %lld bytes differs from '%.80s' of %lld", b->option, b->path, (long long)b->bytes,
             a->path, (long long)a->bytes);
    else if (b)
      add_to(to, "%s '%.80s' is new", b->option, b->path);
    else
      add_to(to, "%s '%.80s' is not read any more", a->option, a->path);
  }
}

bool pd_identity_check(const struct pd_manifest *then, char *why) {
  const struct pd_manifest *now = pd_identity();
  struct list function = {.n = 0}, rest = {.n = 0};
  if (strcmp(then->model, now->model) || strcmp(then->optimizer, now->optimizer))
    return true; /* resume.c refuses */
  if (then->function.n && now->function.n) compare_pairs(&then->function, &now->function, true, &function);
  if (function.n && !pd_options.resume_anyway)
    return pd_refuse(
        why,
        "the checkpoint of step %lld in '%.200s' is of a different computation, in %d part%s: %s. help: continue "
        "all the same with --resume-anyway",
        (long long)then->step, pd_options.checkpoint, function.n, function.n == 1 ? "" : "s", function.text);
  if (function.n)
    pd_warn("--resume-anyway: the checkpoint is of a different computation, in %d part%s: %s", function.n,
            function.n == 1 ? "" : "s", function.text);
  if (pd_only_evaluates()) return true;
  compare_pairs(&then->settings, &now->settings, false, &rest);
  if (now->n_files) compare_files(then, now, &rest);
  if (rest.n) pd_note("this training differs from the checkpoint's: %s", rest.text);
  return true;
}
