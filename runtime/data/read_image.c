/* Reads images of a folder as samples: file, decoder, frame. With --skip-broken an image that cannot be read is
 * replaced by the next image of its class, so that labels, which other ranks may load, stay right, and the samples
 * depend on no plan. */
#include "data/load.h"
#include "shared/read_file.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void path_of(const struct pd_images *m, int64_t image, char path[PATH_MAX]) {
  snprintf(path, PATH_MAX, "%s/%s", m->path, m->list + m->at[image]);
}

static bool read_one(const struct pd_images *m, int64_t image, const struct pd_input *in, const struct pd_view *v,
                     struct pd_image_room *room, float *to, char *why) {
  char path[PATH_MAX];
  size_t size;
  path_of(m, image, path);
  char *file = m->map ? NULL : pd_read_file(path, &size, why);
  const char *bytes = file;
  if (!file && !m->map) return false;
  if (m->members) {
    bytes = m->map + m->members[image].at;
    size = m->members[image].bytes;
  }
  if (m->entries) {
    const struct pd_array zip = {.path = m->path, .map = m->map, .size = m->map_size};
    size = m->entries[image].size;
    if (!pd_zip_unpack(&zip, &m->entries[image], m->list + m->at[image], &bytes, &file, why)) return false;
  }
  const bool ok = size ? pd_decode_image(path, bytes, size, (int)in->dim[0], PD_MOST_PIXELS, &room->pixels, why)
                       : pd_refuse(why, "'%s' is empty", path);
  free(file);
  if (!ok) return false;
  const int64_t width = room->pixels.width, height = room->pixels.height;
  const struct pd_frame frame = v->augment && v->augment->resized_crop > 0
                                    ? pd_random_frame(v->augment, in, v->seed, v->number, width, height)
                                    : pd_central_frame(in, v->resize, width, height);
  return pd_resize(&room->pixels, &frame, &room->resize, to, why);
}

/* ---- broken images --------------------------------------------------------------------------- */

struct broken { /* of this rank, newest first */
  struct broken *next;
  char *why;
};
static struct {
  pthread_mutex_t lock;
  struct broken *untold;
  int64_t n;
} broken = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_broken(const struct pd_images *m, int64_t image, const char *why) {
  pthread_mutex_lock(&broken.lock);
  if (!m->broken[image]) {
    struct broken *b = malloc(sizeof *b);
    if (b) {
      *b = (struct broken){broken.untold, strdup(why)};
      broken.untold = b;
    }
    broken.n++;
    __atomic_store_n(&m->broken[image], 1, __ATOMIC_RELAXED);
  }
  pthread_mutex_unlock(&broken.lock);
}

int64_t pd_tell_broken(void) {
  pthread_mutex_lock(&broken.lock);
  for (struct broken *b = broken.untold, *next; b; b = next) {
    next = b->next;
    if (b->why) {
      pd_make_plain(b->why);
      fprintf(stderr, "pd: rank %d (stage %d): warning: skipped: %s\n", pd.self, pd.stage->stage, b->why);
    }
    free(b->why);
    free(b);
  }
  broken.untold = NULL;
  const int64_t n = broken.n;
  pthread_mutex_unlock(&broken.lock);
  return n;
}

/* The image after this one in its class, from the last to the first. */
static int64_t next_of_class(const struct pd_images *m, int64_t image) {
  int64_t next = image;
  do next = next + 1 < m->n ? next + 1 : 0;
  while (m->labels[next] != m->labels[image]);
  return next;
}

bool pd_read_image(const struct pd_images *m, int64_t image, const struct pd_input *in, const struct pd_view *v,
                   struct pd_image_room *room, float *to, char *why) {
  if (!v->skip_broken) return read_one(m, image, in, v, room, to, why);
  int64_t at = image;
  do {
    if (!__atomic_load_n(&m->broken[at], __ATOMIC_RELAXED)) {
      if (read_one(m, at, in, v, room, to, why)) return true;
      note_broken(m, at, why);
    }
    at = next_of_class(m, at);
  } while (at != image);
  if (!m->n_labels) return pd_refuse(why, "no image of '%s' can be read; the reasons are above", m->path);
  return pd_refuse(why, "no image of class %d of '%s' can be read; the reasons are above", m->labels[image],
                   m->path);
}
