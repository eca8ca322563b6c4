/* Commands that compile a model. */
#include <errno.h>
#include <string.h>

#include "compile/compile.h"
#include "device/device.h"
#include "measure/measure.h"
#include "pipedream/pipedream.h"
#include "report/report.h"

static char *run_profile_program(void *context, const char *text) {
  const Compilation *c = context;
  return cc_run(&c->options, text);
}

static bool write_result(const char *path, const char *text) {
  if (write_file(path, text, strlen(text)))
    return true;
  error_at(NO_SPAN, "PD0605", "cannot write '%s': %s", path, strerror(errno));
  return false;
}

/* -S: writes the measuring program without running it. */
static bool write_profile_program(Compilation *c) {
  const Options *o = &c->options;
  const char *suffix = toolchain_of(o)->suffix;
  const char *path = o->output ? o->output : format("%s.profile.%s", base_name(o->input), suffix);
  char *text = profile_program(c->graph, &c->pieces, &c->request);
  return text && write_result(path, text);
}

bool profile_command(Compilation *c) {
  const Options *o = &c->options;
  PlanRequest *request = &c->request;
  request->arch = o->arch;
  if (!choose_degree(c) || !compile(c, "cut"))
    return false;
  if (o->sources_only)
    return write_profile_program(c);
  request->compiler = cc_version_if_found(o, toolchain_of(o));
  const char *path = o->output ? o->output : format("%s.profile.json", base_name(o->input));
  return profile_make(c->graph, &c->pieces, request, path, run_profile_program, c, o->table ? stdout : NULL);
}

static bool write_plan_page(Compilation *c) {
  const Options *o = &c->options;
  const char *path = o->output ? o->output : format("%s.plan.html", base_name(o->input));
  double start = seconds_now();
  Show picture = what_to_show(c, PICTURE_DEPTH);
  const PlanPage page = {c->graph,      &c->pieces,   &c->request,       c->plan,
                         c->runners_up, N_RUNNERS_UP, show_svg(&picture)};
  if (!plan_page(&page, path))
    return false;
  printf("page: %s\n", path);
  if (o->time_passes)
    fprintf(stderr, "%-10s %8.3f ms\n", "page", 1e3 * (seconds_now() - start));
  return true;
}

/* Whether `pdc plan` must run passes after `plan`, to print, dump or verify their results. */
static bool wants_more_than_plans(const Compilation *c) {
  const Options *o = &c->options;
  bool more = o->emit != EMIT_NOTHING || o->stop_after || o->verify_each;
  for (const Pass *p = find_pass(&c->passes, "plan") + 1; p < c->passes.at + c->passes.n && !more; p++)
    more = o->dump && strchr(o->dump, p->letter);
  return more;
}

bool plan_command(Compilation *c) {
  const Options *o = &c->options;
  if (!o->input)
    return plan_layers(&o->layers, &o->plan, o->emit == EMIT_PLAN, stdout);
  if (!choose_degree(c))
    return false;
  if (o->compare) {
    if (!compile(c, "cut"))
      return false;
    prepare_request(c);
    return plan_compare(c->graph, &c->pieces, &c->request, stdout);
  }
  if (!(wants_more_than_plans(c) ? compile(c, "allocate") : compile(c, "plan") && exact_peaks(c)))
    return false;
  if (o->emit != EMIT_NOTHING || o->stop_after)
    return true;
  plan_table(c->graph, &c->pieces, c->plan, stdout);
  for (int i = 0; i < N_RUNNERS_UP; i++)
    if (c->runners_up[i])
      plan_runner_up(&c->pieces, c->plan, c->runners_up[i], stdout);
  if (c->degrees.n)
    tensor_compare(&c->degrees, stdout);
  plan_hint(c->graph, &c->pieces, &c->request, c->plan, stdout);
  plan_delay_hint(c->graph, c->plan, stdout);
  return !o->report || write_plan_page(c);
}

bool show_command(Compilation *c) {
  const Options *o = &c->options;
  if (!choose_degree(c) || !compile(c, o->planned ? "plan" : "cut"))
    return false;
  Show table = what_to_show(c, o->depth ? o->depth : TABLE_DEPTH), picture = table;
  picture.depth = o->depth ? o->depth : PICTURE_DEPTH;
  show_table(&table, stdout);
  return (!o->svg || write_result(o->svg, show_svg(&picture))) &&
         (!o->dot || write_result(o->dot, show_dot(&picture)));
}

/* Builds one model of several. */
static bool build_model(void *all, const Options *o, ModelBuilt *built) {
  Compilation *c = alloc(sizeof *c);
  compilation_start(c, &((const Compilation *)all)->passes, o);
  if (!compile(c, "build"))
    return false;
  *built = (ModelBuilt){c->plan->batch_seconds,
                        c->plan->stage[0].peak_bytes + backend_of(&c->plan->target)->device->process,
                        plan_parts(c->plan)};
  return true;
}

bool build_command(Compilation *c) {
  const Options *o = &c->options;
  if (o->sharp)
    return sharp_build(o, build_model, c);
  return (o->syntax_only || choose_degree(c)) && compile(c, !o->syntax_only ? "build"
                                                            : o->generate   ? "decode"
                                                                            : "elaborate");
}
