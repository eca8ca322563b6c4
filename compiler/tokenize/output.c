/* llm.c's token files: 256 int32 of header (magic, version, number of tokens), then the tokens. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokenize/internal.h"

enum { HEADER = 256, U16 = 20240520, U16_VERSION = 1, U32 = 20240801, U32_VERSION = 7, AT_ONCE = 1 << 16 };

/* train.bin; with shards train_000000.bin, and so on. */
static const char *path_of(const TokenizeRequest *request, int file) {
  const char *output = request->output, *slash = strrchr(output, '/'), *dot = strrchr(slash ? slash : output, '.');
  if (!request->shard)
    return output;
  size_t stem = dot ? (size_t)(dot - output) : strlen(output);
  return format("%.*s_%06d%s", (int)stem, output, file, dot ? dot : ".bin");
}

static bool write_header(TokenFiles *f) {
  int32_t header[HEADER] = {f->bytes == 2 ? U16 : U32, f->bytes == 2 ? U16_VERSION : U32_VERSION,
                            (int32_t)f->in_file};
  return fwrite(header, sizeof header, 1, f->output.file) == 1;
}

static bool refuse_write(const TokenFiles *f, char *why) {
  return pd_refuse(why, "cannot write '%s': %s", f->path, strerror(errno));
}

static bool open_next(TokenFiles *f, char *why) {
  f->path = path_of(f->request, f->files);
  if (!pd_output_open(&f->output, f->path))
    return refuse_write(f, why);
  f->open = true;
  f->files++;
  f->in_file = 0;
  return write_header(f) || refuse_write(f, why);
}

static bool complete(TokenFiles *f, char *why) {
  bool good = fseek(f->output.file, 0, SEEK_SET) == 0 && write_header(f);
  f->open = false;
  return pd_output_close(&f->output, good) || refuse_write(f, why);
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
    pd_output_close(&f->output, false);
  for (int i = 0; !good && i < f->files; i++)
    unlink(path_of(f->request, i)); /* the last one may not exist yet */
  return good;
}
