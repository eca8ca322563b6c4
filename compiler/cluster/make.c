/* Converts a `cluster` block to a Cluster. */
#include <math.h>
#include <string.h>

#include "cluster/internal.h"
#include "syntax/ast.h"

/* ---- settings --------------------------------------------------------------------------------------- */

/* Form of a setting's value. */
typedef enum { COUNT, SHARE, AMOUNT, QUANTITY, KIND, DEVICES } Form;

typedef struct Setting {
  const char *name;
  Form form;
  const char *base;    /* QUANTITY: base of its unit (units.h) */
  const char *example; /* "memory = 16 GiB" */
  double most;         /* AMOUNT, QUANTITY: upper limit, exclusive */
  bool zero;           /* QUANTITY: 0 is valid */
  bool may_lack;       /* optional for a level */
} Setting;

static const Setting device_settings[] = {
    {"kind", KIND, NULL, "kind = a100_80gb", 0, false, false},
    {"memory", QUANTITY, "bytes", "memory = 16 GiB", 0x1p60, false, false},
    {"memory_bandwidth", QUANTITY, "bytes/s", "memory_bandwidth = 900 GB/s", 1e18, false, false},
    {"peak", QUANTITY, "operations/s", "peak = 125 TFLOPS", 1e21, false, false},
    {"peak_f32", QUANTITY, "operations/s", "peak_f32 = 15.7 TFLOPS", 1e21, false, false},
    {"peak_tf32", QUANTITY, "operations/s", "peak_tf32 = 156 TFLOPS", 1e21, false, false},
    {"peak_bf16", QUANTITY, "operations/s", "peak_bf16 = 312 TFLOPS", 1e21, false, false},
    {"efficiency", SHARE, NULL, "efficiency = 0.5", 1, false, false},
    {"price", AMOUNT, NULL, "price = 2.5", 1e9, false, false},
    {"watts", AMOUNT, NULL, "watts = 700", 1e9, false, false},
};
enum { N_DEVICE_SETTINGS = sizeof device_settings / sizeof *device_settings };

static const Setting level_settings[] = {
    {"count", COUNT, NULL, "count = 8", MOST_MACHINES, false, false},
    {"bandwidth", QUANTITY, "bytes/s", "bandwidth = 25 Gbit/s", 1e18, false, false},
    {"device_bandwidth", QUANTITY, "bytes/s", "device_bandwidth = 25 Gbit/s", 1e18, false, true},
    {"latency", QUANTITY, "seconds", "latency = 5 us", 1e3, true, false},
    {"devices", DEVICES, NULL, "devices = [fast, fast, slow, slow]", 0, false, true},
};
enum { N_LEVEL_SETTINGS = sizeof level_settings / sizeof *level_settings, MOST_SETTINGS = 10 };

/* Settings of a group by place in its table: the expression, or NULL; and valid numbers, else 0. */
typedef struct Settings {
  const Ast *given[MOST_SETTINGS];
  double number[MOST_SETTINGS];
} Settings;

/* A signed number, and the base of its unit; NULL: no unit. */
static bool number_of(const Ast *a, double *x, const char **base) {
  bool negative = a->kind == AST_UNARY && !strcmp(a->name, "-");
  const Ast *number = negative ? a->a : a;
  if (number->kind != AST_NUMBER && number->kind != AST_QUANTITY)
    return false;
  *x = negative ? -number->number : number->number;
  *base = number->kind == AST_QUANTITY ? number->name : NULL;
  return true;
}

static double refuse(const Ast *a, const Setting *s, const char *wanted) {
  help(error_at(a->span, "PD0531", "'%s' must be %s, but is '%s'", s->name, wanted, ast_text(a)),
       "for example '%s;'", s->example);
  return 0;
}

/* The number of a setting; 0 after a diagnostic, or if the valid value is 0. */
static double read_number(const Ast *a, const Setting *s) {
  double x;
  const char *base;
  bool number = number_of(a, &x, &base);
  if (s->form == COUNT) {
    bool whole = number && !base && x == floor(x) && x >= 1 && x <= s->most;
    return whole ? x : refuse(a, s, format("a whole number from 1 to %.0f", s->most));
  }
  if (s->form == SHARE)
    return number && !base && x > 0 && x <= 1 ? x : refuse(a, s, "above 0 and at most 1");
  if (s->form == AMOUNT)
    return number && !base && x > 0 && x < s->most
               ? x
               : refuse(a, s, format("a number above 0 and below %g", s->most));
  if (!number)
    return refuse(a, s,
                  a->kind == AST_WORD ? format("a number with a unit of %s", s->base)
                                      : format("a number of %s", s->base));
  if (!base || strcmp(base, s->base) != 0)
    return refuse(a, s, format("in a unit of %s", s->base));
  if (x < 0 || (x == 0 && !s->zero))
    return refuse(a, s, s->zero ? "0 or more" : "above 0");
  if (x >= s->most)
    return refuse(a, s, format("below %g %s", s->most, s->base));
  return x;
}

/* Reports an unknown setting or group. */
static void tell_unknown(const Ast *a, const char *what, const char *const *names, int n) {
  Diagnostic *d = error_at(a->span2, "PD0533", "there is no %s '%s'", what, a->name);
  const char *like = nearest(a->name, names, n);
  Text all = {0};
  for (int i = 0; i < n; i++)
    text_add(&all, "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", names[i]);
  if (like)
    help(d, "did you mean '%s'?", like);
  else
    help(d, "there are %s", all.at);
}

static void tell_twice(const Ast *again, Span where, const char *what, Span first) {
  note_at(error_at(where, "PD0535", "%s '%s' is defined twice", what, again->text ? again->text : again->name),
          first, "the first one is here");
}

static Settings read_settings(const Ast *group, const Setting *table, int n, const char *what) {
  Settings got = {0};
  const char *names[MOST_SETTINGS];
  Span first[MOST_SETTINGS];
  for (int k = 0; k < n; k++)
    names[k] = table[k].name;
  for (int i = 0; i < group->list.n; i++) {
    const Ast *a = group->list.at[i];
    int k = 0;
    while (k < n && strcmp(names[k], a->name) != 0)
      k++;
    if (k == n) {
      tell_unknown(a, format("setting of a %s", what), names, n);
    } else if (got.given[k]) {
      tell_twice(a, a->span2, "the setting", first[k]);
    } else {
      got.given[k] = a->a;
      first[k] = a->span2;
      if (table[k].form < KIND)
        got.number[k] = read_number(a->a, &table[k]);
    }
  }
  return got;
}

static const Ast *given(const Settings *s, const Setting *table, int n, const char *name, double *number) {
  for (int k = 0; k < n; k++)
    if (!strcmp(table[k].name, name)) {
      *number = s->number[k];
      return s->given[k];
    }
  BUG("no setting %s", name);
}

static bool device_number(const Settings *s, const char *name, double *number) {
  double x;
  if (!given(s, device_settings, N_DEVICE_SETTINGS, name, &x))
    return false;
  *number = x;
  return true;
}

/* ---- devices ----------------------------------------------------------------------------------------- */

/* A group, `device` or `level`, for messages. */
static const char *group_text(const Ast *group) {
  return group->text ? format("%s %s", group->name, group->text) : group->name;
}

/* A device without `kind` is a GPU; NULL after a diagnostic. */
static const DataSheet *sheet_of_kind(const Ast *kind, Name name) {
  if (!kind) {
    DataSheet gpu = sheet_of_gpu(name);
    return alloc_copy(&gpu, sizeof gpu);
  }
  const DataSheet *known = kind->kind == AST_NAME ? sheet_find(kind->name) : NULL;
  if (known)
    return known;
  int n;
  const char *const *words = kind_words(&n);
  Diagnostic *d = error_at(kind->span, "PD0534", "unknown device kind '%s'", ast_text(kind));
  const char *like = kind->kind == AST_NAME ? nearest(kind->name, words, n) : NULL;
  if (like)
    help(d, "did you mean '%s'?", like);
  Text all = {0}, longer = {0};
  for (int i = 0; i < n; i++) {
    text_add(&all, "%s%s", i == 0 ? "" : i == n - 1 ? " and " : ", ", words[i]);
    if (kind->kind == AST_NAME && !like && !strncmp(words[i], kind->name, strlen(kind->name)))
      text_add(&longer, "%s'%s'", longer.n ? " or " : "", words[i]);
  }
  if (longer.n)
    help(d, "use one of %s", longer.at);
  help(d, "known kinds are %s; describe other devices by 'memory', 'memory_bandwidth' and 'peak'", all.at);
  return NULL;
}

/* `peak` is the rate of the narrowest supported operands: bf16, on CPUs f32. */
static bool read_peaks(const Settings *s, DataSheet *sheet) {
  Precision narrowest = sheet->backend == &backend_c ? PRECISION_F32 : PRECISION_BF16;
  bool any = device_number(s, "peak", &sheet->peak[narrowest]);
  for (int p = 0; p < N_PRECISIONS; p++)
    any = device_number(s, format("peak_%s", precision_name((Precision)p)), &sheet->peak[p]) || any;
  return any;
}

static DeviceKind read_device(const Ast *group) {
  Settings s = read_settings(group, device_settings, N_DEVICE_SETTINGS, "device");
  double efficiency, unused;
  const Ast *kind = given(&s, device_settings, N_DEVICE_SETTINGS, "kind", &unused);
  Name name = intern(group->text ? group->text : "GPU");
  const DataSheet *known = sheet_of_kind(kind, name);
  if (!known)
    return (DeviceKind){.name = name};
  DataSheet sheet = *known;
  bool memory = device_number(&s, "memory", &sheet.memory);
  bool bandwidth = device_number(&s, "memory_bandwidth", &sheet.memory_bandwidth), peak = read_peaks(&s, &sheet);
  if (!kind && (!memory || !bandwidth || !peak))
    help(error_at(group->span, "PD0532", "'%s' has no '%s', and no 'kind' to take the value from",
                  group_text(group),
                  !memory      ? "memory"
                  : !bandwidth ? "memory_bandwidth"
                               : "peak"),
         "set 'kind = a100_80gb;', or all of 'memory', 'memory_bandwidth' and 'peak'");
  if (device_number(&s, "efficiency", &efficiency))
    for (int p = 0; p < N_PRECISIONS; p++)
      sheet.share[p] = efficiency;
  device_number(&s, "price", &sheet.price);
  device_number(&s, "watts", &sheet.watts);
  if (group->text)
    sheet.name = name;
  return kind_of_sheet(&sheet);
}

/* ---- the block --------------------------------------------------------------------------------------- */

typedef struct Maker {
  const Ast *block;
  Cluster *c;
  const Ast *device[MOST_KINDS], *level[MOST_LEVELS]; /* groups */
  const Ast *devices;                                 /* the setting with the kind of each member; NULL: none */
  int mixed;                                          /* the level with that setting */
} Maker;

static void too_many(const Ast *at, const char *what, int most) {
  error_at(at->span, "PD0537", "a cluster has at most %d %s", most, what);
}

/* Whether a group with this name exists; two groups without a name collide too. */
static bool is_again(const Ast *group, const Ast *const *groups, int n) {
  for (int i = 0; i < n; i++)
    if (groups[i]->text == group->text ||
        (groups[i]->text && group->text && !strcmp(groups[i]->text, group->text))) {
      tell_twice(group, group->span, group->text ? format("the %s", group->name) : "the group", groups[i]->span);
      return true;
    }
  return false;
}

static void add_device(Maker *m, const Ast *group) {
  Cluster *c = m->c;
  if (is_again(group, m->device, c->n_kinds))
    return;
  if (c->n_kinds == MOST_KINDS) {
    too_many(group, "kinds of devices", MOST_KINDS);
    return;
  }
  m->device[c->n_kinds] = group;
  c->kind[c->n_kinds++] = read_device(group);
}

static void add_level(Maker *m, const Ast *group) {
  Cluster *c = m->c;
  if (group->text && is_again(group, m->level, c->n))
    return;
  if (c->n == MOST_LEVELS) {
    too_many(group, "levels", MOST_LEVELS);
    return;
  }
  Settings s = read_settings(group, level_settings, N_LEVEL_SETTINGS, "level");
  Text missing = {0}, example = {0};
  for (int k = 0; k < N_LEVEL_SETTINGS; k++)
    if (!s.given[k] && !level_settings[k].may_lack) {
      text_add(&missing, "%s'%s'", missing.n ? ", no " : "", level_settings[k].name);
      text_add(&example, "%s%s;", example.n ? " " : "", level_settings[k].example);
    }
  if (missing.n)
    help(error_at(group->span, "PD0532", "'%s' has no %s", group_text(group), missing.at), "for example '%s'",
         example.at);
  double count, bandwidth, latency, device_bandwidth, unused;
  given(&s, level_settings, N_LEVEL_SETTINGS, "count", &count);
  given(&s, level_settings, N_LEVEL_SETTINGS, "bandwidth", &bandwidth);
  given(&s, level_settings, N_LEVEL_SETTINGS, "latency", &latency);
  given(&s, level_settings, N_LEVEL_SETTINGS, "device_bandwidth", &device_bandwidth);
  const Ast *devices = given(&s, level_settings, N_LEVEL_SETTINGS, "devices", &unused);
  if (devices && m->devices)
    note_at(error_at(devices->span, "PD0536", "only one level can have 'devices'"), m->devices->span,
            "the first list is here");
  else if (devices) {
    m->devices = devices;
    m->mixed = c->n;
  }
  m->level[c->n] = group;
  c->level[c->n++] = (ClusterLevel){.name = group->text ? intern(group->text) : NULL,
                                    .count = count < 1 ? 1 : (int)count,
                                    .bandwidth = bandwidth,
                                    .latency = latency,
                                    .device_bandwidth = device_bandwidth};
}

/* ---- members of different kinds ----------------------------------------------------------------------- */

/* "fast" or "4 * fast": the number of members of a kind; -1 after a diagnostic. */
static int read_member(const Maker *m, const Ast *a, int *kind) {
  int times = 1;
  const Ast *name = a;
  if (a->kind == AST_BINARY && !strcmp(a->name, "*") && a->a->kind == AST_NUMBER) {
    double x = a->a->number;
    if (x != floor(x) || x < 1 || x > MOST_MACHINES) {
      error_at(a->a->span, "PD0536", "'%s' is not a valid number of members", ast_text(a->a));
      return -1;
    }
    times = (int)x;
    name = a->b;
  }
  const char *names[MOST_KINDS];
  for (int k = 0; k < m->c->n_kinds; k++) {
    names[k] = m->device[k]->text ? m->device[k]->text : "";
    if (name->kind == AST_NAME && !strcmp(name->name, names[k])) {
      *kind = k;
      return times;
    }
  }
  Diagnostic *d = error_at(name->span, "PD0534", "this cluster has no 'device' named '%s'", ast_text(name));
  const char *like = name->kind == AST_NAME ? nearest(name->name, names, m->c->n_kinds) : NULL;
  if (like)
    help(d, "did you mean '%s'?", like);
  else
    help(d, "add 'device %s { ... }'; 'devices' lists such names, or '4 * %s'",
         name->kind == AST_NAME ? name->name : "fast", name->kind == AST_NAME ? name->name : "fast");
  return -1;
}

/* By member of the level: its kind; NULL after diagnostics. */
static const uint8_t *read_members(const Maker *m, bool *used) {
  const ClusterLevel *level = &m->c->level[m->mixed];
  uint8_t *kinds = alloc((size_t)level->count);
  int64_t members = 0;
  bool good = true;
  if (m->devices->kind != AST_LIST) {
    help(error_at(m->devices->span, "PD0536", "'devices' must be a list of device names, not '%s'",
                  ast_text(m->devices)),
         "for example 'devices = [fast, fast, slow, slow];', or '[2 * fast, 2 * slow]'");
    return NULL;
  }
  for (int i = 0; i < m->devices->list.n; i++) {
    int kind = 0, times = read_member(m, m->devices->list.at[i], &kind);
    good = good && times > 0;
    for (int k = 0; k < times; k++)
      if (members++ < level->count)
        kinds[members - 1] = (uint8_t)kind;
    used[kind] = used[kind] || times > 0;
  }
  if (!good)
    return NULL;
  if (members == level->count)
    return kinds;
  note_at(error_at(m->devices->span, "PD0536", "'devices' lists %lld, but '%s' has %d members", (long long)members,
                   group_text(m->level[m->mixed]), level->count),
          m->level[m->mixed]->span, "its 'count' is %d", level->count);
  return NULL;
}

/* Fills kind_of from the list of members. */
static void deal_kinds(const Maker *m, int devices) {
  bool used[MOST_KINDS] = {false};
  const uint8_t *kinds = read_members(m, used);
  if (!kinds)
    return;
  for (int k = 0; k < m->c->n_kinds; k++)
    if (!used[k])
      note_at(error_at(m->device[k]->span, "PD0536", "no 'devices' list contains '%s'", group_text(m->device[k])),
              m->devices->span, "the list of devices is here");
  uint8_t *kind_of = alloc((size_t)devices);
  int below = 1;
  for (int i = 0; i < m->mixed; i++)
    below *= m->c->level[i].count;
  for (int i = 0; i < devices; i++)
    kind_of[i] = kinds[i / below % m->c->level[m->mixed].count];
  m->c->kind_of = kind_of;
}

/* ---- all together -------------------------------------------------------------------------------------- */

static void read_group(Maker *m, const Ast *a) {
  static const char *const groups[] = {"device", "level"};
  bool device = !strcmp(a->name, groups[0]), level = !strcmp(a->name, groups[1]);
  if (!device && !level)
    tell_unknown(a, a->kind == AST_GROUP ? "group" : "setting of a cluster", groups, 2);
  else if (a->kind != AST_GROUP)
    help(error_at(a->span, "PD0533", "'%s' is a group of settings", a->name), "'%s { ... }'", a->name);
  else if (device)
    add_device(m, a);
  else
    add_level(m, a);
}

static bool same_backend(const Maker *m) {
  const Cluster *c = m->c;
  for (int k = 1; k < c->n_kinds; k++)
    if (c->kind[k].backend != c->kind[0].backend) {
      note_at(error_at(m->device[k]->span, "PD0538", "a cluster cannot mix processors and GPUs"),
              m->device[0]->span, "the first kind is here");
      return false;
    }
  return true;
}

/* Checks across groups. */
static void check(Maker *m) {
  const Cluster *c = m->c;
  int64_t devices = 1;
  if (c->n_kinds == 0 || c->n == 0)
    help(error_at(m->block->span, "PD0532", "cluster '%s' has no '%s'", m->block->name, c->n ? "device" : "level"),
         c->n ? "'device { kind = a100_80gb; }'"
              : "'level server { count = 8; bandwidth = 150 GB/s; latency = 5 us; }'");
  if (c->n_kinds == 0 || c->n == 0 || !same_backend(m))
    return;
  for (int i = 0; i < c->n; i++)
    devices *= c->level[i].count;
  if (devices > MOST_DEVICES)
    error_at(m->block->span, "PD0537", "cluster '%s' has %lld devices; the planner supports at most %d",
             m->block->name, (long long)devices, MOST_DEVICES);
  else if (m->devices)
    deal_kinds(m, (int)devices);
  else if (c->n_kinds > 1)
    help(error_at(m->device[1]->span, "PD0536",
                  "there are %d kinds of devices, and no level lists their places in 'devices'", c->n_kinds),
         "add 'devices = [%s, %s];' to the level with different members",
         m->device[0]->text ? m->device[0]->text : "fast", m->device[1]->text ? m->device[1]->text : "slow");
}

const Cluster *cluster_make(const Ast *block) {
  Cluster *c = alloc(sizeof *c);
  c->name = block->name;
  Maker m = {.block = block, .c = c};
  int errors = error_count();
  for (int i = 0; i < block->list.n; i++)
    read_group(&m, block->list.at[i]);
  if (error_count() == errors)
    check(&m);
  return error_count() == errors ? c : NULL;
}
