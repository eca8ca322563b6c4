/* Reads the log and the trace of `train` and `infer`. Either may be long, so lines and events are parsed and freed
 * one by one. An edited file gets a diagnostic at the first deviation from the format. */
#include "report/report.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char *load(const char *path, int *file) {
  char *text = read_file(path, NULL);
  int cause = errno;
  *file = source_add(path, ""); /* empty text: long lines are not quoted */
  if (!text)
    error_at((Span){.file = *file}, "PD0601", "cannot read the file: %s", read_failure(cause));
  cJSON_InitHooks(NULL); /* malloc and free */
  return text;
}

static bool finite_number(const cJSON *x) { return cJSON_IsNumber(x) && isfinite(x->valuedouble); }

/* ---- the log ----------------------------------------------------------------------------------------- */

enum { N_COLUMNS = 8, MOST_METRICS = 64 };
static const char *const columns[N_COLUMNS] = {"step",          "loss",         "grad_norm", "lr",
                                               "samples_per_s", "tokens_per_s", "ms",        "mfu"};

typedef Vec(double) Doubles;

/* Values by line of updates and of validations; NAN or past the end: absent in that line. */
typedef struct Metric {
  char *name;
  Doubles training, validation;
} Metric;

typedef struct Log {
  Doubles column[N_COLUMNS]; /* NAN: absent in that line */
  Doubles step, loss, ms;    /* of validations */
  Vec(Metric) metrics;       /* other numbers of lines, at most MOST_METRICS */
  char *start, *end;         /* lines of the start and end events; NULL: none */
  char *evaluation;          /* the last evaluation line of a run without training */
  bool cut;                  /* the last line is incomplete */
} Log;

static void shorten(Doubles *x, int n) {
  if (x->n > n)
    x->n = n;
}

/* A resumed run restarts at its checkpoint: its updates replace the later ones of the earlier run. */
static void forget_from(Log *log, double step) {
  while (log->column[0].n > 0 && log->column[0].at[log->column[0].n - 1] >= step)
    for (int c = 0; c < N_COLUMNS; c++)
      log->column[c].n--;
  for (int i = 0; i < log->metrics.n; i++)
    shorten(&log->metrics.at[i].training, log->column[0].n);
}

static void forget_validations_from(Log *log, double step) {
  while (log->step.n > 0 && log->step.at[log->step.n - 1] >= step)
    log->step.n--, log->loss.n--, log->ms.n--;
  for (int i = 0; i < log->metrics.n; i++)
    shorten(&log->metrics.at[i].validation, log->step.n);
}

static double number_or_nan(const cJSON *line, const char *key) {
  const cJSON *x = cJSON_GetObjectItemCaseSensitive(line, key);
  return finite_number(x) ? x->valuedouble : NAN;
}

static char *kept_text(const cJSON *x) {
  char *text = cJSON_PrintUnformatted(x), *kept = format("%s", text ? text : "null");
  cJSON_free(text);
  return kept;
}

static bool is_column(const char *key) {
  for (int c = 0; c < N_COLUMNS; c++)
    if (!strcmp(key, columns[c]))
      return true;
  return false;
}

/* NULL: too many metrics. */
static Metric *metric_named(Log *log, const char *name) {
  for (int i = 0; i < log->metrics.n; i++)
    if (!strcmp(log->metrics.at[i].name, name))
      return &log->metrics.at[i];
  if (log->metrics.n == MOST_METRICS)
    return NULL;
  push(&log->metrics, (Metric){.name = format("%s", name)});
  return &log->metrics.at[log->metrics.n - 1];
}

/* Reads the line of the n-th update or validation; numbers without a column are metrics. */
static void read_metrics(const cJSON *line, Log *log, bool validation, int n) {
  static const char prefix[] = "validation_";
  const cJSON *x;
  cJSON_ArrayForEach(x, line) {
    const char *name = x->string;
    if (!finite_number(x) || (validation && strncmp(name, prefix, strlen(prefix))))
      continue;
    name += validation ? strlen(prefix) : 0;
    Metric *m = is_column(name) ? NULL : metric_named(log, name);
    Doubles *values = !m ? NULL : validation ? &m->validation : &m->training;
    while (values && values->n < n)
      push(values, NAN);
    if (values)
      values->at[n - 1] = x->valuedouble;
  }
}

/* False: not a line of a log. */
static bool read_line(const cJSON *line, Log *log) {
  const cJSON *event = cJSON_GetObjectItemCaseSensitive(line, "event");
  double step = number_or_nan(line, "step"), validation = number_or_nan(line, "validation_loss");
  if (cJSON_IsString(event)) {
    if (!strcmp(event->valuestring, "end"))
      log->end = kept_text(line);
    else if (!strcmp(event->valuestring, "evaluation"))
      log->evaluation = kept_text(line);
    else if (!strcmp(event->valuestring, "start")) {
      log->start = kept_text(line);
      log->end = NULL;
    }
    return true;
  }
  if (isnan(step))
    return false;
  if (!isnan(validation)) {
    forget_validations_from(log, step);
    push(&log->step, step);
    push(&log->loss, validation);
    push(&log->ms, number_or_nan(line, "ms"));
    read_metrics(line, log, true, log->step.n);
    return true;
  }
  forget_from(log, step);
  for (int c = 0; c < N_COLUMNS; c++)
    push(&log->column[c], number_or_nan(line, columns[c]));
  read_metrics(line, log, false, log->column[0].n);
  return true;
}

static void add_list(const char *name, const double *x, int n, Text *out) {
  text_add(out, "\"%s\":[", name);
  for (int i = 0; i < n; i++)
    text_add(out, isnan(x[i]) ? "%snull" : "%s%.9g", i ? "," : "", x[i]);
  text_add(out, "]");
}

static char *log_json(const Log *log) {
  Text t = {0};
  text_add(&t, "{\"start\":%s,\"end\":%s,\"evaluation\":%s,\"cut\":%s", log->start ? log->start : "null",
           log->end ? log->end : "null", log->evaluation ? log->evaluation : "null", log->cut ? "true" : "false");
  for (int c = 0; c < N_COLUMNS; c++) {
    text_add(&t, ",");
    add_list(columns[c], log->column[c].at, log->column[c].n, &t);
  }
  text_add(&t, ",\"validation\":{");
  add_list("step", log->step.at, log->step.n, &t);
  text_add(&t, ",");
  add_list("loss", log->loss.at, log->loss.n, &t);
  text_add(&t, "},\"metrics\":[");
  for (int i = 0; i < log->metrics.n; i++) {
    const Metric *m = &log->metrics.at[i];
    cJSON *name = cJSON_CreateString(m->name);
    text_add(&t, "%s{\"name\":%s,", i ? "," : "", kept_text(name));
    add_list("training", m->training.at, m->training.n, &t);
    text_add(&t, ",");
    add_list("validation", m->validation.at, m->validation.n, &t);
    text_add(&t, "}");
    cJSON_Delete(name);
  }
  text_add(&t, "]}");
  return t.at;
}

char *read_log(const char *path, bool *evaluates) {
  int file, number = 0;
  Log log = {0};
  const char *text = load(path, &file);
  for (const char *at = text; at && *at;) {
    size_t n = strcspn(at, "\n");
    bool whole = at[n] == '\n';
    number++;
    if (strspn(at, " \t\r") < n) {
      const char *end = at;
      cJSON *line = cJSON_ParseWithLengthOpts(at, n, &end, false);
      bool good = cJSON_IsObject(line) && read_line(line, &log);
      Span where = {file, number, (int)(end - at) + 1, number, (int)(end - at) + 2};
      if (!line && whole)
        error_at(where, "PD0602", "invalid JSON from this place on");
      else if (line && !good)
        error_at((Span){file, number, 1, number, 2}, "PD0612", "this line was not written by 'train --log'");
      cJSON_Delete(line);
      if (!good && (line || whole))
        return NULL;
      log.cut = !good;
    }
    at += n + whole;
  }
  *evaluates = log.evaluation && log.column[0].n == 0;
  return text ? log_json(&log) : NULL;
}

/* ---- the trace ----------------------------------------------------------------------------------------- */

typedef struct TraceReader {
  int file, event; /* index of the current event */
  Timeline *t;
} TraceReader;

static bool complain(const TraceReader *r, const char *what) {
  error_at((Span){.file = r->file}, "PD0612", "'traceEvents[%d]' %s", r->event, what);
  return false;
}

static double argument(const cJSON *event, const char *key, double missing) {
  const cJSON *args = cJSON_GetObjectItemCaseSensitive(event, "args");
  double x = number_or_nan(args, key);
  return x >= -1 && x <= 0x1p53 ? x : missing;
}

static bool read_name(TraceReader *r, const cJSON *event, int rank) {
  const cJSON *what = cJSON_GetObjectItemCaseSensitive(event, "name");
  const cJSON *args = cJSON_GetObjectItemCaseSensitive(event, "args");
  const cJSON *name = cJSON_GetObjectItemCaseSensitive(args, "name");
  if (cJSON_IsString(what) && cJSON_IsString(name) && !strcmp(what->valuestring, "process_name"))
    r->t->name[rank] = format("%s", name->valuestring);
  return true;
}

static bool read_bar(TraceReader *r, const cJSON *event, int rank, double start) {
  const cJSON *category = cJSON_GetObjectItemCaseSensitive(event, "cat");
  double length = number_or_nan(event, "dur");
  int work = cJSON_IsString(category) ? work_named(category->valuestring) : -1;
  if (work < 0)
    return true; /* written by another tool */
  if (!(length >= 0))
    return complain(r, "needs a 'dur' of at least 0");
  double number = argument(event, "microbatch", -1), chunk = argument(event, "chunk", 0);
  if (number < 0)
    number = argument(event, "update", 0);
  push(&r->t->bars, (Bar){.work = (Work)work,
                          .rank = rank,
                          .chunk = chunk < MOST_RANKS ? (int)chunk : 0,
                          .peer = (int)fmin(argument(event, "peer", -1), MOST_RANKS),
                          .number = (int64_t)number,
                          .version = (int64_t)argument(event, "version", -1),
                          .start = start * 1e-6,
                          .end = (start + length) * 1e-6,
                          .bytes = argument(event, "bytes", -1)});
  return true;
}

/* `train` writes a send's arrow immediately before its receive's. */
static bool read_arrow(TraceReader *r, const cJSON *event, int rank, double time, bool starts) {
  double id = number_or_nan(event, "id");
  if (starts) {
    int64_t number = fabs(id) < 0x1p53 ? (int64_t)id : -1;
    push(&r->t->arrows, (Arrow){.id = number, .from = rank, .to = -1, .sent = time * 1e-6});
    return true;
  }
  Arrow *last = r->t->arrows.n ? &r->t->arrows.at[r->t->arrows.n - 1] : NULL;
  if (last && last->to < 0 && (double)last->id == id) {
    last->to = rank;
    last->received = time * 1e-6;
  }
  return true;
}

static bool read_event(TraceReader *r, const cJSON *event) {
  const cJSON *phase = cJSON_GetObjectItemCaseSensitive(event, "ph");
  if (!cJSON_IsObject(event) || !cJSON_IsString(phase) || strlen(phase->valuestring) != 1)
    return complain(r, "is not an event: 'ph' must be one letter");
  char ph = phase->valuestring[0];
  if (!strchr("MXsf", ph))
    return true;
  double rank = number_or_nan(event, "pid"), time = number_or_nan(event, "ts");
  if (!(rank >= 0 && rank < MOST_RANKS && rank == floor(rank)))
    return complain(r, format("needs a 'pid' from 0 to %d", MOST_RANKS - 1));
  if (ph != 'M' && !(fabs(time) < 1e15))
    return complain(r, "needs a 'ts' in microseconds");
  if (rank >= r->t->ranks && ph != 's' && ph != 'f')
    r->t->ranks = (int)rank + 1;
  switch (ph) {
  case 'M': return read_name(r, event, (int)rank);
  case 'X': return read_bar(r, event, (int)rank, time);
  default: return read_arrow(r, event, (int)rank, time, ph == 's');
  }
}

/* Skips the value at `at` by matching brackets; parsing checks the value later. */
static const char *end_of_value(const char *at) {
  int depth = 0;
  bool quoted = false;
  for (; *at; at++) {
    if (quoted) {
      if (*at == '\\' && at[1])
        at++;
      else
        quoted = *at != '"';
      continue;
    }
    quoted = *at == '"';
    if (*at == '{' || *at == '[')
      depth++;
    if (depth == 0 && (*at == ',' || *at == ']'))
      return at;
    if (*at == '}' || *at == ']')
      depth--;
  }
  return at;
}

static bool not_json(int file, const char *text, const char *at) {
  int line = 1;
  const char *start = text;
  for (const char *p = text; p < at; p++)
    if (*p == '\n')
      line++, start = p + 1;
  int column = (int)(at - start) + 1;
  error_at((Span){file, line, column, line, column + 1}, "PD0602", "invalid JSON from this place on");
  return false;
}

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Reads the event list at `at`; returns its end, or NULL after a diagnostic. */
static const char *read_events(TraceReader *r, const char *text, const char *at) {
  at = skip_space(at + 1);
  if (*at == ']')
    return at + 1;
  for (;; at++, r->event++) {
    at = skip_space(at);
    const char *end = end_of_value(at), *stop = at;
    cJSON *event = cJSON_ParseWithLengthOpts(at, (size_t)(end - at), &stop, false);
    if (!event || skip_space(stop) < end) {
      cJSON_Delete(event);
      not_json(r->file, text, stop);
      return NULL;
    }
    bool good = read_event(r, event);
    cJSON_Delete(event);
    if (!good)
      return NULL;
    if (*end == ']')
      return end + 1;
    if (!*end) {
      not_json(r->file, text, end);
      return NULL;
    }
    at = end;
  }
}

/* The text around the events must form one object. */
static bool read_envelope(TraceReader *r, const char *text, const char *list, const char *after) {
  char *whole = format("%.*s[]%s", (int)(list - text), text, after);
  const char *end = whole;
  cJSON *root = cJSON_ParseWithOpts(whole, &end, true);
  if (!root) /* after the list, offsets differ by the omitted events */
    return not_json(r->file, text,
                    end <= whole + (list - text) ? text + (end - whole)
                                                 : after + (end - whole - (list - text) - 2));
  const cJSON *other = cJSON_GetObjectItemCaseSensitive(root, "otherData");
  double lost = number_or_nan(other, "dropped");
  r->t->dropped = lost > 0 && lost < 0x1p53 ? (int64_t)lost : 0;
  cJSON_Delete(root);
  return true;
}

Timeline *read_trace(const char *path) {
  static const char key[] = "\"traceEvents\"";
  TraceReader r = {.t = alloc(sizeof *r.t)};
  const char *text = load(path, &r.file), *list = text ? strstr(text, key) : NULL;
  if (!text)
    return NULL;
  r.t->name = alloc(MOST_RANKS * sizeof *r.t->name);
  if (list)
    list = skip_space(list + strlen(key));
  if (list && *list == ':')
    list = skip_space(list + 1);
  if (!list || *list != '[') {
    error_at((Span){.file = r.file}, "PD0612", "this is not a trace: the list 'traceEvents' is missing");
    return NULL;
  }
  const char *after = read_events(&r, text, list);
  if (!after || !read_envelope(&r, text, list, after))
    return NULL;
  for (int i = 0; i < r.t->ranks; i++)
    if (!r.t->name[i])
      r.t->name[i] = format("rank %d", i);
  return r.t;
}
