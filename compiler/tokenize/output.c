/* llm.c's token files: 256 int32 of header (magic, version, number of tokens), then the tokens. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokenize/internal.h"

enum {
  HEADER = SHARD_HEADER / sizeof(int32_t),
  U16 = 20240520,
  U16_VERSION = 1,
  U32 = 20240801,
  U32_VERSION = 7,
  AT_ONCE = 1 << 16
};

const char *plain_path(const char *path) {
  char *plain = format("%s", path);
  pd_make_plain(plain);
  return make_utf8(plain);
}

const char *output_path(const TokenizeRequest *request, int file) {
  const char *output = request->output;
  const size_t stem = strlen(output) - strlen(".bin");
  return request->shard ? format("%.*s_%06d.bin", (int)stem, output, file) : output;
}

static bool is_input(const TokenizeRequest *request, const struct stat *output) {
  struct stat st;
  for (int i = 0; i < request->n_files; i++)
    if (stat(request->files[i], &st) == 0 && st.st_dev == output->st_dev && st.st_ino == output->st_ino)
      return true;
  return false;
}

/* The shard that follows the last of this call would join a pattern such as 'train_*.bin'. */
static bool refuse_shards(const TokenizeRequest *request, char *why) {
  const char *pattern = format("%.*s_[0-9][0-9][0-9][0-9][0-9][0-9].bin",
                               (int)(strlen(request->output) - strlen(".bin")), request->output);
  glob_t found;
  bool none = glob(pattern, 0, NULL, &found) != 0;
  if (!none)
    pd_refuse(why, "'%s' is a shard of an earlier call: remove such files first", found.gl_pathv[0]);
  globfree(&found);
  return none;
}

bool output_may_be_written(const TokenizeRequest *request, char *why) {
  const char *output = request->output;
  const size_t n = strlen(output);
  struct stat st;
  const char *suffix = request->length ? ".npz" : ".bin";
  if (n < 5 || strcmp(output + n - 4, suffix))
    return pd_refuse(why, "-o '%s': the name of a file of %s ends with %s%s", output,
                     request->length ? "samples" : "tokens", suffix,
                     n > 4 && !strcmp(output + n - 4, ".npz")
                         ? ". help: give --length N, the positions of a sample"
                         : "");
  if (request->shard)
    return resume_is_possible(request) || refuse_shards(request, why);
  if (lstat(output, &st))
    return true;
  if (!S_ISREG(st.st_mode))
    return pd_refuse(why, "cannot write '%s': it is not a regular file", output);
  return !is_input(request, &st) || pd_refuse(why, "-o '%s' is one of the texts", output);
}

static bool write_header(TokenFiles *f) {
  int32_t header[HEADER] = {f->bytes == 2 ? U16 : U32, f->bytes == 2 ? U16_VERSION : U32_VERSION,
                            (int32_t)f->in_file, f->end < 0 ? 0 : f->end + 1};
  return fwrite(header, sizeof header, 1, f->output.file) == 1;
}

static bool refuse_write(const TokenFiles *f, char *why) {
  return pd_refuse(why, "cannot write '%s': %s", f->path, strerror(errno));
}

bool open_beside(struct pd_output *o, const char *path) {
  char folder[PATH_MAX];
  const char *name = pd_folder_of(path, folder);
  pd_remove_left(folder, name);
  signals_hold(true);
  const bool good = pd_output_open(o, path);
  const int error = errno;
  signals_hold(false);
  errno = error;
  return good;
}

bool close_beside(struct pd_output *o, bool ok) {
  signals_hold(true);
  const bool good = pd_output_close(o, ok);
  const int error = errno;
  signals_hold(false);
  errno = error;
  return good;
}

static bool open_next(TokenFiles *f, char *why) {
  f->path = output_path(f->request, f->files);
  if (!open_beside(&f->output, f->path))
    return refuse_write(f, why);
  f->open = true;
  f->files++;
  f->in_file = 0;
  return write_header(f) || refuse_write(f, why);
}

static bool complete(TokenFiles *f, char *why) {
  bool good = fseek(f->output.file, 0, SEEK_SET) == 0 && write_header(f);
  f->open = false;
  signals_hold(true); /* until the shard is in the list */
  good = pd_output_close(&f->output, good) || refuse_write(f, why);
  if (good && f->request->shard && !f->request->resume) {
    Shard *s = alloc(sizeof *s);
    *s = (Shard){f->path, f->shards};
    f->shards = s;
  }
  signals_hold(false);
  return good && (!f->request->resume || resume_write(f, why));
}

static bool write_tokens(TokenFiles *f, const int32_t *tokens, int64_t n) {
  uint16_t small[AT_ONCE];
  for (int64_t at = 0; at < n; at += AT_ONCE) {
    size_t some = (size_t)(n - at < AT_ONCE ? n - at : AT_ONCE);
    for (size_t i = 0; i < some && f->bytes == 2; i++)
      small[i] = (uint16_t)tokens[at + (int64_t)i];
    if (fwrite(f->bytes == 2 ? (const void *)small : tokens + at, (size_t)f->bytes, some, f->output.file) != some)
      return false;
  }
  f->in_file += n;
  f->n += n;
  return true;
}

bool files_add(TokenFiles *f, const int32_t *tokens, int64_t n, char *why) {
  const int64_t most = f->request->shard ? f->request->shard : INT32_MAX;
  const int64_t skipped = n < f->skip ? n : f->skip;
  f->skip -= skipped, f->n += skipped;
  tokens += skipped, n -= skipped;
  while (n > 0) {
    if (f->open && f->in_file == most) {
      if (!f->request->shard)
        return pd_refuse(why, "'%s' would have more tokens than the %d that its header can count", f->path,
                         INT32_MAX);
      if (!complete(f, why))
        return false;
    }
    if (!f->open && !open_next(f, why))
      return false;
    int64_t some = n < most - f->in_file ? n : most - f->in_file;
    if (!write_tokens(f, tokens, some))
      return refuse_write(f, why);
    tokens += some;
    n -= some;
  }
  return true;
}

bool files_close(TokenFiles *f, bool good, char *why) {
  if (good && f->open)
    good = complete(f, why);
  if (f->open)
    close_beside(&f->output, false);
  for (const Shard *s = f->shards; s && !good; s = s->before)
    unlink(s->path);
  if (good)
    resume_end(f->request);
  return good;
}
