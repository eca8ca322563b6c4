#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

/* A text is cut at the first position after PART bytes at which both sides tokenize independently. */
enum { PART = 256 << 10, BATCH = 16 << 20 };

static bool is_lines(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot && (!strcasecmp(dot, ".jsonl") || !strcasecmp(dot, ".ndjson"));
}

/* Refuses zero bytes, which mean another format or UTF-16. */
static bool is_text(const char *map, size_t size, const char *path, char *why) {
  const struct pd_array file = {.path = path, .map = map, .size = size};
  const size_t looked_at = size < 65536 ? size : 65536, length = strlen(path);
  const char *zero = memchr(map, 0, looked_at);
  if (length > 5 && !strcasecmp(path + length - 5, ".json"))
    return pd_refuse(why, "'%s' is JSON: write one object a line and name the file .jsonl", path);
  return !zero ||
         (pd_refuse_foreign(&file, why) &&
          pd_refuse(why,
                    "'%s' is not a text: it has a zero byte at offset %zu; unpack archives and convert UTF-16",
                    path, (size_t)(zero - map)));
}

static bool map_next(Texts *t, char *why) {
  const char *path = t->request->files[t->file];
  const char *map = map_watched(path, &t->size, why);
  if (!map)
    return false;
  madvise((void *)map, t->size, MADV_SEQUENTIAL);
  t->map = map;
  t->at = skip_mark(map, t->size);
  t->line = 0;
  return is_text(map, t->size, path, why);
}

bool texts_open(Texts *t, const TokenizeRequest *request, const struct pd_tokenizer *tokenizer, char *why) {
  *t = (Texts){.request = request, .tokenizer = tokenizer};
  for (int i = 0; i < request->n_files; i++) {
    struct stat st;
    if (stat(request->files[i], &st))
      return pd_refuse(why, "cannot read '%s': %s", request->files[i], strerror(errno));
    t->all += st.st_size;
  }
  return true;
}

bool texts_resume(Texts *t, const Place *place, char *why) {
  struct stat st;
  t->file = place->file;
  if (!map_next(t, why))
    return false;
  if ((size_t)place->offset >= t->size)
    return pd_refuse(why, "'%s' has no byte at the offset %lld, where --resume continues",
                     t->request->files[t->file], (long long)place->offset);
  t->at = (size_t)place->offset;
  t->line = place->line;
  t->bytes = place->offset;
  for (int i = 0; i < t->file; i++)
    t->bytes += stat(t->request->files[i], &st) ? 0 : st.st_size;
  return true;
}

static Part next_line(Texts *t) {
  const char *at = t->map + t->at, *newline = memchr(at, '\n', t->size - t->at);
  size_t bytes = newline ? (size_t)(newline - at) : t->size - t->at;
  return (Part){.at = at, .bytes = bytes, .line = ++t->line, .first = true, .last = true};
}

static Part next_chunk(Texts *t) {
  const char *at = t->map + t->at;
  size_t left = t->size - t->at, end = left;
  for (size_t from = t->request->part ? (size_t)t->request->part : PART; from < left; from++) {
    const char *newline = memchr(at + from, '\n', left - from);
    if (!newline)
      break;
    from = (size_t)(newline - at);
    if (pd_tokenizer_parts(t->tokenizer, at, left, from + 1)) {
      end = from + 1;
      break;
    }
  }
  return (Part){.at = at, .bytes = end, .first = t->at == skip_mark(t->map, t->size), .last = end == left};
}

bool texts_next(Texts *t, Batch *b, char *why) {
  size_t bytes = 0;
  b->n = b->n_maps = 0;
  while (b->n < MOST_PARTS && bytes < BATCH) {
    if (!t->map) {
      if (t->file == t->request->n_files)
        return true;
      if (!map_next(t, why))
        return false;
    }
    const char *path = t->request->files[t->file];
    if (t->at < t->size) {
      Part part = is_lines(path) ? next_line(t) : next_chunk(t);
      part.path = path, part.file = t->file, part.offset = t->at;
      t->at += part.bytes + (part.line > 0);
      b->part[b->n++] = part;
      bytes += part.bytes;
      t->bytes += (int64_t)part.bytes + (part.line > 0);
    }
    if (t->at >= t->size) {
      b->map[b->n_maps++] = t->map;
      t->map = NULL;
      t->file++;
    }
  }
  return true;
}

void texts_close(Texts *t) {
  unmap_watched(t->map);
  t->map = NULL;
}

void batch_free(Batch *b) {
  for (int i = 0; i < b->n; i++) {
    free(b->part[i].tokens);
    free(b->part[i].loss);
    free(b->part[i].why);
  }
  for (int i = 0; i < b->n_maps; i++)
    unmap_watched(b->map[i]);
  b->n = b->n_maps = 0;
}
