/* The place of parameter updates under offload. */
#include <string.h>

#include "optimizers/optimizer.h"
#include "plan/problem/problem.h"

/* A GPU offloads to pinned host memory unless the command line names a directory. */
bool spills_to_host(const Planner *r) {
  return r->rates->host > 0 && (!r->request->spill || !strcmp(r->request->spill, "host"));
}

/* Whether the host may update parameters in its memory. */
bool may_update_at_home(const Planner *r) {
  return spills_to_host(r) && r->g && !update_rule(&r->g->train)->whole_tensors;
}

/* Reports requests for updates at an impossible place. */
bool check_update(const Planner *r) {
  const bool asked = r->request->update == UPDATE_HOST || r->form.at_home;
  Diagnostic *d = NULL;
  if (r->request->update != UPDATE_FREE && !r->traits.spills) {
    d = error_at(r->schedule_span, "PD0714", "--update: with schedule '%s' all parameters are resident",
                 r->form.schedule);
    help(d, "leave '--update' out, or use '--schedule spilled'");
  } else if (r->request->update != UPDATE_FREE && r->rates->host <= 0) {
    d = error_at(NO_SPAN, "PD0714", "--update: processors update parameters in their own memory");
    help(d, "leave '--update' out, or use '--target cuda'");
  } else if (asked && !spills_to_host(r)) {
    d = error_at(NO_SPAN, "PD0714", "--update host: %s",
                 r->rates->host > 0 ? "'--spill' keeps the parameters in files"
                                    : "the host's memory is the ranks' own memory");
    help(d, "use '--spill host', or '--update device'");
  } else if (asked && !may_update_at_home(r)) {
    d = error_at(NO_SPAN, "PD0714", "'%s' needs whole parameters and cannot run on the host",
                 update_rule(&r->g->train)->name);
    help(d, "use '--update device', or an elementwise optimizer such as 'adamw'");
  }
  return !d;
}
