/* PEFT's adapter_config.json and adapter_model.safetensors. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "merge/internal.h"
#include "shared/adapters.h"
#include "shared/read_file.h"

static bool refuse(const char *path, const char *why) {
  error_at((Span){.file = source_add(path, "")}, "PD0601", "cannot read the file: %s",
           make_utf8(format("%s", why)));
  return false;
}

bool file_open(const char *folder, const char *name, File *to) {
  char why[PD_WHY] = "";
  const char *path = format("%s/%s", folder, name);
  to->name = name;
  to->at = pd_map_regular(path, &to->bytes, why);
  if (!to->at) {
    error_at(NO_SPAN, "PD0601", "%s", make_utf8(format("%s", why)));
    return false;
  }
  return pd_safetensors_parse(to->at, to->bytes, &to->content, why) || refuse(path, why);
}

/* ---- adapter_config.json ------------------------------------------------------------------------- */

static bool read_config(const char *folder, Adapter *to) {
  char why[PD_WHY] = "";
  int file;
  struct pd_adapter_config config;
  const cJSON *root = json_load(format("%s/" PD_ADAPTER_CONFIG, folder), &file);
  if (!root)
    return false;
  if (!pd_adapter_config_read(root, &config, why)) {
    error_at((Span){.file = file}, "PD0603", "%s", make_utf8(format("%s", why)));
    return false;
  }
  const cJSON *base = cJSON_GetObjectItemCaseSensitive(root, "base_model_name_or_path");
  to->base = cJSON_IsString(base) ? base->valuestring : NULL;
  to->scale = config.alpha / config.r;
  to->fan_in_fan_out = config.fan_in_fan_out;
  to->config = root;
  return true;
}

/* ---- tensors ------------------------------------------------------------------------------------- */

/* "q_proj" of "base_model.model.q_proj.lora_A.weight"; NULL: another name. */
static const char *layer_of(const char *name, const char *end) {
  const size_t n = strlen(name), before = strlen(PD_ADAPTER_PREFIX), behind = strlen(end);
  if (n <= before + behind || strncmp(name, PD_ADAPTER_PREFIX, before) || strcmp(name + n - behind, end))
    return NULL;
  return format("%.*s", (int)(n - before - behind), name + before);
}

static bool is_finite(const char *path, const struct pd_entry *e) {
  for (int64_t i = 0; i < e->elements; i++)
    if (!isfinite(pd_entry_float(e, i)))
      return refuse(path, format("tensor '%.200s' has an infinity or NaN", e->name));
  return true;
}

static bool add_pair(const char *path, const struct pd_entry *a, const char *layer, Adapter *to) {
  const struct pd_entry *b =
      pd_safetensors_find(&to->file.content, format(PD_ADAPTER_PREFIX "%s" PD_ADAPTER_B, layer));
  if (!b || a->rank != 2 || b->rank != 2 || a->dim[0] != b->dim[1] || a->dtype == PD_DTYPE_OTHER ||
      b->dtype == PD_DTYPE_OTHER)
    return refuse(path,
                  format("'%.200s' and its lora_B must be matrices [r, in] and [out, r] of F32, F16, BF16 or F64",
                         a->name));
  push(&to->pairs, ((Pair){layer, a, b, NULL}));
  return is_finite(path, a) && is_finite(path, b);
}

bool adapter_read(const char *folder, Adapter *to) {
  if (!read_config(folder, to) || !file_open(folder, PD_ADAPTER_FILE, &to->file))
    return false;
  const char *path = format("%s/" PD_ADAPTER_FILE, folder);
  char why[PD_WHY] = "";
  if (!pd_has_whole(to->config, &to->file.content, why))
    return refuse(path, why);
  for (int i = 0; i < to->file.content.n; i++) {
    const struct pd_entry *e = &to->file.content.at[i];
    const char *layer = layer_of(e->name, PD_ADAPTER_A);
    const char *whole = layer_of(e->name, "");
    if (layer && !add_pair(path, e, layer, to))
      return false;
    if (layer || layer_of(e->name, PD_ADAPTER_B))
      continue;
    if (!whole || !pd_is_whole(to->config, whole) || e->dtype == PD_DTYPE_OTHER)
      return refuse(path, format("tensor '%.200s' belongs to no adapter of a linear layer", e->name));
    push(&to->pairs, ((Pair){whole, e, NULL, NULL}));
    if (!is_finite(path, e))
      return false;
  }
  int tensors = 0;
  for (int i = 0; i < to->pairs.n; i++)
    tensors += to->pairs.at[i].b ? 2 : 1;
  return tensors == to->file.content.n || refuse(path, "it has a lora_B without its lora_A");
}

/* A tensor of modules_to_save has the shape of the base's. */
static bool check_whole(const Pair *p, const char *folder) {
  const struct pd_entry *w = p->weight;
  if (w->rank == p->a->rank && !memcmp(w->dim, p->a->dim, sizeof *w->dim * (size_t)w->rank) &&
      w->dtype <= PD_DTYPE_BF16)
    return true;
  error_at(NO_SPAN, "PD0655",
           "'%s' of '%s' has another shape than the adapter's, or another type than F32, F16 or BF16", w->name,
           folder);
  return false;
}

bool adapter_find(Adapter *adapter, const Files *base, const char *folder) {
  for (int i = 0; i < adapter->pairs.n; i++) {
    Pair *p = &adapter->pairs.at[i];
    const char *name = p->b ? format("%s.weight", p->layer) : p->layer;
    for (int k = 0; k < base->n && !p->weight; k++)
      p->weight = pd_safetensors_find(&base->at[k].content, name);
    const bool turned = adapter->fan_in_fan_out;
    if (!p->weight) {
      Diagnostic *d =
          error_at(NO_SPAN, "PD0655", "the folder '%s' has no weight '%s' for the adapter", folder, name);
      help(d, "the first folder is the base model that the adapter was trained on");
      return false;
    }
    if (!p->b && !check_whole(p, folder))
      return false;
    if (!p->b)
      continue;
    const int64_t rows = p->b->dim[0], columns = p->a->dim[1];
    if (p->weight->rank != 2 || p->weight->dim[turned] != rows || p->weight->dim[!turned] != columns ||
        p->weight->dtype > PD_DTYPE_BF16) {
      error_at(NO_SPAN, "PD0655",
               "weight '%s' of '%s' must be a matrix [%lld, %lld] of F32, F16 or BF16, as its adapter has it",
               name, folder, (long long)(turned ? columns : rows), (long long)(turned ? rows : columns));
      return false;
    }
  }
  return true;
}
