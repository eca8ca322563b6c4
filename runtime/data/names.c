/* Names of files, and of classes of images. */
#include "data/data.h"

#include <string.h>
#include <strings.h>

bool pd_ends_with_any(const char *name, const char *const *suffixes) {
  const size_t n = strlen(name);
  for (; *suffixes; suffixes++) {
    const size_t m = strlen(*suffixes);
    if (n > m && !strcasecmp(name + n - m, *suffixes)) return true;
  }
  return false;
}

bool pd_is_image_name(const char *name) {
  static const char *const read[] = {".jpg", ".jpeg", ".png", NULL};
  return pd_ends_with_any(name, read);
}

bool pd_is_lines_name(const char *path) {
  static const char *const lines[] = {".jsonl",     ".ndjson",    ".jsonl.gz",   ".jsonl.xz", ".jsonl.zst",
                                      ".ndjson.gz", ".ndjson.xz", ".ndjson.zst", NULL};
  return pd_ends_with_any(path, lines);
}

static size_t folder_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? (size_t)(slash - path) : 0;
}

int pd_compare_paths(const char *a, const char *b) {
  const size_t n = folder_of(a), m = folder_of(b);
  const int folders = memcmp(a, b, n < m ? n : m);
  if (folders) return folders;
  if (n != m) return n < m ? -1 : 1;
  return strcmp(a + n, b + m);
}

int pd_plain_character(const char *text) {
  const unsigned char *c = (const unsigned char *)text;
  const int more = *c < 0x80                 ? 0
                   : *c >= 0xc2 && *c < 0xe0 ? 1
                   : *c >= 0xe0 && *c < 0xf0 ? 2
                   : *c >= 0xf0 && *c < 0xf5 ? 3
                                             : -1;
  if (more < 0 || pd_control_bytes(text, strnlen(text, 3))) return 0;
  if ((*c == 0xe0 && c[1] < 0xa0) || (*c == 0xed && c[1] >= 0xa0) || (*c == 0xf0 && c[1] < 0x90) ||
      (*c == 0xf4 && c[1] >= 0x90))
    return 0;
  for (int i = 1; i <= more; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  return 1 + more;
}

/* Names go into JSON and into tables. */
bool pd_is_plain_utf8(const char *name) {
  int n = 1;
  while (*name && (n = pd_plain_character(name))) name += n;
  return n != 0;
}
