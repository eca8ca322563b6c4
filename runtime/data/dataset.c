/* The data of a run: files of one source, or of several sources with shares. Samples of the sources are numbered one
 * source after the other. In a mixture, each block of BLOCK numbers has each source's share of samples, rounded to a
 * whole number of at least 1, in an order of the seed and the block; and each source has its own order and epochs. */
#include "data/load.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 10000, MOST_SOURCES = 1000 };

struct source {
  const char *name; /* of a mixture; not terminated */
  size_t length;
  double share; /* as given */
  struct pd_files *files;
  int64_t first;         /* samples of earlier sources */
  int64_t quota, before; /* samples in each block, of this source and of earlier ones */
};

struct pd_dataset {
  struct source *sources;
  int n;
  bool mixed; /* sources have shares */
  int64_t samples;
};

/* ---- arguments ------------------------------------------------------------------------------- */

/* Parses SOURCE=SHARE: before a path. Returns the argument behind it; NULL: there is none. */
static const char *parse_share(const struct pd_input *inputs, int n, const char *argument, struct source *to) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  char *end;
  *to = (struct source){.name = argument, .length = strspn(argument, letters)};
  if (!to->length || argument[to->length] != '=' || pd_input_path(inputs, n, argument) != argument) return NULL;
  const char *number = argument + to->length + 1;
  to->share = strtod(number, &end);
  return end > number && *end == ':' ? end + 1 : NULL;
}

const char *pd_data_path(const struct pd_input *inputs, int n, const char *argument) {
  struct source s;
  const char *rest = parse_share(inputs, n, argument, &s);
  return pd_input_path(inputs, n, rest ? rest : argument);
}

/* Refuses NAME=TEXT:PATH where TEXT is not a number, unless it is the name of a file. */
static bool has_share_or_none(const struct pd_input *inputs, int n, const char *argument, char *why) {
  struct source s;
  const char *path = pd_input_path(inputs, n, argument);
  if (path != argument || parse_share(inputs, n, argument, &s) || !s.length || argument[s.length] != '=')
    return true;
  const char *share = argument + s.length + 1, *colon = strchr(share, ':');
  return !colon || !access(argument, F_OK) ||
         pd_refuse(why, "'%s': the share '%.*s' of '%.*s' is not a number above 0. help: give SOURCE=SHARE:PATH",
                   argument, (int)(colon - share), share, (int)s.length, s.name);
}

static struct source *find_source(struct pd_dataset *d, const struct source *like) {
  for (struct source *s = d->sources; s < d->sources + d->n; s++)
    if (s->length == like->length && !memcmp(s->name, like->name, s->length)) return s;
  return NULL;
}

/* Lists the sources of a mixture. */
static bool list_sources(struct pd_dataset *d, char **paths, int n, const struct pd_input *inputs, int n_inputs,
                         const struct pd_reading *how, char *why) {
  for (int i = 0; i < n; i++) {
    struct source s, *known;
    if (!parse_share(inputs, n_inputs, paths[i], &s))
      return pd_refuse(why,
                       "'%s' has no share, but other files have one. help: give SOURCE=SHARE:PATH for all files",
                       paths[i]);
    if (!how->shares)
      return pd_refuse(why,
                       "'%s': only training data has shares, because an evaluation reads every sample once. "
                       "help: leave out '%.*s'",
                       paths[i], (int)(strchr(paths[i], ':') + 1 - paths[i]), paths[i]);
    if (!(s.share > 0 && s.share < 1e9))
      return pd_refuse(why, "'%s': the share of '%.*s' is not a number above 0", paths[i], (int)s.length, s.name);
    if ((known = find_source(d, &s)) && known->share != s.share)
      return pd_refuse(why, "'%.*s' has the shares %g and %g. help: give all files of a source the same share",
                       (int)s.length, s.name, known->share, s.share);
    if (known) continue;
    if (d->n == MOST_SOURCES) return pd_refuse(why, "more than %d sources with shares", MOST_SOURCES);
    d->sources[d->n++] = s;
  }
  return true;
}

/* ---- shares ---------------------------------------------------------------------------------- */

/* Divides a block: whole parts of the shares, at least 1, then what is left by the largest remainders. */
static void divide_block(struct pd_dataset *d) {
  double sum = 0;
  int64_t left = BLOCK;
  for (int i = 0; i < d->n; i++) sum += d->sources[i].share;
  for (struct source *s = d->sources; s < d->sources + d->n; s++) {
    s->quota = (int64_t)(s->share / sum * BLOCK);
    if (s->quota < 1) s->quota = 1;
    left -= s->quota;
  }
  for (; left; left += left < 0 ? 1 : -1) {
    struct source *most = NULL; /* the source farthest from its share, in the direction of `left` */
    double farthest = 0;
    for (struct source *s = d->sources; s < d->sources + d->n; s++) {
      const double distance = (s->share / sum * BLOCK - (double)s->quota) * (left < 0 ? -1 : 1);
      if ((left > 0 || s->quota > 1) && (!most || distance > farthest)) most = s, farthest = distance;
    }
    most->quota += left < 0 ? -1 : 1;
  }
  for (int i = 1; i < d->n; i++) d->sources[i].before = d->sources[i - 1].before + d->sources[i - 1].quota;
}

int64_t pd_dataset_pick(const struct pd_dataset *d, uint64_t seed, bool shuffled, int64_t number) {
  const struct source *s = d->sources;
  if (!d->mixed) return shuffled ? pd_sample(seed, d->samples, number) : number % d->samples;
  const int64_t block = number / BLOCK, place = pd_sample(pd_seed_of(seed, 0), BLOCK, number);
  while (s + 1 < d->sources + d->n && s[1].before <= place) s++;
  const int64_t at = block * s->quota + place - s->before;
  return s->first + pd_sample(pd_seed_of(seed, (uint64_t)(s - d->sources) + 1), pd_files_samples(s->files), at);
}

bool pd_dataset_is_mixed(const struct pd_dataset *d) { return d->mixed; }

int pd_dataset_sources(const struct pd_dataset *d) { return d->mixed ? d->n : 0; }

char *pd_source_text(const struct pd_dataset *d, int source) {
  const struct source *s = &d->sources[source];
  char *text = pd_allocate(s->length + 16);
  sprintf(text, "%.*s=%.4f", (int)s->length, s->name, (double)s->quota / BLOCK);
  return text;
}

char *pd_sources_text(const struct pd_dataset *d) {
  enum { ROOM = 96 };
  if (!d || !d->mixed) return NULL;
  size_t room = 3, at = 0;
  for (int i = 0; i < d->n; i++) room += d->sources[i].length + ROOM;
  char *text = malloc(room);
  if (!text) pd_fail("out of memory for the names of data sources");
  for (const struct source *s = d->sources; s < d->sources + d->n; s++)
    at += (size_t)snprintf(text + at, room - at, "%c{\"name\":\"%.*s\",\"share\":%.4f,\"samples\":%lld}",
                           s == d->sources ? '[' : ',', (int)s->length, s->name, (double)s->quota / BLOCK,
                           (long long)pd_files_samples(s->files));
  strcpy(text + at, "]");
  return text;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool open_source(struct pd_dataset *d, struct source *to, char **paths, int n,
                        const struct pd_input *inputs, int n_inputs, const struct pd_reading *how, char *why) {
  char **own = pd_allocate(sizeof *own * (size_t)n);
  int n_own = 0;
  for (int i = 0; i < n; i++) {
    struct source s;
    const char *rest = d->mixed ? parse_share(inputs, n_inputs, paths[i], &s) : paths[i];
    if (!d->mixed || find_source(d, &s) == to) own[n_own++] = (char *)rest;
  }
  to->files = pd_files_open(own, n_own, inputs, n_inputs, how, why);
  if (!to->files) return false;
  to->first = d->samples;
  d->samples += pd_files_samples(to->files);
  return true;
}

/* Images need the same classes in all sources, and tables the same columns. */
static bool same_kind(const struct pd_dataset *d, int n_inputs, char *why) {
  const struct pd_files *first = d->sources->files;
  for (const struct source *s = d->sources + 1; s < d->sources + d->n; s++) {
    if (!pd_files_same_columns(first, s->files, why)) return false;
    for (int i = 0; i < n_inputs; i++)
      if (!pd_files_images(s->files, i) != !pd_files_images(first, i))
        return pd_refuse(why, "'%.*s' has image files, unlike other sources. help: give one kind of data",
                         (int)(pd_files_images(s->files, i) ? s : d->sources)->length,
                         (pd_files_images(s->files, i) ? s : d->sources)->name);
    if (pd_files_folder(first) && !pd_same_classes(pd_files_folder(first), pd_files_folder(s->files), why))
      return false;
  }
  return true;
}

struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs,
                                   const struct pd_reading *how, char *why) {
  struct pd_dataset *d = pd_allocate(sizeof *d);
  struct source s;
  for (int i = 0; i < n; i++)
    if (!has_share_or_none(inputs, n_inputs, paths[i], why)) return NULL;
  for (int i = 0; i < n; i++) d->mixed |= parse_share(inputs, n_inputs, paths[i], &s) != NULL;
  d->n = d->mixed ? 0 : 1;
  d->sources = pd_allocate(sizeof *d->sources * (size_t)(n < MOST_SOURCES ? n : MOST_SOURCES));
  if (d->mixed && !list_sources(d, paths, n, inputs, n_inputs, how, why)) return NULL;
  for (int i = 0; i < d->n; i++)
    if (!open_source(d, &d->sources[i], paths, n, inputs, n_inputs, how, why)) return NULL;
  if (!same_kind(d, n_inputs, why)) return NULL;
  if (d->mixed) divide_block(d);
  return d;
}

/* ---- reading --------------------------------------------------------------------------------- */

int64_t pd_dataset_samples(const struct pd_dataset *d) { return d->samples; }

/* The source of a sample, and the sample's number in it. */
static const struct source *source_of(const struct pd_dataset *d, int64_t *sample) {
  const struct source *s = d->sources + d->n - 1;
  while (s->first > *sample) s--;
  *sample -= s->first;
  return s;
}

bool pd_dataset_streams(const struct pd_dataset *d) {
  const size_t LARGE = (size_t)64 << 20;
  size_t bytes = 0;
  for (int i = 0; i < d->n; i++) bytes += pd_files_bytes(d->sources[i].files);
  return bytes >= LARGE;
}

void pd_dataset_expect(const struct pd_dataset *d, int input, int64_t sample) {
  const struct source *s = source_of(d, &sample);
  pd_files_expect(s->files, input, sample);
}

void pd_dataset_scatter(const struct pd_dataset *d) {
  for (int i = 0; i < d->n; i++) pd_files_scatter(d->sources[i].files);
}

void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to) {
  const struct source *s = source_of(d, &sample);
  pd_files_read(s->files, input, sample, to);
}

const struct pd_images *pd_dataset_images(const struct pd_dataset *d, int input) {
  return pd_files_images(d->sources->files, input);
}

const struct pd_images *pd_dataset_folder(const struct pd_dataset *d) {
  return pd_files_folder(d->sources->files);
}

bool pd_dataset_renumber(struct pd_dataset *d, const char **names, int n, const char *path, char *why) {
  for (int i = 0; i < d->n; i++)
    if (!pd_files_renumber(d->sources[i].files, names, n, path, why)) return false;
  return true;
}

bool pd_dataset_same_columns(const struct pd_dataset *a, const struct pd_dataset *b, char *why) {
  return pd_files_same_columns(a->sources->files, b->sources->files, why);
}

bool pd_dataset_path(const struct pd_dataset *d, int64_t sample, char *to, size_t room) {
  const struct source *s = source_of(d, &sample);
  return pd_files_path(s->files, sample, to, room);
}

bool pd_dataset_image(const struct pd_dataset *d, int input, int64_t sample, const struct pd_view *v,
                      struct pd_image_room *room, float *to, char *why) {
  const struct source *s = source_of(d, &sample);
  return pd_files_image(s->files, input, sample, v, room, to, why);
}
