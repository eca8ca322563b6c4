/* JSON for plans and profiles: written by hand for a stable order, read through cJSON with diagnostics for edited
 * files. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/json.h"

void json_string(Text *t, const char *s) {
  text_add(t, "\"");
  for (s = make_utf8(format("%s", s)); *s; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      text_add(t, "\\%c", c);
    else if (c < 32)
      text_add(t, "\\u%04x", c);
    else
      text_add(t, "%c", c);
  }
  text_add(t, "\"");
}

void json_double(Text *t, double x) { text_add(t, "%.9g", x); }

static void keep(void *p) { (void)p; }

/* The line and column at which parsing failed. */
static Span place_of(int file, const char *text, const char *at) {
  Span s = {.file = file, .line = 1, .column = 1};
  for (; text < at && *text; text++) {
    s.column++;
    if (*text == '\n')
      s.line++, s.column = 1;
  }
  s.end_line = s.line;
  s.end_column = s.column + 1;
  return s;
}

cJSON *json_load(const char *path, int *file) {
  cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = alloc, .free_fn = keep});
  size_t n = 0;
  char *text = read_file(path, &n);
  if (!text) {
    int cause = errno;
    *file = source_add(path, "");
    error_at((Span){.file = *file}, "PD0601", "cannot read the file: %s", read_failure(cause));
    return NULL;
  }
  *file = source_add(path, text);
  const char *end = NULL;
  cJSON *root = cJSON_ParseWithLengthOpts(text, n + 1, &end, true);
  if (!root) {
    error_at(place_of(*file, text, end ? end : text), "PD0602", "invalid JSON from this place on");
    return NULL;
  }
  if (!cJSON_IsObject(root)) {
    error_at((Span){.file = *file}, "PD0602", "the file must contain one JSON object");
    return NULL;
  }
  return root;
}

static const char *full_name(const JsonPlace *at, const char *key) {
  return *at->path ? format("%s.%s", at->path, key) : key;
}

static Diagnostic *complain(const JsonPlace *at, const char *key, const char *what) {
  return error_at((Span){.file = at->file}, "PD0603", "'%s' %s", full_name(at, key), what);
}

const cJSON *json_member(const JsonPlace *at, const char *key) {
  const cJSON *m = cJSON_GetObjectItemCaseSensitive(at->object, key);
  if (!m)
    complain(at, key, "is missing");
  return m;
}

bool json_get_int(const JsonPlace *at, const char *key, int64_t least, int64_t most, int64_t *out) {
  const cJSON *m = json_member(at, key);
  if (!m)
    return false;
  double x = m->valuedouble;
  if (!cJSON_IsNumber(m) || !(x >= (double)least && x <= (double)most) || x != floor(x)) {
    complain(at, key, format("must be a whole number from %lld to %lld", (long long)least, (long long)most));
    return false;
  }
  *out = (int64_t)x;
  return true;
}

/* The largest accepted time: 30 years in milliseconds. Sums with larger ones would lose precision. */
#define MOST_SECONDS 1e12

bool json_get_seconds(const JsonPlace *at, const char *key, double *out) {
  const cJSON *m = json_member(at, key);
  if (!m)
    return false;
  if (!cJSON_IsNumber(m) || !(m->valuedouble >= 0 && m->valuedouble <= MOST_SECONDS)) {
    complain(at, key, format("must be a number from 0 to %g", MOST_SECONDS));
    return false;
  }
  *out = m->valuedouble;
  return true;
}

bool json_get_bool(const JsonPlace *at, const char *key, bool *out) {
  const cJSON *m = json_member(at, key);
  if (m && !cJSON_IsBool(m))
    complain(at, key, "must be true or false");
  *out = m && cJSON_IsTrue(m);
  return m && cJSON_IsBool(m);
}

const char *json_get_string(const JsonPlace *at, const char *key) {
  const cJSON *m = json_member(at, key);
  if (m && !cJSON_IsString(m))
    complain(at, key, "must be a string");
  return m && cJSON_IsString(m) ? m->valuestring : NULL;
}

const cJSON *json_get_array(const JsonPlace *at, const char *key, int least) {
  const cJSON *m = json_member(at, key);
  if (!m)
    return NULL;
  if (!cJSON_IsArray(m) || cJSON_GetArraySize(m) < least) {
    complain(at, key, format("must be a list of at least %d", least));
    return NULL;
  }
  return m;
}

JsonPlace json_element(const JsonPlace *at, const char *key, const cJSON *array, int i) {
  const char *path = format("%s[%d]", full_name(at, key), i);
  return (JsonPlace){at->file, path, cJSON_GetArrayItem(array, i)};
}

bool json_only(const JsonPlace *at, const char *const *keys) {
  int n = 0;
  while (keys[n])
    n++;
  if (!cJSON_IsObject(at->object)) {
    error_at((Span){.file = at->file}, "PD0603", "'%s' must be an object", at->path);
    return false;
  }
  bool good = true;
  for (const cJSON *m = at->object->child; m; m = m->next) {
    int i = 0;
    while (i < n && strcmp(keys[i], m->string) != 0)
      i++;
    if (i < n)
      continue;
    Diagnostic *d = complain(at, m->string, "is not a known member");
    const char *near = nearest(m->string, keys, n);
    if (near)
      help(d, "did you mean '%s'?", near);
    good = false;
  }
  return good;
}
