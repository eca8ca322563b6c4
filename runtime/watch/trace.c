/* The trace of a rank's work: records in memory during the run, and one Chrome trace of all ranks at the end
 * (--trace; "Trace Event Format", Google; read by Perfetto and pdc report). A failed run writes nothing and keeps
 * an earlier file. This file also has the sleeps of --emulate. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "data/load.h"
#include "generate/generate.h"
#include "messages/messages.h"
#include "run/upward.h"
#include "sharp/turn.h"
#include "update/update.h"
#include "watch/watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* `number` is the caller's count; pd_trace_finish converts it to the pipeline's microbatch or the update. */
struct record {
  double start, end; /* pd_seconds of this rank */
  int64_t number;
  int32_t peer;
  int16_t work, chunk;
};

enum { MOST_RECORDS = 1 << 20, MOST_OPEN = 4, ROUNDS = 64 }; /* of all ranks; nested; of the clock comparison */
enum { COMPUTE, MESSAGES, GRADIENTS }; /* threads of the trace; from GRADIENTS as many as exchanges overlap */

static struct {
  struct record *records; /* NULL: no --trace */
  int64_t n_records, room, dropped;
  struct record open_work[MOST_OPEN];
  int n_open;
  enum pd_work last_work;
  int64_t last_number;              /* k of pd_begin; 0: none yet */
  bool has_ended;                   /* the last work has ended: pd_begin decides on a repetition */
  struct offset *at_start, *at_end; /* by rank, on rank 0 */
  double origin;                    /* rank 0's time 0 */
} trace;

static const struct {
  const char *name, *category;
  int thread;
  bool of_microbatch;
} works[] = {
    [PD_FORWARD] = {"F", "forward", COMPUTE, true},
    [PD_RECOMPUTE] = {"R", "recompute", COMPUTE, true},
    [PD_BACKWARD] = {"B", "backward", COMPUTE, true},
    [PD_WEIGHTS] = {"W", "weights", COMPUTE, true},
    [PD_UPDATE] = {"update", "update", COMPUTE, false},
    [PD_SEND_ACTIVATIONS] = {"send activations", "send", MESSAGES, true},
    [PD_SEND_GRADIENTS] = {"send gradients", "send", MESSAGES, true},
    [PD_RECEIVE_ACTIVATIONS] = {"receive activations", "receive", MESSAGES, true},
    [PD_RECEIVE_GRADIENTS] = {"receive gradients", "receive", MESSAGES, true},
    [PD_REDUCE] = {"reduce", "reduce", GRADIENTS, false},
    [PD_EXCHANGE] = {"exchange", "exchange", GRADIENTS, false},
    [PD_GATHER] = {"gather", "gather", GRADIENTS, false},
    [PD_WAIT] = {"wait", "wait", MESSAGES, true},
    [PD_VALIDATE] = {"validate", "validation", COMPUTE, false},
    [PD_CHECKPOINT] = {"checkpoint", "checkpoint", COMPUTE, false},
    [PD_AUDIT] = {"audit", "audit", COMPUTE, false},
    [PD_BLOCKS] = {"blocks", "blocks", MESSAGES, false},
    [PD_MEET] = {"collective", "collective", MESSAGES, true},
    [PD_MEET_BACKWARD] = {"collective", "collective", MESSAGES, true},
    [PD_DATA] = {"data", "data", MESSAGES, true},
};
enum { N_WORKS = sizeof works / sizeof *works };

static bool goes_backward(int work) {
  return work == PD_BACKWARD || work == PD_RECOMPUTE || work == PD_WEIGHTS || work == PD_SEND_GRADIENTS ||
         work == PD_RECEIVE_GRADIENTS || work == PD_MEET_BACKWARD;
}

/* ---- while the run lasts ------------------------------------------------------------------------ */

static double planned(enum pd_work work, int64_t k) {
  const struct pd_stage *s = pd.stage;
  int chunk = work == PD_UPDATE ? 0 : pd_turn(k, work != PD_FORWARD).chunk;
  switch (work) {
  case PD_FORWARD:
  case PD_RECOMPUTE: return s->forward_seconds[chunk];
  case PD_BACKWARD: return s->backward_seconds[chunk] - s->weights_seconds[chunk];
  case PD_WEIGHTS: return s->weights_seconds[chunk];
  case PD_UPDATE: return s->update_seconds;
  default: return 0;
  }
}

static void keep(struct record r) {
  if (trace.n_records < trace.room)
    trace.records[trace.n_records++] = r;
  else
    trace.dropped++;
}

/* Validation passes have the validation's name as prefix, because their microbatches have separate numbers. */
void pd_range_begin(enum pd_work work, int64_t number) {
  if (!pd_device_profiled()) return;
  char name[64];
  bool validates = works[work].of_microbatch && !pd.training && !pd.stage->inference;
  snprintf(name, sizeof name, "%s%s%s %lld", validates ? works[PD_VALIDATE].name : "", validates ? " " : "",
           works[work].name, (long long)number);
  pd_device_range_begin(name);
}

void pd_range_end(void) {
  if (pd_device_profiled()) pd_device_range_end();
}

/* The number of the last work, for pd_last_work. */
static int64_t last_work_number(void) {
  if (!works[trace.last_work].of_microbatch) return trace.last_number;
  return pd_number(pd_turn(trace.last_number, goes_backward(trace.last_work)).k);
}

static void begin_range(void) {
  if (pd_device_profiled()) pd_range_begin(trace.last_work, last_work_number());
}

bool pd_begin(enum pd_work work, int64_t k) {
  if (trace.has_ended) {
    trace.has_ended = false;
    bool again = pd_twice_again();
    if (again) begin_range();
    return again;
  }
  if (work == PD_FORWARD) pd_sharp_microbatch_ends();
  trace.last_work = work;
  trace.last_number = work == PD_UPDATE ? k + 1 : k;
  pd_twice_begin(work, k);
  if (!pd.emulate) begin_range();
  if (!trace.records && !pd.emulate) return true;
  if (trace.records) pd_device_wait("the device to end its work");
  struct record r = {.start = pd_seconds(), .number = k, .peer = -1, .work = (int16_t)work};
  if (pd.emulate) {
    pd_emulate(planned(work, k));
    r.end = pd_seconds();
    if (trace.records && pd.training) keep(r);
    return false;
  }
  if (trace.n_open < MOST_OPEN) trace.open_work[trace.n_open] = r;
  trace.n_open++;
  return true;
}

void pd_end(void) {
  trace.has_ended = true;
  pd_range_end();
  if (trace.records) pd_device_wait("the device to end its work");
  if (!trace.n_open || --trace.n_open >= MOST_OPEN || !pd.training) return;
  trace.open_work[trace.n_open].end = pd_seconds();
  keep(trace.open_work[trace.n_open]);
}

int64_t pd_batch_ending(void) {
  const int64_t own = pd_own_microbatches();
  if (trace.has_ended || trace.last_work != PD_BACKWARD || pd_runs_twice() || trace.last_number % own) return -1;
  return trace.last_number / own - 1;
}

const char *pd_last_work(void) {
  static char text[64];
  if (!trace.last_number) return "the start";
  int64_t number = last_work_number();
  snprintf(text, sizeof text, "%s of %s %lld", works[trace.last_work].category,
           works[trace.last_work].of_microbatch ? "microbatch" : "step", (long long)number);
  return text;
}

/* Messages and passes of a validation are part of its record. */
void pd_trace(enum pd_work work, int64_t number, int peer, double start, double end) {
  if (!trace.records || (!pd.training && works[work].of_microbatch)) return;
  keep((struct record){start, end, number, peer, (int16_t)work, 0});
}

/* On a device the host does not know when values are transferred. */
void pd_trace_collective(double start) {
  if (trace.records && !pd_device_name())
    pd_trace(goes_backward(trace.last_work) ? PD_MEET_BACKWARD : PD_MEET, trace.last_number, -1, start,
             pd_seconds());
}

void pd_trace_data(double start) { pd_trace(PD_DATA, trace.last_number, -1, start, pd_seconds()); }

/* ---- clocks ---------------------------------------------------------------------------------------- */

/* The lead of a rank's clock over rank 0's at a time of rank 0, within `error`. */
struct offset {
  double at, ahead, error;
};

static void exchange_one(double *x, int peer, bool sends) {
  MPI_Request request;
  if (sends)
    MPI_Isend(x, 1, MPI_DOUBLE, peer, 1, pd_comm_control, &request);
  else
    MPI_Irecv(x, 1, MPI_DOUBLE, peer, 1, pd_comm_control, &request);
  pd_wait(1, &request, "the clock of the trace", -1, sends ? "to be received by" : "from", peer);
}

/* The peer's time is between request and answer; the fastest of many rounds gives the best bound. A difference
 * within the bound counts as zero, because ranks on one machine share a clock. */
static struct offset compare_clock(int rank) {
  struct offset best = {.error = 1e300};
  for (int i = 0; i < ROUNDS; i++) {
    double asked = pd_seconds(), theirs = asked;
    exchange_one(&theirs, rank, true);
    exchange_one(&theirs, rank, false);
    double heard = pd_seconds(), error = (heard - asked) / 2;
    if (error < best.error) best = (struct offset){asked, theirs - (asked + error), error};
  }
  if (best.ahead <= best.error && best.ahead >= -best.error) best.ahead = 0;
  return best;
}

/* Fills offsets[rank] on rank 0. */
static void compare_clocks(struct offset *offsets) {
  for (int rank = 1; rank < pd.ranks && !pd.rank; rank++) offsets[rank] = compare_clock(rank);
  for (int i = 0; i < ROUNDS && pd.rank; i++) {
    double mine;
    exchange_one(&mine, 0, false);
    mine = pd_seconds();
    exchange_one(&mine, 0, true);
  }
}

/* Converts a rank's time to rank 0's clock, with linear drift between the comparisons. */
static double aligned(int rank, double time) {
  const struct offset *a = &trace.at_start[rank], *b = &trace.at_end[rank];
  double span = b->at - a->at, part = span > 0 ? (time - a->ahead - a->at) / span : 0;
  return time - (a->ahead + part * (b->ahead - a->ahead));
}

/* ---- start ----------------------------------------------------------------------------------------- */

/* Records per turn: four passes, four messages, two waits for slots. Per update: update, reduction, exchange,
 * validation, checkpoint. Per audit: four passes per chunk. With offload: waits for blocks in each turn and for
 * squares and updates of each group of parameters. */
static int64_t expected_records(void) {
  const struct pd_stage *s = pd.stage;
  int64_t turns = s->microbatches / s->replicas[s->stage] * (s->chunks > 1 ? s->chunks : 1);
  int64_t updates = pd.steps - pd.first_step, most = MOST_RECORDS / pd.ranks;
  int64_t each = 10 * turns + 5 + pd_buckets();
  if (s->spilled) each += 2 * s->n_parameters;
  each += s->microbatches / s->replicas[s->stage] * s->collectives;
  if (pd_twice_bytes()) each += 4 * (s->chunks > 1 ? s->chunks : 1);
  if (s->inference) {
    updates = s->generation ? pd_generation_steps() : pd_own_evaluations();
    each = 10;
  }
  return updates > most / each ? most : updates * each;
}

/* Shared memory, which pd_memory_peak excludes, because the plan does not include records. */
void pd_trace_start(void) {
  if (!pd_options.trace) return;
  trace.room = expected_records() + 2; /* a validation without an update */
  size_t bytes = (size_t)trace.room * sizeof *trace.records;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) pd_fail("cannot get %zu bytes for --trace: %s", bytes, strerror(errno));
  trace.at_start = pd_allocate(sizeof *trace.at_start * (size_t)pd.ranks);
  trace.at_end = pd_allocate(sizeof *trace.at_end * (size_t)pd.ranks);
  compare_clocks(trace.at_start);
  trace.origin = pd_seconds();
  trace.records = p;
}

/* ---- the end: what rank 0 must know of each rank ------------------------------------------------- */

struct about {
  int32_t stage, replica, replicas, chunks, in_row, n_stages, versions, at_home;
  int64_t n, dropped, microbatches;
  int64_t bytes[PD_SEND_ACTIVATIONS + 4][PD_MAX_CHUNKS]; /* of messages, by work and chunk */
};

static int64_t channel_bytes(const struct pd_channel *c) {
  int64_t bytes = 0;
  for (int i = 0; i < c->n_values; i++) bytes += (int64_t)c->values[i].bytes;
  return bytes;
}

static struct about about_me(void) {
  const struct pd_stage *s = pd.stage;
  struct about a = {.stage = s->stage,
                    .replica = pd.replica,
                    .replicas = s->replicas[s->stage],
                    .chunks = s->chunks > 1 ? s->chunks : 1,
                    .in_row = s->spilled != NULL,
                    .at_home = s->spilled && s->spilled->at_home,
                    .n_stages = s->n_stages,
                    .versions = s->versions,
                    .n = trace.n_records,
                    .dropped = trace.dropped,
                    .microbatches = s->microbatches};
  for (int c = 0; c < a.chunks; c++) {
    a.bytes[PD_SEND_ACTIVATIONS][c] = channel_bytes(&s->activations_out[c]);
    a.bytes[PD_RECEIVE_ACTIVATIONS][c] = channel_bytes(&s->activations_in[c]);
    a.bytes[PD_SEND_GRADIENTS][c] = channel_bytes(&s->gradients_out[c]);
    a.bytes[PD_RECEIVE_GRADIENTS][c] = channel_bytes(&s->gradients_in[c]);
  }
  return a;
}

static bool is_message(int work) { return work >= PD_SEND_ACTIVATIONS && work <= PD_RECEIVE_GRADIENTS; }

/* Converts this rank's turn to the chunk and microbatch of the run. */
static void name_microbatch(struct record *r) {
  if (!works[r->work].of_microbatch) return;
  struct pd_turn turn = pd_turn(r->number, goes_backward(r->work));
  r->chunk = (int16_t)turn.chunk;
  r->number = pd_number(turn.k);
}

/* ---- the end: the file -------------------------------------------------------------------------------- */

/* One end of a message. */
struct arrow {
  int64_t id;
  bool gradients, arrives;
  int rank;
  double at;
};

/* A key that is equal at both ends of a message only: the cut, counted over all chunks in model order or, with
 * consecutive parts per rank, over stages; the direction; the microbatch. */
static int64_t message_id(const struct record *r, const struct about *a) {
  bool gradients = goes_backward(r->work), arrives = r->work >= PD_RECEIVE_ACTIVATIONS;
  int64_t part = (a->in_row ? 0 : (int64_t)r->chunk * a->n_stages) + a->stage;
  int64_t boundary = part - (gradients != arrives);
  return (r->number * (a->n_stages * PD_MAX_CHUNKS) + boundary) * 2 + gradients;
}

static int by_id(const void *a, const void *b) {
  const struct arrow *x = a, *y = b;
  return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : x->arrives - y->arrives;
}

static double microseconds(double time) { return (time - trace.origin) * 1e6; }

/* The end of the last event on each thread for gradients. Events are sorted by end, so an event that starts after
 * a thread's last one does not overlap. */
struct lanes {
  int n;
  double *ends; /* at most one per event of a rank */
};

static void write_rank_name(FILE *f, int rank, const struct about *a) {
  fprintf(f, "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank %d: stage %d",
          rank ? ",\n" : "", rank, rank, a->stage);
  if (a->replicas > 1) fprintf(f, ", replica %d", a->replica);
  fprintf(f, "\"}},\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":%d}}", rank,
          rank);
}

static void write_thread_name(FILE *f, int rank, int thread) {
  static const char *const names[] = {"compute", "messages", "gradients"};
  int more = thread - GRADIENTS;
  fprintf(f, ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s", rank,
          thread, names[more > 0 ? GRADIENTS : thread]);
  if (more > 0) fprintf(f, " %d", more + 1);
  fprintf(f, "\"}}");
}

/* The first thread for gradients that is free from `start`; a new thread if none is. */
static int lane(FILE *f, int rank, struct lanes *l, double start, double end) {
  int i = 0;
  while (i < l->n && l->ends[i] > start) i++;
  if (i == l->n) {
    if (i) write_thread_name(f, rank, GRADIENTS + i);
    l->n++;
  }
  l->ends[i] = end;
  return GRADIENTS + i;
}

/* A pass of batch t uses W(t - (versions - 1)), or W(0) (docs/guide/schedules.md). */
static int64_t version_of(const struct record *r, const struct about *a) {
  int64_t version = (r->number - 1) / a->microbatches - (a->versions - 1);
  return version > 0 ? version : 0;
}

static void write_record(FILE *f, int rank, const struct record *r, const struct about *a, struct lanes *l) {
  bool counts = works[r->work].of_microbatch;
  long long number = (long long)r->number + !counts;
  double start = aligned(rank, r->start), end = aligned(rank, r->end);
  int thread = works[r->work].thread;
  if (thread == GRADIENTS) thread = lane(f, rank, l, start, end);
  fprintf(f,
          ",\n{\"ph\":\"X\",\"name\":\"%s %lld\",\"cat\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
          "\"args\":{\"%s\":%lld",
          works[r->work].name, number, works[r->work].category, rank, thread, microseconds(start),
          end > start ? (end - start) * 1e6 : 0, counts ? "microbatch" : "update", number);
  if (counts && thread == COMPUTE) fprintf(f, ",\"version\":%lld", (long long)version_of(r, a));
  if (a->chunks > 1 && counts) fprintf(f, ",\"chunk\":%d", r->chunk);
  if (r->work == PD_UPDATE && a->at_home) fprintf(f, ",\"by\":\"host\"");
  if (r->peer >= 0) fprintf(f, ",\"peer\":%d", r->peer);
  if (is_message(r->work)) fprintf(f, ",\"bytes\":%lld", (long long)a->bytes[r->work][r->chunk]);
  fprintf(f, "}}");
}

/* An arrow from each send to its receive, where both were recorded. */
static void write_arrows(FILE *f, struct arrow *arrows, size_t n) {
  qsort(arrows, n, sizeof *arrows, by_id);
  for (size_t i = 0; i + 1 < n; i++) {
    const struct arrow *from = &arrows[i], *to = &arrows[i + 1];
    if (from->id != to->id || from->arrives || !to->arrives) continue;
    const char *name = from->gradients ? "gradients" : "activations";
    fprintf(f,
            ",\n{\"ph\":\"s\",\"id\":%lld,\"name\":\"%s\",\"cat\":\"message\",\"pid\":%d,\"tid\":%d,"
            "\"ts\":%.3f}",
            (long long)from->id, name, from->rank, MESSAGES, microseconds(from->at));
    fprintf(f,
            ",\n{\"ph\":\"f\",\"bp\":\"e\",\"id\":%lld,\"name\":\"%s\",\"cat\":\"message\",\"pid\":%d,\"tid\":%d,"
            "\"ts\":%.3f}",
            (long long)to->id, name, to->rank, MESSAGES, microseconds(to->at));
  }
}

static void write_head(FILE *f, const struct about *all) {
  const struct pd_stage *s = pd.stage;
  double error = 0;
  long long lost = 0;
  for (int rank = 0; rank < pd.ranks; rank++) {
    double worst = trace.at_start[rank].error > trace.at_end[rank].error ? trace.at_start[rank].error
                                                                         : trace.at_end[rank].error;
    if (worst > error) error = worst;
    lost += (long long)all[rank].dropped;
  }
  fprintf(f,
          "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"model\":\"%s\",\"schedule\":\"%s\","
          "\"plan\":\"sha256:%s\",\"ranks\":%d,\"microbatches\":%lld,\"first_step\":%lld,\"steps\":%lld,"
          "\"clock_error_us\":%.3f,\"dropped\":%lld},\n\"traceEvents\":[\n",
          s->model, s->schedule, s->plan_hash, pd.ranks, (long long)s->microbatches, (long long)pd.first_step,
          (long long)pd.steps, error * 1e6, lost);
  for (int rank = 0; rank < pd.ranks; rank++) {
    write_rank_name(f, rank, &all[rank]);
    for (int thread = 0; thread <= GRADIENTS; thread++) write_thread_name(f, rank, thread);
  }
}

/* A rank's records fit in one message: MOST_RECORDS of 32 bytes. */
static void receive_records(int rank, struct record *to, int64_t n) {
  MPI_Request request;
  MPI_Irecv(to, (int)(n * (int64_t)sizeof *to), MPI_BYTE, rank, 2, pd_comm_control, &request);
  pd_wait(1, &request, "events of the trace", -1, "from", rank);
}

static bool write_file(FILE *f, const struct about *all) {
  int64_t most = 0, total = 0;
  for (int rank = 0; rank < pd.ranks; rank++) {
    if (all[rank].n > most) most = all[rank].n;
    total += all[rank].n;
  }
  struct record *theirs = pd_allocate((size_t)most * sizeof *theirs);
  struct arrow *arrows = pd_allocate((size_t)total * sizeof *arrows);
  struct lanes l = {0, pd_allocate((size_t)most * sizeof *l.ends)};
  size_t n_arrows = 0;
  write_head(f, all);
  for (int rank = 0; rank < pd.ranks; rank++) {
    const struct about *a = &all[rank];
    l.n = 0;
    if (rank) receive_records(rank, theirs, a->n);
    for (int64_t i = 0; i < a->n; i++) {
      const struct record *r = rank ? &theirs[i] : &trace.records[i];
      write_record(f, rank, r, a, &l);
      if (!is_message(r->work)) continue;
      bool arrives = r->work >= PD_RECEIVE_ACTIVATIONS;
      arrows[n_arrows++] = (struct arrow){message_id(r, a), goes_backward(r->work), arrives, rank,
                                          aligned(rank, arrives ? r->end : r->start)};
    }
  }
  write_arrows(f, arrows, n_arrows);
  fprintf(f, "\n]}\n");
  free(theirs);
  free(arrows);
  free(l.ends);
  return !ferror(f);
}

void pd_trace_finish(void) {
  if (!trace.records) return;
  struct about mine = about_me(), *all = pd_allocate(sizeof *all * (size_t)pd.ranks);
  for (int64_t i = 0; i < trace.n_records; i++) name_microbatch(&trace.records[i]);
  compare_clocks(trace.at_end);
  MPI_Request request;
  MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to end their trace", -1, NULL, -1);
  if (pd.rank) {
    MPI_Isend(trace.records, (int)(trace.n_records * (int64_t)sizeof *trace.records), MPI_BYTE, 0, 2,
              pd_comm_control, &request);
    pd_wait(1, &request, "events of the trace", -1, "to be received by", 0);
  } else {
    struct pd_output o;
    bool ok = pd_output_open(&o, pd_options.trace) && write_file(o.file, all);
    if (!pd_output_close(&o, ok)) pd_fail("cannot write trace '%s': %s", pd_options.trace, strerror(errno));
    int64_t lost = 0;
    for (int rank = 0; rank < pd.ranks; rank++) lost += all[rank].dropped;
    if (lost)
      pd_note("the trace holds the first %d events and drops %lld later events", MOST_RECORDS, (long long)lost);
  }
  free(all);
}
