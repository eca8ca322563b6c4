/* Windows over runs of tokens. Windows of documents end with their document and are filled; other windows follow each
 * other over all files of a source. */
#include "data/parts.h"

const struct part *pd_file_of(const struct column *c, int64_t sample) {
  int low = 0, high = c->n - 1;
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (c->parts[middle].first <= sample)
      low = middle;
    else
      high = middle - 1;
  }
  return c->parts + low;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The token that ends documents, plus 1; 0: unknown. */
static int64_t end_of(const struct pd_files *d, const struct part *p) {
  return d->how.document_end ? d->how.document_end : p->array.document_end;
}

/* The token that fills a window of an input behind the end of its document. False: all targets count. */
static bool filling(const struct pd_files *d, int input, int64_t *token) {
  *token = d->how.pad;
  for (int i = 0; i < d->n_inputs && d->inputs[input].target; i++)
    if (d->inputs[i].origin == PD_COUNTED && d->inputs[i].from == input) {
      *token = (int64_t)d->inputs[i].numbers[0];
      return true;
    }
  return !d->inputs[input].target;
}

/* Whether windows end with their document. Notes files whose windows do not. */
static bool keeps_apart(const struct pd_files *d) {
  const struct column *c = d->columns;
  const char *known = NULL, *unknown = NULL;
  int64_t token, targets = 0;
  if (d->how.joined) return false;
  for (int j = 0; j < c->n; j++) *(end_of(d, &c->parts[j]) ? &known : &unknown) = c->parts[j].array.path;
  if (!known) return false;
  if (unknown) {
    pd_note("documents are joined: the token that ends them is known for '%s', but not for '%s'. help: give it as "
            "--documents TOKEN",
            known, unknown);
    return false;
  }
  for (int i = 0; i < d->n_inputs; i++) {
    if (!pd_has_files(d, i)) continue;
    targets += d->inputs[i].target;
    if (filling(d, i, &token)) continue;
    pd_note(
        "documents of '%s' are joined: the model counts all targets of '%s'. help: build with -D ignore=-100 if "
        "the model has it, or give --documents joined",
        known, d->inputs[i].name);
    return false;
  }
  return targets > 0;
}

static bool find_documents(struct pd_files *d, char *why) {
  struct column *c = d->columns;
  const char *others = c->n > 1 ? " and the other files" : "";
  int64_t documents = 0, positions = 0;
  for (struct part *p = c->parts; p < c->parts + c->n; p++) {
    p->documents = (struct pd_documents){.context = d->context, .end = end_of(d, p) - 1};
    if (!pd_find_documents(&p->array, &p->documents, why)) return false;
    p->first = d->samples;
    d->samples += p->documents.n;
    documents += p->documents.documents;
    positions += p->documents.positions;
  }
  if (!d->samples)
    return pd_refuse(why, "'%s'%s hold%s no document of two or more tokens", c->parts->array.path, others,
                     c->n > 1 ? "" : "s");
  pd_note("'%s'%s: %lld document%s in %lld window%s, %.1f %% padding. help: --documents joined fills all windows",
          c->parts->array.path, others, (long long)documents, documents == 1 ? "" : "s", (long long)d->samples,
          d->samples == 1 ? "" : "s", 100 - 100 * (double)positions / ((double)d->samples * (double)d->context));
  return true;
}

static bool find_windows(struct pd_files *d, char *why) {
  struct column *c = d->columns;
  int64_t tokens = 0;
  for (struct part *p = c->parts; p < c->parts + c->n; p++) {
    p->first = tokens;
    tokens += p->array.rows;
  }
  d->samples = d->context ? (tokens - 1) / d->context : 0;
  return d->samples > 0 ||
         pd_refuse(why, "'%s'%s hold%s %lld tokens, but one window of context %lld needs %lld",
                   c->parts->array.path, c->n > 1 ? " and the other files" : "", c->n > 1 ? "" : "s",
                   (long long)tokens, (long long)d->context, (long long)d->context + 1);
}

/* The end of documents of --documents must be a token of every input. */
static bool end_suits(const struct pd_files *d, char *why) {
  for (int i = 0; i < d->n_inputs; i++)
    if (pd_has_files(d, i) && d->how.document_end > d->inputs[i].classes)
      return pd_refuse(why, "--documents %lld is outside the %lld classes of '%s'. help: give a token below %lld",
                       (long long)d->how.document_end - 1, (long long)d->inputs[i].classes, d->inputs[i].name,
                       (long long)d->inputs[i].classes);
  return true;
}

bool pd_windows_open(struct pd_files *d, char *why) {
  if (!end_suits(d, why)) return false;
  for (int i = 0; i < d->n_inputs; i++)
    if (pd_has_files(d, i) && d->inputs[i].elements > d->context) d->context = d->inputs[i].elements;
  d->apart = keeps_apart(d);
  return d->apart ? find_documents(d, why) : find_windows(d, why);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Tokens [first, first + n) of all files in sequence. */
static bool read_run(const struct pd_files *d, int64_t first, int64_t n, int64_t classes, int32_t *to, char *why) {
  for (const struct part *p = pd_file_of(d->columns, first); n > 0; p++) {
    int64_t here = p->first + p->array.rows - first;
    if (here <= 0) continue;
    if (here > n) here = n;
    if (!pd_read_tokens(&p->array, first - p->first, here, (struct pd_token_range){classes, 0}, to, why))
      return false;
    first += here;
    to += here;
    n -= here;
  }
  return true;
}

/* A window of one document, filled behind its end. */
static bool read_document(const struct pd_files *d, int input, int64_t window, int32_t *to, char *why) {
  const struct pd_input *in = &d->inputs[input];
  const struct part *p = pd_file_of(d->columns, window);
  const int64_t start = p->documents.starts[window - p->first];
  const int64_t tokens = pd_document_tokens(&p->array, &p->documents, start);
  const int64_t first = in->target ? d->context + 1 - in->elements : 0, end = tokens - !in->target;
  int64_t n = end - first, fill;
  n = n < 0 ? 0 : n > in->elements ? in->elements : n;
  filling(d, input, &fill);
  for (int64_t i = n; i < in->elements; i++) to[i] = (int32_t)fill;
  return pd_read_tokens(&p->array, start + first, n, (struct pd_token_range){in->classes, 0}, to, why);
}

bool pd_windows_read(const struct pd_files *d, int input, int64_t window, int32_t *to, char *why) {
  const struct pd_input *in = &d->inputs[input];
  int64_t first = window * d->context;
  if (d->apart) return read_document(d, input, window, to, why);
  if (in->target) first += d->context + 1 - in->elements; /* the window's last tokens */
  return read_run(d, first, in->elements, in->classes, to, why);
}

const struct part *pd_windows_place(const struct pd_files *d, int64_t window, int64_t *first, int64_t *n) {
  const struct part *p = pd_file_of(d->columns, d->apart ? window : window * d->context);
  *first = d->apart ? p->documents.starts[window - p->first] : window * d->context - p->first;
  *n = d->context + 1 < p->array.rows - *first ? d->context + 1 : p->array.rows - *first;
  return p;
}
