/* Names of classes: those of the folder of images that a training reads, which files of weights keep, and those that
 * an evaluation finds in its weights or in its own folder. */
#include "data/load.h"

#include <cjson/cJSON.h>
#include <string.h>

static const cJSON *of_weights; /* array of texts; NULL: the weights have none */

static const struct pd_images *classes_of(const struct pd_dataset *d) {
  const struct pd_images *m = d ? pd_dataset_folder(d) : NULL;
  return m && m->n_classes ? m : NULL;
}

const char *pd_class_name(int64_t number) {
  const struct pd_images *m = classes_of(pd_evaluation_data);
  if (of_weights) return cJSON_GetStringValue(cJSON_GetArrayItem(of_weights, (int)number));
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

/* Evaluation with other numbers of the same classes would count right answers as wrong. */
static void compare(const struct pd_images *m, const char *path) {
  const int n = cJSON_GetArraySize(of_weights);
  for (int c = 0; c < m->n_classes; c++) {
    const char *name = c < n ? cJSON_GetStringValue(cJSON_GetArrayItem(of_weights, c)) : "none";
    if (name && !strcmp(name, m->classes[c])) continue;
    pd_warn("class %d is '%s' in '%s', but the weights of '%s' were trained with '%s'", c, m->classes[c], m->path,
            path, name ? name : "none");
    return;
  }
}

void pd_classes_read(const char *text, const char *path) {
  if (!*text || !pd_only_evaluates()) return;
  const cJSON *names = cJSON_Parse(text), *name;
  bool valid = cJSON_IsArray(names);
  cJSON_ArrayForEach(name, names) valid &= cJSON_IsString(name);
  of_weights = valid ? names : NULL;
  const struct pd_images *m = classes_of(pd_evaluation_data);
  if (of_weights && m) compare(m, path);
}
