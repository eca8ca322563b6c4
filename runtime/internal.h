/* What the runtime's files share; stage programs see pd_runtime.h alone. */
#ifndef PD_INTERNAL_H
#define PD_INTERNAL_H

#include "shared/beside.h"
#include "data/data.h"
#include "device.h"
#include "optimizers/elements.h"
#include "pd_runtime.h"
#include "shared/why.h"

#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- options.c ------------------------------------------------------------------------------- */

struct pd_options {
  char **predict; /* PATH or NAME=PATH */
  int n_predict;
  char **data, **validation;
  char **init, **init_partial, **rename; /* of each option's uses, one after the other */
  int n_data, n_validation, n_init, n_init_partial, n_rename;
  int64_t steps, validate_every, checkpoint_every; /* -1, 0, 0: not given */
  int64_t keep, keep_every;                        /* 0: not given */
  int64_t audit;                                   /* every so many updates; 0: not */
  uint64_t seed;
  const char *save, *save_raw, *log, *checkpoint, *trace, *run, *tensorboard;
  int token_bytes;            /* a token's, of --token-type; 0: not given */
  const char *plan, *picture; /* where --run keeps copies of what pdc wrote of them; picture: of the model */
  double timeout;             /* seconds */
  double grace;               /* the same */
  double peak;                /* operations a second of all ranks; 0: measured */
  struct pd_augment augment;
  const char *prompt, *prompt_file, *prompt_tokens;
  char **tokenizer; /* a run within argv */
  int n_tokenizer;
  int64_t tokens, top_k;
  double temperature, top_p;
  bool stop, window, token_numbers;
  int64_t pad;           /* the token behind what is shorter than its input */
  const char *stop_when; /* a rule; NULL: none */
  const char *spill;     /* where parts are that are not in memory; NULL: not given */
  int64_t device;        /* the GPU, by CUDA's number; -1: not given */
  const char *comm;      /* how messages travel: "nccl" or "mpi"; NULL: what suits the devices */
  bool check_messages;
  bool evaluate, resume, resume_or_start, resume_anyway, checkpoint_optional, checkpoint_background, quiet,
      emulate, graphs, help;
};
extern struct pd_options pd_options;
bool pd_parse_options(struct pd_options *o, int argc, char **argv, char *why);
void pd_print_usage(const struct pd_stage *stage);

/* ---- run.c ----------------------------------------------------------------------------------- */

double pd_seconds(void); /* monotonic */
/* Collective: returns when no rank has a reason in `why`; else the lowest rank that has one reports it
 * and the launch ends. */
void pd_agree(const char *why);
/* Another rank reports what this one has seen too: keeps its messages moving until the launch ends. */
PD_NORETURN void pd_leave_to_others(void);
void pd_abort(void); /* ends all ranks with status 1; prints nothing */
/* Before an end without exit, in a handler of a signal, too: what is half written goes, and locks. */
void pd_leave_nothing(void);
/* Around calls of libraries that return once other ranks have come: an alarm ends the process after --timeout and reports that
 * it "waited WHAT". Nothing that waits in another way may come between. */
void pd_watch_begin(const char *what);
void pd_watch_end(void);
void *pd_allocate(size_t bytes);      /* zeroed, 64-byte aligned; at start only */
char *pd_copy_text(const char *text); /* likewise */

/* ---- ranks.c --------------------------------------------------------------------------------- */

int pd_planned_ranks(void); /* of the whole plan */
int pd_replicas(void);      /* of this rank's stage */
int pd_rank_of(int stage, int replica);
int pd_stage_of(int rank);
int64_t pd_number(int64_t k);                     /* the pipeline's number of this rank's microbatch k */
int pd_rank_of_number(int stage, int64_t number); /* the replica that works on the pipeline's microbatch */
int64_t pd_own_microbatches(void);                /* of a batch, this rank's */
struct pd_turn {
  int chunk;
  int64_t k;
};
/* Which of its microbatches a rank's turn works on, and with which chunk (compiler/schedule/program.h). */
struct pd_turn pd_turn(int64_t turn, bool backward);
/* Microbatches that go through a chunk before the next chunk's turn, where there are several. */
int64_t pd_turns_together(void);

/* ---- tensor.c: ranks that share layers ---------------------------------------------------------- */

int pd_shards(void);      /* of a shard group; 1: nothing is shared */
int pd_self_of(int rank); /* pd.self of a rank of this pipeline; negative numbers stay */
extern MPI_Comm pd_comm_everyone;
void pd_tensor_open(MPI_Comm everyone, MPI_Comm *pipeline);
void pd_tensor_start(void);                /* collective in a shard group, once messages can travel */
void pd_collectives_start(MPI_Comm group); /* the same, of a group's own (collectives.c) */
void pd_trace_collective(double start);    /* of the pass that runs, from then until now */

/* ---- comm.c ---------------------------------------------------------------------------------- */

extern MPI_Comm pd_comm_control, pd_comm_replicas, pd_comm_ties, pd_comm_figures, pd_comm_checkpoints,
    pd_comm_signals;
void pd_comm_open(int stage); /* after MPI_Init: the communicators, and this rank's number */
void pd_comm_start(void);     /* posts the first receives */
void pd_comm_finish(void);    /* waits until every message of this rank is out */
/* A channel's slot 0, bytes into the arena: values may stand in any order in a slot. 0: it is empty. */
size_t pd_channel_start(const struct pd_channel *c);
/* Waits until ready(of) says so, progressing everything else. When --timeout passes the launch ends with
 * "waited S s for WHAT NUMBER (from|to) rank PEER"; number < 0 and peer < 0 are left out. False when there
 * was nothing to wait for. */
bool pd_wait_until(bool (*ready)(void *), void *of, const char *what, int64_t number, const char *direction,
                   int peer);
int64_t pd_waiting_for(void);  /* the rank that this one waits for now; -1: all; -2: it does not wait */
int64_t pd_turns_posted(void); /* the last turn that a message of a neighbour is received for */
/* The same for all n requests. */
bool pd_wait(int n, MPI_Request *request, const char *what, int64_t number, const char *direction, int peer);

/* ---- trace.c --------------------------------------------------------------------------------- */

/* Collective; they do nothing without --trace. At the end of pd_start: room for events, the first comparison of
 * clocks. Just before MPI_Finalize: the second comparison, and the file, which rank 0 writes. */
void pd_trace_start(void);
void pd_trace_finish(void);
/* Notes work of the runtime itself that lasted from `start` to `end` (pd_seconds), with rank `peer` (-1: all or
 * none); nothing without --trace. `number`: of a message the k that pd_send_... or pd_receive_... was called with
 * (PD_WAIT: for whose slot), else the update's, from 0. PD_SEND_... lasts while it is posted, PD_RECEIVE_...
 * while it is awaited, PD_REDUCE, PD_EXCHANGE and PD_GATHER from being posted until complete. */
void pd_trace(enum pd_work work, int64_t number, int peer, double start, double end);

/* For a profiler, if one looks on: the host's work until pd_range_end has the name that it has in a trace. `number`: the
 * pipeline's microbatch, or the update, from 1. */
void pd_range_begin(enum pd_work work, int64_t number);
void pd_range_end(void);

/* The work that the stage program began last, for a failure's message: "backward of microbatch 3". */
int64_t pd_batch_ending(void); /* the batch whose last backward pass goes on, once; -1: none */
const char *pd_last_work(void);

/* ---- data.c ---------------------------------------------------------------------------------- */

struct pd_dataset;
/* Opens and checks the files for these inputs, PATH or NAME=PATH each; NULL after filling `why`. With `scan`
 * every token of files up to 1 GiB together is compared with its class count; larger ones are checked as they
 * are read. */
struct pd_dataset *pd_dataset_open(char **paths, int n, const struct pd_input *inputs, int n_inputs, int64_t pad,
                                   int token_bytes, bool scan, char *why);
const char *pd_data_path(const struct pd_input *inputs, int n, const char *argument); /* PATH of either */
/* Puts the files that arguments of this option match, in order of their names, in the place of patterns. */
bool pd_expand_files(const char *option, char ***list, int *n, char *why);
int64_t pd_dataset_samples(const struct pd_dataset *d);
/* Copies what the files hold for one sample of an input: elements int32 or float. A token out of range ends the
 * launch. */
void pd_dataset_read(const struct pd_dataset *d, int input, int64_t sample, void *to);

/* ---- memory_room.c --------------------------------------------------------------------------- */

int64_t pd_memory_room(void); /* bytes that this rank's share of the machine still has, about */

/* ---- load.c ---------------------------------------------------------------------------------- */

/* NULL: none. Evaluated are --validation's samples, and where nothing is trained --data's. */
extern struct pd_dataset *pd_training_data, *pd_evaluation_data;
bool pd_data_start(char *why);
/* One sample of an input, read or derived. */
void pd_load_evaluation_sample(int input, int64_t sample, int worker, void *to);
/* The first row of the input's file that has a number which is not finite, of microbatch k's of a training or an
 * evaluation; -1: none. */
int64_t pd_first_bad_row(int input, int64_t k, bool evaluation);

/* ---- sampler.c ------------------------------------------------------------------------------- */

/* Sample number s of an endless run through n samples, each epoch in an order of its own. */
int64_t pd_sample(uint64_t seed, int64_t n, int64_t s);

/* ---- optimizer.c ----------------------------------------------------------------------------- */

/* The learning rate of update t (from 0). */
double pd_learning_rate(const struct pd_stage *s, int64_t t);

/* What a group is updated with; 0: parameters in none. */
struct pd_rate pd_group_rate(const struct pd_stage *s, int group, int64_t t);
const void *pd_group_arguments(const struct pd_stage *s, int group);

/* Constants of an update: for each group, 0 too, those of parameters that do not decay, then of those that do. */
enum { PD_GROUP_STEPS = 2 * (PD_MAX_GROUPS + 1) };
static inline int pd_step_of(const struct pd_parameter *p) { return 2 * p->group + p->decays; }

/* An update as a rule by elements sees it: W(t), where W(t + 1) goes, batch t's accumulator set, and what the rule
 * computed once, a struct pd_<optimizer>_step for each pd_step_of(). */
struct pd_update_arrays {
  int64_t t;
  const void *from;
  void *to, *gradient;
  const void *
      before; /* W(t - 1), where steps are damped (optimizers/pd_rate.h), which may be in the place of `to`; NULL */
  const void *step[PD_GROUP_STEPS];
  int n_steps;
  int first, end; /* of the parameters, those that are updated now: all, unless the model spills */
};

/* One parameter as a rule over whole tensors sees it: arrays of its elements, in f32, and moments of their
 * shapes, zero before the first update. from and to are one array or two that do not overlap. On a device they
 * are there, and what the rule does is enqueued on the stream of the work. */
struct pd_tensor_update {
  const struct pd_parameter *parameter;
  const void *arguments; /* the parameter's group's */
  int64_t t;
  struct pd_rate rate;
  float scale; /* of the gradient */
  const float *from, *gradient;
  float *to, *moment[PD_MAX_MOMENTS]; /* NULL: the parameter has no such moment */
  void *scratch;                      /* what the rule asked for (UpdateRule.scratch); NULL: nothing */
};

#define PD_NAME_RULE(rule, optimizer, moments) PD_RULE_##rule,
enum pd_rule { PD_ELEMENT_RULES(PD_NAME_RULE) PD_N_RULES };

/* A row of optimizers/list.h makes one of these; or a rule is given whole tensors, one after the other, and can
 * so take norms, sums of rows or products before it writes any weight. Each target defines such a rule with its
 * pd_<rule>; the order of its additions must not depend on threads. */
struct pd_optimizer {
  const char *name;
  void (*tensor)(const struct pd_tensor_update *x); /* NULL: it goes by elements: */
  void (*start)(const struct pd_parameter *p);      /* makes what updates of a parameter use; NULL: nothing */
  enum pd_rule by_elements;
  /* a struct step of an update */
  void (*constants)(const void *arguments, struct pd_rate rate, int64_t t, float scale, bool decays, void *to);
};

/* The parameters held here that are not frozen, dealt into tiles that the optimizer's threads, or a device's
 * blocks, share. */
enum { PD_TILE = 16384 };
struct pd_tile {
  int parameter;
  int64_t first, n;
};
extern struct pd_tile *pd_tiles;
extern int pd_n_tiles;
void pd_deal_tiles(void);
int pd_first_tile(int parameter); /* of this parameter or a later one; pd_n_tiles: there is none */
void pd_start_rule(void);         /* of the stage's optimizer, for its parameters */
static inline bool pd_is_trained(const struct pd_parameter *p) { return !p->buffer && !p->frozen; }
/* Where parameter p's moment number i stands, and its shape; NULL: it has no such moment. */
float *pd_moment_at(const struct pd_parameter *p, int i);
struct pd_shape {
  int rank;
  int64_t dim[PD_MAX_RANK], elements;
};
struct pd_shape pd_moment_shape(const struct pd_parameter *p, int i);
/* Of a parameter of which this rank has a part (tensor.c), or all: the whole one's shape; the number in it of an element
 * of the part; the part of the whole. */
struct pd_shape pd_whole_shape(const struct pd_parameter *p);
int64_t pd_whole_element(const struct pd_parameter *p, int64_t i);
/* Of a part, those that the whole one has, too: what is behind them is zeros. */
int64_t pd_own_elements(const struct pd_parameter *p);
void pd_take_own(const struct pd_parameter *p, const float *whole, float *own);
/* Collective in a shard group, if they have parts of p: all of it, on the first, until the next call; NULL on the
 * others. own: of this rank, on the host. */
const float *pd_join(const struct pd_parameter *p, const float *own);
size_t pd_moments_bytes(void); /* from the stage's `moments` on, to clear */
/* Where use `use` of parameter p has its gradient of batch t, whose accumulator set is `gradient`. */
float *pd_use_at(const struct pd_parameter *p, int use, int64_t t, void *gradient);
/* Where parameter p's whole gradient stands: at its last use; NULL when it has none. */
float *pd_gradient_at(const struct pd_parameter *p, int64_t t, void *gradient);
bool pd_in_norm(const struct pd_parameter *p); /* this rank contributes the squares of its gradient */

/* ---- shards.c: replicas that share the optimizer's state ---------------------------------------- */

struct pd_slice {
  int64_t first, n; /* elements */
};
/* What of a parameter a replica updates, and what it keeps of a moment of it of so many elements: all, where they share
 * nothing. */
struct pd_slice pd_part_of(const struct pd_parameter *p, int replica);
struct pd_slice pd_own_part(const struct pd_parameter *p); /* this one's */
struct pd_slice pd_part_of_tensor(const struct pd_parameter *p, int64_t elements, int replica);
bool pd_is_split(const struct pd_parameter *p); /* several replicas have parts of it */
/* Where element 0 of p is, or would be, in moments, masters or averages that start at `section`: a replica has its part
 * there. */
char *pd_state_at(size_t section, const struct pd_parameter *p);
int64_t pd_state_offset(const struct pd_parameter *p); /* from `section` on; may be negative */
void pd_shards_start(void);                            /* collective among replicas */
void pd_shards_finish(void);                           /* waits until no part of the weights is under way */
void pd_swap_part(float *a, float *b, int64_t n);      /* of the arena */
/* Collective among replicas, each with what would be element 0 of its part: all of the tensor, on the first, until the
 * next call; NULL on the others, which send theirs. */
const float *pd_whole(const struct pd_parameter *p, const float *at, int64_t elements);

/* ---- host/optimizer.c, cuda/optimizer.cu ------------------------------------------------------- */

void pd_optimizer_start(void); /* deals the tiles, starts the rule */
/* What a target does with all parameters of a stage: by elements; and what is left after a rule over whole
 * tensors, that is running averages, parameters without a gradient, and working copies of masters. */
typedef void pd_update_all(const struct pd_update_arrays *u);
struct pd_rules {
  pd_update_all *by_elements[PD_N_RULES], *after_tensors;
  pd_update_all *average; /* then: moves the averages towards the new weights */
  /* A parameter by the stage's rule over whole tensors; NULL: the rule is called as it is. */
  void (*tensor)(const struct pd_tensor_update *x);
  int at_once; /* tiles that are run twice together with --audit; 0: one a thread */
  /* Parameters are updated in groups, numbered from 0: which ones the next is of; false: it was the last. */
  bool (*next_group)(int group, int *first, int *end);
};
bool pd_next_updated(int group, int *first, int *end); /* all at once, unless the model spills */
extern const struct pd_rules pd_rules;
void pd_update_with(const struct pd_rules *rules, int64_t t, float scale, const void *from, void *to,
                    void *gradient);
/* Elements of a parameter in an update: what is updated, which are the masters where there are any, and the working copy beside
 * them. */
struct pd_updated {
  const float *from, *gradient; /* gradient NULL: it has none */
  float *to, *moment[PD_MAX_MOMENTS];
  void *working; /* NULL: `to` is it */
  bool bf16;     /* the working copy */
  struct pd_change change;
};
/* elements NULL: what has a gradient is updated already. */
void pd_update_some(const struct pd_parameter *p, int64_t n, const struct pd_updated *r, pd_elements *elements,
                    const void *step);
/* Then: moves averages towards the weights of update t. */
void pd_average_some(const struct pd_parameter *p, int64_t n, int64_t t, const float *w, float *average);
/* The host's: all tiles by such a rule, which is NULL where what has a gradient is updated already. copy: NULL, or
 * pd_twice_copy(). */
void pd_update_tiles(const struct pd_update_arrays *u, pd_elements *elements, char *copy);

/* ---- reduce.c -------------------------------------------------------------------------------- */

/* The buckets in which replicas exchange gradients: pd_stage.buckets, or all in one. */
enum { PD_MAX_BUCKETS = 64 };
int pd_buckets(void);
/* The runs of an accumulator set that a replica adds up of a bucket, in floats. */
struct pd_stretch {
  size_t at, n;
};
int pd_runs_of_shard(int bucket, int replica, const struct pd_stretch **runs);
/* Sums a bucket of the replicas' accumulators of batch t, without shared memory, in two rounds of messages. The first
 * brings each replica's gradients of this rank's shard. The second, once the first has passed, adds them up and sends the
 * sum back. Replicas that share the optimizer's state send back only parameters that other stages hold, too. Each function
 * writes a round's messages to `to` and returns their number, at most pd_reduce_messages() of pd_reduce_bytes() each;
 * pd_reduce_messages() is 0 without other replicas. */
struct pd_message;
void pd_reduce_start(void);
int pd_reduce_messages(void);
size_t pd_reduce_bytes(void);
int pd_reduce_gather(int64_t t, int bucket, struct pd_message *to);
int pd_reduce_spread(int64_t t, int bucket, struct pd_message *to);

/* ---- exchange.c ------------------------------------------------------------------------------ */

bool pd_has_remote(const struct pd_parameter *p); /* it has a gradient, and another stage holds it, too */
/* Among the squares of an update: where that of p's elements from `first` on is added, a tile's where replicas have
 * parts of p. */
int pd_square_at(const struct pd_parameter *p, int64_t first);

/* How far this rank is: updates whose exchange was called, that were made, and that were logged. */
extern struct pd_updates { int64_t exchanged, done, logged; } pd_updates;
/* Updates of which exchanges have memory at a time. */
int pd_exchange_sets(void);
/* Returns how many updates may be exchanged and not logged. */
int pd_exchange_start(void);
/* Moves the exchanges on as far as messages that have arrived allow. */
void pd_exchange_progress(void);
/* Waits until update t's gradients are complete here; known: until all ranks' figures are, too. */
void pd_exchange_await(int64_t t, bool known);
bool pd_exchange_known(int64_t t);
void pd_exchange_forget(int64_t t); /* update t, the next to be, is logged */
/* Adds a microbatch's sum to this rank's of batch t; first: it is the batch's first one. */
void pd_add_figure(int figure, int64_t t, bool first, double sum);
double pd_figure_sum(int figure, int64_t t); /* of all ranks, once known */
double pd_gradient_norm(int64_t t);          /* of the mean gradient, once known */
double pd_loss_elements(void);               /* train.c: of a batch, over which the gradients are sums */
char *pd_accumulators(int64_t t);
size_t pd_exchange_set(int64_t t); /* bytes from exchange set 0 to update t's */

/* ---- figures.c ------------------------------------------------------------------------------- */

/* Adds up the n elements of a figure of microbatch k in double, in order, and calls take(figure, k, sum): once the
 * work has made them and anything is asked here, in the order of the calls. */
typedef void pd_take_sum(int figure, int64_t k, double sum);
void pd_add_up(int figure, int64_t batch, int64_t k, const float *elements, int64_t n, pd_take_sum *take);
/* Whether all sums of the batches up to this one are taken; pd_figures_fold waits until they are. */
bool pd_figures_are_known(int64_t batch);
void pd_figures_fold(int64_t batch);

/* ---- outputs.c -------------------------------------------------------------------------------- */

/* Rank 0 tries and locks all that the run will write, and opens the log; false after filling `why`. */
bool pd_outputs_check(char *why);

/* ---- signals.c -------------------------------------------------------------------------------- */

void pd_signals_prepare(void); /* before MPI starts: handlers */
void pd_signals_start(
    void); /* from now on a training answers; before, and where nothing is trained, a stop ends it */
void pd_signals_finish(void); /* once all ranks have ended their work */
/* Takes up what was asked for here and, if `patient`, by other ranks; moves the ranks' agreement on. */
void pd_signals_poll(bool patient);
int64_t pd_last_turn_to_post(int64_t last); /* the last turn to post receives of: `last`, or before it */
/* After update t, in pd_updated: waits for an agreement that concerns it. True: a checkpoint was asked for. */
bool pd_signals_at_update(int64_t t);
int pd_stopped_by(void); /* the signal that made pd.steps less; 0: none did */
const char *pd_stopped_by_name(void);
/* Before a failure is told: for so many seconds, or until another rank has told of one, and the launch ends. */
void pd_signals_await_turn(double seconds);
/* Who waits for whom, for a message that says that this rank waits for `peer` (-1: all) in vain: ", which waits for
 * rank 2, which does not answer". Takes half a second. */
void pd_signals_ask(int peer, char *story, size_t room);
void pd_signals_failed(void); /* tells the other ranks that this one has said why the launch ends */
void pd_signals_mute(void);   /* another rank says it */

int64_t pd_updates_begun(void); /* so many at least are to be done: a rank has begun their batches */

/* ---- stop.c: --stop-when ------------------------------------------------------------------------ */

bool pd_stop_check(char *why); /* false after filling `why`: it is no rule */
/* Collective, after a validation: pd.steps becomes what is done, or begun, if the rule holds. */
void pd_stop_if_rule_holds(const double *mean);
bool pd_stopped_by_rule(void);

/* ---- audit.c --------------------------------------------------------------------------------- */

/* The arrays of a parameter that last from one update to the next; behind PD_ARRAY_WEIGHTS those of older versions. */
enum { PD_ARRAY_MOMENTS, PD_ARRAY_MASTERS = PD_MAX_MOMENTS, PD_ARRAY_AVERAGES, PD_ARRAY_WEIGHTS };
const char *pd_array_name(int array);
/* Nothing without --audit. Checksums of these arrays after so many updates; a difference ends the launch and is named. */
void pd_audit_start(void);
void pd_audit_take(int64_t updates);
void pd_audit_verify(int64_t updates);
/* An update that is run twice gives checksums of its own copies, so that no bit changes unseen between the check and the
 * use: of elements that it is about to overwrite, and of what it left. Any thread's; first: the first element's number
 * within the parameter, a multiple of PD_TILE behind the part's first. */
struct pd_written;
void pd_audit_before(const struct pd_written *w, const void *copy, int parameter, int64_t first);
void pd_audit_after(const struct pd_written *w, const void *copy, int parameter, int64_t first);
/* All threads have ended: what they overwrote was what the update before left; the launch ends otherwise. */
void pd_audit_settle(int64_t t);

/* ---- twice.c --------------------------------------------------------------------------------- */

/* Nothing without --audit. Collective: memory to compare what passes write. */
void pd_twice_start(void);
const int64_t *pd_twice_bytes(void); /* by rank, how much; NULL: none */
/* Of pd_begin: before a pass starts; and whether it is to be run again. */
void pd_twice_begin(enum pd_work work, int64_t turn);
bool pd_twice_again(void);
/* Whether a figure is of a pass that is being run twice: it is counted when both runs have been compared. */
bool pd_twice_takes(int figure, const float *elements, int64_t n);
bool pd_runs_twice(void); /* the pass that has begun */
/* Memory for what update t writes at once, of pd_update_copy_bytes(), when it is to be run twice; else NULL. */
char *pd_twice_copy(int64_t t);
size_t pd_update_copy_bytes(void);      /* optimizer.c: for all that are run twice at once */
size_t pd_update_tile_copy_bytes(void); /* for a tile */

/* ---- updates_twice.c --------------------------------------------------------------------------- */

/* Where two runs differ: an element, and its bits in both, so many hexadecimal digits. */
struct pd_difference {
  int64_t element;
  int digits;
  uint32_t first, second;
};
/* The first of elements of `size` bytes that is not the same at two places of the device, `other` being the first
 * run's; false: there is none. */
bool pd_differ(const void *at, const void *other, size_t bytes, size_t size, struct pd_difference *d);
/* What so many bytes take in a copy: all begin where words do. */
static inline size_t pd_copy_step(size_t bytes) { return (bytes + 15) / 16 * 16; }

struct pd_written { /* what an update writes of PD_ARRAY_WEIGHTS, say */
  int array;
  void *at;
  size_t bytes;
  bool bf16;
};
/* Calls `update` twice, the second time from what stood in the n arrays before; they then hold what the second wrote. A
 * difference is noted as one of the parameter, whose element `first_element` is the arrays' first. copy: of as many
 * bytes as the arrays. Any thread's. */
void pd_update_twice(void (*update)(const void *of), const void *of, const struct pd_written *w, int n, char *copy,
                     int parameter, int64_t first_element);
/* Whether nothing was noted since the last call; else why not: the first that differs. The second ends the launch. */
bool pd_updates_agree(int64_t t, char *why);
void pd_check_agreement(int64_t t);
/* A parameter by a rule over whole tensors, once where copy is NULL; by the stage's, as struct pd_rules has it. */
void pd_update_tensor(void (*rule)(const struct pd_tensor_update *x), const struct pd_tensor_update *x,
                      char *copy);
void pd_update_by_tensors(const struct pd_tensor_update *x);

/* ---- finite.c --------------------------------------------------------------------------------- */

int64_t pd_first_not_finite(const float *x, int64_t n); /* its number; -1: there is none */
/* Ends the launch where one is among elements [first, first + n) of the tensor `name`, after update `step`: nothing of
 * it gets into `path`. */
void pd_check_finite(const char *name, int64_t first, const float *x, int64_t n, int64_t step, const char *path);

/* ---- locks.c ---------------------------------------------------------------------------------- */

/* Takes the lock of what an option names, a folder or a file, until pd_unlock_all; false after filling `why`, with
 * the host and process of the run that has it. What is no regular file has none. */
bool pd_lock(const char *option, const char *path, bool folder, char *why);
void pd_unlock_all(void); /* in a handler of a signal, too */

/* ---- generate.c ------------------------------------------------------------------------------- */

/* Rank 0 reads the prompt; false after filling `why`. */
bool pd_generation_read(char *why);
void pd_generation_share(void);    /* collective: all ranks get it */
int64_t pd_generation_steps(void); /* at most */

/* ---- evaluate.c ------------------------------------------------------------------------------- */

/* Whether the run evaluates and trains nothing: by its program, or --evaluate. */
bool pd_only_evaluates(void);
/* Leaves this time out of the evaluation's. */
void pd_evaluation_pause(double paused);
int64_t pd_own_evaluations(void); /* microbatches of pd_evaluation_data, this rank's */

/* Whether targets have no files, and losses and metrics are left out: everything that is asked for is predicted
 * without them. */
extern bool pd_without_targets;

/* ---- predict.c -------------------------------------------------------------------------------- */

bool pd_predict_options(char *why);          /* which outputs --predict asks for; at start */
const char *pd_predict_path(int prediction); /* NULL: it is not asked for */
/* Collective: the files are made, once the samples are known; written, once all ranks are done. */
void pd_predict_start(void);
void pd_predict_finish(void);

/* ---- sharp_turn.c: a model that is trained beside others (docs/sharp.md); alone it does nothing ---- */

/* At start, once pd.steps is known: returns when the model has a rank. */
void pd_sharp_enter(void);
void pd_sharp_in_parts(void); /* units end at pd_sharp_part_ends; else where a microbatch does */
/* Before the last piece of a unit: whether this model is the one that has the rank after it. */
bool pd_sharp_goes_on_after(void);
/* Between two units: returns when the model has a rank. When it is to have one soon, read_ahead is called (NULL:
 * nothing is). */
void pd_sharp_part_ends(void (*read_ahead)(void));
void pd_sharp_microbatch_ends(void);
void pd_sharp_tell(int64_t step, bool validation, double loss); /* for the launch's last lines */

/* ---- train.c --------------------------------------------------------------------------------- */

void pd_train_start(void);
void pd_train_catch_up(void); /* waits for the figures of every update done and logs them */
void pd_log_known(void);      /* the lines of all updates done whose figures have come */
/* The first non-finite tensor of microbatch k of a training or an evaluation, for people: of the model's inputs,
 * whichever stage reads them, then of what this rank has. */
const char *pd_first_non_finite(int64_t k, bool evaluation);
/* Leaves this time out of updates' times. */
void pd_clock_pause(double paused);
void pd_checkpoint_last(void); /* of a run that ends now, unless there is one of this update */

/* ---- log.c ----------------------------------------------------------------------------------- */

bool pd_log_open(char *why); /* rank 0; existing contents stay until pd_log_start */
void pd_log_start(double peak);
/* mean: of each figure, over update t's batch or the validation's samples */
void pd_log_update(int64_t t, const double *mean, double norm, double lr, double seconds);
void pd_log_evaluation(const double *mean, int64_t samples, double seconds);
void pd_log_prediction(const struct pd_prediction *p, int64_t samples, const char *path);
void pd_log_validation(int64_t t, const double *mean, int64_t samples, double seconds);
double pd_model_loss(const double *mean); /* the losses' sum */
double pd_metric_value(int figure, const double *mean);
/* Of each rank: the most memory it held, in bytes, and pd_device_counts'. */
struct pd_rank_end {
  int64_t peak_bytes, counts[PD_DEVICE_COUNTS];
};
void pd_log_finish(const struct pd_rank_end *of_rank, double seconds);
/* "pd: note: ..." and, with --quiet too, "pd: warning: ...", on rank 0's stderr */
void pd_note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void pd_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- tensorboard.c: event files of --tensorboard, by rank 0 ------------------------------------- */

/* A file of its own; what files from before hold from this step on, TensorBoard drops. */
void pd_tensorboard_start(int64_t first_step);
/* One figure of the next event, named prefix and name; and the event. */
void pd_tensorboard_scalar(const char *prefix, const char *name, double x);
void pd_tensorboard_write(int64_t step);
void pd_tensorboard_finish(void);

/* ---- init.c ---------------------------------------------------------------------------------- */

void pd_initialise(const struct pd_parameter *p, uint64_t seed, float *to);

/* ---- agree.c --------------------------------------------------------------------------------- */

/* Collective: ends the launch where a rank has mapped other files than rank 0, from number `first` on, by sizes and
 * samples of their contents, or counts other samples. */
void pd_agree_on_files(int first);
void pd_agree_on_folder(void); /* where --checkpoint's is not the same for all ranks */

/* ---- files.c, weights.c, load_weights.c, checkpoint.c, commit.c, resume.c ------------------------- */

struct pd_safetensors;
struct pd_entry;
/* A regular file's bytes, mapped: who writes to it meanwhile changes them, so that no offset read from there may be
 * read again after it was checked. NULL after filling `why`. */
const char *pd_map_file(const char *path, size_t *size, char *why);
void pd_unmap_file(const void *at, size_t size);
/* A copy of them, malloc'd, for parsers that look twice. */
char *pd_read_file(const char *path, size_t *size, char *why);
const char *pd_mapped_path(const void *address); /* the mapped file that it lies in, or NULL */
/* The files that are mapped now, in the order in which they were. */
struct pd_mapped {
  const char *path, *at;
  size_t size;
};
int pd_mapped_files(void);
struct pd_mapped pd_mapped_file(int i);
bool pd_safetensors_open(const char *path, struct pd_safetensors *s, char *why); /* maps and parses */
void pd_safetensors_close(struct pd_safetensors *s);

bool pd_copy_file(const char *from, const char *to, char *why);
bool pd_writable(const char *path, char *why);         /* whether pd_output could write it */
bool pd_make_directories(const char *path, char *why); /* it and those above it, where they are missing */
bool pd_exists(const char *path);
int64_t pd_disk_room(const char *path); /* bytes for files there; -1: not known */

char *pd_weights_at(const struct pd_parameter *p, int64_t t); /* W(t) as passes read it */
/* Writes the zeros behind parameters (pd_parameter.padding) in all versions, at the start. */
void pd_clear_padding(void);
/* W(t) in f32, where it is the newest: room for it, to be filled and put in its place, the working copy with it;
 * and to be read, before the next call. */
float *pd_fill_newest(const struct pd_parameter *p, int64_t t);
void pd_newest_filled(const struct pd_parameter *p, int64_t t, const float *w);
/* (of masters that replicas share: all together, on the first). */
const float *pd_view_newest(const struct pd_parameter *p, int64_t t);
/* Where p's average stands; NULL: it has none, as nothing does without `ema`, nor what is frozen. */
float *pd_average_at(const struct pd_parameter *p);
/* For passes that read working copies of masters: makes the newest those of the averages, and of the masters
 * again. */
void pd_read_averages(int64_t t, bool averages);
void pd_start_fresh(const struct pd_parameter *p); /* its W(0) by seed and name */
void pd_load_weights(void);                        /* collective: W(0) of every rank, from --init */
const char *pd_init_path(int i);                   /* of the files from which it read; NULL behind the last */
/* Collective: the weights of all stages, by rank 0: averaged ones, where there are any and `raw` does not say
 * otherwise. */
void pd_save_weights(const char *path, bool raw);
/* Collective. On rank 0: the whole model's parameters by order of declaration, as in a file that holds them, and
 * the rank that writes each (writer may be NULL). A parameter that nothing uses stands on no rank: its entry has
 * no name. */
struct pd_entry *pd_gather_entries(int *writer);
void pd_free_entries(struct pd_entry *entries);
void pd_file_shape(const struct pd_parameter *p, int64_t *dim); /* a parameter's shape in a file */

/* Collective: continues from the newest sound checkpoint in --checkpoint's directory: weights of all versions,
 * moments, pd.first_step, pd_sample_base. False: there is none. */
bool pd_resume(void);
bool pd_checkpoint_check(char *why);    /* rank 0: the directory can be written */
void pd_checkpoint_write(int64_t step); /* this rank's part of the state after `step` updates */
/* By rank, the bytes that --checkpoint-background takes to copy the state; NULL: nothing is copied. */
extern const int64_t *pd_checkpoint_copies;
void pd_checkpoint_start(char *why); /* collective, before the run: room for them, on the disk and to copy */
void pd_keep_validated(int64_t step, double loss);
void pd_checkpoint_progress(void); /* what is left of those written: each rank now and then */
void pd_checkpoint_finish(void);   /* and at the end, until nothing is left */
extern int64_t pd_sample_base;     /* first sample of this run less that of its first batch */

#ifdef __cplusplus
}
#endif

#endif
