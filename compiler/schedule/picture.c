/* Draws a pipeline from a run in units of time. A forward, a recomputation and half a backward take one unit; on w
 * replicas they take w units, so that all stages are equally busy. Messages and updates take no time. Output of
 * --emit schedule and --emit schedule.svg. */
#include "schedule/program.h"

#include <string.h>

typedef struct Picture {
  const Program *programs;
  int n_ranks;
  int *first;      /* by stage: its first rank */
  int units;       /* duration of the run */
  Vec(Event) work; /* forward, recompute, backward, weights, update */
} Picture;

/* "a" to "z", "A" to "Z", then digits and signs. */
static const char *chunk_letter(int chunk) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-";
  _Static_assert(sizeof letters - 1 >= MAX_CHUNKS, "each chunk has a letter");
  return format("%c", letters[chunk]);
}

static bool note(void *context, const Event *e) {
  Picture *p = context;
  switch (e->step.action) {
  case DO_FORWARD:
  case DO_RECOMPUTE:
  case DO_BACKWARD:
  case DO_WEIGHTS:
  case DO_UPDATE: push(&p->work, *e); break;
  default: break;
  }
  p->units = e->end > p->units ? (int)e->end : p->units;
  return true;
}

/* Enough batches for the pipeline to fill and settle. */
static int64_t batches_to_draw(const Program *programs, int n_ranks) {
  int64_t wanted = programs->per_batch ? 2 * programs->period : 3 * n_ranks + 2;
  int64_t batches = (wanted + programs->period - 1) / programs->period;
  return batches > 2 ? batches : 2;
}

static Picture run(const Program *programs, int n_stages) {
  Picture p = {.programs = programs, .first = alloc((size_t)n_stages * sizeof *p.first)};
  StageTimes *times = alloc((size_t)programs->parts * sizeof *times);
  bool equal = true;
  for (int i = 0; i < n_stages; i++)
    equal &= programs[i].replicas == programs->replicas;
  for (int i = 0; i < n_stages; i++) {
    p.first[i] = p.n_ranks;
    p.n_ranks += programs[i].replicas;
    int unit = equal ? 1 : programs[i].replicas;
    bool split = programs[i].split_backward;
    for (int c = 0; c < programs[i].chunks; c++)
      times[program_part(&programs[i], c)] = (StageTimes){
          .forward = unit, .backward = split ? unit : 2 * unit, .recompute = unit, .weights = split ? unit : 0};
  }
  char *why = NULL;
  if (!run_schedule(programs, times, n_stages, batches_to_draw(programs, p.n_ranks), note, &p, &why))
    BUG("schedule: %s", why);
  return p;
}

static int rank_of(const Picture *p, const Event *e) { return p->first[e->stage] + e->replica; }

static char *rank_name(const Picture *p, int rank) {
  int stage = 0;
  while (rank >= p->first[stage] + p->programs[stage].replicas)
    stage++;
  return p->programs[stage].replicas > 1 ? format("stage %d.%d", stage, rank - p->first[stage])
                                         : format("stage %d", stage);
}

static int64_t version_of(const Picture *p, const Event *e) {
  return e->step.action == DO_UPDATE ? e->step.number + 1
                                     : program_version(&p->programs[e->stage], e->step.number);
}

/* ---- text: a column per rank, a row per unit ----------------------------------------------------- */

static char letter(Action a) {
  return a == DO_FORWARD ? 'F' : a == DO_RECOMPUTE ? 'R' : a == DO_BACKWARD ? 'B' : 'W';
}

static void text_cells(const Picture *p, char **cell) {
  for (int i = 0; i < p->work.n; i++) {
    const Event *e = &p->work.at[i];
    const Program *program = &p->programs[e->stage];
    int rank = rank_of(p, e), end = (int)e->end;
    if (e->step.action == DO_UPDATE) {
      char **at = &cell[(end > 0 ? end - 1 : 0) * p->n_ranks + rank];
      *at = format("%s =>%lld", *at ? *at : "", (long long)version_of(p, e));
      continue;
    }
    for (int row = (int)e->start; row < end; row++)
      cell[row * p->n_ranks + rank] = format("|");
    const char *chunk = program->chunks > 1 ? chunk_letter(e->step.chunk) : "";
    cell[(int)e->start * p->n_ranks + rank] =
        format("%c%lld%s.%lld", letter(e->step.action), (long long)e->step.number, chunk,
               (long long)version_of(p, e));
  }
}

void schedule_text(const Program *programs, int n_stages, FILE *out) {
  Picture p = run(programs, n_stages);
  char **cell = alloc((size_t)(p.units + 1) * (size_t)p.n_ranks * sizeof *cell);
  text_cells(&p, cell);
  fputs("# F forward, R recomputation, B backward, W weights' gradients: microbatch.version of the weights used;\n"
        "# =>v: the update that makes version v. A forward takes one unit of time, a backward two.\n",
        out);
  fprintf(out, "%5s", "time");
  for (int i = 0; i < p.n_ranks; i++)
    fprintf(out, i + 1 < p.n_ranks ? "  %-12s" : "  %s\n", rank_name(&p, i));
  for (int row = 0; row < p.units; row++) {
    int last = p.n_ranks - 1;
    while (last >= 0 && !cell[row * p.n_ranks + last])
      last--;
    fprintf(out, "%5d", row);
    for (int i = 0; i <= last; i++) {
      const char *text = cell[row * p.n_ranks + i];
      fprintf(out, i < last ? "  %-12s" : "  %s", text ? text : "");
    }
    fputc('\n', out);
  }
}

/* ---- SVG: a row per rank, time to the right, as in the papers' figures --------------------------- */

enum { LEFT = 72, TOP = 30, UNIT = 24, ROW = 40, CELL = 26, LEGEND = 34 };

/* Fill colours are distinguishable under the common colour blindnesses, in light and dark mode; chunk numbers
 * lighten them. */
static const char style[] =
    "<style>\n"
    "  text { font: 11px system-ui, sans-serif; fill: #222; }\n"
    "  .idle { fill: #eceff1; } .n { fill: #fff; text-anchor: middle; font-weight: 600; }\n"
    "  .v { fill: #fff; text-anchor: middle; font-size: 7.5px; } .u { font-size: 8.5px; text-anchor: middle; }\n"
    "  .f { fill: #2166ac; } .r { fill: #67a9cf; } .b { fill: #b35806; } .w { fill: #7f8c1d; } .t { fill: #222; }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    text, .t { fill: #ddd; } .n, .v { fill: #fff; } .idle { fill: #2c3136; }\n"
    "    .f { fill: #3a7fc4; } .b { fill: #c66d1b; }\n"
    "  }\n"
    "</style>\n";

static const char *class_of(Action a) {
  return a == DO_FORWARD ? "f" : a == DO_RECOMPUTE ? "r" : a == DO_BACKWARD ? "b" : "w";
}

static void svg_box(const Picture *p, const Event *e, FILE *out) {
  double x = LEFT + UNIT * e->start, y = TOP + ROW * rank_of(p, e), width = UNIT * (e->end - e->start);
  double middle = x + width / 2, strength = 1 - 0.3 * e->step.chunk / (p->programs[e->stage].chunks);
  fprintf(out, "<rect class=\"%s\" x=\"%g\" y=\"%g\" width=\"%g\" height=\"%d\" rx=\"2\" opacity=\"%.2f\"/>",
          class_of(e->step.action), x + 0.5, y, width - 1, CELL, strength);
  fprintf(out, "<text class=\"n\" x=\"%g\" y=\"%g\">%lld%.1s</text>", middle, y + 13, (long long)e->step.number,
          p->programs[e->stage].chunks > 1 ? chunk_letter(e->step.chunk) : "");
  fprintf(out, "<text class=\"v\" x=\"%g\" y=\"%g\">v%lld</text>\n", middle, y + 22, (long long)version_of(p, e));
}

static void svg_update(const Picture *p, const Event *e, FILE *out) {
  double x = LEFT + UNIT * e->end, y = TOP + ROW * rank_of(p, e) + CELL;
  fprintf(out, "<path class=\"t\" d=\"M%g %g l-4 5 h8 z\"/><text class=\"u\" x=\"%g\" y=\"%g\">v%lld</text>\n", x,
          y, x, y + 12, (long long)version_of(p, e));
}

static void svg_legend(const Picture *p, int y, FILE *out) {
  static const struct {
    Action action;
    const char *text;
  } entries[] = {{DO_FORWARD, "forward"},
                 {DO_RECOMPUTE, "recomputation"},
                 {DO_BACKWARD, "backward"},
                 {DO_WEIGHTS, "weights' gradients"}};
  int x = LEFT;
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    bool there = false;
    for (int j = 0; j < p->work.n; j++)
      there |= p->work.at[j].step.action == entries[i].action;
    if (!there)
      continue;
    fprintf(out,
            "<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"14\" height=\"14\" rx=\"2\"/>"
            "<text x=\"%d\" y=\"%d\">%s</text>\n",
            class_of(entries[i].action), x, y, x + 20, y + 11, entries[i].text);
    x += 42 + 6 * (int)strlen(entries[i].text);
  }
  fprintf(out, "<text x=\"%d\" y=\"%d\">number: microbatch; v: version of the weights, &#9650; made</text>\n", x,
          y + 11);
}

void schedule_svg(const char *title, const Program *programs, int n_stages, FILE *out) {
  Picture p = run(programs, n_stages);
  int width = LEFT + UNIT * p.units + 16, height = TOP + ROW * p.n_ranks + LEGEND;
  width = width > 640 ? width : 640;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
          "role=\"img\">\n<title>%s</title>\n%s",
          width, height, width, height, title, style);
  fprintf(out, "<text x=\"%d\" y=\"16\">%s, in units of a %sforward pass &#8594;</text>\n", LEFT, title,
          programs->chunks > 1 ? "chunk's " : "");
  for (int i = 0; i < p.n_ranks; i++)
    fprintf(
        out,
        "<text x=\"8\" y=\"%d\">%s</text><rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n",
        TOP + ROW * i + 17, rank_name(&p, i), LEFT, TOP + ROW * i, UNIT * p.units, CELL);
  for (int i = 0; i < p.work.n; i++) {
    const Event *e = &p.work.at[i];
    (e->step.action == DO_UPDATE ? svg_update : svg_box)(&p, e, out);
  }
  svg_legend(&p, TOP + ROW * p.n_ranks + 6, out);
  fputs("</svg>\n", out);
}
