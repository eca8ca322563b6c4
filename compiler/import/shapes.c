/* Checks against the tensors: their sizes override config.json, and the written model has exactly these
 * parameters. */
#include <stdlib.h>
#include <string.h>

#include "elaborate/elaborate.h"
#include "import/internal.h"
#include "shared/hugging_face.h"
#include "shared/pattern.h"
#include "shared/stacked.h"

static Span place(const Import *m) { return (Span){.file = m->file}; }

static const char *full_name(const Import *m, const char *tensor) {
  return *tensor == '/' ? tensor + 1 : format("%s%s", m->root, tensor);
}

/* ---- sizes --------------------------------------------------------------------------------------- */

/* One plus the largest N in names of the form `prefix` + "N.". */
static int64_t count_layers(const Import *m, const char *prefix) {
  enum { MOST = 100000 };
  int64_t most = 0;
  for (int i = 0; i < m->tensors.n; i++) {
    const char *name = m->tensors.at[i].name;
    char *end;
    if (strncmp(name, prefix, strlen(prefix)))
      continue;
    long long layer = strtoll(name + strlen(prefix), &end, 10);
    if (*end == '.' && layer >= most && layer < MOST)
      most = layer + 1;
  }
  return most;
}

/* The value found by the rule, or NULL. */
static const char *found_by(const Import *m, const ShapeRule *r) {
  const char *name = full_name(m, r->tensor);
  const Tensor *t = tensors_find(&m->tensors, name);
  if (r->axis == IS_THERE || r->axis == IS_NOT_THERE)
    return (t != NULL) == (r->axis == IS_THERE) ? "true" : "false";
  if (r->axis == COUNT_LAYERS) {
    const int64_t n = count_layers(m, name);
    return n ? number_text((double)n) : NULL;
  }
  if (!t || r->axis >= t->rank)
    return NULL;
  const double size = (double)t->dim[r->axis], per = r->per ? known_number(m, r->per) : 1;
  return size >= 1 && per >= 1 ? number_text(size / per) : NULL;
}

static bool is_given(const Import *m, const char *field) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(m->config, field);
  return item && !cJSON_IsNull(item);
}

/* Whether a head beside tied weights has equal bytes: then it is a second name, else another head. */
static bool is_same(const Tensor *a, const Tensor *b) {
  const ptrdiff_t bytes = a->end - a->data;
  return b->end - b->data == bytes && (!bytes || !memcmp(a->data, b->data, (size_t)bytes));
}

static bool same_sizes(const Tensor *a, const Tensor *b) {
  return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static bool is_second_name(const Import *m, const ShapeRule *r) {
  const Tensor *head = tensors_find(&m->tensors, full_name(m, r->tensor));
  for (int i = 0; i < m->tensors.n && head; i++) {
    const Tensor *t = &m->tensors.at[i];
    if (t != head && t->rank == 2 && t->dim[0] == head->dim[0] && is_same(t, head))
      return true;
  }
  return false;
}

static bool has_rule(const Import *m, const char *field) {
  const ShapeRule *r = m->family->shapes;
  while (r->field && strcmp(r->field, field))
    r++;
  return r->field != NULL;
}

/* Tensors give the product of two fields that config.json has both: either of them may be wrong. */
static bool is_undecided(const Import *m, const ShapeRule *r) {
  return r->per && r->axis >= 0 && is_given(m, r->field) && is_given(m, r->per) && !has_rule(m, r->per);
}

/* The first layer whose number of tensors is not that of layer 0; -1: none. */
static int64_t incomplete_layer(const Import *m, const char *prefix, int64_t layers) {
  int64_t *tensors = alloc((size_t)layers * sizeof *tensors);
  for (int i = 0; i < m->tensors.n; i++)
    if (!strncmp(m->tensors.at[i].name, prefix, strlen(prefix)))
      tensors[strtoll(m->tensors.at[i].name + strlen(prefix), NULL, 10)]++;
  for (int64_t i = 1; i < layers; i++)
    if (tensors[i] != tensors[0])
      return i;
  return -1;
}

static bool layers_are_complete(const Import *m, const ShapeRule *r) {
  const char *prefix = full_name(m, r->tensor);
  const int64_t layers = count_layers(m, prefix), odd = incomplete_layer(m, prefix, layers);
  if (odd >= 0)
    error_at(place(m), "PD0653",
             "'%s' is %s, and of the tensors' %lld layers, layer %lld has other tensors than layer 0", r->field,
             known(m, r->field), (long long)layers, (long long)odd);
  return odd < 0;
}

bool shapes_apply(Import *m) {
  if (!m->tensors.n)
    return true;
  for (const ShapeRule *r = m->family->shapes; r->field; r++) {
    const char *found = found_by(m, r), *said = known(m, r->field);
    const bool headless =
        r->axis == IS_NOT_THERE && strcmp(m->root, m->family->root); /* such a folder lacks all heads */
    if (!found || headless || !strcmp(found, said) || (r->axis == IS_NOT_THERE && is_second_name(m, r)))
      continue;
    if (strpbrk(found, ".e") && r->axis >= 0) {
      error_at(place(m), "PD0653", "tensor '%s' has %lld rows, which '%s' (%s) does not divide",
               full_name(m, r->tensor),
               (long long)tensors_find(&m->tensors, full_name(m, r->tensor))->dim[r->axis], r->per,
               known(m, r->per));
      return false;
    }
    if (r->axis == COUNT_LAYERS && !layers_are_complete(m, r))
      return false;
    if (is_undecided(m, r)) {
      error_at(place(m), "PD0653", "tensor '%s' has %lld rows, and '%s' x '%s' is %s x %s",
               full_name(m, r->tensor),
               (long long)tensors_find(&m->tensors, full_name(m, r->tensor))->dim[r->axis], r->per, r->field,
               known(m, r->per), said);
      return false;
    }
    if (is_given(m, r->field) || r->axis == IS_NOT_THERE)
      warning_at(place(m), "PD0654", "'%s' is %s, but by the tensors %s, which counts (%s)", r->field, said, found,
                 full_name(m, r->tensor));
    set_known(m, r->field, found);
  }
  return true;
}

/* ---- parameters ---------------------------------------------------------------------------------- */

static const char *sizes_text(int rank, const int64_t *dim) {
  Text t = {0};
  text_add(&t, "[");
  for (int i = 0; i < rank; i++)
    text_add(&t, "%s%lld", i ? ", " : "", (long long)dim[i]);
  text_add(&t, "]");
  return t.at;
}

static bool compare_one(const Import *m, const Param *p, const Tensor *t) {
  Shape s = p->shape;
  if (p->stored_in_out && s.rank == 2) {
    s.dim[0] = p->shape.dim[1];
    s.dim[1] = p->shape.dim[0];
  }
  if (s.rank == t->rank && !memcmp(s.dim, t->dim, (size_t)s.rank * sizeof *s.dim))
    return true;
  error_at(place(m), "PD0653", "tensor '%s' has shape %s, by config.json %s", t->name, sizes_text(t->rank, t->dim),
           sizes_text(s.rank, s.dim));
  return false;
}

/* Whether the folder has a parameter of experts as a tensor for each, in this form; marks and compares the tensors,
 * and reports the first one missing. */
static bool compare_experts(const Import *m, const Param *p, int form, bool *used, bool *good) {
  const int parts = p->shape.rank == 3 ? pd_stacked_parts(p->name, form) : 0;
  const int64_t *dim = p->shape.dim;
  const char *missing = NULL;
  bool any = false;
  for (int64_t i = 0; i < dim[0] * parts; i++) {
    const Param part = {.shape = {.rank = 2, .dim = {dim[1] / parts, dim[2]}}};
    const char *name = pd_stacked_name(p->name, form, i / parts, (int)(i % parts));
    const Tensor *t = tensors_find(&m->tensors, name);
    any |= t != NULL;
    if (t) {
      used[t - m->tensors.at] = true;
      *good &= compare_one(m, &part, t);
    } else if (!missing) {
      missing = name;
    }
  }
  if (any && missing) {
    error_at(place(m), "PD0653", "the folder has no tensor '%s', but others of %lld experts", missing,
             (long long)dim[0]);
    *good = false;
  }
  return any;
}

static bool are_experts(const Import *m, const Param *p, bool *used, bool *good) {
  for (int form = 0; form < PD_STACKED_FORMS; form++)
    if (compare_experts(m, p, form, used, good))
      return true;
  return false;
}

/* Reports all missing tensors in one diagnostic. */
static void tell_missing(const Import *m, int missing, const char *first) {
  if (!missing)
    return;
  Diagnostic *d =
      warning_at(place(m), "PD0654", "the folder has no tensor for %d parameter%s of the model, as '%s'", missing,
                 missing == 1 ? "" : "s", first);
  help(d, "'--init-partial %s' starts it fresh", first);
}

/* Whether the tensor repeats the bytes of a tied table, under a second name. */
static bool is_tied_head(const Import *m, const Tensor *t) {
  for (int i = 0; i < m->tensors.n && pd_is_copy(t->name); i++)
    if (&m->tensors.at[i] != t && same_sizes(&m->tensors.at[i], t) && is_same(&m->tensors.at[i], t))
      return true;
  for (const ShapeRule *r = m->family->shapes; r->field; r++)
    if (r->axis == IS_NOT_THERE && !strcmp(t->name, full_name(m, r->tensor)))
      return is_second_name(m, r);
  return false;
}

/* A head of a task other than the folder's, which the model does not have. */
static bool is_of_other_task(const Import *m, const Tensor *t) {
  return *known(m, "task") && pd_is_task_head(t->name) && !pd_pattern_matches(known(m, "own_heads"), t->name);
}

bool shapes_compare(const Import *m, const char *text) {
  const Ast *ast = parse_text(m->name, text, strlen(text), NULL);
  const ElaborateOptions options = {.inference = is_known(m, "outputs_only")};
  const Graph *g = ast ? elaborate(ast, &options) : NULL;
  if (!g)
    return false;
  bool *used = alloc((size_t)m->tensors.n + 1), good = true;
  int missing = 0;
  const char *first = NULL;
  for (int i = 0; i < g->params.n && m->tensors.n; i++) {
    const Param *p = &g->params.at[i];
    const Tensor *t = tensors_find(&m->tensors, p->name);
    if (t) {
      used[t - m->tensors.at] = true;
      good &= compare_one(m, p, t);
    } else if (!are_experts(m, p, used, &good) && !missing++) {
      first = p->name;
    }
  }
  tell_missing(m, missing, first);
  for (int i = 0; i < m->tensors.n; i++) {
    const Tensor *t = &m->tensors.at[i];
    if (used[i] || pd_is_unweighted(t->name) || is_tied_head(m, t) || is_of_other_task(m, t))
      continue;
    error_at(place(m), "PD0653", "tensor '%s' of shape %s is no parameter of the model that config.json describes",
             make_utf8(format("%.200s", t->name)), sizes_text(t->rank, t->dim));
    return false;
  }
  return good;
}
