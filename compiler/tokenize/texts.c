#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "data/data.h"
#include "shared/read_file.h"
#include "tokenize/internal.h"

/* A text is cut at the first position after PART bytes at which both sides tokenize independently. LONGEST: bytes of a
 * part of a compressed text, against small files that unpack into huge ones. */
enum { PART = 256 << 10, BATCH = 16 << 20, LONGEST = 256 << 20 };

/* Refuses zero bytes, which mean another format or UTF-16. */
static bool is_text(const char *map, size_t size, const char *path, char *why) {
  static const char *const json[] = {".json", ".json.gz", ".json.xz", ".json.zst", NULL};
  const struct pd_array file = {.path = path, .map = map, .size = size};
  const size_t looked_at = size < 65536 ? size : 65536;
  const char *zero = memchr(map, 0, looked_at);
  if (pd_ends_with_any(path, json))
    return pd_refuse(why, "'%s' is JSON: write one object a line and name the file .jsonl", path);
  return !zero ||
         (pd_refuse_foreign(&file, why) &&
          pd_refuse(why,
                    "'%s' is not a text: it has a zero byte at offset %zu; unpack archives and convert UTF-16",
                    path, (size_t)(zero - map)));
}

/* ---- files --------------------------------------------------------------------------------------- */

static void end_unpacking(Texts *t) {
  unpack_close(t->unpacking);
  unmap_watched(t->packed);
  t->unpacking = NULL;
  t->packed = NULL;
}

/* Replaces the piece of a compressed text by its rest and the next bytes. Parts of the batch may be in the old piece;
 * NULL: none. */
static bool read_more(Texts *t, Batch *b, char *why) {
  const char *path = t->request->files[t->file];
  const size_t rest = t->size - t->at, more = rest < BATCH ? BATCH : rest, before = unpack_position(t->unpacking);
  size_t n;
  if (rest >= LONGEST)
    return pd_refuse(
        why,
        "'%s' unpacks to a line or paragraph of more than 256 MiB. help: if that is a text, unpack the "
        "file first",
        path);
  char *piece = map_memory(path, rest + more, why);
  if (!piece)
    return false;
  if (rest)
    memcpy(piece, t->map + t->at, rest);
  if (b && t->at > 0)
    b->map[b->n_maps++] = t->map;
  else
    unmap_watched(t->map);
  t->map = piece;
  t->offset += t->at;
  t->at = t->size = 0;
  if (!unpack_read(t->unpacking, piece + rest, more, &n, why))
    return false;
  t->size = rest + n;
  t->bytes += (int64_t)(unpack_position(t->unpacking) - before);
  if (unpack_ended(t->unpacking))
    end_unpacking(t);
  return true;
}

static bool map_next(Texts *t, char *why) {
  const char *path = t->request->files[t->file];
  const char *map = map_watched(path, &t->size, why);
  if (!map)
    return false;
  madvise((void *)map, t->size, MADV_SEQUENTIAL);
  t->at = t->offset = 0;
  t->line = 0;
  t->map = map;
  t->in_pieces = pd_packing_of(map, t->size) != PD_NOT_PACKED;
  if (t->in_pieces) {
    t->packed = map;
    t->map = NULL;
    t->unpacking = unpack_open(path, map, t->size, why);
    t->size = 0;
    if (!t->unpacking || !read_more(t, NULL, why))
      return false;
    if (!t->size)
      return pd_refuse(why, "cannot read '%s': it unpacks to nothing", path);
  }
  t->at = t->start = skip_mark(t->map, t->size);
  return is_text(t->map, t->size, path, why);
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
  const size_t offset = (size_t)place->offset;
  struct stat st;
  for (int i = 0; i < place->file; i++)
    t->bytes += stat(t->request->files[i], &st) ? 0 : st.st_size;
  t->file = place->file;
  if (!map_next(t, why))
    return false;
  while (t->unpacking && offset >= t->offset + t->size) {
    t->at = t->size;
    if (!read_more(t, NULL, why))
      return false;
  }
  if (offset >= t->offset + t->size)
    return pd_refuse(why, "'%s' has no byte at the offset %zu, where --resume continues",
                     t->request->files[t->file], offset);
  t->at = offset - t->offset;
  t->line = place->line;
  t->bytes += t->in_pieces ? 0 : place->offset;
  return true;
}

/* ---- parts --------------------------------------------------------------------------------------- */

/* Each sets the part at t->at. False: it has no end in this piece of the text. */
static bool next_line(Texts *t, Part *p) {
  const char *at = t->map + t->at, *newline = memchr(at, '\n', t->size - t->at);
  size_t bytes = newline ? (size_t)(newline - at) : t->size - t->at;
  if (!newline && t->unpacking)
    return false;
  *p = (Part){.at = at, .bytes = bytes, .line = ++t->line, .first = true, .last = true};
  return true;
}

static bool next_chunk(Texts *t, Part *p) {
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
  if (end == left && t->unpacking)
    return false;
  *p = (Part){.at = at, .bytes = end, .first = t->offset + t->at == t->start, .last = end == left};
  return true;
}

/* Adds the next part of the text to the batch, unless the text has ended. */
static bool add_next(Texts *t, Batch *b, char *why) {
  const char *path = t->request->files[t->file];
  const bool lines = pd_is_lines_name(path);
  bool found = false;
  Part part;
  while (!found && (t->at < t->size || t->unpacking)) {
    found = t->at < t->size && (lines ? next_line : next_chunk)(t, &part);
    if (!found && !read_more(t, b, why))
      return false;
  }
  if (!found)
    return true;
  part.path = path, part.file = t->file, part.offset = t->offset + t->at;
  t->at += part.bytes + lines;
  b->part[b->n++] = part;
  b->bytes += part.bytes;
  t->bytes += t->in_pieces ? 0 : (int64_t)part.bytes + lines;
  return true;
}

bool texts_next(Texts *t, Batch *b, char *why) {
  b->n = b->n_maps = 0;
  b->bytes = 0;
  while (b->n < MOST_PARTS && b->n_maps < MOST_PARTS - 1 && b->bytes < BATCH) {
    if (!t->map && t->file == t->request->n_files)
      return true;
    if ((!t->map && !map_next(t, why)) || !add_next(t, b, why))
      return false;
    if (t->at >= t->size && !t->unpacking) {
      b->map[b->n_maps++] = t->map;
      t->map = NULL;
      t->file++;
    }
  }
  return true;
}

void texts_close(Texts *t) {
  end_unpacking(t);
  unmap_watched(t->map);
  t->map = NULL;
}

bool print_first_line(const char *path, FILE *out) {
  const TokenizeRequest request = {.files = &path, .n_files = 1};
  char why[PD_WHY] = "";
  Texts t;
  Part line = {0};
  signals_watch(NULL);
  bool good = texts_open(&t, &request, NULL, why) && map_next(&t, why);
  while (good && !line.bytes && (t.at < t.size || t.unpacking)) {
    if (t.at < t.size && next_line(&t, &line)) {
      t.at += line.bytes + 1;
      line.bytes = strspn(line.at, " \t\r") < line.bytes ? line.bytes : 0;
    } else
      good = read_more(&t, NULL, why);
  }
  if (good)
    fprintf(out, "%.*s\n", (int)line.bytes, line.at ? line.at : "");
  texts_close(&t);
  signals_restore();
  if (!good)
    error_at(NO_SPAN, "PD0660", "%s", why);
  return good;
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
