/* Profiles as files: signature, measurements, checks. */
#include "profile/profile.h"

#include <string.h>

#include "ops/op.h"
#include "base/json.h"

/* ---- signature ---------------------------------------------------------------------------------- */

static void describe_attributes(const Node *n, Text *t) {
  for (int i = 0; i < MAX_ATTR && n->op->attr[i].name; i++) {
    const Attr *a = &n->attr[i];
    text_add(t, " %.17g", a->number);
    for (int k = 0; k < a->n; k++)
      text_add(t, ",%lld", (long long)a->list[k]);
    if (a->text)
      text_add(t, ",%s", a->text);
  }
}

/* Hash of everything that costs depend on; excludes names of values, the optimizer and learning rates. */
static Name model_hash(const Graph *g, const Pieces *p) {
  Text t = {0};
  for (int i = 0; i < g->nodes.n; i++) {
    const Node *n = &g->nodes.at[i];
    text_add(&t, "%s", n->op->name);
    describe_attributes(n, &t);
    for (int k = 0; k < n->n_in; k++)
      text_add(&t, " v%d", n->in[k]);
    for (int k = 0; k < n->n_out; k++)
      text_add(&t, " %s%s", g->values.at[n->out[k]].shape.batched ? "b" : "",
               shape_text(&g->values.at[n->out[k]].shape));
    text_add(&t, "\n");
  }
  for (int i = 0; i < p->n; i++)
    text_add(&t, "%d %s\n", p->at[i].first, p->at[i].name);
  return intern(sha256_hex(t.at, t.n));
}

Name line_of(const char *path, const char *key) {
  char *text = read_file(path, NULL), *line = text ? strstr(text, key) : NULL;
  char *from = line ? strchr(line, ':') : NULL;
  if (!from)
    return NULL;
  from += 1 + strspn(from + 1, " \t");
  return internf("%.*s", (int)strcspn(from, "\n"), from);
}

Name profile_target(const Target *target) {
  return internf("%s %s", backend_of(target)->name, numbers_name(target));
}

ProfileSignature profile_signature(const Graph *g, const Pieces *p, Target target, const char *compiler) {
  const Backend *b = backend_of(&target);
  return (ProfileSignature){.model = model_hash(g, p),
                            .target = profile_target(&target),
                            .machine = b->device->machine(),
                            .threads = target.threads,
                            .compiler = intern(compiler ? compiler : ""),
                            .library = b->device->library()};
}

/* ---- writing ------------------------------------------------------------------------------------- */

/* "h.3.ln_2" and "h.11.ln_2" have the same kind. */
static Name kind_of(Name name) {
  Text t = {0};
  for (const char *c = name; *c; c++) {
    bool digit = *c >= '0' && *c <= '9';
    if (!digit || (t.n > 0 && t.at[t.n - 1] != '.' && t.at[t.n - 1] != '*'))
      text_add(&t, "%c", *c);
    else if (t.n > 0 && t.at[t.n - 1] == '.')
      text_add(&t, "*");
  }
  return intern(t.at ? t.at : "");
}

static Name milliseconds(double seconds) { return internf("%.9g", seconds * 1e3); }

static bool alike(const MeasuredSize *m, const Pieces *p, int a, int b) {
  return kind_of(p->at[a].name) == kind_of(p->at[b].name) &&
         milliseconds(m->forward[a]) == milliseconds(m->forward[b]) &&
         milliseconds(m->backward[a]) == milliseconds(m->backward[b]) &&
         (!m->products || milliseconds(m->products[a]) == milliseconds(m->products[b]));
}

/* Writes equal pieces once, with all their names. */
static void write_pieces(const MeasuredSize *m, const Pieces *p, Text *t) {
  bool *done = alloc((size_t)p->n);
  text_add(t, "      \"pieces\": [");
  for (int i = 0, written = 0; i < p->n; i++) {
    if (done[i])
      continue;
    int count = 0;
    text_add(t, "%s\n        { \"forward_ms\": %s, \"backward_ms\": %s, ", written++ ? "," : "",
             milliseconds(m->forward[i]), milliseconds(m->backward[i]));
    if (m->products)
      text_add(t, "\"weights_ms\": %s, ", milliseconds(m->products[i]));
    text_add(t, "\"names\": [");
    for (int k = i; k < p->n; k++)
      if (!done[k] && alike(m, p, i, k)) {
        done[k] = true;
        text_add(t, "%s", count++ ? ", " : "");
        json_string(t, p->at[k].name);
      }
    text_add(t, "], \"count\": %d }", count);
  }
  text_add(t, "\n      ],\n");
}

static void write_kernels(const MeasuredSize *m, Text *t) {
  text_add(t, "      \"kernels\": [");
  for (int i = 0; i < m->kernels.n; i++) {
    const MeasuredKernel *k = &m->kernels.at[i];
    text_add(t, "%s\n        { \"seconds\": ", i ? "," : "");
    json_double(t, k->seconds);
    text_add(t, ", \"count\": %lld, \"name\": ", (long long)k->count);
    json_string(t, k->name);
    text_add(t, ", \"signature\": ");
    json_string(t, k->signature);
    text_add(t, " }");
  }
  text_add(t, "\n      ]");
  if (m->algorithms.n) {
    text_add(t, ",\n");
    algorithms_write(&m->algorithms, true, 6, t);
  }
  if (m->attentions.n) {
    text_add(t, ",\n");
    attentions_write(&m->attentions, true, 6, t);
  }
  text_add(t, "\n");
}

/* Files store transfer rates in bytes per second. */
static const char *const of_place[] = {"read_bytes_per_second", "write_bytes_per_second", NULL},
                         *const of_link[] = {"to_device_bytes_per_second", "from_device_bytes_per_second", NULL},
                         *const of_host[] = {"update_bytes_per_second", NULL};

static void write_rates(Text *t, const char *member, const char *const *keys, double in, double out) {
  text_add(t, "  \"%s\": { \"%s\": %.9g, \"%s\": %.9g },\n", member, keys[0], 1 / in, keys[1], 1 / out);
}

char *profile_write(const Profile *profile, const Pieces *p) {
  const ProfileSignature *s = &profile->signature;
  Text t = {0};
  text_add(&t, "{\n  \"signature\": {\n    \"model\": ");
  json_string(&t, s->model);
  text_add(&t, ",\n    \"target\": ");
  json_string(&t, s->target);
  text_add(&t, ",\n    \"machine\": ");
  json_string(&t, s->machine);
  text_add(&t, ",\n    \"threads\": %d,\n    \"compiler\": ", s->threads);
  json_string(&t, s->compiler);
  text_add(&t, ",\n    \"library\": ");
  json_string(&t, s->library);
  text_add(&t, "\n  },\n");
  if (profile->update > 0)
    text_add(&t, "  \"update\": { \"element_ns\": %.9g, \"apart_ns\": %.9g, \"norm_ns\": %.9g },\n",
             profile->update * 1e9, profile->apart * 1e9, profile->norm * 1e9);
  if (profile->read > 0)
    write_rates(&t, "spill", of_place, profile->read, profile->write);
  if (profile->to_device > 0)
    write_rates(&t, "link", of_link, profile->to_device, profile->from_device);
  if (profile->at_home > 0)
    text_add(&t, "  \"host\": { \"%s\": %.9g },\n", of_host[0], 1 / profile->at_home);
  if (profile->cublaslt.device) {
    text_add(&t, "  ");
    product_library_write("cublaslt", &profile->cublaslt, &t);
    text_add(&t, ",\n");
  }
  if (profile->cudnn.device) {
    text_add(&t, "  ");
    product_library_write("cudnn", &profile->cudnn, &t);
    text_add(&t, ",\n");
  }
  text_add(&t, "  \"microbatches\": [\n");
  for (int i = 0; i < profile->sizes.n; i++) {
    const MeasuredSize *m = &profile->sizes.at[i];
    text_add(&t, "    {\n      \"microbatch\": %lld,\n", (long long)m->microbatch);
    write_pieces(m, p, &t);
    write_kernels(m, &t);
    text_add(&t, "    }%s\n", i + 1 < profile->sizes.n ? "," : "");
  }
  text_add(&t, "  ]\n}\n");
  return t.at;
}

/* ---- reading ------------------------------------------------------------------------------------- */

static bool read_signature(const JsonPlace *top, ProfileSignature *s) {
  static const char *const keys[] = {"model", "target", "machine", "threads", "compiler", "library", NULL};
  JsonPlace at = {top->file, "signature", json_member(top, "signature")};
  if (!at.object || !json_only(&at, keys))
    return false;
  const char *model = json_get_string(&at, "model"), *machine = json_get_string(&at, "machine");
  bool older = !cJSON_GetObjectItemCaseSensitive(at.object, "target"); /* than any other target */
  const char *target = older ? "c f32" : json_get_string(&at, "target");
  const char *compiler = json_get_string(&at, "compiler"), *library = json_get_string(&at, "library");
  int64_t threads;
  if (!model || !target || !machine || !compiler || !library ||
      !json_get_int(&at, "threads", 1, 1 << 20, &threads))
    return false;
  *s = (ProfileSignature){.model = intern(model),
                          .target = intern(target),
                          .machine = intern(machine),
                          .threads = (int)threads,
                          .compiler = intern(compiler),
                          .library = intern(library)};
  return true;
}

static bool target_of(Name text, Target *to) {
  for (const Backend *const *b = all_backends; *b; b++)
    for (int i = 0; i < N_PRECISIONS * N_RESIDUALS; i++) {
      *to = (Target){.backend = *b,
                     .precision = (Precision)(i / N_RESIDUALS),
                     .residual = (Residual)(i % N_RESIDUALS)};
      if (text == profile_target(to))
        return true;
    }
  return false;
}

/* Finds the measured device, to scale times to other devices. */
static bool find_device(int file, Profile *profile) {
  const ProfileSignature *s = &profile->signature;
  Target target;
  if (target_of(s->target, &target))
    profile->device = backend_of(&target)->device->kind_of_machine(s->machine);
  if (!profile->device || profile->device->product[target.precision] <= 0) {
    Diagnostic *d =
        error_at((Span){.file = file}, "PD0540",
                 "the profile cannot be scaled: the rates of '%s' in '%s' are unknown", s->machine, s->target);
    help(d, "leave '--profile' out to use estimated costs");
    return false;
  }
  target.threads = s->threads;
  profile->rates = device_rates(profile->device, &target);
  return true;
}

/* Reports the first difference. */
static bool applies(int file, const ProfileSignature *has, const ProfileSignature *now, bool elsewhere) {
  Diagnostic *d = NULL;
  Span where = {.file = file};
  const DeviceKind *kind = kind_of_model(has->machine); /* for profiles of GPUs */
  if (has->model != now->model)
    d = error_at(where, "PD0508", "the profile is for another model, or for other sizes of this model");
  else if (elsewhere)
    return true;
  else if (has->target != now->target)
    d = error_at(where, "PD0508", "the profile is for target '%s', not '%s'", has->target, now->target);
  else if (*now->machine && has->machine != now->machine)
    d = error_at(where, "PD0508", "the profile was measured on '%s', not on '%s'", has->machine, now->machine);
  else if (!*now->machine && now->arch && kind && kind->arch != now->arch)
    d = error_at(where, "PD0508", "the profile was measured on '%s' of sm_%d, not of sm_%d", has->machine,
                 kind->arch, now->arch);
  else if (has->threads != now->threads)
    d = error_at(where, "PD0508", "the profile is for %d thread%s per rank, not %d", has->threads,
                 has->threads == 1 ? "" : "s", now->threads);
  else if (*has->compiler && *now->compiler && has->compiler != now->compiler)
    d = error_at(where, "PD0508", "the profile was measured with compiler '%s', not '%s'", has->compiler,
                 now->compiler);
  else if (has->library != now->library)
    d = error_at(where, "PD0508", "the profile was measured with library '%s', not '%s'", has->library,
                 now->library);
  if (d)
    help(d, "run 'pdc profile' with the same model, -D and -n");
  if (d && has->model == now->model)
    help(d, "add '--cluster' to scale the profile to other devices");
  return d == NULL;
}

static bool read_piece_group(const JsonPlace *at, const Pieces *p, bool *covered, MeasuredSize *m) {
  static const char *const keys[] = {"names", "count", "forward_ms", "backward_ms", "weights_ms", NULL};
  double forward, backward, products = 0;
  int64_t count = -1; /* optional */
  bool counted = cJSON_GetObjectItemCaseSensitive(at->object, "count") != NULL;
  if (counted && !json_get_int(at, "count", 1, p->n, &count))
    return false;
  if (!json_only(at, keys) || !json_get_seconds(at, "forward_ms", &forward) ||
      !json_get_seconds(at, "backward_ms", &backward))
    return false;
  bool has_products = cJSON_GetObjectItemCaseSensitive(at->object, "weights_ms") != NULL;
  if (has_products && (!json_get_seconds(at, "weights_ms", &products) || products > backward)) {
    error_at((Span){.file = at->file}, "PD0603", "'%s.weights_ms' is larger than 'backward_ms'", at->path);
    return false;
  }
  if (!has_products)
    m->products = NULL;
  const cJSON *names = json_get_array(at, "names", 1), *name;
  if (counted && names && count != cJSON_GetArraySize(names)) {
    error_at((Span){.file = at->file}, "PD0603", "'%s.count' is %lld, but there are %d names", at->path,
             (long long)count, cJSON_GetArraySize(names));
    return false;
  }
  cJSON_ArrayForEach(name, names) {
    int piece = cJSON_IsString(name) ? piece_find(p, name->valuestring) : -1;
    if (piece < 0 || covered[piece]) {
      error_at((Span){.file = at->file}, "PD0603", "'%s.names' has %s", at->path,
               piece < 0 ? "an entry that is not a piece of the model" : format("'%s' twice", p->at[piece].name));
      return false;
    }
    covered[piece] = true;
    m->forward[piece] = forward / 1e3;
    m->backward[piece] = backward / 1e3;
    if (m->products)
      m->products[piece] = products / 1e3;
  }
  return names != NULL;
}

static bool read_kernels(const JsonPlace *at, MeasuredSize *m) {
  static const char *const keys[] = {"seconds", "count", "name", "signature", NULL};
  const cJSON *kernels = json_get_array(at, "kernels", 0);
  for (int i = 0; kernels && i < cJSON_GetArraySize(kernels); i++) {
    JsonPlace place = json_element(at, "kernels", kernels, i);
    MeasuredKernel k = {0};
    if (!json_only(&place, keys) || !json_get_seconds(&place, "seconds", &k.seconds) ||
        !json_get_int(&place, "count", 1, (int64_t)1 << 53, &k.count))
      return false;
    const char *name = json_get_string(&place, "name"), *signature = json_get_string(&place, "signature");
    if (!name || !signature)
      return false;
    k.name = intern(name);
    k.signature = intern(signature);
    push(&m->kernels, k);
  }
  return kernels != NULL;
}

/* Refuses algorithms without their library's version. */
static bool read_algorithms(const JsonPlace *at, const Profile *profile, MeasuredSize *m) {
  if (!cJSON_GetObjectItemCaseSensitive(at->object, "algorithms"))
    return true;
  if (profile->cublaslt.device)
    return algorithms_read(at, true, &m->algorithms);
  error_at((Span){.file = at->file}, "PD0603",
           "'cublaslt' is missing: the version of the library that '%s.algorithms' belong to", at->path);
  return false;
}

static bool read_attentions(const JsonPlace *at, const Profile *profile, MeasuredSize *m) {
  if (!cJSON_GetObjectItemCaseSensitive(at->object, "attentions"))
    return true;
  if (profile->cudnn.device)
    return attentions_read(at, true, &m->attentions);
  error_at((Span){.file = at->file}, "PD0603",
           "'cudnn' is missing: the version of the library that '%s.attentions' belong to", at->path);
  return false;
}

static bool read_size(const JsonPlace *at, const Pieces *p, Profile *profile) {
  static const char *const keys[] = {"microbatch", "pieces", "kernels", "algorithms", "attentions", NULL};
  MeasuredSize m = {.forward = alloc((size_t)p->n * sizeof(double)),
                    .backward = alloc((size_t)p->n * sizeof(double)),
                    .products = alloc((size_t)p->n * sizeof(double))};
  bool *covered = alloc((size_t)p->n);
  if (!json_only(at, keys) || !json_get_int(at, "microbatch", 1, (int64_t)1 << 53, &m.microbatch))
    return false;
  const cJSON *groups = json_get_array(at, "pieces", 1);
  for (int i = 0; groups && i < cJSON_GetArraySize(groups); i++) {
    JsonPlace place = json_element(at, "pieces", groups, i);
    if (!read_piece_group(&place, p, covered, &m))
      return false;
  }
  if (!groups || !read_kernels(at, &m) || !read_algorithms(at, profile, &m) || !read_attentions(at, profile, &m))
    return false;
  for (int i = 0; i < p->n; i++)
    if (!covered[i]) {
      error_at((Span){.file = at->file}, "PD0603", "'%s.pieces' lacks '%s'", at->path, p->at[i].name);
      return false;
    }
  if (profile_at(profile, m.microbatch)) {
    error_at((Span){.file = at->file}, "PD0603", "'%s.microbatch': %lld appears twice", at->path,
             (long long)m.microbatch);
    return false;
  }
  push(&profile->sizes, m);
  return true;
}

/* Profiles of older versions have no update times, or one for both kinds. */
static bool read_update(const JsonPlace *top, Profile *profile) {
  static const char *const keys[] = {"element_ns", "apart_ns", "norm_ns", NULL};
  if (!cJSON_GetObjectItemCaseSensitive(top->object, "update"))
    return true;
  JsonPlace at = {top->file, "update", json_member(top, "update")};
  if (!at.object || !json_only(&at, keys) || !json_get_seconds(&at, "element_ns", &profile->update) ||
      !json_get_seconds(&at, "norm_ns", &profile->norm))
    return false;
  profile->apart = profile->update;
  if (cJSON_GetObjectItemCaseSensitive(at.object, "apart_ns") &&
      !json_get_seconds(&at, "apart_ns", &profile->apart))
    return false;
  profile->update /= 1e9;
  profile->apart /= 1e9;
  profile->norm /= 1e9;
  return true;
}

/* Reads an object of rates as seconds per byte. */
static bool read_rates(const JsonPlace *top, const char *member, const char *const *keys, double *const *to) {
  if (!cJSON_GetObjectItemCaseSensitive(top->object, member))
    return true;
  JsonPlace at = {top->file, member, json_member(top, member)};
  if (!at.object || !json_only(&at, keys))
    return false;
  for (int i = 0; keys[i]; i++) {
    double rate;
    if (!json_get_seconds(&at, keys[i], &rate))
      return false;
    if (rate <= 0) {
      error_at((Span){.file = at.file}, "PD0603", "'%s' must be above 0", member);
      return false;
    }
    *to[i] = 1 / rate;
  }
  return true;
}

const Profile *profile_read(const char *path, const Pieces *p, const ProfileSignature *expected, bool elsewhere) {
  static const char *const keys[] = {"signature", "update", "spill",        "link", "host",
                                     "cublaslt",  "cudnn",  "microbatches", NULL};
  JsonPlace top = {.path = ""};
  Profile *profile = alloc(sizeof *profile);
  profile->file = intern(path);
  top.object = json_load(path, &top.file);
  if (!top.object || !json_only(&top, keys) || !read_signature(&top, &profile->signature) ||
      !applies(top.file, &profile->signature, expected, elsewhere) || !read_update(&top, profile) ||
      !read_rates(&top, "spill", of_place, (double *const[]){&profile->read, &profile->write}) ||
      !read_rates(&top, "link", of_link, (double *const[]){&profile->to_device, &profile->from_device}) ||
      !read_rates(&top, "host", of_host, (double *const[]){&profile->at_home}))
    return NULL;
  if (cJSON_GetObjectItemCaseSensitive(top.object, "cublaslt") &&
      !product_library_read(&top, "cublaslt", &profile->cublaslt))
    return NULL;
  if (cJSON_GetObjectItemCaseSensitive(top.object, "cudnn") &&
      !product_library_read(&top, "cudnn", &profile->cudnn))
    return NULL;
  if (elsewhere && !find_device(top.file, profile))
    return NULL;
  const cJSON *sizes = json_get_array(&top, "microbatches", 1);
  for (int i = 0; sizes && i < cJSON_GetArraySize(sizes); i++) {
    JsonPlace place = json_element(&top, "microbatches", sizes, i);
    if (!read_size(&place, p, profile))
      return NULL;
  }
  return sizes ? profile : NULL;
}

const MeasuredSize *profile_at(const Profile *profile, int64_t microbatch) {
  for (int i = 0; i < profile->sizes.n; i++)
    if (profile->sizes.at[i].microbatch == microbatch)
      return &profile->sizes.at[i];
  return NULL;
}

const Algorithms *profile_algorithms(const Profile *profile, int64_t microbatch) {
  const MeasuredSize *m = profile_at(profile, microbatch);
  if (!m || !m->algorithms.n)
    return NULL;
  const Algorithms all = {.library = profile->cublaslt, .of = m->algorithms};
  return alloc_copy(&all, sizeof all);
}

const Attentions *profile_attentions(const Profile *profile, int64_t microbatch) {
  const MeasuredSize *m = profile_at(profile, microbatch);
  if (!m || !m->attentions.n)
    return NULL;
  const Attentions all = {.library = profile->cudnn, .of = m->attentions};
  return alloc_copy(&all, sizeof all);
}

const Workspaces *profile_workspaces(const Profile *profile) {
  AttentionList all = {0};
  for (int i = 0; i < profile->sizes.n; i++)
    for (int k = 0; k < profile->sizes.at[i].attentions.n; k++)
      push(&all, profile->sizes.at[i].attentions.at[k]);
  return all.n ? attention_workspaces(&all) : NULL;
}
