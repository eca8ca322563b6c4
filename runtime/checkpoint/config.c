/* Compares config.json, which Hugging Face's libraries store with weights, with the model (pd_stage.traits),
 * because weights of a different computation may have the same names and shapes. Fields that the file, the model
 * or this table lacks are not compared. */
#include "checkpoint/save_folder.h"
#include "checkpoint/sources.h"
#include "run/run.h"
#include "shared/adapters.h"
#include "shared/read_file.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct comparison {
  const cJSON *root;
  char text[PD_WHY]; /* differences, separated by semicolons */
};

__attribute__((format(printf, 2, 3))) static void differ(struct comparison *c, const char *format, ...) {
  size_t n = strlen(c->text);
  va_list args;
  if (n) n += (size_t)snprintf(c->text + n, sizeof c->text - n, "; ");
  if (n >= sizeof c->text) return;
  va_start(args, format);
  vsnprintf(c->text + n, sizeof c->text - n, format, args);
  va_end(args);
}

const char *pd_trait(const char *name) {
  for (int i = 0; i < pd.stage->n_traits; i++)
    if (!strcmp(pd.stage->traits[2 * i], name)) return pd.stage->traits[2 * i + 1];
  return NULL;
}

static const cJSON *field(const cJSON *of, const char *name) { return cJSON_GetObjectItemCaseSensitive(of, name); }

static bool is_near(double x, double y) { return fabs(x - y) <= 1e-4 * fmax(fabs(x), fabs(y)); }

/* ---- fields of one value --------------------------------------------------------------------------- */

/* Synonyms of activations; the first is the model's name. */
static const char *const activations[][5] = {
    {"silu", "swish"},
    {"gelu", "gelu_python"},
    {"gelu_pytorch_tanh", "gelu_new", "gelu_fast", "gelu_accurate"},
    {"quick_gelu"},
    {"relu"},
};

static const char *activation(const char *name) {
  for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
    for (int j = 0; j < 5 && activations[i][j]; j++)
      if (!strcmp(name, activations[i][j])) return activations[i][0];
  return NULL;
}

static void compare_number(struct comparison *c, const char *name, const cJSON *item, const char *own) {
  if (cJSON_IsNumber(item) && !is_near(item->valuedouble, atof(own)))
    differ(c, "%s is %.7g, but the model has %s", name, item->valuedouble, own);
}

static void compare_activation(struct comparison *c, const char *name, const cJSON *item, const char *own) {
  const char *known = cJSON_IsString(item) ? activation(item->valuestring) : NULL;
  if (known && strcmp(known, own)) differ(c, "%s is %s, but the model has %s", name, item->valuestring, own);
}

static void compare_bool(struct comparison *c, const char *name, const cJSON *item, const char *own) {
  const char *text = cJSON_IsTrue(item) ? "true" : "false";
  if (cJSON_IsBool(item) && strcmp(text, own)) differ(c, "%s is %s, but the model has %s", name, text, own);
}

static const struct {
  const char *trait;
  void (*compare)(struct comparison *c, const char *name, const cJSON *item, const char *own);
  const char *names[4]; /* in files */
} fields[] = {
    {"num_attention_heads", compare_number, {"num_attention_heads", "n_head", "num_heads"}},
    {"num_key_value_heads", compare_number, {"num_key_value_heads"}},
    {"head_dim", compare_number, {"head_dim", "d_kv"}},
    {"rms_norm_eps", compare_number, {"rms_norm_eps"}},
    {"layer_norm_eps", compare_number, {"layer_norm_eps", "layer_norm_epsilon"}},
    {"hidden_act", compare_activation, {"hidden_act", "activation_function", "hidden_activation", "dense_act_fn"}},
    {"tie_word_embeddings", compare_bool, {"tie_word_embeddings"}},
    {"num_experts_per_tok", compare_number, {"num_experts_per_tok"}},
    {"norm_topk_prob", compare_bool, {"norm_topk_prob"}},
};

static void compare_fields(struct comparison *c) {
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
    for (int j = 0; j < 4 && fields[i].names[j] && pd_trait(fields[i].trait); j++)
      fields[i].compare(c, fields[i].names[j], field(c->root, fields[i].names[j]), pd_trait(fields[i].trait));
}

static void compare_norms(struct comparison *c) {
  static const char *const layer[] = {"layer_norm_eps", "layer_norm_epsilon"};
  if (field(c->root, "relative_attention_num_buckets")) { /* T5 calls its RMS norms layer norms */
    if (pd_trait("rms_norm_eps")) compare_number(c, layer[1], field(c->root, layer[1]), pd_trait("rms_norm_eps"));
    return;
  }
  if (pd_trait("layer_norm_eps") && !pd_trait("rms_norm_eps") && cJSON_IsNumber(field(c->root, "rms_norm_eps")))
    differ(c, "it has rms_norm_eps, but the model has layer norms");
  for (int i = 0; i < 2; i++)
    if (pd_trait("rms_norm_eps") && !pd_trait("layer_norm_eps") && cJSON_IsNumber(field(c->root, layer[i])))
      differ(c, "it has %s, but the model has RMS norms", layer[i]);
}

/* ---- windows --------------------------------------------------------------------------------------- */

/* The window of all layers, at most `length`; -1: layers differ, or the file does not tell. */
static double read_window(const cJSON *root, double length) {
  const cJSON *window = field(root, "sliding_window"), *use = field(root, "use_sliding_window"),
              *types = field(root, "layer_types"), *type = field(root, "model_type"), *item;
  int sliding = 0;
  if (!window || (cJSON_IsNumber(window) && window->valuedouble < 1)) return -1;
  const bool optional = use || (cJSON_IsString(type) && !strncmp(type->valuestring, "qwen", 4));
  if (cJSON_IsNull(window) || (optional && !cJSON_IsTrue(use))) return length;
  cJSON_ArrayForEach(item, types) sliding +=
      cJSON_IsString(item) && !strcmp(item->valuestring, "sliding_attention");
  if (cJSON_IsArray(types) && !sliding) return length;
  const bool mixed = cJSON_IsArray(types) ? sliding < cJSON_GetArraySize(types) : optional;
  return mixed || !cJSON_IsNumber(window) ? -1 : fmin(window->valuedouble, length);
}

/* Windows from the length of a sample up are equal. */
static void compare_window(struct comparison *c) {
  if (!pd_trait("sliding_window") || !pd_trait("attention_length")) return;
  const double length = atof(pd_trait("attention_length")), own = atof(pd_trait("sliding_window")),
               theirs = read_window(c->root, length);
  if (theirs < 0 || theirs == own) return;
  if (theirs == length)
    differ(c, "sliding_window does not limit samples of %g positions, but the model has %g", length, own);
  else if (own == length)
    differ(c, "sliding_window is %g, but the model has none in samples of %g positions", theirs, length);
  else
    differ(c, "sliding_window is %g, but the model has %g", theirs, own);
}

/* ---- rotary positions ------------------------------------------------------------------------------ */

/* The rotary positions of a file; type NULL: unknown type. */
struct rope {
  double theta, factor, low, high, context;
  const char *type, *named; /* named: name of the field with the type */
};

static double number(const cJSON *of, const char *name) {
  const cJSON *item = field(of, name);
  return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static const char *known_type(const cJSON *scaling) {
  static const char *const types[] = {"default", "linear", "llama3"};
  const cJSON *item = field(scaling, "rope_type");
  if (!item) item = field(scaling, "type");
  if (!item) return types[0];
  for (int i = 0; i < 3; i++)
    if (cJSON_IsString(item) && !strcmp(item->valuestring, types[i])) return types[i];
  return NULL;
}

static struct rope read_rope(const cJSON *root) {
  const char *named = "rope_parameters";
  const cJSON *scaling = field(root, named);
  if (!cJSON_IsObject(scaling)) scaling = field(root, named = "rope_scaling");
  struct rope r = {.theta = number(scaling, "rope_theta"),
                   .factor = number(scaling, "factor"),
                   .low = number(scaling, "low_freq_factor"),
                   .high = number(scaling, "high_freq_factor"),
                   .context = number(scaling, "original_max_position_embeddings"),
                   .type = cJSON_IsObject(scaling) ? known_type(scaling) : "default",
                   .named = named};
  if (!r.theta) r.theta = number(root, "rope_theta");
  return r;
}

/* False: the type is unknown or lacks a number. */
static bool is_complete(const struct rope *r) {
  if (!r->type) return false;
  if (!strcmp(r->type, "default")) return true;
  if (!(r->factor > 0)) return false;
  return strcmp(r->type, "llama3") || (r->low > 0 && r->high > r->low && r->context > 0);
}

/* As modeling_rope_utils.py of transformers has it. */
static double frequency(const struct rope *r, double plain) {
  if (!strcmp(r->type, "default")) return plain;
  if (!strcmp(r->type, "linear")) return plain / r->factor;
  const double waves = r->context * plain / (2 * acos(-1)); /* within the context */
  if (waves <= r->low) return plain / r->factor;
  if (waves >= r->high) return plain;
  const double smooth = (waves - r->low) / (r->high - r->low);
  return (1 - smooth) * plain / r->factor + smooth * plain;
}

/* The model's frequency i of n, from its table or as a power of theta. */
static double own_frequency(int i, int n) {
  const char *at = pd_trait("rope_frequencies");
  if (!at) return pow(atof(pd_trait("rope_theta")), -(double)i / n);
  for (char *end; i > 0; i--, at = end) strtod(at, &end);
  return strtod(at, NULL);
}

/* theta: the model's, if any, because a difference of theta is reported separately. */
static void compare_scaling(struct comparison *c, const struct rope *r, double theta, int n) {
  for (int i = 0; i < n; i++) {
    const double theirs = frequency(r, pow(theta, -(double)i / n)), own = own_frequency(i, n);
    if (is_near(theirs, own)) continue;
    differ(c, "%s of type %s gives rotary frequency %d of %d the value %.5g, but the model has %.5g", r->named,
           r->type, i + 1, n, theirs, own);
    return;
  }
}

/* As Gemma 3, whose layers with a window have another base: a trait is one value of all layers. */
static bool has_two_ropes(const cJSON *root) {
  return field(root, "rope_local_base_freq") || field(field(root, "rope_parameters"), "sliding_attention");
}

static void compare_rope(struct comparison *c) {
  const char *dim = pd_trait("rotary_dim"), *own = pd_trait("rope_theta");
  if (!dim || has_two_ropes(c->root)) return;
  const struct rope r = read_rope(c->root);
  const double theta = own ? atof(own) : r.theta;
  if (own && r.theta > 0 && !is_near(r.theta, theta))
    differ(c, "rope_theta is %.9g, but the model has %s", r.theta, own);
  if (theta > 0 && is_complete(&r)) compare_scaling(c, &r, theta, atoi(dim) / 2);
}

/* ---- adapters -------------------------------------------------------------------------------------- */

static void compare_adapter(struct comparison *c) {
  cJSON *own = cJSON_Parse(pd.stage->adapter_config);
  const double theirs = number(c->root, "lora_alpha") / number(c->root, "r"),
               scale = number(own, "lora_alpha") / number(own, "r");
  cJSON_Delete(own);
  if (!is_near(theirs, scale))
    differ(c, "it scales products by lora_alpha / r = %.7g, but the model by %.7g", theirs, scale);
}

/* ---- files ----------------------------------------------------------------------------------------- */

static void compare_model(struct comparison *c) {
  compare_fields(c);
  compare_norms(c);
  compare_rope(c);
  compare_window(c);
}

bool pd_config_fits(const cJSON *root, const char *path, char *why) {
  struct comparison c = {.root = root};
  compare_model(&c);
  pd_make_plain(c.text);
  return !*c.text ||
         pd_refuse(why, "'%.300s' describes a different computation than the model: %.650s", path, c.text);
}

static void compare(const char *path, const cJSON *root) {
  struct comparison c = {.root = root};
  if (cJSON_IsString(field(root, "peft_type")) && pd.stage->adapter_config)
    compare_adapter(&c);
  else if (!cJSON_IsString(field(root, "model_type")) && !cJSON_IsArray(field(root, "architectures")))
    return;
  else
    compare_model(&c);
  pd_make_plain(c.text);
  if (*c.text) pd_warn("'%s' describes a different computation than the model: %s", path, c.text);
}

static void compare_file(const char *path) {
  char why[PD_WHY];
  size_t bytes;
  char *text = pd_read_file(path, &bytes, why);
  cJSON *root = text ? cJSON_ParseWithLength(text, bytes) : NULL;
  if (!text)
    pd_warn("%s: the file is not compared with the model", why);
  else if (!root)
    pd_warn("'%s' is not JSON, or it is cut short: the file is not compared with the model", path);
  else
    compare(path, root);
  cJSON_Delete(root);
  free(text);
}

/* Compares the file of this name in the folder of a weight file, unless the weight file before is in the same
 * folder. */
static void compare_beside(const struct pd_sources *s, const char *name) {
  enum { ROOM = 4096 };
  char path[ROOM], before[ROOM] = "";
  for (int f = 0; f < s->n_files; f++) {
    const char *file = s->file[f].path, *slash = strrchr(file, '/');
    int n = snprintf(path, sizeof path, "%.*s%s", slash ? (int)(slash + 1 - file) : 0, file, name);
    if (n < 0 || n >= ROOM || !strcmp(path, before)) continue;
    strcpy(before, path);
    if (pd_exists(path)) compare_file(path);
  }
}

void pd_compare_configs(const struct pd_sources *s) {
  if (pd.self) return;
  if (pd.stage->n_traits) compare_beside(s, "config.json");
  if (pd.stage->adapter_config) compare_beside(s, PD_ADAPTER_CONFIG);
}
