/* Names of classes: those of the folder of images that a training reads, which files of weights keep, and those that
 * an evaluation finds in its weights or in its own folder. */
#include "data/load.h"

#include <cjson/cJSON.h>
#include <string.h>

static struct {
  const char **names; /* NULL: the weights have none, or the program trains */
  int n;
} weights;

static const struct pd_images *classes_of(const struct pd_dataset *d) {
  const struct pd_images *m = d ? pd_dataset_folder(d) : NULL;
  return m && m->n_classes ? m : NULL;
}

const char *pd_class_name(int64_t number) {
  const struct pd_images *m = classes_of(pd_evaluation_data);
  if (weights.names) return number < weights.n ? weights.names[number] : NULL;
  return m && number < m->n_classes ? m->classes[number] : NULL;
}

char *pd_classes_text(const struct pd_dataset *d) {
  const struct pd_images *m = classes_of(d);
  if (!m) return NULL;
  cJSON *names = cJSON_CreateStringArray(m->classes, m->n_classes);
  char *text = cJSON_PrintUnformatted(names);
  cJSON_Delete(names);
  return text;
}

/* A training may go on with other classes. */
static void compare(const struct pd_images *m, const char **names, int n, const char *path) {
  for (int c = 0; c < m->n_classes || c < n; c++) {
    const char *here = c < m->n_classes ? m->classes[c] : "none", *there = c < n ? names[c] : "none";
    if (c < m->n_classes && c < n && !strcmp(here, there)) continue;
    pd_warn("class %d is '%s' in '%s', but the weights of '%s' were trained with '%s'", c, here, m->path, path,
            there);
    return;
  }
}

/* The texts of a JSON array, kept until the program ends; NULL: `text` is none. */
static const char **texts_of(const char *text, int *n) {
  const cJSON *array = cJSON_Parse(text), *name;
  *n = cJSON_GetArraySize(array);
  if (!cJSON_IsArray(array) || !*n) return NULL;
  const char **names = pd_allocate(sizeof *names * (size_t)*n);
  int i = 0;
  cJSON_ArrayForEach(name, array) {
    if (!cJSON_IsString(name)) return NULL;
    names[i++] = name->valuestring;
  }
  return names;
}

bool pd_classes_read(const char *text, const char *path, char *why) {
  int n;
  const char **names = *text ? texts_of(text, &n) : NULL;
  const struct pd_images *trained = classes_of(pd_training_data);
  if (names && !pd_only_evaluates() && trained) compare(trained, names, n, path);
  if (!names || !pd_only_evaluates()) return true;
  weights.names = names;
  weights.n = n;
  return !pd_evaluation_data || pd_dataset_renumber(pd_evaluation_data, names, n, path, why);
}
