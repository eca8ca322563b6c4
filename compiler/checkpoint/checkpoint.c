#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/manifest.h"
#include "shared/safetensors.h"

/* ---- files ----------------------------------------------------------------------------------- */

typedef struct Mapped {
  const char *at; /* NULL: it cannot be read, for the reason in `why` */
  size_t bytes;
} Mapped;

static Mapped map_file(const char *path, char *why) {
  Mapped m = {0};
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || fstat(fd, &st) != 0) {
    pd_refuse(why, "cannot read it: %s", strerror(errno));
  } else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
    pd_refuse(why, S_ISREG(st.st_mode) ? "it is empty" : "it is no regular file");
  } else {
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
      pd_refuse(why, "cannot map it: %s", strerror(errno));
    else
      m = (Mapped){at, (size_t)st.st_size};
  }
  if (fd >= 0)
    close(fd);
  return m;
}

static void unmap(Mapped m) {
  if (m.at)
    munmap((void *)m.at, m.bytes);
}

/* ---- a step ---------------------------------------------------------------------------------- */

typedef enum { UNFINISHED, DAMAGED, PLAIN, SOUND } Standing;
static const char *const standings[] = {"not finished", "damaged", "whole, without a manifest: not verified",
                                        "sound"};

typedef struct Step {
  const char *directory;
  int64_t number, samples, bytes; /* -1: not known */
  int shards;
  Standing standing;
  const char *model, *written, *file; /* file: that is damaged */
  char why[PD_WHY];
} Step;

static const char *path_in(const Step *s, const char *name) {
  return format("%s/step-%lld/%s", s->directory, (long long)s->number, name);
}

static const char *shard_name(int shard, int shards) {
  return format("shard-%d-of-%d.safetensors", shard, shards);
}

static bool check_shard(Step *s, const struct pd_shard_sum *sum, int shard) {
  s->file = path_in(s, shard_name(shard, s->shards));
  Mapped m = map_file(s->file, s->why);
  bool good = m.at && pd_shard_check(sum, m.at, m.bytes, s->why);
  unmap(m);
  return good;
}

static void read_manifest(Step *s, const struct pd_manifest *m) {
  s->samples = m->samples;
  s->shards = m->n_shards;
  s->model = format("%s", m->model);
  s->written = format("%s", m->written);
  s->bytes = 0;
  for (int i = 0; i < m->n_shards; i++)
    s->bytes += m->shard[i].bytes;
}

/* Of a step with a manifest. */
static void verify(Step *s) {
  struct pd_manifest m = {0};
  s->standing = DAMAGED;
  s->file = path_in(s, PD_MANIFEST_NAME);
  Mapped text = map_file(s->file, s->why);
  bool good = text.at && pd_manifest_parse(text.at, text.bytes, &m, s->why);
  unmap(text);
  if (good)
    read_manifest(s, &m);
  if (good && m.step != s->number)
    good = pd_refuse(s->why, "it holds step %lld: the directory was renamed", (long long)m.step);
  for (int i = 0; good && i < m.n_shards; i++)
    good = check_shard(s, &m.shard[i], i);
  if (good)
    s->standing = SOUND;
  pd_manifest_free(&m);
}

/* How many shards there are of the one that stands in the folder under this name; 0: they are not all there. */
static int count_shards(const Step *s) {
  enum { MOST_SHARDS = 1 << 16 };
  for (int n = 1; n <= MOST_SHARDS; n++) {
    if (access(path_in(s, shard_name(0, n)), F_OK) != 0)
      continue;
    int i = 1;
    while (i < n && access(path_in(s, shard_name(i, n)), F_OK) == 0)
      i++;
    if (i == n)
      return n;
  }
  return 0;
}

/* Of a step without one: of an earlier version, or of a run that was killed while it wrote. */
static void look_at_shards(Step *s) {
  struct pd_safetensors shard;
  s->shards = count_shards(s);
  s->standing = UNFINISHED;
  if (!s->shards)
    return;
  s->file = path_in(s, shard_name(0, s->shards));
  Mapped m = map_file(s->file, s->why);
  if (m.at && pd_safetensors_parse(m.at, m.bytes, &shard, s->why)) {
    bool marked = *pd_safetensors_metadata(&shard, PD_MANIFEST_MARK) != 0;
    s->standing = marked ? UNFINISHED : PLAIN;
    s->model = format("%s", pd_safetensors_metadata(&shard, "model"));
    pd_safetensors_free(&shard);
  } else {
    s->standing = DAMAGED;
  }
  unmap(m);
}

static Step examine(const char *directory, int64_t number) {
  Step s = {.directory = directory, .number = number, .samples = -1, .bytes = -1, .written = ""};
  if (access(path_in(&s, PD_MANIFEST_NAME), F_OK) == 0)
    verify(&s);
  else
    look_at_shards(&s);
  return s;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *count_text(int64_t n) { return n < 0 ? "" : format("%lld", (long long)n); }

static struct pd_best read_best(const char *directory) {
  struct pd_best best = {.step = -1};
  char why[PD_WHY];
  const char *path = format("%s/" PD_BEST_NAME, directory);
  Mapped m = map_file(path, why);
  if (!m.at)
    return best;
  if (!pd_best_parse(m.at, m.bytes, &best))
    best.step = -1;
  unmap(m);
  return best;
}

static void print_step(const Step *s, const struct pd_best *best, FILE *out) {
  fprintf(out, "%12lld %14s %7s %12s  %-20s  %s", (long long)s->number, count_text(s->samples),
          s->shards ? count_text(s->shards) : "", s->bytes < 0 ? "" : bytes_text(s->bytes), s->written,
          standings[s->standing]);
  if (s->number == best->step)
    fprintf(out, ", the best: validation loss %.6g", best->loss);
  fprintf(out, "\n");
}

bool checkpoint_list(const char *directory, FILE *out) {
  int64_t *numbers, newest = -1;
  int n = pd_list_steps(directory, &numbers);
  if (n < 0) {
    error_at(NO_SPAN, "PD0620", "cannot read the directory '%s': %s", directory, strerror(errno));
    return false;
  }
  const struct pd_best best = read_best(directory);
  fprintf(out, "%12s %14s %7s %12s  %-20s\n", "step", "samples", "shards", "bytes", "written");
  for (int i = 0; i < n; i++) {
    Step s = examine(directory, numbers[i]);
    print_step(&s, &best, out);
    if (newest < 0 && (s.standing == SOUND || s.standing == PLAIN))
      newest = s.number;
    if (s.standing == DAMAGED)
      error_at(NO_SPAN, "PD0621", "'%s': %s", s.file, s.why);
  }
  free(numbers);
  char misnamed[PD_WHY];
  if (pd_find_misnamed_step(directory, misnamed, sizeof misnamed))
    error_at(NO_SPAN, "PD0621", "'%s': " PD_MISNAMED, misnamed);
  if (newest < 0)
    error_at(NO_SPAN, "PD0620", "'%s' holds no complete checkpoint to resume from", directory);
  else
    fprintf(out, "--resume goes on from step %lld\n", (long long)newest);
  return error_count() == 0;
}
