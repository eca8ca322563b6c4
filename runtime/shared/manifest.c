#define _GNU_SOURCE /* madvise */
#include "shared/manifest.h"

#include "shared/checksum.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The last member of the text: the checksum of all text before it. */
static const char mark[] = ",\n\"checksum\": \"";
enum { MARK = sizeof mark - 1, DIGITS = 16, MOST_SHARDS = 1 << 16 };

/* ---- pairs ----------------------------------------------------------------------------------- */

const char *pd_pair_value(const struct pd_pairs *p, const char *name) {
  for (int i = 0; i < p->n; i++)
    if (!strcmp(p->at[i].name, name)) return p->at[i].value;
  return NULL;
}

bool pd_pairs_add(struct pd_pairs *p, const char *name, const char *value) {
  struct pd_pair *grown = realloc(p->at, sizeof *grown * (size_t)(p->n + 1));
  if (!grown) return false;
  p->at = grown;
  p->at[p->n] = (struct pd_pair){strdup(name), strdup(value)};
  return p->at[p->n].name && p->at[p->n++].value;
}

void pd_pairs_free(struct pd_pairs *p) {
  for (int i = 0; i < p->n; i++) {
    free(p->at[i].name);
    free(p->at[i].value);
  }
  free(p->at);
  *p = (struct pd_pairs){0};
}

/* ---- printing -------------------------------------------------------------------------------- */

static void add_sum(cJSON *to, const char *name, uint64_t sum) {
  char digits[DIGITS + 1];
  snprintf(digits, sizeof digits, "%016llx", (unsigned long long)sum);
  cJSON_AddStringToObject(to, name, digits);
}

static void add_pairs(cJSON *to, const char *name, const struct pd_pairs *p) {
  cJSON *object = cJSON_AddObjectToObject(to, name);
  for (int i = 0; i < p->n; i++) cJSON_AddStringToObject(object, p->at[i].name, p->at[i].value);
}

static void add_files(cJSON *to, const struct pd_manifest *m) {
  cJSON *list = cJSON_AddArrayToObject(to, "files");
  for (int i = 0; i < m->n_files; i++) {
    cJSON *item = cJSON_CreateObject();
    cJSON_AddStringToObject(item, "option", m->file[i].option);
    cJSON_AddStringToObject(item, "path", m->file[i].path);
    cJSON_AddNumberToObject(item, "bytes", (double)m->file[i].bytes);
    add_sum(item, "sample", m->file[i].sample);
    cJSON_AddItemToArray(list, item);
  }
}

static void add_shards(cJSON *to, const struct pd_manifest *m) {
  cJSON *list = cJSON_AddArrayToObject(to, "shards");
  for (int i = 0; i < m->n_shards; i++) {
    cJSON *item = cJSON_CreateObject();
    char name[64];
    snprintf(name, sizeof name, "shard-%d-of-%d.safetensors", i, m->n_shards);
    cJSON_AddStringToObject(item, "file", name);
    cJSON_AddNumberToObject(item, "bytes", (double)m->shard[i].bytes);
    cJSON_AddNumberToObject(item, "header_bytes", (double)m->shard[i].header_bytes);
    add_sum(item, "header", m->shard[i].header);
    add_sum(item, "payload", m->shard[i].payload);
    cJSON_AddItemToArray(list, item);
  }
}

/* The text of an object with its checksum as its last member. */
static char *seal(char *text) {
  char *brace = text ? strrchr(text, '}') : NULL, *whole = NULL;
  if (brace) {
    size_t n = (size_t)(brace - text);
    while (n && text[n - 1] == '\n') n--;
    whole = malloc(n + MARK + DIGITS + sizeof "\"\n}\n");
    if (whole)
      sprintf(whole, "%.*s%s%016llx\"\n}\n", (int)n, text, mark, (unsigned long long)pd_checksum(text, n));
  }
  free(text);
  return whole;
}

char *pd_manifest_print(const struct pd_manifest *m) {
  char seed[32];
  cJSON *root = cJSON_CreateObject();
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)m->seed);
  cJSON_AddNumberToObject(root, "format", PD_MANIFEST_FORMAT);
  cJSON_AddStringToObject(root, "model", m->model);
  cJSON_AddNumberToObject(root, "step", (double)m->step);
  cJSON_AddNumberToObject(root, "samples", (double)m->samples);
  cJSON_AddStringToObject(root, "seed", seed); /* 64 bits, which JSON numbers cannot hold */
  cJSON_AddStringToObject(root, "optimizer", m->optimizer);
  cJSON_AddStringToObject(root, "plan", m->plan);
  cJSON_AddStringToObject(root, "written", m->written);
  add_pairs(root, "function", &m->function);
  add_pairs(root, "settings", &m->settings);
  add_files(root, m);
  add_shards(root, m);
  char *text = cJSON_Print(root);
  cJSON_Delete(root);
  return seal(text);
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Copies the member with this name if it is a string. */
static bool text_of(const cJSON *in, const char *name, char **to) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(in, name);
  *to = cJSON_IsString(item) ? strdup(item->valuestring) : NULL;
  return *to != NULL;
}

/* A whole number in [0, 2^53], which JSON's doubles hold exactly. */
static bool count_of(const cJSON *in, const char *name, int64_t *to) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(in, name);
  double x = cJSON_IsNumber(item) ? item->valuedouble : -1;
  if (!(x >= 0 && x <= 0x1p53) || x != floor(x)) return false;
  *to = (int64_t)x;
  return true;
}

static bool digits_of(const char *text, int base, size_t n, uint64_t *to) {
  char *end;
  if (!text || (n && strlen(text) != n) || strspn(text, "0123456789abcdef") != strlen(text) || !*text)
    return false;
  errno = 0;
  *to = strtoull(text, &end, base);
  return !*end && !errno;
}

static bool sum_of(const cJSON *in, const char *name, uint64_t *to) {
  return digits_of(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(in, name)), 16, DIGITS, to);
}

static bool parse_pairs(const cJSON *in, const char *name, struct pd_pairs *to) {
  const cJSON *object = cJSON_GetObjectItemCaseSensitive(in, name), *item;
  if (!cJSON_IsObject(object)) return false;
  cJSON_ArrayForEach(item, object) if (!item->string || !cJSON_IsString(item) ||
                                       !pd_pairs_add(to, item->string, item->valuestring)) return false;
  return true;
}

static bool parse_files(const cJSON *list, struct pd_manifest *to) {
  const cJSON *item;
  if (!cJSON_IsArray(list)) return false;
  to->file = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *to->file);
  cJSON_ArrayForEach(item, list) {
    struct pd_manifest_file *f = to->file ? &to->file[to->n_files] : NULL;
    if (!f) return false;
    to->n_files++;
    if (!text_of(item, "option", &f->option) || !text_of(item, "path", &f->path) ||
        !count_of(item, "bytes", &f->bytes) || !sum_of(item, "sample", &f->sample))
      return false;
  }
  return true;
}

static bool parse_shards(const cJSON *list, struct pd_manifest *to) {
  const cJSON *item;
  int n = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
  if (n < 1 || n > MOST_SHARDS || !(to->shard = calloc((size_t)n, sizeof *to->shard))) return false;
  cJSON_ArrayForEach(item, list) {
    struct pd_shard_sum *s = &to->shard[to->n_shards++];
    if (!count_of(item, "bytes", &s->bytes) || !count_of(item, "header_bytes", &s->header_bytes) ||
        !sum_of(item, "header", &s->header) || !sum_of(item, "payload", &s->payload) || s->header_bytes > s->bytes)
      return false;
  }
  return true;
}

static bool parse_root(const cJSON *root, struct pd_manifest *to, char *why) {
  int64_t format = 0;
  char *seed = NULL;
  if (!count_of(root, "format", &format)) return pd_refuse(why, "it is not a checkpoint manifest");
  if (format != PD_MANIFEST_FORMAT)
    return pd_refuse(why, "it has format %lld, but this version reads format %d", (long long)format,
                     PD_MANIFEST_FORMAT);
  bool ok = text_of(root, "model", &to->model) && count_of(root, "step", &to->step) &&
            count_of(root, "samples", &to->samples) && text_of(root, "seed", &seed) &&
            digits_of(seed, 10, 0, &to->seed) && text_of(root, "optimizer", &to->optimizer) &&
            text_of(root, "plan", &to->plan) && text_of(root, "written", &to->written) &&
            parse_pairs(root, "function", &to->function) && parse_pairs(root, "settings", &to->settings) &&
            parse_files(cJSON_GetObjectItemCaseSensitive(root, "files"), to) &&
            parse_shards(cJSON_GetObjectItemCaseSensitive(root, "shards"), to);
  free(seed);
  return ok || pd_refuse(why, "a field of the manifest is missing or invalid");
}

/* True if the text ends with its correct checksum. */
static bool is_sealed(const char *text, size_t bytes) {
  static const char end[] = "\"\n}\n";
  const size_t tail = MARK + DIGITS + sizeof end - 1;
  if (bytes < tail || memcmp(text + bytes - tail, mark, MARK) ||
      memcmp(text + bytes - (sizeof end - 1), end, sizeof end - 1))
    return false;
  char digits[DIGITS + 1] = "";
  uint64_t sum;
  memcpy(digits, text + bytes - tail + MARK, DIGITS);
  return digits_of(digits, 16, DIGITS, &sum) && sum == pd_checksum(text, bytes - tail);
}

bool pd_manifest_parse(const char *text, size_t bytes, struct pd_manifest *to, char *why) {
  *to = (struct pd_manifest){0};
  if (!is_sealed(text, bytes)) return pd_refuse(why, "it is damaged: its checksum does not match");
  cJSON *root = cJSON_ParseWithLength(text, bytes);
  bool ok = parse_root(root, to, why);
  cJSON_Delete(root);
  if (!ok) pd_manifest_free(to);
  return ok;
}

void pd_manifest_free(struct pd_manifest *m) {
  char *texts[] = {m->model, m->optimizer, m->plan, m->written};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
  for (int i = 0; i < m->n_files; i++) {
    free(m->file[i].option);
    free(m->file[i].path);
  }
  pd_pairs_free(&m->function);
  pd_pairs_free(&m->settings);
  free(m->file);
  free(m->shard);
  *m = (struct pd_manifest){0};
}

bool pd_best_parse(const char *text, size_t bytes, struct pd_best *to) {
  cJSON *root = cJSON_ParseWithLength(text, bytes);
  const cJSON *loss = cJSON_GetObjectItemCaseSensitive(root, "validation_loss");
  bool ok = count_of(root, "step", &to->step) && cJSON_IsNumber(loss) && isfinite(loss->valuedouble);
  if (ok) to->loss = loss->valuedouble;
  cJSON_Delete(root);
  return ok;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads ahead in a mapped file by a thread, so that disk and processor work concurrently and pages are mapped in
 * groups. No effect on other memory, or on kernels without the call. */
struct ahead {
  char *at;
  size_t bytes;
  pthread_t thread;
  bool runs;
};

static void *populate(void *of) {
  const struct ahead *a = of;
  const size_t block = 8 << 20;
#ifdef MADV_POPULATE_READ
  for (size_t i = 0; i < a->bytes; i += block)
    if (madvise(a->at + i, a->bytes - i < block ? a->bytes - i : block, MADV_POPULATE_READ)) break;
#else
  (void)a, (void)block;
#endif
  return NULL;
}

static void start_ahead(struct ahead *a, const void *at, size_t bytes) {
  *a = (struct ahead){.at = (char *)at, .bytes = bytes};
  sigset_t all, before; /* the main thread handles signals */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  a->runs = !pthread_create(&a->thread, NULL, populate, a);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void end_ahead(struct ahead *a) {
  if (a->runs) pthread_join(a->thread, NULL);
}

bool pd_shard_check_header(const struct pd_shard_sum *sum, const void *at, size_t bytes, char *why) {
  if (bytes != (size_t)sum->bytes)
    return pd_refuse(why, "it has %zu bytes, but %lld bytes were written", bytes, (long long)sum->bytes);
  return pd_checksum(at, (size_t)sum->header_bytes) == sum->header ||
         pd_refuse(why, "its header is damaged: the checksum differs from the manifest's");
}

bool pd_shard_check_payload(const struct pd_shard_sum *sum, const void *at, char *why) {
  struct ahead ahead;
  size_t header = (size_t)sum->header_bytes, bytes = (size_t)sum->bytes;
  start_ahead(&ahead, at, bytes);
  bool same = pd_checksum((const char *)at + header, bytes - header) == sum->payload;
  end_ahead(&ahead);
  return same || pd_refuse(why, "its tensors are damaged: the checksum differs from the manifest's");
}

bool pd_shard_check(const struct pd_shard_sum *sum, const void *at, size_t bytes, char *why) {
  return pd_shard_check_header(sum, at, bytes, why) && pd_shard_check_payload(sum, at, why);
}

static int newest_first(const void *a, const void *b) {
  const int64_t *x = a, *y = b;
  return (*x < *y) - (*x > *y);
}

/* The digits of "step-DIGITS"; NULL: another name. */
static const char *step_digits(const char *name) {
  static const char prefix[] = "step-";
  if (strncmp(name, prefix, sizeof prefix - 1)) return NULL;
  const char *digits = name + sizeof prefix - 1;
  return *digits && !digits[strspn(digits, "0123456789")] ? digits : NULL;
}

/* N of "step-N" in canonical form, without sign, blanks or leading zeros; -1: another name. */
static int64_t step_of(const char *name) {
  const char *digits = step_digits(name);
  if (!digits || (*digits == '0' && digits[1])) return -1;
  errno = 0;
  long long step = strtoll(digits, NULL, 10);
  return errno ? -1 : step;
}

int pd_list_steps(const char *directory, int64_t **to) {
  int n = 0;
  DIR *dir = opendir(directory);
  *to = NULL;
  if (!dir) return -1;
  for (struct dirent *d; (d = readdir(dir));) {
    int64_t step = step_of(d->d_name);
    if (step < 0) continue;
    int64_t *grown = realloc(*to, sizeof *grown * (size_t)(n + 1));
    if (!grown) {
      closedir(dir);
      return -1;
    }
    *to = grown;
    grown[n++] = step;
  }
  closedir(dir);
  if (n) qsort(*to, (size_t)n, sizeof **to, newest_first);
  return n;
}

bool pd_find_misnamed_step(const char *directory, char *to, size_t size) {
  bool found = false;
  DIR *dir = opendir(directory);
  for (struct dirent *d; dir && !found && (d = readdir(dir));)
    if (step_digits(d->d_name) && step_of(d->d_name) < 0)
      found = snprintf(to, size, "%s/%s", directory, d->d_name) < (int)size;
  if (dir) closedir(dir);
  return found;
}
