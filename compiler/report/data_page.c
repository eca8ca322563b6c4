/* The page about a file of data: figures, lengths, samples with their losses in colour, images. It has no script. */
#include "report/report.h"

#include <string.h>

static void add_figure(Text *t, const char *value, const char *name) {
  text_add(t, "<div class=\"figure\"><b>");
  page_add_plain(t, value);
  text_add(t, "</b><span>%s</span></div>\n", name);
}

static void add_arrays(Text *t, const DataView *v) {
  text_add(t, "<section><h2>Arrays</h2>\n<table>\n");
  for (int i = 0; i < v->arrays.n; i++) {
    const DataArray *a = &v->arrays.at[i];
    text_add(t, "<tr><td>");
    page_add_plain(t, a->name ? a->name : v->path);
    text_add(t, "</td><td>%s</td>", a->type ? a->type : "not numbers");
    text_add(t, a->type ? "<td>%.6g to %.6g</td><td>mean %.6g</td></tr>\n" : "<td></td><td></td></tr>\n", a->least,
             a->most, a->mean);
  }
  text_add(t, "</table></section>\n");
}

static bool has_rows(const DataView *v) { return v->kind == DATA_ROWS || v->kind == DATA_LABELS; }

static void add_figures(Text *t, const DataView *v) {
  text_add(t, "<section id=\"figures\">\n");
  static const char *const counted[] = {
      [DATA_ROWS] = "rows",     [DATA_LABELS] = "rows", [DATA_TOKENS] = "tokens",
      [DATA_IMAGES] = "images", [DATA_ARRAYS] = "rows", [DATA_TEXT] = "documents"};
  add_figure(t, with_commas(v->rows), counted[v->kind]);
  if (v->kind == DATA_TEXT)
    add_figure(t, with_commas(v->text_tokens), "tokens");
  if (has_rows(v))
    add_figure(t, format("%lld", (long long)v->length), "positions of a row");
  if (v->kind == DATA_ROWS)
    add_figure(t, format("%.1f %%", 100 * v->loss), "with loss");
  if (has_rows(v))
    add_figure(t, format("%.1f %%", 100 * v->padding), "padding");
  if (v->kind == DATA_IMAGES || v->kind == DATA_LABELS)
    add_figure(t, format("%d", v->classes.n), v->kind == DATA_IMAGES ? "classes" : "labels");
  if (has_rows(v) || v->kind == DATA_TOKENS)
    add_figure(t, format("%lld to %lld", (long long)v->least, (long long)v->most), "tokens used");
  text_add(t, "</section>\n");
}

static void add_model(Text *t, const DataView *v) {
  text_add(t, "<section><h2>Inputs of ");
  page_add_plain(t, v->model);
  text_add(t, "</h2>\n<table>\n");
  for (int i = 0; i < v->inputs.n; i++) {
    const char *cells[] = {v->inputs.at[i].name, v->inputs.at[i].type, v->inputs.at[i].source};
    text_add(t, "<tr>");
    for (int k = 0; k < 3; k++) {
      text_add(t, "<td>");
      page_add_plain(t, cells[k]);
      text_add(t, "</td>");
    }
    text_add(t, "</tr>\n");
  }
  text_add(t, "</table>\n<p class=\"hint\">%s samples an epoch", with_commas(v->samples_of_epoch));
  if (v->unread) {
    text_add(t, "; not read: ");
    page_add_plain(t, v->unread);
  }
  text_add(t, "</p></section>\n");
}

/* One row of a chart of bars. */
static void add_bar(Text *t, const char *name, int64_t n, int64_t most) {
  text_add(t, "<span>");
  page_add_plain(t, name);
  text_add(t,
           "</span><div class=\"track\"><div style=\"width:%.1f%%;background:var(--forward)\"></div></div>"
           "<span class=\"value\">%s</span>\n",
           100.0 * (double)n / (double)(most ? most : 1), with_commas(n));
}

static void add_lengths(Text *t, const DataView *v) {
  int64_t most = 0, from, to;
  for (int i = 0; i < DATA_BINS; i++)
    most = v->bins[i] > most ? v->bins[i] : most;
  text_add(t, "<section><h2>%s</h2>\n<div class=\"memory\">\n",
           v->kind == DATA_TEXT ? "Documents by tokens" : "Rows by positions filled");
  for (int i = 0; i < DATA_BINS; i++)
    if (data_bin(v, i, &from, &to))
      add_bar(t, format("%lld to %lld", (long long)from, (long long)to), v->bins[i], most);
  text_add(t, "</div></section>\n");
}

static void add_classes(Text *t, const DataView *v) {
  int64_t most = 0;
  for (int c = 0; c < v->classes.n; c++)
    most = v->classes.at[c].samples > most ? v->classes.at[c].samples : most;
  text_add(t, "<section><h2>%s</h2>\n<div class=\"memory\">\n",
           v->kind == DATA_IMAGES ? "Images by class" : "Rows by label");
  for (int c = 0; c < v->classes.n; c++)
    add_bar(t, v->classes.at[c].name, v->classes.at[c].samples, most);
  text_add(t, "</div></section>\n");
}

static void add_samples(Text *t, const DataView *v) {
  text_add(t, "<section><h2>Samples</h2>\n");
  if (v->kind == DATA_ROWS)
    text_add(t, "<p class=\"hint\">Tokens with loss are <mark>marked</mark>.</p>\n");
  for (int i = 0; i < v->samples.n; i++) {
    const DataSample *s = &v->samples.at[i];
    if (has_rows(v))
      text_add(t, "<h3>Row %lld%s%s</h3>\n", (long long)s->row,
               v->kind == DATA_LABELS ? format(", label %d", (int)s->label) : "",
               s->second >= 0 ? format(", type 1 from position %lld", (long long)s->second) : "");
    text_add(t, "<pre class=\"sample\">");
    for (int k = 0; k < s->runs.n; k++) {
      text_add(t, s->runs.at[k].loss ? "<mark>" : "");
      page_add_plain(t, s->runs.at[k].text);
      text_add(t, s->runs.at[k].loss ? "</mark>" : "");
    }
    text_add(t, "%s</pre>\n", s->cut ? " ..." : "");
  }
  text_add(t, "</section>\n");
}

static void add_base64(Text *t, const char *bytes, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    unsigned x = 0;
    for (size_t k = 0; k < 3; k++)
      x = x << 8 | (i + k < n ? (unsigned char)bytes[i + k] : 0);
    const char four[] = {digits[x >> 18 & 63], digits[x >> 12 & 63], i + 1 < n ? digits[x >> 6 & 63] : '=',
                         i + 2 < n ? digits[x & 63] : '=', 0};
    text_add(t, "%s", four);
  }
}

static void add_image(Text *t, const DataImage *m) {
  text_add(t, "<figure>");
  if (m->width) {
    text_add(t, "<img alt=\"\" src=\"data:image/%s;base64,", m->png ? "png" : "jpeg");
    add_base64(t, m->bytes, m->size);
    text_add(t, "\">");
  }
  text_add(t, "<figcaption>");
  page_add_plain(t, m->class ? m->class : m->name);
  text_add(t, "<br>%s</figcaption></figure>\n", m->width ? format("%d x %d", m->width, m->height) : "damaged");
}

bool data_page(const DataView *v, const char *output) {
  Text body = {0};
  add_figures(&body, v);
  if (has_rows(v) || v->kind == DATA_TEXT)
    add_lengths(&body, v);
  if (v->arrays.n)
    add_arrays(&body, v);
  if (v->classes.n)
    add_classes(&body, v);
  if (v->model)
    add_model(&body, v);
  if (v->samples.n)
    add_samples(&body, v);
  if (v->images.n) {
    text_add(&body, "<section><h2>Images</h2>\n<div class=\"sheet\">\n");
    for (int i = 0; i < v->images.n; i++)
      add_image(&body, &v->images.at[i]);
    text_add(&body, "</div></section>\n");
  }
  return page_write(output, page_of_body("data", v->path, body.at));
}
