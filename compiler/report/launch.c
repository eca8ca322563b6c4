/* The page about a launch of several models (docs/guide/many-models.md). It shows the timeline, with models as
 * bars on ranks, and each model's log from the folder of its name. */
#include "report/report.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "sharp/sharp.h"

typedef struct Launch {
  const char *directory;
  const cJSON *plan, *left; /* "sharp" of plan.json; "otherData" of timeline.json; NULL: no such file */
  int plan_file, timeline_file;
  Vec(const char *) names;
  int ranks;
  const cJSON *events;
} Launch;

bool is_launch(const char *directory) {
  const char *text = read_file(format("%s/plan.json", directory), NULL);
  if (access(format("%s/timeline.json", directory), F_OK) == 0)
    return true;
  cJSON *plan = text ? cJSON_Parse(text) : NULL;
  bool is = cJSON_IsObject(cJSON_GetObjectItemCaseSensitive(plan, "sharp"));
  cJSON_Delete(plan);
  return is;
}

/* ---- plan.json, timeline.json ------------------------------------------------------------------- */

/* A model's name is also its folder's name, beside the file. */
static bool is_name(const char *name) { return *name && *name != '.' && !strchr(name, '/'); }

static bool read_names(Launch *l, const JsonPlace *at) {
  const cJSON *models = json_get_array(at, "models", 1);
  l->names.n = 0;
  for (int i = 0; i < cJSON_GetArraySize(models); i++) {
    JsonPlace model = json_element(at, "models", models, i);
    const char *name = json_get_string(&model, "name");
    if (!name)
      return false;
    if (!is_name(name) || l->names.n == PD_SHARP_MODELS) {
      error_at((Span){.file = at->file}, "PD0612", "'%s' is not a valid list of models: %s", model.path,
               is_name(name) ? format("it has at most %d", PD_SHARP_MODELS)
                             : "the name cannot be the name of a folder");
      return false;
    }
    push(&l->names, name);
  }
  int64_t ranks = 0;
  bool good = models && json_get_int(at, "ranks", 1, PD_SHARP_RANKS, &ranks);
  l->ranks = (int)ranks;
  return good;
}

/* Reads the object `key` of an optional file; false after a diagnostic. */
static bool read_part(Launch *l, const char *file, const char *key, int *number, const cJSON **whole,
                      const cJSON **part) {
  const char *path = format("%s/%s", l->directory, file);
  *part = NULL;
  if (access(path, F_OK) != 0)
    return true;
  if (!(*whole = json_load(path, number)))
    return false;
  *part = cJSON_GetObjectItemCaseSensitive(*whole, key);
  if (cJSON_IsObject(*part))
    return read_names(l, &(JsonPlace){*number, key, *part});
  error_at((Span){.file = *number}, "PD0612",
           "this is not from a launch of several models: the object '%s' is missing", key);
  return false;
}

static bool read_launch(Launch *l) {
  const cJSON *plan = NULL, *timeline = NULL;
  if (!read_part(l, "plan.json", "sharp", &l->plan_file, &plan, &l->plan) ||
      !read_part(l, "timeline.json", "otherData", &l->timeline_file, &timeline, &l->left))
    return false;
  l->events = timeline ? json_get_array(&(JsonPlace){l->timeline_file, "", timeline}, "traceEvents", 0) : NULL;
  return !timeline || l->events;
}

/* ---- the timeline ------------------------------------------------------------------------------- */

static double number(const cJSON *event, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(event, key);
  return cJSON_IsNumber(x) ? x->valuedouble : NAN;
}

static int model_named(const Launch *l, const char *name) {
  for (int i = 0; name && i < l->names.n; i++)
    if (!strcmp(l->names.at[i], name))
      return i;
  return -1;
}

/* Adds the n-th bar; skips events of other kinds. False after a diagnostic. */
static bool add_bar(const Launch *l, const cJSON *event, int at, int *n, Text *out) {
  const cJSON *phase = cJSON_GetObjectItemCaseSensitive(event, "ph");
  if (!cJSON_IsString(phase) || strcmp(phase->valuestring, "X"))
    return true;
  int model = model_named(l, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, "name")));
  double rank = number(event, "tid"), start = number(event, "ts"), length = number(event, "dur");
  const char *lacks = model < 0                                                ? "'name' of a model"
                      : !(rank >= 0 && rank < l->ranks && rank == floor(rank)) ? "'tid' of a rank"
                      : !(fabs(start) < 1e15)                                  ? "'ts' in microseconds"
                      : !(length >= 0 && length < 1e15)                        ? "'dur', zero or more"
                                                                               : NULL;
  if (lacks) {
    error_at((Span){.file = l->timeline_file}, "PD0612", "'traceEvents[%d]' has no %s", at, lacks);
    return false;
  }
  text_add(out, "%s%d,%d,%.10g,%.10g", (*n)++ ? "," : "", (int)rank, model, start, length);
  return true;
}

/* In the form of timeline_json; models take the place of works. */
static bool add_timeline(const Launch *l, Text *out) {
  int n = 0, at = 0;
  const cJSON *event;
  text_add(out, "{\"ranks\":[");
  for (int r = 0; r < l->ranks; r++)
    text_add(out, "%s\"rank %d\"", r ? "," : "", r);
  text_add(out, "],\"works\":[");
  for (int i = 0; i < l->names.n; i++)
    text_add(out, "%s\"model-%d\"", i ? "," : "", i);
  text_add(out, "],\"fields\":[\"rank\",\"work\",\"start\",\"length\"],\"arrows\":[],\"bars\":[");
  cJSON_ArrayForEach(event, l->events) if (!add_bar(l, event, at++, &n, out)) return false;
  double dropped = number(l->left, "dropped");
  text_add(out, "],\"total\":%d,\"dropped\":%.0f}", n, dropped > 0 && dropped < 0x1p53 ? dropped : 0);
  return true;
}

/* ---- the models --------------------------------------------------------------------------------- */

static bool add_models(const Launch *l, Text *out) {
  text_add(out, ",\n\"models\":[");
  for (int i = 0; i < l->names.n; i++) {
    const char *path = format("%s/%s/log.jsonl", l->directory, l->names.at[i]), *log = "null";
    bool evaluates;
    if (access(path, F_OK) == 0 && !(log = read_log(path, &evaluates)))
      return false;
    text_add(out, "%s\n{\"name\":", i ? "," : "");
    json_string(out, l->names.at[i]);
    text_add(out, ",\"log\":%s}", log);
  }
  text_add(out, "]");
  return true;
}

static void add_object(Text *out, const char *name, const cJSON *object) {
  char *text = object ? cJSON_PrintUnformatted(object) : NULL;
  text_add(out, ",\n\"%s\":%s", name, text ? text : "null");
  cJSON_free(text);
}

bool launch_page(const char *directory, const char *output) {
  Launch l = {.directory = directory};
  Text data = {0};
  if (!read_launch(&l))
    return false;
  text_add(&data, "{\"directory\":");
  json_string(&data, directory);
  add_object(&data, "sharp", l.plan);
  add_object(&data, "left", l.left);
  if (!add_models(&l, &data))
    return false;
  text_add(&data, ",\n\"trace\":");
  if (!l.left)
    text_add(&data, "null");
  else if (!add_timeline(&l, &data))
    return false;
  text_add(&data, "}");
  return page_write(output, page_make(PAGE_OF_LAUNCH, directory, data.at));
}
