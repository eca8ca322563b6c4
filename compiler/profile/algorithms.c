/* Algorithms of products: parses the output of `pdc profile`'s program, and reads and writes files. */
#include "profile/algorithms.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const algorithm_members[ALGORITHM_NUMBERS] = {"id",      "tile",        "stages",
                                                          "split_k", "reduction",   "swizzle",
                                                          "custom",  "inner_shape", "cluster_shape"};
enum { SPLIT_K = 3, REDUCTION = 4 };
/* cuBLASLt's deterministic reductions for split_k: none, and f32 in the workspace. */
enum { REDUCTION_NONE = 0, REDUCTION_COMPUTE_TYPE = 2 };

static int64_t least(int member) { return member == SPLIT_K; }
static int64_t most(int member) {
  return member == 0 ? INT32_MAX : member == SPLIT_K || member >= ALGORITHM_NUMBERS - 2 ? UINT16_MAX : UINT32_MAX;
}
static bool keeps_order(const Algorithm *a) {
  return a->number[REDUCTION] == REDUCTION_NONE || a->number[REDUCTION] == REDUCTION_COMPUTE_TYPE;
}

/* ---- lines ------------------------------------------------------------------------------------------ */

/* Whether `at` starts with a word and a space; skips both. */
static bool take_word(const char **at, const char *word) {
  size_t n = strlen(word);
  bool there = !strncmp(*at, word, n) && (*at)[n] == ' ';
  *at += there ? n + 1 : 0;
  return there;
}

static bool take_int(const char **at, int64_t from, int64_t to, int64_t *out) {
  char *end;
  *out = strtoll(*at, &end, 10);
  bool good = end != *at && *end == ' ' && *out >= from && *out <= to;
  *at = good ? end + 1 : *at;
  return good;
}

static bool take_seconds(const char **at, double *out) {
  char *end;
  *out = strtod(*at, &end);
  bool good = end != *at && *end == ' ' && *out > 0 && isfinite(*out);
  *at = good ? end + 1 : *at;
  return good;
}

bool algorithm_parse(const char *line, size_t n, Algorithm *out) {
  const char *at = format("%.*s", (int)n, line);
  *out = (Algorithm){0};
  bool good = take_word(&at, "algorithm");
  for (int i = 0; i < ALGORITHM_NUMBERS; i++)
    good = good && take_int(&at, least(i), most(i), &out->number[i]);
  good = good && take_seconds(&at, &out->seconds) && take_seconds(&at, &out->first_seconds) && *at;
  out->product = good ? intern(at) : NULL;
  return good && keeps_order(out);
}

bool product_library_parse(const char *line, size_t n, const char *word, ProductLibrary *out) {
  const char *at = format("%.*s", (int)n, line);
  *out = (ProductLibrary){0};
  bool good = take_word(&at, word) && take_int(&at, 1, INT64_C(1) << 53, &out->version) && *at;
  out->device = good ? intern(at) : NULL;
  return good;
}

/* ---- files ------------------------------------------------------------------------------------------ */

void algorithms_write(const AlgorithmList *list, bool times, int indent, Text *t) {
  text_add(t, "%*s\"algorithms\": [", indent, "");
  for (int i = 0; i < list->n; i++) {
    const Algorithm *a = &list->at[i];
    text_add(t, "%s\n%*s{ \"product\": ", i ? "," : "", indent + 2, "");
    json_string(t, a->product);
    text_add(t, ",\n%*s", indent + 4, "");
    for (int k = 0; k < ALGORITHM_NUMBERS; k++)
      text_add(t, "%s\"%s\": %lld", k ? ", " : "", algorithm_members[k], (long long)a->number[k]);
    if (times) {
      text_add(t, ",\n%*s\"seconds\": ", indent + 4, "");
      json_double(t, a->seconds);
      text_add(t, ", \"first_seconds\": ");
      json_double(t, a->first_seconds);
    }
    text_add(t, " }");
  }
  text_add(t, "\n%*s]", indent, "");
}

static bool complain(const JsonPlace *at, const char *member, const char *what) {
  error_at((Span){.file = at->file}, "PD0603", "'%s.%s' %s", at->path, member, what);
  return false;
}

static bool read_one(const JsonPlace *at, bool times, Algorithm *a) {
  const char *keys[ALGORITHM_NUMBERS + 4] = {"product"};
  int n = 1;
  for (int i = 0; i < ALGORITHM_NUMBERS; i++)
    keys[n++] = algorithm_members[i];
  if (times)
    keys[n++] = "seconds", keys[n++] = "first_seconds";
  const char *product = json_only(at, keys) ? json_get_string(at, "product") : NULL;
  bool good = product != NULL;
  for (int i = 0; i < ALGORITHM_NUMBERS; i++)
    good = good && json_get_int(at, algorithm_members[i], least(i), most(i), &a->number[i]);
  if (times)
    good = good && json_get_seconds(at, "seconds", &a->seconds) &&
           json_get_seconds(at, "first_seconds", &a->first_seconds);
  if (!good)
    return false;
  a->product = intern(product);
  return keeps_order(a) || complain(at, "reduction", "must be 0 or 2: other reductions are not deterministic");
}

bool algorithms_read(const JsonPlace *at, bool times, AlgorithmList *out) {
  const cJSON *list = json_get_array(at, "algorithms", 0);
  for (int i = 0; list && i < cJSON_GetArraySize(list); i++) {
    JsonPlace place = json_element(at, "algorithms", list, i);
    Algorithm a = {0};
    if (!read_one(&place, times, &a))
      return false;
    for (int k = 0; k < out->n; k++)
      if (out->at[k].product == a.product)
        return complain(&place, "product", "appears twice");
    push(out, a);
  }
  return list != NULL;
}

void product_library_write(const char *member, const ProductLibrary *library, Text *t) {
  text_add(t, "\"%s\": { \"device\": ", member);
  json_string(t, library->device);
  text_add(t, ", \"version\": %lld }", (long long)library->version);
}

bool product_library_read(const JsonPlace *top, const char *member, ProductLibrary *out) {
  static const char *const keys[] = {"device", "version", NULL};
  JsonPlace at = {top->file, member, json_member(top, member)};
  const char *device = at.object && json_only(&at, keys) ? json_get_string(&at, "device") : NULL;
  if (!device || !json_get_int(&at, "version", 1, INT64_C(1) << 53, &out->version))
    return false;
  out->device = intern(device);
  return true;
}
