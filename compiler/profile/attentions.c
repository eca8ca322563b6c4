/* Attention by cuDNN: parses the output of `pdc profile`'s program, and reads and writes files. */
#include "profile/attentions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Limits: of the workspace in `pdc profile` (PD_ATTENTION_WORKSPACE), and of numbers of engines and knobs. */
static const int64_t LARGEST_WORKSPACE = INT64_C(256) << 20, LARGEST_NUMBER = INT32_MAX;

/* ---- lines ------------------------------------------------------------------------------------------ */

static bool take_int(const char **at, int64_t most, char behind, int64_t *out) {
  char *end;
  *out = strtoll(*at, &end, 10);
  bool good = end != *at && *end == behind && *out >= 0 && *out <= most;
  *at = good ? end + 1 : *at;
  return good;
}

/* "24,7,14,2 "; "- ": no knobs. */
static bool take_knobs(const char **at, Attention *out) {
  if (!strncmp(*at, "- ", 2)) {
    *at += 2;
    return true;
  }
  for (int n = 0; n < 2 * MOST_KNOBS; n += 2) {
    if (!take_int(at, LARGEST_NUMBER, ',', &out->knobs[n]))
      return false;
    out->n_knobs++;
    if (take_int(at, LARGEST_NUMBER, ' ', &out->knobs[n + 1]))
      return true;
    if (!take_int(at, LARGEST_NUMBER, ',', &out->knobs[n + 1]))
      return false;
  }
  return false;
}

static bool take_seconds(const char **at, double *out) {
  char *end;
  *out = strtod(*at, &end);
  bool good = end != *at && *end == ' ' && *out > 0 && isfinite(*out);
  *at = good ? end + 1 : *at;
  return good;
}

bool attention_parse(const char *line, size_t n, Attention *out) {
  static const char word[] = "attention ";
  const char *at = format("%.*s", (int)n, line);
  *out = (Attention){0};
  bool good = !strncmp(at, word, strlen(word));
  at += good ? strlen(word) : 0;
  good = good && take_int(&at, LARGEST_NUMBER, ' ', &out->engine) && take_knobs(&at, out) &&
         take_int(&at, LARGEST_WORKSPACE, ' ', &out->workspace) && take_seconds(&at, &out->seconds) &&
         take_seconds(&at, &out->own_seconds) && *at;
  out->attention = good ? intern(at) : NULL;
  return good;
}

/* ---- files ------------------------------------------------------------------------------------------ */

void attentions_write(const AttentionList *list, bool times, int indent, Text *t) {
  text_add(t, "%*s\"attentions\": [", indent, "");
  for (int i = 0; i < list->n; i++) {
    const Attention *a = &list->at[i];
    text_add(t, "%s\n%*s{ \"attention\": ", i ? "," : "", indent + 2, "");
    json_string(t, a->attention);
    text_add(t, ",\n%*s\"engine\": %lld, \"knobs\": [", indent + 4, "", (long long)a->engine);
    for (int k = 0; k < 2 * a->n_knobs; k++)
      text_add(t, "%s%lld", k ? ", " : "", (long long)a->knobs[k]);
    text_add(t, "], \"workspace\": %lld", (long long)a->workspace);
    if (times) {
      text_add(t, ", \"seconds\": ");
      json_double(t, a->seconds);
      text_add(t, ", \"own_seconds\": ");
      json_double(t, a->own_seconds);
    }
    text_add(t, " }");
  }
  text_add(t, "\n%*s]", indent, "");
}

static bool complain(const JsonPlace *at, const char *member, const char *what) {
  error_at((Span){.file = at->file}, "PD0603", "'%s.%s' %s", at->path, member, what);
  return false;
}

static bool read_knobs(const JsonPlace *at, Attention *a) {
  const cJSON *list = json_get_array(at, "knobs", 0);
  const int n = list ? cJSON_GetArraySize(list) : 0;
  if (!list)
    return false;
  if (n % 2 || n > 2 * MOST_KNOBS)
    return complain(at, "knobs", "must be a list of at most four pairs of type and value");
  for (int i = 0; i < n; i++) {
    const cJSON *item = cJSON_GetArrayItem(list, i);
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= (double)LARGEST_NUMBER) ||
        item->valuedouble != floor(item->valuedouble))
      return complain(at, "knobs", "must contain whole numbers below 2^31 only");
    a->knobs[i] = (int64_t)item->valuedouble;
  }
  a->n_knobs = n / 2;
  return true;
}

static bool read_one(const JsonPlace *at, bool times, Attention *a) {
  static const char *const keys[] = {"attention", "engine", "knobs", "workspace", NULL},
                           *const timed[] = {"attention", "engine",      "knobs", "workspace",
                                             "seconds",   "own_seconds", NULL};
  const char *name = json_only(at, times ? timed : keys) ? json_get_string(at, "attention") : NULL;
  bool good = name && json_get_int(at, "engine", 0, LARGEST_NUMBER, &a->engine) && read_knobs(at, a) &&
              json_get_int(at, "workspace", 0, LARGEST_WORKSPACE, &a->workspace);
  if (times)
    good = good && json_get_seconds(at, "seconds", &a->seconds) &&
           json_get_seconds(at, "own_seconds", &a->own_seconds);
  a->attention = good ? intern(name) : NULL;
  return good;
}

bool attentions_read(const JsonPlace *at, bool times, AttentionList *out) {
  const cJSON *list = json_get_array(at, "attentions", 0);
  for (int i = 0; list && i < cJSON_GetArraySize(list); i++) {
    JsonPlace place = json_element(at, "attentions", list, i);
    Attention a = {0};
    if (!read_one(&place, times, &a))
      return false;
    for (int k = 0; k < out->n; k++)
      if (out->at[k].attention == a.attention)
        return complain(&place, "attention", "appears twice");
    push(out, a);
  }
  return list != NULL;
}

const Workspaces *attention_workspaces(const AttentionList *list) {
  Workspace *at = alloc((size_t)(list->n + 1) * sizeof *at);
  for (int i = 0; i < list->n; i++)
    at[i] = (Workspace){list->at[i].attention, list->at[i].workspace};
  const Workspaces all = {list->n, at};
  return alloc_copy(&all, sizeof all);
}
