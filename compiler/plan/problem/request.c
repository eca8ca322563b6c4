/* Completes a request from the command line and the model. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuse/kernel.h"
#include "plan/problem/problem.h"

Span graph_file_span(const Graph *g) {
  Span s = g->train.span;
  s.line = s.column = s.end_line = s.end_column = 0;
  return s;
}

/* ---- stages and ranks ---------------------------------------------------------------------------- */

/* Reads "h[3],h[6].ln_2"; returns the number of parts, 0 after a diagnostic. `stages`: indexes of parts with '/',
 * which start a stage. */
static int read_split(Planner *r, const char *split, Ints *stages) {
  Vec(Name) names = {0};
  for (const char *at = split;;) {
    bool marked = *at == '/' && schedule_traits(r->form.schedule).spills;
    at += marked;
    size_t n = strcspn(at, ",");
    push(&names, intern_n(at, n));
    if (marked)
      push(stages, names.n);
    if (!at[n])
      break;
    at += n + 1;
  }
  r->pinned = alloc((size_t)(names.n + 1) * sizeof *r->pinned);
  bool good = true;
  for (int i = 0; i < names.n; i++) {
    Name name = names.at[i];
    int piece = r->subject.find(r, name);
    if (piece == 0)
      error_at(NO_SPAN, "PD0503", "--split: '%s' is the start of stage 0, which needs no entry", name);
    if (piece > 0 && piece <= r->pinned[i])
      error_at(NO_SPAN, "PD0503", "--split: '%s' is not after the start of stage %d", name, i);
    good &= piece > 0 && piece > r->pinned[i];
    r->pinned[i + 1] = piece < 0 ? r->pinned[i] : piece;
  }
  return good ? names.n + 1 : 0;
}

enum { MOST_REPLICAS = 4096, MOST_RANKS = 4096 };

/* Parses "2,1"; false: another syntax. */
static bool parse_replicas(const char *text, Ints *out) {
  for (const char *at = text;; at++) {
    char *end;
    long n = strtol(at, &end, 10);
    if (end == at || n < 1 || n > MOST_REPLICAS || (*end && *end != ','))
      return false;
    push(out, (int)n);
    at = end;
    if (!*at)
      return true;
  }
}

/* As parse_replicas(); false after a diagnostic. */
static bool read_replicas(const char *text, Ints *out) {
  if (parse_replicas(text, out))
    return true;
  Diagnostic *d = error_at(NO_SPAN, "PD0504", "--replicas: '%s' is not a list of ranks per stage", text);
  help(d, "'--replicas 2,1' runs stage 0 on two ranks and stage 1 on one");
  return false;
}

int64_t inference_batch(int64_t batch, const PlanRequest *q) {
  const int64_t most = (int64_t)1 << 40; /* larger values are refused elsewhere */
  Ints replicas = {0};
  int64_t whole = 1;
  if (q->replicas && !parse_replicas(q->replicas, &replicas))
    return batch;
  for (int i = 0; i < replicas.n && whole < most; i++)
    whole = common_multiple(whole, replicas.at[i]);
  if (q->microbatch && q->microbatch < most && whole < most)
    whole *= q->microbatch;
  if (whole >= most || batch % whole == 0)
    return batch;
  if (ranks_asked(q) > 0 && !q->replicas && whole * ranks_asked(q) < most)
    whole *= ranks_asked(q);
  return (batch + whole - 1) / whole * whole;
}

/* Stages under offload. In "h[1],/h[2],h[3]" stage 1 starts at h[2]; other names are parts. Without marks, names
 * are parts of one rank, or stages of several ranks with free parts. 0 after a diagnostic. */
static int split_stages(Planner *r, const PlanRequest *q, int parts, const Ints *marked) {
  const int asked = q->stages ? q->stages : ranks_asked(q);
  const int stages = asked ? asked : marked->n + 1, named = marked->n || stages == 1 ? marked->n + 1 : parts;
  if (named != stages) {
    Diagnostic *d = error_at(NO_SPAN, "PD0504", "--split names %d stage%s, but the pipeline has %d", named,
                             named == 1 ? "" : "s", stages);
    help(d, "mark the start of a stage with '/': '--split h[1],/h[2],h[3]'");
    return 0;
  }
  if (stages > 1 && !marked->n) {
    r->stage_starts = r->pinned;
    r->pinned = NULL;
  } else if (stages > 1) {
    int *of_stage = alloc((size_t)stages * sizeof *of_stage);
    for (int i = 0; i < stages; i++)
      of_stage[i] = (i < marked->n ? marked->at[i] : parts) - (i > 0 ? marked->at[i - 1] : 0);
    r->form.n_stages = stages;
    pipeline_set_parts(&r->form, of_stage);
  } else {
    r->form.chunks = parts;
  }
  return stages;
}

/* Number of stages from --split, --stages, --replicas and -n; 0 after a diagnostic. */
static int asked_stages(Planner *r, const PlanRequest *q, const Ints *replicas) {
  int stages = q->stages, chunks = r->form.chunks;
  if (q->split) {
    Ints marked = {0};
    int parts = read_split(r, q->split, &marked);
    if (!parts)
      return 0;
    if (schedule_traits(r->form.schedule).spills)
      return split_stages(r, q, parts, &marked);
    if (parts % chunks != 0) {
      error_at(NO_SPAN, "PD0504", "--split makes %d parts, which is not a multiple of %d per rank", parts, chunks);
      return 0;
    }
    if (stages && parts != stages * chunks) {
      error_at(NO_SPAN, "PD0504", "--split names %d stages, but --stages is %d", parts / chunks, stages);
      return 0;
    }
    stages = parts / chunks;
  }
  if (replicas->n > 1 && stages && stages != replicas->n) {
    error_at(NO_SPAN, "PD0504", "--replicas '%s' is for %d stages, but the pipeline has %d", q->replicas,
             replicas->n, stages);
    return 0;
  }
  if (stages || replicas->n > 1)
    return stages ? stages : replicas->n;
  if (replicas->n == 1)
    return ranks_asked(q) >= replicas->at[0] ? ranks_asked(q) / replicas->at[0] : 1;
  r->free_stages = true;
  return ranks_asked(q) ? ranks_asked(q) : 1;
}

/* Serial schedules exclude replicas, which would work at the same time. Generation has a single microbatch. */
static bool may_replicate(const Planner *r) {
  ScheduleTraits traits = schedule_traits(r->form.schedule);
  return traits.replicas && !traits.serial && !(r->g && r->g->generation.context);
}

static bool check_parts(const Planner *r) {
  int parts = pipeline_parts(&r->form);
  if (parts <= r->subject.n)
    return true;
  Diagnostic *d = error_at(r->where, "PD0505", "%d stages are too many: the model has only %d place%s to cut",
                           parts, r->subject.n - 1, r->subject.n == 2 ? "" : "s");
  help(d, "use '-n %d' or less", r->subject.n / r->form.chunks);
  return false;
}

static bool check_ranks(const Planner *r, const PlanRequest *q) {
  int ranks = pipeline_ranks(&r->form);
  if (!form_is_plain(&r->form) && r->g && r->g->generation.context) {
    Diagnostic *d = error_at(NO_SPAN, "PD0705", "'--generate' runs each stage on one rank, not on %s",
                             replicas_text(&r->form));
    help(d, "use '--samples N' for more sequences at the same time, or '--stages N' for more ranks");
    return false;
  }
  if (!form_is_plain(&r->form) && !schedule_traits(r->form.schedule).replicas) {
    Diagnostic *d = error_at(r->schedule_span, "PD0705", "'%s' runs each stage on one rank, not on %s",
                             r->form.schedule, replicas_text(&r->form));
    help(d, "use the schedule 'flush' or '2bw', which support replicas");
    return false;
  }
  if (ranks_asked(q) && ranks_asked(q) != ranks && !r->free_replicas && !r->free_stages) {
    Diagnostic *d = form_is_plain(&r->form)
                        ? error_at(NO_SPAN, "PD0504", "-n %d is less than %d stages: each stage needs a rank",
                                   ranks_asked(q), ranks)
                        : error_at(NO_SPAN, "PD0504", "-n %d does not match the replicas %s, which need %d ranks",
                                   ranks_asked(q), replicas_text(&r->form), ranks);
    help(d, "use '-n %d'", ranks);
    return false;
  }
  return true;
}

/* One stage has nothing to interleave: it holds the model as one part unless the request fixes parts. */
static bool settle_chunks(Planner *r, const PlanRequest *q, int positions) {
  if (positions > 1 || r->form.chunks == 1 || schedule_traits(r->form.schedule).spills)
    return true;
  if (!q->split && !q->plan) {
    r->form.chunks = 1;
    return true;
  }
  Diagnostic *d = error_at(r->schedule_span, "PD0708",
                           "'%s' needs at least two stages, but the pipeline has one stage of %d chunks",
                           r->form.schedule, r->form.chunks);
  help(d, "use more parts, or 'chunks = 1'");
  return false;
}

static bool read_form(Planner *r, const PlanRequest *q) {
  Ints replicas = {0};
  if (ranks_asked(q) > MOST_RANKS) {
    error_at(NO_SPAN, "PD0504", "-n %d: the planner supports at most %d ranks", ranks_asked(q), MOST_RANKS);
    return false;
  }
  if (q->replicas && !read_replicas(q->replicas, &replicas))
    return false;
  int positions = asked_stages(r, q, &replicas);
  if (!positions || !settle_chunks(r, q, positions))
    return false;
  while (replicas.n > 0 && replicas.n < positions)
    push(&replicas, replicas.at[0]);
  r->free_replicas = may_replicate(r) && !q->replicas && (r->free_stages || ranks_asked(q) > positions);
  r->free_depth = r->free_stages && !r->free_replicas && !schedule_traits(r->form.schedule).serial;
  if (r->free_stages && positions > r->subject.n / r->form.chunks)
    positions = r->subject.n / r->form.chunks;
  r->form = form_make(r, positions, replicas.at);
  return check_parts(r) && check_ranks(r, q);
}

/* ---- schedule, microbatch, memory ------------------------------------------------------------------ */

const char *inference_option(const Graph *g) { return g->generation.context ? "--generate" : "--infer"; }

bool schedule_named(Name name, Span where, const char *prefix) {
  if (schedule_known(name))
    return true;
  int n;
  const char *const *names = schedule_names(&n);
  Diagnostic *d = error_at(where, "PD0702", "%sunknown schedule '%s'", prefix, name);
  const char *near = nearest(name, names, n);
  Text all = {0};
  for (int i = 0; i < n; i++)
    text_add(&all, "%s'%s'", i ? ", " : "", names[i]);
  if (near)
    help(d, "did you mean '%s'?", near);
  else
    help(d, "the schedules are %s", all.at);
  return false;
}

bool schedule_suits(const Graph *g, Name name, Span where, const char *prefix) {
  bool forward_only = schedule_traits(name).forward_only;
  if (g->shards && !schedule_traits(name).tensor) {
    help(error_at(where, "PD0513", "--tensor: %s'%s' does not support tensor parallelism", prefix, name),
         "use a schedule with resident parameters, such as '2bw' or 'flush'");
    return false;
  }
  if (forward_only == g->inference)
    return true;
  if (forward_only)
    help(error_at(where, "PD0801", "%s'%s' has no backward passes and cannot train", prefix, name),
         "use '--infer' to build programs for inference with this schedule");
  else
    help(error_at(where, "PD0801", "%s'%s' is for training and cannot be used with '%s'", prefix, name,
                  inference_option(g)),
         "leave '--schedule' out: the only schedule for inference is 'forward'");
  return false;
}

/* Whether the schedule supports the request. */
static bool schedule_can(const Planner *r, const PlanRequest *q) {
  Name name = r->form.schedule;
  ScheduleTraits traits = schedule_traits(name);
  if (q->recompute == RECOMPUTE_ON && !traits.recomputes && !(traits.layers && r->g)) {
    Diagnostic *d =
        error_at(r->schedule_span, "PD0706", "'%s' does not support recomputation: its backward pass is %s", name,
                 traits.forward_only ? "missing" : "in two");
    help(d, "leave '--recompute on' out");
    return false;
  }
  if (q->ahead > 1 && !traits.looks_ahead) {
    Diagnostic *d =
        error_at(r->schedule_span, "PD0708",
                 "'--ahead %d' is not for '%s', which fixes the number of microbatches in flight", q->ahead, name);
    help(d, "leave '--ahead' out%s", traits.forward_only ? "" : ", or '--schedule 2bw'");
    return false;
  }
  return true;
}

/* Refuses a setting of another schedule, unless the model uses that schedule and the command line overrides it. */
static bool setting_belongs(const Planner *r, bool said, const char *setting, const char *owner) {
  const Train *t = &r->g->train;
  bool open = t->pipeline && !strcmp(t->pipeline, SCHEDULE_AUTO);
  if (!said || open || !strcmp(r->form.schedule, owner) || (t->pipeline && !strcmp(t->pipeline, owner)))
    return true;
  Diagnostic *d =
      error_at(r->schedule_span, "PD0708", "'%s' is a setting of the schedule '%s', but the schedule is '%s'",
               setting, owner, r->form.schedule);
  help(d, "leave the setting out, or use 'pipeline = %s;'", owner);
  return false;
}

static bool choose_schedule(Planner *r, const PlanRequest *q, const Plan *taken) {
  enum { USUAL_CHUNKS = 2 };
  const Train *t = &r->g->train;
  r->schedule_span = q->schedule || taken || r->g->inference ? NO_SPAN : t->pipeline_span;
  if (taken) {
    r->form = form_of(&taken->pipeline);
    return true;
  }
  const bool open = t->pipeline && !strcmp(t->pipeline, SCHEDULE_AUTO);
  const char *usual = r->g->inference ? "forward" : t->pipeline && !open ? t->pipeline : "2bw";
  Name name = r->form.schedule = intern(q->schedule ? q->schedule : usual);
  const char *prefix = q->schedule ? "--schedule: " : "";
  if (!schedule_named(name, r->schedule_span, prefix) || !schedule_suits(r->g, name, r->schedule_span, prefix))
    return false;
  if (!r->g->inference && (!setting_belongs(r, t->chunks > 0, "chunks", "interleaved") ||
                           !setting_belongs(r, t->vertical_sync, "vertical_sync", "pipedream")))
    return false;
  ScheduleTraits traits = schedule_traits(name);
  r->form.chunks = !traits.chunks || traits.spills ? 1
                   : q->chunks                     ? q->chunks
                   : t->chunks > 0                 ? (int)t->chunks
                                                   : USUAL_CHUNKS;
  r->form.vertical_sync = t->vertical_sync && traits.every_round;
  r->form.bucket = q->bucket;
  r->form.shard_optimizer = q->shard_optimizer && traits.replicas && !traits.forward_only;
  return schedule_can(r, q);
}

static bool check_microbatch(const Planner *r, int64_t b, const char *option) {
  int64_t batch = r->subject.batch;
  if (batch / b > MAX_MICROBATCHES) {
    error_at(NO_SPAN, "PD0506", "%s: microbatches of %lld samples are %lld in a batch of %lld; the limit is %d",
             option, (long long)b, (long long)(batch / b), (long long)batch, MAX_MICROBATCHES);
    return false;
  }
  if (b <= batch && batch % b == 0)
    return statistics_suit(r->g, batch, b, NO_SPAN, format("%s: ", option));
  int64_t below = b > batch ? batch : b, above = b;
  while (batch % below != 0)
    below--;
  while (above < batch && batch % above != 0)
    above++;
  if (below < r->least_microbatch)
    below = above;
  Diagnostic *d = error_at(NO_SPAN, "PD0506", "%s: a microbatch of %lld samples does not divide the batch of %lld",
                           option, (long long)b, (long long)batch);
  if (above > below && above <= batch)
    help(d, "use %lld or %lld", (long long)below, (long long)above);
  else
    help(d, "use %lld", (long long)below);
  return false;
}

/* A device of a cluster is one core. */
static int choose_threads(const Planner *r) {
  const PlanRequest *q = r->request;
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  int threads = q->target.threads ? q->target.threads
                : q->cluster      ? 1
                                  : (int)(processors / (r->ranks * shards_of(r->g)));
  return threads < 1 || !backend_of(&q->target)->device->has_threads ? 1 : threads;
}

/* Sets r->again from --recompute LAYERS; false after a diagnostic. */
static bool choose_layers(Planner *r) {
  const char *text = r->request->recomputed;
  bool *again = alloc((size_t)r->p->n);
  if (!text)
    return true;
  if (!r->traits.layers) {
    Diagnostic *d =
        error_at(r->schedule_span, "PD0706", "'%s' does not support recomputation by layer", r->form.schedule);
    if (r->traits.forward_only)
      help(d, "leave --recompute out: without a backward pass nothing is recomputed");
    else
      help(d, "use '--recompute on' or '--recompute off', or another schedule");
    return false;
  }
  if (!*text) {
    Diagnostic *d = error_at(NO_SPAN, "PD0502", "--recompute is empty");
    help(d, "use on, off, auto, or names of layers such as 'h[3]', separated by commas");
    return false;
  }
  while (*text) {
    text += strspn(text, " ");
    const size_t n = strcspn(text, ",");
    size_t end = n;
    while (end > 0 && text[end - 1] == ' ')
      end--;
    if (!pieces_selected(r->g, r->p, intern_n(text, end), NO_SPAN, "--recompute", again))
      return false;
    text += n + (text[n] == ',');
  }
  r->again = again;
  return true;
}

bool settle_request(Planner *r, const Graph *g, const Pieces *p, const Plan *taken) {
  const PlanRequest *q = r->request;
  r->g = g, r->p = p;
  r->where = graph_file_span(g);
  r->least_microbatch = least_microbatch(smallest_statistic(g));
  r->bf16 = values_in_bf16(g, q->target.precision);
  ensure(g->train.batch > 0 && p->n > 0);
  if (!choose_schedule(r, q, taken) || (!taken && !read_form(r, q)))
    return false;
  r->traits = schedule_traits(r->form.schedule);
  if (!choose_layers(r))
    return false;
  bool open = r->free_replicas || r->free_stages;
  r->ranks = open && ranks_asked(q) ? ranks_asked(q) : pipeline_ranks(&r->form);
  if (q->microbatch && !check_microbatch(r, q->microbatch, "--microbatch"))
    return false;
  r->target.threads = choose_threads(r);
  return choose_devices(r);
}

/* One rank per device. Threads are not part of a layer profile. */
bool settle_layers(Planner *r, const Cluster *levels) {
  enum { USUAL_CHUNKS = 2 };
  const PlanRequest *q = r->request;
  r->schedule_span = r->where = NO_SPAN;
  if (q->recomputed) {
    error_at(NO_SPAN, "PD0502", "--recompute takes off, on or auto for a layer profile, not '%s'", q->recomputed);
    return false;
  }
  Name name = r->form.schedule = intern(q->schedule ? q->schedule : "2bw");
  if (!schedule_named(name, NO_SPAN, "--schedule: "))
    return false;
  r->traits = schedule_traits(name);
  if (r->traits.forward_only) {
    help(error_at(NO_SPAN, "PD0801", "--schedule: '%s' has no backward passes and cannot train", name),
         "layer profiles are planned for training; use another schedule");
    return false;
  }
  r->form.chunks = r->traits.chunks && !r->traits.spills ? USUAL_CHUNKS : 1;
  if (!schedule_can(r, q) || !read_form(r, q))
    return false;
  bool open = r->free_replicas || r->free_stages;
  r->ranks = open && q->workers ? q->workers : pipeline_ranks(&r->form);
  r->target.threads = choose_threads(r);
  if (!choose_devices(r))
    return false;
  double latency = r->topology.link[0].latency;
  r->topology = topology_of(levels, r->ranks, 0, 0);
  for (int i = 0; i < levels->n; i++)
    r->topology.link[i].latency = levels->level[i].latency > 0 ? levels->level[i].latency : latency;
  push(&r->microbatches, 1);
  return true;
}

bool planner_may_shard(const Planner *r) {
  const PlanRequest *q = r->request;
  return !q->shard_optimizer && !q->whole_optimizer && r->traits.replicas && !r->traits.forward_only &&
         (r->free_replicas || !form_is_plain(&r->form));
}

/* Replicas, chunks or an update per round need multiples of microbatches. */
static void tell_uneven(const Planner *r, int64_t multiple) {
  int64_t batch = r->subject.batch, b = r->request->microbatch;
  const char *form = ranks_text(&r->form);
  const char *period = schedule_period(r->form.schedule);
  const char *how = schedule_traits(r->form.schedule).every_round ? "exactly" : "a multiple of";
  Diagnostic *d;
  if (b)
    d = error_at(r->schedule_span, "PD0704", "'%s' with %s needs %s %lld microbatch%s %s, has %lld",
                 r->form.schedule, form, how, (long long)multiple, multiple == 1 ? "" : "es", period,
                 (long long)(batch / b));
  else
    d = error_at(r->schedule_span, "PD0704",
                 "'%s' with %s needs %s %lld microbatch%s %s, and a batch of %lld cannot be divided into them",
                 r->form.schedule, form, how, (long long)multiple, multiple == 1 ? "" : "es", period,
                 (long long)batch);
  const int64_t parts = multiple * r->least_microbatch, whole = (batch + parts - 1) / parts * parts;
  if (batch % parts == 0)
    help(d, "use '--microbatch %lld'", (long long)(batch / multiple));
  else
    help(d, "use '-D batch=%lld'", (long long)whole);
}

static void tell_too_few(const Planner *r, int64_t least) {
  int64_t batch = r->subject.batch, b = r->request->microbatch;
  const char *form = ranks_text(&r->form), *period = schedule_period(r->form.schedule);
  Diagnostic *d;
  if (b)
    d = error_at(r->schedule_span, "PD0701", "'%s' with %s needs at least %lld microbatches %s, has %lld",
                 r->form.schedule, form, (long long)least, period, (long long)(batch / b));
  else
    d = error_at(r->schedule_span, "PD0701",
                 "'%s' with %s needs at least %lld microbatches %s, more than "
                 "a batch of %lld has samples",
                 r->form.schedule, form, (long long)least, period, (long long)batch);
  if (b)
    note_at(d, NO_SPAN, "a batch of %lld samples in microbatches of %lld", (long long)batch, (long long)b);
  int64_t fits = batch / least;
  while (fits > 0 && (batch % fits != 0 || !schedule_allows(&r->form, batch / fits)))
    fits--;
  if (fits >= r->least_microbatch)
    help(d, "use '--microbatch %lld'", (long long)fits);
  else
    help(d, "use '-D batch=%lld', or fewer stages", (long long)(least * r->least_microbatch));
}

typedef Vec(int64_t) Divisors;

/* Ascending. */
static Divisors divisors(int64_t n) {
  Divisors small = {0}, large = {0};
  for (int64_t i = 1; i <= n / i; i++)
    if (n % i == 0) {
      push(&small, i);
      if (i != n / i)
        push(&large, n / i);
    }
  for (int i = large.n - 1; i >= 0; i--)
    push(&small, large.at[i]);
  return small;
}

static void tell_unmeasured(const Planner *r) {
  int64_t pinned = r->request->microbatch;
  Text sizes = {0};
  for (int i = 0; i < r->profile->sizes.n; i++)
    text_add(&sizes, "%s%lld", i ? ", " : "", (long long)r->profile->sizes.at[i].microbatch);
  Diagnostic *d = error_at(NO_SPAN, "PD0507", "%s: no measured microbatch can be used here (the profile has %s)",
                           r->profile->file, sizes.at);
  if (pinned)
    help(d, "measure it with 'pdc profile --microbatch %lld'", (long long)pinned);
  else
    help(d, "measure with 'pdc profile -n %d', for %d stages", r->ranks, r->form.n_stages);
}

/* No number of stages and replicas can use the ranks. */
static void tell_no_form(const Planner *r) {
  int64_t batch = r->subject.batch, b = r->request->microbatch;
  Diagnostic *d =
      error_at(r->schedule_span, "PD0704", "'%s' cannot use %d ranks in %s%d stage%s for a batch of %lld%s",
               r->form.schedule, r->ranks, r->free_stages && r->form.n_stages > 1 ? "up to " : "",
               r->form.n_stages, r->form.n_stages == 1 ? "" : "s", (long long)batch,
               b ? format(" in microbatches of %lld", (long long)b) : "");
  if (r->least_microbatch > 1)
    note_statistic(r->g, smallest_statistic(r->g), d);
  help(d, "use fewer ranks or a larger batch: the microbatches must be a multiple of every stage's replicas");
}

void tell_microbatches(const Planner *r) {
  if (r->free_replicas && r->ranks > r->form.n_stages) {
    tell_no_form(r);
    return;
  }
  int64_t batch = r->subject.batch, pinned = r->request->microbatch, least, multiple;
  schedule_needs(&r->form, &least, &multiple);
  if ((pinned ? batch / pinned : batch) < least)
    tell_too_few(r, least);
  else
    tell_uneven(r, multiple);
}

bool planner_microbatches(Planner *r) {
  int64_t batch = r->subject.batch, pinned = r->request->microbatch;
  bool scheduled = false, too_small = false;
  Divisors all = divisors(batch);
  for (int i = 0; i < all.n; i++) {
    int64_t b = all.at[i];
    bool allowed = r->free_replicas ? !r->traits.every_round || round_ranks(batch / b, 1) <= r->ranks
                                    : r->free_depth || schedule_allows(&r->form, batch / b);
    if (!allowed || batch / b > MAX_MICROBATCHES || (pinned && b != pinned))
      continue;
    if (b < r->least_microbatch) {
      too_small = true;
      continue;
    }
    scheduled = true;
    if (!r->profile || profile_at(r->profile, b))
      push(&r->microbatches, b);
  }
  if (!scheduled && too_small)
    tell_small_statistics(r);
  else if (!scheduled)
    tell_microbatches(r);
  else if (r->microbatches.n == 0)
    tell_unmeasured(r);
  return r->microbatches.n > 0;
}
