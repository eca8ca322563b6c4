/* JSON as pdc writes and reads it: plans, profiles, what a run left. */
#ifndef PDC_JSON_H
#define PDC_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

void json_string(Text *t, const char *s); /* quoted and escaped */
void json_double(Text *t, double x);      /* nine digits: what is read back prints the same */
/* The file's object; *file is set to its source number. NULL after diagnostics. */
cJSON *json_load(const char *path, int *file);
/* A member of an object, or an element's; NULL or false after a diagnostic that names file and key. `path`
 * is the object's place in the file, "stages[1]", "" at the top. */
typedef struct JsonPlace {
  int file;
  const char *path;
  const cJSON *object;
} JsonPlace;
const cJSON *json_member(const JsonPlace *at, const char *key);
bool json_get_int(const JsonPlace *at, const char *key, int64_t least, int64_t most, int64_t *out);
bool json_get_seconds(const JsonPlace *at, const char *key, double *out); /* finite, not negative */
bool json_get_bool(const JsonPlace *at, const char *key, bool *out);
const char *json_get_string(const JsonPlace *at, const char *key);
const cJSON *json_get_array(const JsonPlace *at, const char *key, int least);
JsonPlace json_element(const JsonPlace *at, const char *key, const cJSON *array, int i);
/* Complains of members that are not in the list, which ends with NULL. */
bool json_only(const JsonPlace *at, const char *const *keys);

#endif
