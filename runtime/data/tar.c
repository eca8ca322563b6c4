/* Samples in a tar file, as WebDataset writes them: consecutive members with equal keys are a sample. A key is the
 * path up to the first dot of its last part; KEY.jpg, .jpeg or .png is the image, KEY.cls its class as a decimal
 * number. Other members are ignored. Headers are POSIX's (ustar, with pax records) and GNU's long names. */
#include "data/data.h"

#include <string.h>
#include <strings.h>

enum {
  BLOCK = 512,
  NAME = 100,
  SIZE_AT = 124,
  SUM_AT = 148,
  TYPE_AT = 156,
  MARK_AT = 257,
  PREFIX_AT = 345,
  PREFIX = 155
};

struct member {
  const char *path; /* not terminated; in two parts if `prefix` is not empty */
  size_t path_length;
  const char *prefix;
  size_t prefix_length, data, size;
};

/* ---- headers --------------------------------------------------------------------------------- */

/* Octal digits between blanks, or with the first bit set a binary number; UINT64_MAX: invalid. */
static uint64_t number_of(const char *at, size_t n) {
  const unsigned char *c = (const unsigned char *)at;
  uint64_t x = 0;
  if (*c & 0x80) {
    for (size_t i = n > 8 ? n - 8 : 0; i < n; i++) x = x << 8 | c[i];
    return x;
  }
  size_t i = 0;
  while (i < n && c[i] == ' ') i++;
  for (; i < n && c[i] >= '0' && c[i] < '8'; i++) x = x << 3 | (uint64_t)(c[i] - '0');
  return i < n && c[i] && c[i] != ' ' ? UINT64_MAX : x;
}

static bool sum_fits(const char *header) {
  uint64_t sum = 0;
  for (int i = 0; i < BLOCK; i++) sum += i >= SUM_AT && i < SUM_AT + 8 ? ' ' : (unsigned char)header[i];
  return sum == number_of(header + SUM_AT, 8);
}

static bool is_zero(const char *block) {
  for (int i = 0; i < BLOCK; i++)
    if (block[i]) return false;
  return true;
}

bool pd_is_tar(const struct pd_array *a) {
  const size_t n = strlen(a->path);
  if (a->size < BLOCK) return false;
  return !memcmp(a->map + MARK_AT, "ustar", 5) || (n > 4 && !strcmp(a->path + n - 4, ".tar") && is_zero(a->map));
}

static size_t length_of(const char *text, size_t most) {
  const char *end = memchr(text, 0, most);
  return end ? (size_t)(end - text) : most;
}

/* Takes path and size from pax records "LENGTH NAME=VALUE\n". */
static void read_records(const char *at, size_t n, struct member *next, uint64_t *size) {
  while (n) {
    size_t length = 0, digits = 0;
    while (digits < n && digits < 9 && at[digits] >= '0' && at[digits] <= '9')
      length = 10 * length + (size_t)(at[digits++] - '0');
    if (!digits || length <= digits + 1 || length > n) return;
    const char *name = at + digits + 1, *end = at + length - 1;
    const size_t left = (size_t)(end - name);
    if (left > 5 && !memcmp(name, "path=", 5)) {
      next->path = name + 5;
      next->path_length = length_of(name + 5, left - 5);
    }
    if (left > 5 && left < 25 && !memcmp(name, "size=", 5)) {
      *size = 0;
      for (const char *c = name + 5; c < end && *c >= '0' && *c <= '9'; c++)
        *size = 10 * *size + (uint64_t)(*c - '0');
    }
    at += length;
    n -= length;
  }
}

/* The next regular file at or after *at. 0: the end; -1: invalid. */
static int next_member(const struct pd_array *a, size_t *at, struct member *m, char *why) {
  struct member named = {0}; /* by a header before that of the file */
  uint64_t recorded = UINT64_MAX;
  while (*at + BLOCK <= a->size) {
    const char *h = a->map + *at;
    if (is_zero(h)) return 0;
    const char type = h[TYPE_AT];
    const bool regular = type == '0' || !type || type == '7';
    uint64_t size = regular && recorded != UINT64_MAX ? recorded : number_of(h + SIZE_AT, 12);
    if (!sum_fits(h) || size > a->size - *at - BLOCK) {
      pd_refuse(why, "'%s' is not a whole tar file: %s at offset %zu", a->path,
                sum_fits(h) ? "the file ends within the member" : "there is no valid header", *at);
      return -1;
    }
    const size_t data = *at + BLOCK;
    *at = data + (size_t)size + (BLOCK - (size_t)size % BLOCK) % BLOCK;
    if (type == 'L') {
      named.path = a->map + data;
      named.path_length = length_of(named.path, (size_t)size);
    } else if (type == 'x')
      read_records(a->map + data, (size_t)size, &named, &recorded);
    else if (regular) {
      *m = (struct member){.path = h, .path_length = length_of(h, NAME), .data = data, .size = (size_t)size};
      if (named.path) {
        m->path = named.path;
        m->path_length = named.path_length;
      } else if (!memcmp(h + MARK_AT, "ustar\0", 6)) {
        m->prefix = h + PREFIX_AT;
        m->prefix_length = length_of(m->prefix, PREFIX);
      }
      return 1;
    } else {
      named = (struct member){0};
      recorded = UINT64_MAX;
    }
  }
  pd_refuse(why, "'%s' is not a whole tar file: there is no end mark after offset %zu", a->path, *at);
  return -1;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Length of the key in the path; false for a file without a dot, or one that starts with a dot. */
static bool split(const struct member *m, size_t *key) {
  size_t start = m->path_length;
  while (start && m->path[start - 1] != '/') start--;
  const char *dot = memchr(m->path + start, '.', m->path_length - start);
  *key = dot ? (size_t)(dot - m->path) : 0;
  return dot && *key > start;
}

static bool has_type(const struct member *m, size_t key, const char *type) {
  const size_t n = m->path_length - key - 1;
  return n == strlen(type) && !strncasecmp(m->path + key + 1, type, n);
}

static bool same_key(const struct member *a, size_t key_a, const struct member *b, size_t key_b) {
  return key_a == key_b && !memcmp(a->path, b->path, key_a) && a->prefix_length == b->prefix_length &&
         (!a->prefix_length || !memcmp(a->prefix, b->prefix, a->prefix_length));
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int32_t pd_class_in(const char *text, size_t n) {
  enum { MOST = 100000000 };
  int32_t x = 0;
  size_t i = 0;
  while (i < n && is_blank(text[i])) i++;
  bool ok = i < n && text[i] >= '0' && text[i] <= '9';
  for (; i < n && text[i] >= '0' && text[i] <= '9' && x < MOST; i++) x = 10 * x + (text[i] - '0');
  for (; i < n; i++) ok &= is_blank(text[i]);
  return ok ? x : -1;
}

/* Adds a member to the sample of its key. */
static bool add_member(const struct pd_array *a, const struct member *m, size_t key, struct pd_tar_sample *s,
                       char *why) {
  const char *name = m->path;
  const int length = m->path_length < NAME ? (int)m->path_length : NAME;
  if (has_type(m, key, "jpg") || has_type(m, key, "jpeg") || has_type(m, key, "png")) {
    if (s->name) return pd_refuse(why, "'%s': '%.*s' is a second image of its key", a->path, length, name);
    s->at = m->data;
    s->bytes = m->size;
    s->name = m->path;
    s->name_length = m->path_length;
  } else if (has_type(m, key, "cls")) {
    s->label = pd_class_in(a->map + m->data, m->size);
    if (s->label < 0) return pd_refuse(why, "'%s': '%.*s' is not the number of a class", a->path, length, name);
  }
  return true;
}

/* The state of a pass over the members. */
struct reading {
  struct pd_tar_sample *to;
  int64_t room, n;
  struct pd_tar_sample sample; /* of the last key */
  struct member last;
  size_t key;
  struct pd_tar_ignored *ignored;
};

static const struct pd_tar_sample none = {.label = -1};

/* Counts the sample of the last key, and stores it if there is room. */
static bool end_sample(const struct pd_array *a, struct reading *r, char *why) {
  const char *key = r->last.path;
  const size_t length = r->key < NAME ? r->key : NAME;
  if (r->sample.name) {
    if (r->n < r->room) r->to[r->n] = r->sample;
    r->n++;
  } else if (r->sample.label >= 0)
    return pd_refuse(why, "'%s': the key '%.*s' has no .jpg, .jpeg or .png file", a->path, (int)length, key);
  else if (key && !r->ignored->keys++) {
    r->ignored->example = key;
    r->ignored->length = length;
  }
  r->sample = none;
  return true;
}

int64_t pd_tar_samples(const struct pd_array *a, struct pd_tar_sample *to, int64_t room,
                       struct pd_tar_ignored *ignored, char *why) {
  struct reading r = {.to = to, .room = room, .sample = none, .ignored = ignored};
  struct member m;
  size_t at = 0, key;
  int found;
  *ignored = (struct pd_tar_ignored){0};
  while ((found = next_member(a, &at, &m, why)) > 0) {
    if (!split(&m, &key)) continue;
    if (r.last.path && !same_key(&m, key, &r.last, r.key) && !end_sample(a, &r, why)) return -1;
    if (!add_member(a, &m, key, &r.sample, why)) return -1;
    r.last = m;
    r.key = key;
  }
  return found < 0 || !end_sample(a, &r, why) ? -1 : r.n;
}
