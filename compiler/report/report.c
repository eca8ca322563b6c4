/* Reads the parts of a run and combines them as page data. */
#include "report/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *part(const char *directory, const char *name) {
  const char *path = format("%s/%s", directory, name);
  return access(path, F_OK) == 0 ? path : NULL;
}

static void add_part(Text *t, const char *name, const char *json) {
  text_add(t, ",\n\"%s\":%s", name, json ? json : "null");
}

/* Adds the plan file unchanged, with its prediction or the reason for none; false after diagnostics. `evaluates`:
 * the run did forward passes only, whatever the plan's purpose. */
static bool add_plan(const char *path, bool evaluates, Text *t, const char **model) {
  if (!path) {
    add_part(t, "plan", NULL);
    return true;
  }
  PlanFile plan;
  const char *why = NULL;
  if (!plan_file_read(path, PLAN_TO_DRAW, &plan))
    return false;
  *model = plan.plan.model;
  add_part(t, "plan", cJSON_PrintUnformatted(plan.json));
  Timeline *predicted = predict(&plan, evaluates, &why);
  if (error_count() > 0)
    return false;
  if (predicted) {
    text_add(t, ",\n\"predicted\":");
    timeline_json(predicted, t);
  } else {
    text_add(t, ",\n\"unpredicted\":");
    json_string(t, why);
  }
  return true;
}

static bool add_measured(const char *log, const char *trace, Text *t, bool *evaluates) {
  char *lines = log ? read_log(log, evaluates) : NULL;
  Timeline *timeline = !log || lines ? trace ? read_trace(trace) : NULL : NULL;
  if ((log && !lines) || (trace && !timeline))
    return false;
  add_part(t, "log", lines);
  text_add(t, ",\n\"trace\":");
  if (timeline)
    timeline_json(timeline, t);
  else
    text_add(t, "null");
  return true;
}

/* Refuses links: the file becomes part of the page unchanged, and a link could expose any file. */
static bool is_link(const char *path) {
  struct stat st;
  if (lstat(path, &st) != 0 || !S_ISLNK(st.st_mode))
    return false;
  help(error_at(NO_SPAN, "PD0601",
                "cannot read '%s': it is a link, and a report contains only files of the run's folder", path),
       "copy the picture there, or remove the link");
  return true;
}

/* Adds pdc's picture of the model; false after a diagnostic. */
static bool add_picture(const char *path, Text *t) {
  size_t n;
  if (path && is_link(path))
    return false;
  const char *svg = path ? read_file(path, &n) : NULL;
  if (path && !svg) {
    error_at(NO_SPAN, "PD0601", "cannot read '%s': %s", path, read_failure(errno));
    return false;
  }
  text_add(t, ",\n\"picture\":");
  if (svg)
    json_string(t, svg);
  else
    text_add(t, "null");
  return true;
}

bool report(const char *directory, const char *output) {
  const char *path = output ? output : format("%s/report.html", directory);
  if (is_launch(directory))
    return launch_page(directory, path);
  const char *log = part(directory, "log.jsonl"), *trace = part(directory, "trace.json"),
             *plan = part(directory, "plan.json"), *model = NULL;
  if (!log && !trace && !plan) {
    Diagnostic *d =
        error_at(NO_SPAN, "PD0611", "'%s' holds no run: no log.jsonl, trace.json or plan.json", directory);
    help(d, "use the DIR of 'train --run DIR' or 'infer --run DIR'");
    return false;
  }
  Text data = {0};
  bool evaluates = false;
  text_add(&data, "{\"directory\":");
  json_string(&data, directory);
  if (!add_measured(log, trace, &data, &evaluates) || !add_plan(plan, evaluates, &data, &model) ||
      !add_picture(part(directory, "model.svg"), &data))
    return false;
  text_add(&data, "}");
  char *page = page_make(PAGE_OF_RUN, model ? model : directory, data.at);
  return page_write(path, page);
}
