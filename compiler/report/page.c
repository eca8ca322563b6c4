/* The page's fixed parts, embedded from files in this folder, around the run's data. */
#include "report/report.h"
#include "shared/why.h"

#include <errno.h>
#include <string.h>

#define EMBED(name, file)                                                                            \
  __asm__(".section .rodata\n.global report_" #name "\nreport_" #name ":\n.incbin \"" PDC_SOURCE_DIR \
          "/compiler/report/" file "\"\n.byte 0\n.previous\n");                                      \
  extern const char report_##name[]

EMBED(html, "page.html");
EMBED(run_sections, "run.html");
EMBED(plan_sections, "plan.html");
EMBED(launch_sections, "launch.html");
EMBED(timelines_section, "timelines.html");
EMBED(model_section, "model.html");
EMBED(css, "page.css");
EMBED(timeline, "timeline.js");
EMBED(curves, "curves.js");
EMBED(shared, "shared.js");
EMBED(run_script, "run.js");
EMBED(plan_script, "plan.js");
EMBED(launch_script, "launch.js");

/* Control characters, which pages cannot hold, become U+FFFD. */
void page_add_plain(Text *t, const char *plain) {
  enum { LONGEST = 3 }; /* bytes of a control character */
  const char *text = make_utf8(format("%s", plain));
  for (size_t control; *text; text += control ? control : 1) {
    control = *text == '\n' || *text == '\t' ? 0 : pd_control_bytes(text, strnlen(text, LONGEST));
    switch (*text) {
    case '<': text_add(t, "&lt;"); break;
    case '>': text_add(t, "&gt;"); break;
    case '&': text_add(t, "&amp;"); break;
    case '"': text_add(t, "&quot;"); break;
    default: text_add(t, control ? "&#xFFFD;" : "%c", *text);
    }
  }
}

/* JSON contains '<' only in strings. Escaping it prevents a text from ending the script element. */
static void add_data(Text *t, const char *json) {
  for (size_t n; *json; json += n) {
    n = strcspn(json, "<");
    text_add(t, "%.*s", (int)n, json);
    if (json[n] == '<') {
      text_add(t, "\\u003c");
      n++;
    }
  }
}

/* Adds the text before the mark; returns the text after it. */
static const char *add_until(Text *t, const char *from, const char *mark) {
  const char *at = strstr(from, mark);
  ensure(at);
  text_add(t, "%.*s", (int)(at - from), from);
  return at + strlen(mark);
}

static const struct {
  const char *command, *sections, *script;
} kinds[] = {
    [PAGE_OF_RUN] = {"report", report_run_sections, report_run_script},
    [PAGE_OF_PLAN] = {"plan", report_plan_sections, report_plan_script},
    [PAGE_OF_LAUNCH] = {"report", report_launch_sections, report_launch_script},
};

/* Inserts sections shared by several kinds of pages, from their own files, at their marks. */
static void add_sections(Text *t, const char *sections) {
  const struct {
    const char *mark, *text;
  } shared[] = {{"@model@\n", report_model_section}, {"@timelines@\n", report_timelines_section}};
  for (size_t n; *sections; sections += n) {
    n = strcspn(sections, "\n") + 1;
    const char *text = NULL;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
      if (!strncmp(sections, shared[i].mark, n))
        text = shared[i].text;
    text ? text_add(t, "%s", text) : text_add(t, "%.*s", (int)n, sections);
  }
}

char *page_make(PageKind kind, const char *title, const char *data) {
  Text t = {0};
  const char *rest = add_until(&t, report_html, "@title@");
  page_add_plain(&t, title);
  rest = add_until(&t, rest, "@command@");
  text_add(&t, "%s", kinds[kind].command);
  rest = add_until(&t, rest, "@style@");
  text_add(&t, "%s", report_css);
  rest = add_until(&t, rest, "@sections@");
  add_sections(&t, kinds[kind].sections);
  rest = add_until(&t, rest, "@data@");
  add_data(&t, data);
  rest = add_until(&t, rest, "@script@");
  text_add(&t, "%s%s%s", report_timeline, report_curves, report_shared);
  text_add(&t, "%s%s", kinds[kind].script, rest);
  return t.at;
}

char *page_of_body(const char *command, const char *title, const char *body) {
  Text t = {0};
  text_add(&t, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
  page_add_plain(&t, title);
  text_add(&t, ": pdc %s</title>\n<style>\n%s</style>\n</head>\n<body>\n<header><h1>", command, report_css);
  page_add_plain(&t, title);
  text_add(&t, "</h1></header>\n<main>\n%s</main>\n</body>\n</html>\n", body);
  return t.at;
}

bool page_write(const char *path, const char *page) {
  if (write_file(path, page, strlen(page)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}
