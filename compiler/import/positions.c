/* Rotary positions and attention windows in Hugging Face configurations. */
#include <math.h>
#include <string.h>

#include "import/internal.h"

static const cJSON *member(const cJSON *of, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(of, name);
  return cJSON_IsNull(item) ? NULL : item;
}

/* ---- rotary positions ---------------------------------------------------------------------------- */

typedef struct Rope {
  const char *field; /* name of the object's field: "rope_scaling" */
  const cJSON *object;
} Rope;

/* A positive number of the object; 0 after a diagnostic. */
static double positive(const Import *m, const Rope *r, const char *name) {
  const cJSON *item = member(r->object, name);
  if (cJSON_IsNumber(item) && item->valuedouble > 0 && isfinite(item->valuedouble))
    return item->valuedouble;
  error_at((Span){.file = m->file}, "PD0603", "'%s.%s' must be a number above 0", r->field, name);
  return 0;
}

static bool only_members(const Import *m, const Rope *r, const char *const *names, int n) {
  for (const cJSON *item = r->object->child; item; item = item->next) {
    int i = 0;
    while (i < n && strcmp(names[i], item->string))
      i++;
    if (i < n || cJSON_IsNull(item))
      continue;
    refuse_unknown(m, make_utf8(format("%s.%.200s", r->field, item->string)));
    return false;
  }
  return true;
}

static bool read_linear(Import *m, const Rope *r) {
  static const char *const names[] = {"rope_type",  "type",
                                      "rope_theta", "partial_rotary_factor",
                                      "factor",     "original_max_position_embeddings"};
  const double factor = positive(m, r, "factor");
  if (!factor || !only_members(m, r, names, 6))
    return false;
  set_known(m, "scaling", format("[%s]", number_text(factor)));
  return true;
}

static bool read_llama3(Import *m, const Rope *r) {
  static const char *const names[] = {"rope_type",        "type",
                                      "rope_theta",       "partial_rotary_factor",
                                      "factor",           "low_freq_factor",
                                      "high_freq_factor", "original_max_position_embeddings"};
  double x[4];
  for (int i = 0; i < 4; i++)
    if (!(x[i] = positive(m, r, names[4 + i])))
      return false;
  if (!only_members(m, r, names, 8))
    return false;
  if (x[2] <= x[1]) {
    error_at((Span){.file = m->file}, "PD0603", "'%s.high_freq_factor' must be above low_freq_factor", r->field);
    return false;
  }
  set_known(m, "scaling",
            format("[%s, %s, %s, %s]", number_text(x[0]), number_text(x[1]), number_text(x[2]),
                   number_text(x[3])));
  return true;
}

/* A positive number of the object, or `usual` if it is missing. */
static double positive_or(const Import *m, const Rope *r, const char *name, double usual) {
  return member(r->object, name) ? positive(m, r, name) : usual;
}

/* YaRN's factor of queries and keys for a context that is `times` the original one. */
static double yarn_gain(double times, double scale) { return times <= 1 ? 1 : 0.1 * scale * log(times) + 1; }

/* Also sets yarn_gain, from mscale_all_dim. */
static bool read_yarn(Import *m, const Rope *r) {
  static const char *const names[] = {"rope_type",
                                      "type",
                                      "rope_theta",
                                      "factor",
                                      "beta_fast",
                                      "beta_slow",
                                      "mscale",
                                      "mscale_all_dim",
                                      "attention_factor",
                                      "truncate",
                                      "original_max_position_embeddings",
                                      "partial_rotary_factor"};
  const cJSON *truncate = member(r->object, "truncate");
  const double factor = positive(m, r, "factor"), fast = positive_or(m, r, "beta_fast", 32),
               slow = positive_or(m, r, "beta_slow", 1),
               context = positive_or(m, r, names[10], known_number(m, "max_position_embeddings"));
  const bool scaled = member(r->object, "mscale") && member(r->object, "mscale_all_dim");
  const double one = scaled ? positive(m, r, "mscale") : 1, all = positive_or(m, r, "mscale_all_dim", 1);
  if (!factor || !fast || !slow || !context || !one || !all || !only_members(m, r, names, 12))
    return false;
  if (truncate && !cJSON_IsTrue(truncate)) {
    refuse_field(m, format("%s.truncate", r->field), "false", "true");
    return false;
  }
  const double gain = scaled ? yarn_gain(factor, one) / yarn_gain(factor, all) : yarn_gain(factor, 1),
               attention = positive_or(m, r, "attention_factor", gain);
  if (!attention)
    return false;
  set_known(m, "yarn_gain", member(r->object, "mscale_all_dim") ? number_text(yarn_gain(factor, all)) : "");
  set_known(m, "scaling",
            format("[%s, %s, %s, %s, %s]", number_text(factor), number_text(fast), number_text(slow),
                   number_text(context), number_text(attention)));
  return true;
}

static bool read_plain(Import *m, const Rope *r) {
  static const char *const names[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
  return only_members(m, r, names, 4);
}

static bool read_object(Import *m, const Rope *r, bool scalings) {
  const cJSON *type = member(r->object, "rope_type");
  if (!type)
    type = member(r->object, "type");
  const char *name = cJSON_IsString(type) ? type->valuestring : type ? "" : "default";
  if (!strcmp(name, "default"))
    return read_plain(m, r);
  if (scalings && !strcmp(name, "linear"))
    return read_linear(m, r);
  if (scalings && !strcmp(name, "llama3"))
    return read_llama3(m, r);
  if (scalings && !strcmp(name, "yarn"))
    return read_yarn(m, r);
  refuse_field(m, format("%s.rope_type", r->field), make_utf8(format("'%.100s'", name)),
               scalings ? "default, linear, llama3, yarn" : "default");
  return false;
}

/* Finds rope_parameters or rope_scaling, if either exists. */
static bool find_rope(const Import *m, Rope *r) {
  const cJSON *parameters = member(m->config, "rope_parameters"), *scaling = member(m->config, "rope_scaling");
  *r = parameters ? (Rope){"rope_parameters", parameters} : (Rope){"rope_scaling", scaling};
  const bool both = parameters && scaling;
  if (both || (r->object && !cJSON_IsObject(r->object)))
    error_at((Span){.file = m->file}, "PD0603",
             both ? "'%s' and 'rope_scaling' are both there" : "'%s' must be an object", r->field);
  else
    return !r->object || object_is_plain(m, r->object);
  return false;
}

/* Of an object, or, with the base, of the field `top` of config.json. */
static bool read_rope(Import *m, Rope r, const char *top, double usual_theta, bool scalings) {
  set_known(m, "scaling", "");
  const cJSON *theta = member(r.object, "rope_theta"), *partial = member(r.object, "partial_rotary_factor");
  const Rope whole = {"config.json", m->config};
  double base = usual_theta;
  if ((theta || member(m->config, top)) &&
      !(base = theta ? positive(m, &r, "rope_theta") : positive(m, &whole, top)))
    return false;
  set_known(m, "base", number_text(base));
  if (partial) {
    const double share = positive(m, &r, "partial_rotary_factor");
    if (!share)
      return false;
    set_known(m, "partial_rotary_factor", number_text(share));
  }
  return !r.object || read_object(m, &r, scalings);
}

bool derive_rope(Import *m, double usual_theta, bool scalings) {
  Rope r;
  return find_rope(m, &r) && read_rope(m, r, "rope_theta", usual_theta, scalings);
}

/* The members of rope_parameters by type of layer; rope_scaling is that of full attention. */
static bool find_ropes(const Import *m, Rope *full, Rope *sliding) {
  Rope r;
  if (!find_rope(m, &r))
    return false;
  *full = r;
  *sliding = (Rope){"rope_parameters.sliding_attention", NULL};
  if (!r.object || !strcmp(r.field, "rope_scaling"))
    return true;
  *full = (Rope){"rope_parameters.full_attention", member(r.object, "full_attention")};
  sliding->object = member(r.object, "sliding_attention");
  for (const cJSON *item = r.object->child; item; item = item->next)
    if (strcmp(item->string, "full_attention") && strcmp(item->string, "sliding_attention")) {
      refuse_unknown(m, make_utf8(format("rope_parameters.%.200s", item->string)));
      return false;
    }
  for (int i = 0; i < 2; i++) {
    const Rope *of = i ? sliding : full;
    if (of->object && !cJSON_IsObject(of->object)) {
      error_at((Span){.file = m->file}, "PD0603", "'%s' must be an object", of->field);
      return false;
    }
    if (of->object && !object_is_plain(m, of->object))
      return false;
  }
  return true;
}

bool derive_ropes(Import *m, double usual_theta, double usual_local) {
  Rope full, sliding;
  if (!find_ropes(m, &full, &sliding) || !read_rope(m, sliding, "rope_local_base_freq", usual_local, false))
    return false;
  set_known(m, "local_base", known(m, "base"));
  if (!read_rope(m, full, "rope_theta", usual_theta, true))
    return false;
  if (!is_known(m, "partial_rotary_factor") || known_number(m, "partial_rotary_factor") == 1)
    return true;
  refuse_field(m, "partial_rotary_factor", known(m, "partial_rotary_factor"), "1");
  return false;
}

bool derive_rotary_size(Import *m, double head_size) {
  const double size = floor(head_size * known_number(m, "partial_rotary_factor"));
  if (size < 2 || size > head_size || fmod(size, 2) != 0) {
    refuse_field(m, "partial_rotary_factor", known(m, "partial_rotary_factor"), "an even part of a head");
    return false;
  }
  set_known(m, "rotary_size", number_text(size));
  return true;
}

/* ---- windows --------------------------------------------------------------------------------------- */

static bool is_sliding(const cJSON *types, int i) {
  const cJSON *item = cJSON_GetArrayItem(types, i);
  return cJSON_IsString(item) && !strcmp(item->valuestring, "sliding_attention");
}

/* Whether every layer slides but each p-th. */
static bool has_pattern(const cJSON *types, int n, int p) {
  for (int i = 0; i < n; i++)
    if (is_sliding(types, i) != ((i + 1) % p != 0))
      return false;
  return true;
}

/* A condition for sliding layers i: "i % 2 == 0", "(i + 1) % 6 != 0", "i >= 28"; "" none, "true" all. */
static const char *condition(const cJSON *types) {
  const int n = cJSON_GetArraySize(types);
  Text list = {0};
  int some = 0, first = -1;
  bool alternate = true, tail = true;
  for (int i = 0; i < n; i++) {
    const bool slides = is_sliding(types, i);
    some += slides;
    if (slides && first < 0)
      first = i;
    alternate &= slides == (i % 2 == 0);
    tail &= first < 0 || slides;
    if (slides)
      text_add(&list, "%si == %d", some > 1 ? " or " : "", i);
  }
  if (!some || some == n)
    return some ? "true" : "";
  for (int p = 3; p <= n; p++)
    if (has_pattern(types, n, p))
      return format("(i + 1) %% %d != 0", p);
  return alternate ? "i % 2 == 0" : tail ? format("i >= %d", first) : list.at;
}

void derive_window(Import *m, const char *usual) {
  const cJSON *types = member(m->config, "layer_types");
  const char *which = !is_known(m, "sliding_window") ? "" : cJSON_IsArray(types) ? condition(types) : usual;
  const bool all = !strcmp(which, "true"), some = *which && !all;
  set_known(m, "sliding", which);
  set_known(m, "window", all ? known(m, "sliding_window") : some ? "window" : "");
  set_known(m, "window_lines",
            some ? format("window = none;\nif %s { window = %s; }\n", which, known(m, "sliding_window")) : "");
}
