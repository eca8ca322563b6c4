/* JSON reading and writing: plans, profiles, results of runs. */
#ifndef PDC_JSON_H
#define PDC_JSON_H

#include <cjson/cJSON.h>

#include "base/base.h"

void json_string(Text *t, const char *s); /* quoted and escaped */
void json_double(Text *t, double x);      /* nine digits: a value read back prints the same */
/* The file's object; *file is set to its source number. NULL after diagnostics. */
cJSON *json_load(const char *path, int *file);
/* A member of an object or of an element; NULL or false after a diagnostic with file and key. `path`: the object's
 * place in the file, such as "stages[1]"; "" at the top. */
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
/* Reports members that are not in the NULL-ended list. */
bool json_only(const JsonPlace *at, const char *const *keys);

#endif
