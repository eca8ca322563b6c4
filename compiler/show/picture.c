/* Draws the model's graph as SVG and for Graphviz. Each box has a row, in execution order, so a pipeline cut is a
 * horizontal line and the crossing arrows are its messages. Arrows that skip rows run in lanes on the right. */
#include <string.h>

#include "show/show.h"

enum { LEFT = 150, WIDTH = 380, TOP = 34, HEIGHT = 44, ROW = 66, CUT = 18, LANE = 14, LEGEND = 26 };

/* Boxes stay light in dark mode. The colours are distinguishable with the common colour blindnesses. */
enum { N_COLOURS = 6 };
static const struct {
  const char *fill, *line;
} colours[N_COLOURS] = {{"#cfe3f5", "#2b7bba"}, {"#fbe3c4", "#c97a1a"}, {"#d5ecd9", "#2c8a56"},
                        {"#e9dcf0", "#8e5ea2"}, {"#f6d5dd", "#b34f6d"}, {"#e4e3bb", "#8a8620"}};

static int stage_of(const Show *s, int part) { return s->plan ? plan_stage_of(s->plan, part) : 0; }

static char *escaped(const char *text) {
  Text t = {0};
  text_add(&t, "%s", "");
  for (; *text; text++)
    text_add(&t, *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : "%c", *text);
  return t.at;
}

static char *shortened(const char *text, size_t most) {
  return strlen(text) <= most ? format("%s", text) : format("...%s", text + strlen(text) - most);
}

/* "1.2 M" */
static const char *amount(double x) {
  static const char *const prefix[] = {"", " k", " M", " G", " T", " P"};
  int i = 0;
  while (x >= 999.5 && i < 5)
    x /= 1000, i++;
  return format(x < 9.995 && i ? "%.2f%s" : x < 99.95 && i ? "%.1f%s" : "%.0f%s", x, prefix[i]);
}

/* "1.2 M parameters, 3.4 M operations" */
static const char *work_text(const Box *b) {
  Text t = {0};
  text_add(&t, "%s", "");
  if (b->parameters > 0)
    text_add(&t, "%s parameters", amount(b->parameters));
  if (b->operations > 0)
    text_add(&t, "%s%s operations", t.n ? ", " : "", amount(b->operations));
  return t.at;
}

static const char *crossing_text(const Show *s, int part) {
  double down, up;
  crossing_bytes(s, part, &down, &up);
  const char *back = up > 0 ? format(", %s back", bytes_text((int64_t)up)) : "";
  return format("%s forward%s, a microbatch of %lld", bytes_text((int64_t)down), back,
                (long long)s->plan->pipeline.microbatch);
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* Assigns each edge a lane, or -1 if it leads to the next row; returns the number of lanes. */
static int choose_lanes(const Boxes *b, int *lane) {
  int *taken_to = alloc((size_t)(b->edges.n + 1) * sizeof *taken_to), lanes = 0;
  bool *done = alloc((size_t)b->edges.n + 1);
  for (int k = 0; k < b->edges.n; k++) { /* in order of their starts: the first free lane */
    int next = -1;
    for (int i = 0; i < b->edges.n; i++)
      if (!done[i] && (next < 0 || b->edges.at[i].from < b->edges.at[next].from))
        next = i;
    const Edge *e = &b->edges.at[next];
    done[next] = true;
    lane[next] = -1;
    if (e->to == e->from + 1)
      continue;
    int l = 0;
    while (l < lanes && taken_to[l] > e->from)
      l++;
    lanes += l == lanes;
    taken_to[l] = e->to;
    lane[next] = l;
  }
  return lanes;
}

/* Ink outside boxes: that of the surrounding page (page.css), else of the reader's theme. */
static void add_ink(Text *t, const char *ink, const char *soft) {
  text_add(t, ".pd text { fill: %s; fill: var(--text, %s); } .pd .soft { fill: %s; fill: var(--soft, %s); }\n",
           ink, ink, soft, soft);
  text_add(t,
           ".pd path, .pd line, .pd .input { fill: none; stroke: %s; stroke: var(--soft, %s); }\n"
           ".pd .head { fill: %s; fill: var(--soft, %s); stroke: none; }\n",
           soft, soft, soft, soft);
}

static void add_style(Text *t) {
  text_add(t, "<style>\n.pd text { font: 12px system-ui, sans-serif; } .pd .name { font-weight: 600; }\n"
              ".pd .soft { font-size: 11px; } .pd .end { text-anchor: end; }\n"
              ".pd path, .pd line { stroke-width: 1.3; } .pd .cut { stroke-dasharray: 6 4; }\n");
  add_ink(t, "#1a1d21", "#5b636d");
  text_add(t, "@media (prefers-color-scheme: dark) {\n");
  add_ink(t, "#e8eaed", "#a2abb6");
  text_add(t, "}\n.pd .box text { fill: #1a1d21; } .pd .box .soft { fill: #4a515a; }\n");
  for (int i = 0; i < N_COLOURS; i++)
    text_add(t, ".pd .s%d { fill: %s; stroke: %s; }\n", i, colours[i].fill, colours[i].line);
  text_add(t,
           "</style>\n<defs><marker id=\"pd-arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
           "markerHeight=\"7\" orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n");
}

static bool starts_part(const Boxes *b, int row) {
  return row > 0 && row < b->boxes.n && b->boxes.at[row].part > b->boxes.at[row - 1].part;
}

/* The top of each row, plus the end of the last row. */
static int *find_tops(const Boxes *b) {
  int *top = alloc((size_t)(b->boxes.n + 1) * sizeof *top), y = TOP + LEGEND;
  for (int i = 0; i <= b->boxes.n; i++, y += ROW)
    top[i] = y += starts_part(b, i) ? CUT : 0;
  return top;
}

static void add_inputs(Text *t, const Box *b, int y) {
  if (!b->inputs.n)
    return;
  Text names = {0};
  for (int i = 0; i < b->inputs.n; i++)
    text_add(&names, "%s%s", i ? ", " : "", b->inputs.at[i]);
  text_add(t,
           "<rect class=\"input\" x=\"8\" y=\"%d\" width=\"%d\" height=\"24\" rx=\"12\"/>"
           "<text x=\"20\" y=\"%d\">%s</text>"
           "<path d=\"M%d %dH%d\" marker-end=\"url(#pd-arrow)\"/>\n",
           y + 10, LEFT - 34, y + 26, escaped(shortened(names.at, 13)), LEFT - 26, y + 22, LEFT - 1);
}

static void add_box(const Show *s, Text *t, const Box *b, int y) {
  int stage = stage_of(s, b->part);
  text_add(t, "<g class=\"box\"><title>%s%s%s</title>", escaped(b->label), b->layer ? ": " : "",
           b->layer ? escaped(b->layer) : "");
  text_add(t, "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"5\"/>", stage % N_COLOURS,
           LEFT, y, WIDTH, HEIGHT);
  text_add(t, "<text class=\"%s\" x=\"%d\" y=\"%d\">%s</text>", b->layer ? "name" : "soft", LEFT + 10, y + 18,
           escaped(shortened(b->label, 28)));
  text_add(t, "<text class=\"soft end\" x=\"%d\" y=\"%d\">%s</text>", LEFT + WIDTH - 10, y + 18,
           escaped(b->output));
  text_add(t, "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>", LEFT + 10, y + 35,
           b->layer ? escaped(shortened(b->layer, 20)) : "");
  text_add(t, "<text class=\"soft end\" x=\"%d\" y=\"%d\">%s</text></g>\n", LEFT + WIDTH - 10, y + 35,
           work_text(b));
  add_inputs(t, b, y);
}

/* Outgoing arrows leave a box's right side slightly above incoming ones. */
static void add_edge(Text *t, const Edge *e, int lane, const int *top) {
  int right = LEFT + WIDTH, from = top[e->from], to = top[e->to], middle = LEFT + WIDTH / 2;
  text_add(t, "<path%s d=\"", e->parameter ? " class=\"cut\"" : "");
  if (lane < 0)
    text_add(t, "M%d %dV%d", middle, from + HEIGHT, to - 1);
  else
    text_add(t, "M%d %dH%dV%dH%d", right, from + HEIGHT - 10, right + LANE * (lane + 1), to + 12, right + 1);
  text_add(t, "\" marker-end=\"url(#pd-arrow)\"><title>%s %s, %s%s</title></path>\n",
           e->parameter ? escaped(e->parameter) : "", shape_text(&e->shape), bytes_text((int64_t)e->bytes),
           e->parameter ? "" : " a sample");
}

/* Draws a line above the part's first row. */
static void add_cut(const Show *s, Text *t, int part, int top, int width) {
  int y = top - (ROW - HEIGHT) / 2;
  text_add(t, "<line class=\"cut\" x1=\"8\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", width - 8, y, y);
  text_add(t, "<text class=\"soft\" x=\"%d\" y=\"%d\">%s</text>\n", LEFT + WIDTH / 2 + 8, y - 5,
           crossing_text(s, part));
}

static void add_legend(const Show *s, Text *t) {
  text_add(t, "<text class=\"name\" x=\"8\" y=\"20\">%s</text>\n", escaped(s->g->name));
  int n = s->plan ? s->plan->pipeline.n_stages : 0;
  for (int i = 0, x = LEFT; i < n && i < N_COLOURS; i++, x += 84)
    text_add(t,
             "<rect class=\"s%d\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" rx=\"2\"/>"
             "<text x=\"%d\" y=\"%d\">stage %d%s</text>\n",
             i, x, LEGEND + 4, x + 20, LEGEND + 16, i, i == N_COLOURS - 1 && n > N_COLOURS ? ", ..." : "");
}

char *show_svg(const Show *s) {
  Boxes b = boxes_make(s);
  int *lane = alloc((size_t)(b.edges.n + 1) * sizeof *lane), lanes = choose_lanes(&b, lane);
  const int *top = find_tops(&b);
  int width = LEFT + WIDTH + LANE * (lanes + 1) + 20, height = top[b.boxes.n] + 4;
  if (s->plan && plan_parts(s->plan) > 1 && width < LEFT + WIDTH + 110) /* room for the labels of cuts */
    width = LEFT + WIDTH + 110;
  Text t = {0};
  text_add(
      &t,
      "<svg class=\"pd\" xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n",
      width, height, width, height);
  add_style(&t);
  add_legend(s, &t);
  for (int i = 0; i < b.boxes.n; i++)
    if (starts_part(&b, i))
      add_cut(s, &t, b.boxes.at[i].part, top[i], width);
  for (int i = 0; i < b.edges.n; i++)
    add_edge(&t, &b.edges.at[i], lane[i], top);
  for (int i = 0; i < b.boxes.n; i++)
    add_box(s, &t, &b.boxes.at[i], top[i]);
  text_add(&t, "</svg>\n");
  return t.at;
}

/* ---- Graphviz -------------------------------------------------------------------------------- */

static void dot_box(const Show *s, Text *t, const Box *b, int i) {
  text_add(t, "    b%d [label=\"%s", i, b->label);
  if (b->layer && b->layer != b->label)
    text_add(t, "\\n%s", b->layer);
  text_add(t, "\\n%s", b->output);
  const char *work = work_text(b);
  text_add(t, "%s%s\", fillcolor=\"%s\"];\n", *work ? "\\n" : "", work,
           colours[stage_of(s, b->part) % N_COLOURS].fill);
}

static void dot_part(const Show *s, Text *t, const Boxes *b, int part) {
  text_add(t, "  subgraph cluster_%d {\n    label=\"%s\"; color=\"%s\";\n", part,
           s->plan ? format("stage %d", stage_of(s, part)) : "", colours[stage_of(s, part) % N_COLOURS].line);
  for (int i = 0; i < b->boxes.n; i++)
    if (b->boxes.at[i].part == part)
      dot_box(s, t, &b->boxes.at[i], i);
  text_add(t, "  }\n");
}

char *show_dot(const Show *s) {
  Boxes b = boxes_make(s);
  Text t = {0};
  text_add(&t,
           "digraph \"%s\" {\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n"
           "  graph [fontname=\"sans-serif\"];\n  edge [fontname=\"sans-serif\", fontsize=11];\n",
           s->g->name);
  for (int part = 0; part < (s->plan ? plan_parts(s->plan) : 1); part++)
    dot_part(s, &t, &b, part);
  for (int i = 0; i < b.boxes.n; i++)
    for (int k = 0; k < b.boxes.at[i].inputs.n; k++)
      text_add(&t, "  \"%s\" [style=rounded];\n  \"%s\" -> b%d;\n", b.boxes.at[i].inputs.at[k],
               b.boxes.at[i].inputs.at[k], i);
  for (int i = 0; i < b.edges.n; i++) {
    const Edge *e = &b.edges.at[i];
    if (e->parameter)
      text_add(&t, "  b%d -> b%d [label=\"%s\", style=dashed];\n", e->from, e->to, e->parameter);
    else
      text_add(&t, "  b%d -> b%d [label=\"%s%s\"];\n", e->from, e->to, shape_text(&e->shape),
               b.boxes.at[e->from].part != b.boxes.at[e->to].part
                   ? format("\\n%s a sample", bytes_text((int64_t)e->bytes))
                   : "");
  }
  text_add(&t, "}\n");
  return t.at;
}
