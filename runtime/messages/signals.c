/* Signals to a training: SIGTERM, SIGINT and SIGUSR2 stop it, SIGUSR1 writes a checkpoint. A handler records the
 * request; then all ranks agree, in a round, on the update after which the request is served:
 *   - the signalled rank informs all ranks, and each rank proposes the last update whose batch it has begun or has
 *     posted a receive of;
 *   - the largest proposal is the update.
 * Until a rank knows the result, it begins no batch after its proposal (pd_goes_on, pd_updated), so that every
 * message is received. A stop makes the update the last of the run: loops end as at the end of --steps. Any number
 * of ranks can be signalled. Rounds run one after another. */
#include "messages/messages.h"
#include "run/upward.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum request { NOTHING, CHECKPOINT, STOP };
/* Tags of one-number messages between ranks. ROUND: the sender is in this round. FAILED: the sender has reported a
 * failure. ASKS: the sender reached --timeout and asks which rank waits for which. WAITS: the sender waits for
 * this rank (-1: for all). */
enum told { ROUND, FAILED, ASKS, WAITS };

static struct {
  volatile sig_atomic_t wanted; /* an enum request without a round */
  volatile sig_atomic_t came;   /* signal that requested the stop; 0: none */
  volatile sig_atomic_t interrupts;
  volatile sig_atomic_t answered; /* the training handles signals, between its start and end */
  volatile sig_atomic_t mute;     /* another rank has reported the failure */
  timer_t grace_timer;
  char out_of_grace[256];
  struct {
    bool open;
    int64_t number;          /* rounds before it */
    int64_t update;          /* this rank's proposal */
    int64_t mine[3], all[3]; /* updates, request, signal */
    MPI_Request request;
  } agreement;
  int64_t newest;           /* newest round of any rank */
  int64_t begun;            /* last forward turn begun */
  int64_t checkpoint_after; /* update of a requested checkpoint; 0: none */
  int stopped_by;           /* the signal; 0: none */
  double mpirun_grace;
  int64_t *waits;
} signals = {.newest = -1};

static const char *name_of(int number) {
  return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : number == SIGUSR2 ? "SIGUSR2" : "a signal";
}

/* ---- handlers --------------------------------------------------------------------------------- */

/* Appends to a line; safe in a signal handler. */
static size_t append(char *line, size_t n, size_t room, const char *text) {
  while (*text && n + 1 < room) line[n++] = *text++;
  line[n] = 0;
  return n;
}

static size_t append_number(char *line, size_t n, size_t room, long long x) {
  char digits[24], *d = digits + sizeof digits - 1;
  *d = 0;
  do *--d = (char)('0' + x % 10);
  while (x /= 10);
  return append(line, n, room, d);
}

/* "pd: rank R (stage S): " ... */
static void speak(const char *text, const char *more) {
  char line[512];
  size_t n = append(line, 0, sizeof line, "pd: rank ");
  n = append_number(line, n, sizeof line, pd.self);
  n = append(line, n, sizeof line, " (stage ");
  n = append_number(line, n, sizeof line, pd.stage->stage);
  n = append(line, n, sizeof line, "): ");
  n = append(line, n, sizeof line, text);
  n = append(line, n, sizeof line, more);
  n = append(line, n, sizeof line, "\n");
  if (!signals.mute && write(STDERR_FILENO, line, n) < 0) _exit(1);
}

/* Ends the process as by the signal's default, after removing incomplete files. */
static void die_of(int number) {
  pd_leave_nothing();
  signal(number, SIG_DFL);
  raise(number);
}

/* Seconds between SIGTERM and SIGKILL of Open MPI's mpirun; 0: another launcher. */

static void find_mpirun_grace(void) {
  static const char *const names[] = {"OMPI_MCA_odls_base_sigkill_timeout", "PRTE_MCA_odls_base_sigkill_timeout"};
  signals.mpirun_grace = getenv("OMPI_COMM_WORLD_RANK") ? 1 : 0; /* its default */
  for (size_t i = 0; i < sizeof names / sizeof *names && signals.mpirun_grace > 0; i++) {
    const char *given = getenv(names[i]);
    if (given && atof(given) > 0) signals.mpirun_grace = atof(given);
  }
}

/* Seconds that a stop by mpirun may take. */
static double launcher_seconds(void) {
  double seconds = signals.mpirun_grace * 0.9;
  return signals.mpirun_grace > 0 && seconds < pd_options.grace ? seconds : pd_options.grace;
}

static double seconds_left(int number, const siginfo_t *info) {
  bool launcher = number == SIGTERM && info->si_code <= 0 && info->si_pid == getppid();
  return launcher ? launcher_seconds() : pd_options.grace;
}

static void start_timer(double seconds) {
  struct itimerspec at = {.it_value = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}};
  timer_settime(signals.grace_timer, 0, &at, NULL);
}

static void grace_is_over(int number) {
  (void)number;
  if (!pd.self) speak(name_of(signals.came), signals.out_of_grace);
  die_of(signals.came ? signals.came : SIGTERM);
}

static void stop(int number, siginfo_t *info, void *context) {
  (void)context;
  int error = errno;
  bool launcher = info->si_code <= 0 && info->si_pid == getppid(); /* mpirun reports it */
  signals.interrupts += number == SIGINT;
  if (!signals.answered || signals.mute || signals.interrupts > 1) {
    if (!launcher || number == SIGINT) speak("ended by ", name_of(number));
    die_of(number);
  } else if (!signals.came) {
    signals.came = number;
    signals.wanted = STOP;
    start_timer(seconds_left(number, info));
  }
  errno = error;
}

static void ask_for_checkpoint(int number) {
  (void)number;
  if (signals.wanted == NOTHING) signals.wanted = CHECKPOINT;
}

static void handle(int number, void (*handler)(int, siginfo_t *, void *)) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, NULL);
}

void pd_signals_prepare(void) {
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGVTALRM};
  find_mpirun_grace();
  signal(SIGXFSZ, SIG_IGN); /* writes beyond the file size limit then fail with an error */
  signal(SIGVTALRM, grace_is_over);
  if (timer_create(CLOCK_MONOTONIC, &event, &signals.grace_timer))
    pd_fail("cannot make a timer: %s", strerror(errno));
  snprintf(signals.out_of_grace, sizeof signals.out_of_grace,
           ": the current update did not end within the grace period (--grace, or mpirun's "
           "odls_base_sigkill_timeout): stopped without it; earlier checkpoints are kept");
  handle(SIGTERM, stop);
  handle(SIGINT, stop);
  handle(SIGUSR2, stop);
  signal(SIGUSR1, ask_for_checkpoint);
}

void pd_signals_mute(void) {
  signals.mute = 1;
  if (signals.came) die_of(signals.came);
}

/* ---- rounds ------------------------------------------------------------------------------------ */

static int64_t turns_of_batch(void) { return pd_own_microbatches() * pd.stage->chunks; }

int64_t pd_updates_begun(void) {
  int64_t turns = turns_of_batch(), last = signals.begun > pd_turns_posted() ? signals.begun : pd_turns_posted();
  int64_t updates = (last + turns - 1) / turns;
  return updates > pd_updates.done ? updates : pd_updates.done;
}

/* The smallest number of updates after which all posted receives of this rank have their messages. */
static int64_t least_updates(void) {
  int64_t updates = pd_updates_begun();
  if (updates == pd_updates.done) updates++;
  return updates < pd.steps ? updates : pd.steps;
}

static void join(enum request request, int number) {
  signals.agreement.open = true;
  signals.agreement.update = least_updates();
  signals.agreement.mine[0] = signals.agreement.update;
  signals.agreement.mine[1] = request;
  signals.agreement.mine[2] = number;
  MPI_Iallreduce(signals.agreement.mine, signals.agreement.all, 3, MPI_INT64_T, MPI_MAX, pd_comm_signals,
                 &signals.agreement.request);
}

/* Sends a number to all ranks, without waiting: messages have eight bytes. */
static void tell(enum told what, int64_t number) {
  static int64_t numbers[64];
  int64_t *place = &numbers[number % 64];
  *place = number;
  for (int r = 0; r < pd.everyone; r++) {
    MPI_Request request;
    if (r == pd.self) continue;
    MPI_Isend(place, 1, MPI_INT64_T, r, what, pd_comm_signals, &request);
    MPI_Request_free(&request);
  }
}

void pd_signals_failed(void) {
  if (pd_comm_signals != MPI_COMM_NULL && pd.everyone > 1) tell(FAILED, 0);
}

/* By rank: its answer to ASKS, the rank that it waits for. */
enum { UNHEARD = -2 };

static void answer(int asking) {
  int64_t peer = pd_waiting_for();
  MPI_Request request;
  if (peer == UNHEARD) return;
  MPI_Isend(&peer, 1, MPI_INT64_T, asking, WAITS, pd_comm_signals, &request);
  for (int done = 0, turns = 0; !done && turns < 1000; turns++) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/* Receives messages of all ranks; a failed rank ends the launch. */
static void listen(void) {
  for (;;) {
    MPI_Status status;
    MPI_Request request;
    int there;
    int64_t number = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pd_comm_signals, &there, &status);
    if (!there) return;
    MPI_Irecv(&number, 1, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, pd_comm_signals, &request);
    for (int done = 0; !done;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (status.MPI_TAG == FAILED) pd_leave_to_others();
    if (status.MPI_TAG == ASKS) answer(status.MPI_SOURCE);
    if (status.MPI_TAG == WAITS && signals.waits) signals.waits[status.MPI_SOURCE] = number;
    if (status.MPI_TAG == ROUND && number > signals.newest) signals.newest = number;
  }
}

static void settle(void) {
  signals.agreement.open = false;
  signals.agreement.number++;
  if (signals.agreement.all[1] == CHECKPOINT) {
    signals.checkpoint_after = signals.agreement.all[0];
    if (!pd_options.checkpoint)
      pd_note("SIGUSR1 is ignored: it requests a checkpoint, but --checkpoint DIR was not given");
  } else if (signals.agreement.all[0] < pd.steps) {
    pd.steps = signals.agreement.all[0];
    signals.stopped_by = (int)signals.agreement.all[2];
    pd_note("%s: stopping after update %lld", name_of(signals.stopped_by), (long long)pd.steps);
  }
}

static bool is_settled(void *unused) {
  (void)unused;
  pd_signals_poll(true);
  return !signals.agreement.open;
}

/* Listens for `seconds`; ends the launch if another rank reports a failure. */
static void listen_for(double seconds) {
  for (double until = pd_seconds() + seconds; pd_seconds() < until;) {
    listen();
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
}

void pd_signals_await_turn(double seconds) {
  if (pd_comm_signals != MPI_COMM_NULL && pd.everyone > 1)
    listen_for(seconds);
  else
    nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

/* Follows the chain of waiting ranks to its end or around a cycle. */
void pd_signals_ask(int peer, char *story, size_t room) {
  size_t n = 0;
  *story = 0;
  if (pd_comm_signals == MPI_COMM_NULL || pd.everyone < 2) return;
  signals.waits = pd_allocate(sizeof *signals.waits * (size_t)pd.everyone);
  for (int r = 0; r < pd.everyone; r++) signals.waits[r] = UNHEARD;
  tell(ASKS, 0);
  listen_for(0.5);
  int at = peer;
  for (int i = 0; at >= 0 && at != pd.self && i < pd.everyone && n < room; i++) {
    int next = (int)signals.waits[at];
    if (next == UNHEARD) n += (size_t)snprintf(story + n, room - n, ", which does not answer");
    if (next == -1) n += (size_t)snprintf(story + n, room - n, ", which waits for all ranks");
    if (next >= 0) n += (size_t)snprintf(story + n, room - n, ", which waits for rank %d", next);
    at = next;
  }
  if (peer >= 0 && at != -1) return;
  for (int r = 0, silent = 0; r < pd.everyone && n < room; r++)
    if (r != pd.self && signals.waits[r] == UNHEARD)
      n += (size_t)snprintf(story + n, room - n, "%s rank %d does not answer", silent++ ? "," : ";", r);
}

void pd_signals_poll(bool patient) {
  if (patient && pd.everyone > 1) listen();
  if (!signals.answered) return;
  if (!signals.agreement.open && signals.wanted && pd_updates.done < pd.steps) {
    enum request request = (enum request)signals.wanted;
    signals.wanted = NOTHING;
    join(request, signals.came);
    tell(ROUND, signals.agreement.number);
  }
  if (!signals.agreement.open && signals.newest >= signals.agreement.number) join(NOTHING, 0);
  int done = 0;
  if (signals.agreement.open) MPI_Test(&signals.agreement.request, &done, MPI_STATUS_IGNORE);
  if (done) settle();
}

static void await_settlement(void) {
  pd_signals_poll(true);
  if (signals.agreement.open) pd_wait_until(is_settled, NULL, "all ranks to agree on where to stop", -1, NULL, -1);
}

/* ---- queries of the training -------------------------------------------------------------------- */

void pd_signals_start(void) {
  if (pd.stage->inference || pd_only_evaluates() || pd.first_step >= pd.steps) return;
  signals.begun = pd.first_step * turns_of_batch();
  signals.answered = 1;
}

void pd_signals_finish(void) {
  if (signals.agreement.open) await_settlement();
  signals.answered = 0;
  start_timer(0);
}

int64_t pd_last_turn_to_post(int64_t last) {
  int64_t own = signals.agreement.open ? signals.agreement.update * turns_of_batch() : last;
  return own < last ? own : last;
}

bool pd_goes_on(int64_t k) {
  pd_signals_poll(false);
  if (signals.agreement.open && k > signals.agreement.update * turns_of_batch()) await_settlement();
  if (k > pd.steps * turns_of_batch()) return false;
  signals.begun = k;
  return true;
}

/* Warns once if the last two updates, with the work between them, took longer than the grace period; a single
 * update may be the first or include a validation. */
static void warn_of_long_updates(void) {
  static double ended, before;
  static bool said;
  double now = pd_seconds(), seconds = ended > 0 ? now - ended : 0, shorter = seconds < before ? seconds : before;
  ended = now;
  before = seconds;
  if (said || !pd_options.checkpoint || shorter <= launcher_seconds()) return;
  said = true;
  if (launcher_seconds() < pd_options.grace)
    pd_warn(
        "an update takes %.1f s, but mpirun kills ranks %g s after Ctrl-C or SIGTERM: no checkpoint would be "
        "written. help: launch with 'mpirun --mca odls_base_sigkill_timeout %.0f', or stop with SIGUSR2 to mpirun",
        shorter, signals.mpirun_grace, 30 + 2 * shorter);
  else
    pd_warn("an update takes %.1f s, but the grace period is %g s: a stop would write no checkpoint. help: use "
            "--grace %.0f",
            shorter, pd_options.grace, 30 + 2 * shorter);
}

bool pd_signals_at_update(int64_t t) {
  warn_of_long_updates();
  pd_signals_poll(true);
  if (signals.agreement.open && t + 1 >= signals.agreement.update) await_settlement();
  bool asked = signals.checkpoint_after && signals.checkpoint_after == t + 1;
  if (asked) signals.checkpoint_after = 0;
  return asked;
}

int pd_stopped_by(void) { return signals.stopped_by; }
const char *pd_stopped_by_name(void) { return signals.stopped_by ? name_of(signals.stopped_by) : NULL; }
