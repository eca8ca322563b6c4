/* What a stage program uses. A stage program is one rank of an MPI job: it describes itself in a
 * `struct pd_stage`, calls pd_start, runs its three loops, calls pd_finish.
 * Every failure caused by the user ends the whole launch: one message "pd: rank R (stage S): cause",
 * exit status 1. Units: bytes, seconds, elements where named so. */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimizers/lr_schedules.h"
#include "optimizers/list.h"
#include "pd_operand.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PD_MAX_RANK = 6, PD_MAX_CHUNKS = 64 };

/* The address of a constant array at file scope. */
/* clang-format off */
#ifdef __cplusplus
#define PD_LIST(type, ...) [] { static const type list[] = {__VA_ARGS__}; return &list[0]; }()
#else
#define PD_LIST(type, ...) (const type[]){__VA_ARGS__}
#endif
/* clang-format on */

/* ---- what the compiler says of a stage ------------------------------------------------------ */

enum pd_init { PD_ZEROS, PD_ONES, PD_CONSTANT, PD_UNIFORM, PD_NORMAL };

/* One use of a parameter that passes it a gradient, elsewhere or here, in the parameter's order of uses. */
struct pd_use {
  int stage;     /* where its accumulator is computed */
  size_t offset; /* here: into an accumulator set; elsewhere: into the arena, where update t receives it in
                        exchange set t % exchange_sets, `exchanged_stride` apart; this is set 0's */
};

struct pd_parameter {
  const char *name;
  int order; /* among all the model's parameters, by declaration */
  int64_t dim[PD_MAX_RANK];
  int rank;
  enum pd_init init;
  double init_value; /* of PD_CONSTANT; PD_UNIFORM's bound, PD_NORMAL's deviation */
  bool has_zero_row; /* of a table: that row of the whole parameter is zeros at the start, whatever `init` says */
  int64_t zero_row;
  int64_t runs; /* the whole parameter is so many runs of elements, and each rank of the shard group has, in their
                        order, its part of each; 0: it has all. dim and elements are those of the rank's part */
  int split_axis;  /* of the parts */
  int64_t surplus; /* rows that all ranks' parts have more than the whole one, which are zeros */
  bool decays;
  bool hidden;        /* of an optimizer with two methods: a hidden matrix, which has the first */
  int group;          /* of the stage's, from 1; 0: the stage's own settings */
  bool stored_in_out; /* files hold the transposed matrix */
  bool buffer;        /* a running average: what is summed where a gradient would be are pd_share's shares */
  float momentum;     /* of a buffer */
  int64_t elements;
  int64_t padding; /* zeros behind them wherever it stands, which no update writes and no file holds */
  size_t offset;   /* bytes into a weights struct, and, where the stage has no masters, a moments struct; of a
                    frozen one into the struct of those */
  size_t state;    /* bytes into the masters and each moments struct, where the stage has masters */
  bool bf16;       /* its working copies are bfloat16; the stage has masters then, unless it is frozen */
  bool frozen;     /* never updated: all versions have one copy, without a master and moments */
  int owner;       /* the first stage that holds it: contributes its square to the norm */
  int n_uses, n_readers;
  const struct pd_use *uses;
  const int *readers; /* stages that hold it, too, but pass it no gradient */
};

/* Where an input's samples come from: from a file, an image normalised; or they are computed from the same
 * sample of another input, whose tokens are x[n] (derive.c). In brackets what `numbers` holds. */
enum pd_origin {
  PD_FILE,     /* as they stand */
  PD_IMAGE,    /* (pixel - mean) / deviation [each channel's mean, then each one's deviation] */
  PD_LENGTHS,  /* how many tokens stand before the pads at the end [pad] */
  PD_PRESENT,  /* 1 where they stand, else 0 [pad] */
  PD_COUNTED,  /* where x is not this token: batch * n / N, N such positions in the batch; else 0 [token] */
  PD_SHIFTED,  /* x moved on by one [the first token] */
  PD_SEGMENTS, /* 1 behind the first separator, 0 before, on it, and at pads [separator, pad] */
  PD_MASKED,   /* x with some positions changed [mask, share of chosen positions, tokens never chosen ...] */
  PD_CHOSEN,   /* from a PD_MASKED input: like PD_COUNTED, at the positions chosen there */
  PD_ABSENT    /* in no file, for nothing that is asked for needs it (predict.c) */
};

struct pd_input {
  const char *name;
  bool target;
  bool predicts; /* an output depends on it */
  bool token;    /* int32 in [0, classes); else float */
  int64_t classes;
  int64_t dim[PD_MAX_RANK]; /* of one sample */
  int rank;
  int64_t elements;
  bool bf16; /* floats are loaded as bfloat16 */
  enum pd_origin origin;
  int from; /* index of the input that it is computed from */
  int n_numbers;
  const double *numbers;
};

struct pd_figure {           /* a loss or a metric: the mean over a batch is logged */
  int64_t elements;          /* of one sample */
  const char *metric;        /* its name in the log; NULL: a loss */
  double (*of_mean)(double); /* of a metric: what of the mean is logged; NULL: the mean */
};

struct pd_prediction { /* an output, which --predict writes: a row of these dimensions for each sample */
  const char *name;
  int64_t dim[PD_MAX_RANK];
  int rank;
  int64_t elements; /* of one sample */
};

struct pd_tensor { /* a named buffer of a slot, for naming the first that is not finite, or differs (--audit) */
  const char *name;
  size_t offset; /* bytes into the arena of slot 0 */
  size_t stride; /* between slots */
  int slots;
  int64_t elements;
  bool bf16;
  int chunk;      /* whose passes use it */
  bool rewritten; /* by the backward pass, with something else */
};

enum { PD_EVERY_CHUNK = -1 };
struct pd_part { /* of the arena, as far as a pass of a microbatch writes it; the rest a pass only reads */
  const char *name;
  size_t offset;   /* bytes into the arena of slot 0 */
  size_t bytes;    /* of a slot; slots have no gaps between them */
  int slots;       /* microbatch k has slot k % slots ... */
  bool by_batch;   /* ... or batch t slot t % slots, for all chunks */
  int chunk;       /* whose passes write it, or: */
  unsigned passes; /* which write it: 1 << PD_FORWARD and others */
};

struct pd_channel_value {
  size_t offset; /* bytes into the arena of slot 0 */
  size_t bytes;
};

struct pd_channel { /* the values that cross one cut in one direction, sent as one message each */
  const struct pd_channel_value *values;
  int n_values; /* 0: there is no such cut */
  int slots;
  size_t stride; /* between slots */
  bool kept;     /* sent: what is sent is read here later, too */
};

struct pd_optimizer; /* an update rule (internal.h) */
#define PD_DECLARE_OPTIMIZER(rule, optimizer, moments) extern const struct pd_optimizer pd_##rule;
PD_ELEMENT_RULES(PD_DECLARE_OPTIMIZER)
PD_TENSOR_RULES(PD_DECLARE_OPTIMIZER)

/* A moment of a parameter: bytes into the arena, shape; without elements there is none. Of a buffer: nothing. */
struct pd_moment {
  size_t offset;
  int64_t dim[PD_MAX_RANK];
  int rank;
};

/* Of a model that spills (docs/guide/offload.md): a part is one of the rank's chunks. */
struct pd_spilled_parameter {
  uint64_t parts;      /* that read it, part p as bit p */
  bool gradients_stay; /* in memory: other stages are sent them */
  const int *uses;     /* by use: the part that computes its gradient; -1: another stage's */
};

struct pd_cut { /* between a part and the one before it; bytes of a slot, of which a batch has one a microbatch */
  bool keeps;   /* the part does not recompute: it saves */
  size_t activations, activations_bytes, returned,
      returned_bytes; /* returned: gradients; bytes 0: there are none */
  size_t saved, saved_bytes;
};

struct pd_spilled {
  int parts;
  const struct pd_cut *cuts;                     /* by part; before part 0 nothing is */
  const struct pd_spilled_parameter *parameters; /* by parameter */
  size_t workspace, workspace_bytes;             /* in the arena: nothing in it outlives a step */
  size_t page;                                   /* bytes of memory that come and go at once */
  size_t room;                                   /* of blocks that may be in memory at once */
  size_t resident;                               /* of the arena in memory, with those */
  int kept;                                      /* percent of it for those that stay until their next use */
  bool at_home;                                  /* the device's host updates parameters, in pinned memory */
  const char *place;                             /* the directory, where --spill names none; NULL: it must */
};

struct pd_bucket_range { /* of an accumulator set: gradients that replicas exchange together */
  int bucket;
  size_t offset, bytes; /* multiples of 64 */
};

enum { PD_MAX_GROUPS = 24 };
struct pd_group { /* of parameters that the optimizer has arguments of their own for */
  const char *pattern;
  double lr;             /* follows the schedule of the stage's in proportion */
  const void *arguments; /* like the stage's */
};

struct pd_stage {
  const char *model, *schedule, *plan_hash;
  int stage, n_stages;
  const int *replicas; /* by stage; stage i's ranks follow those of stage i - 1 */
  int tensor;          /* ranks that share each layer of each replica (tensor.c); 0: one has all */
  int collectives;     /* of these ranks, a microbatch */
  int64_t batch, microbatch, microbatches; /* samples an update, samples, microbatches an update of all replicas */
  int64_t model_parameters;                /* elements over the whole model, without buffers */
  int n_model_parameters;                  /* tensors, buffers among them */
  double flops_per_sample;                 /* the model's operations, forward and backward (mfu) */
  int64_t tokens_per_sample;               /* 0: no token input */
  int threads;
  const int64_t *planned_peak_bytes; /* by rank */
  size_t arena_bytes;
  size_t scratch_bytes; /* for any one kernel; 0: none needs any */
  /* arena bytes: */
  size_t weights, weights_stride;
  int versions;
  size_t frozen; /* the struct of the parameters that are not trained */
  size_t accumulators, accumulators_stride;
  int accumulator_sets;
  size_t exchanged, exchanged_stride;
  int exchange_sets; /* what pd_use.offset elsewhere points into */
  size_t reduced;    /* with replicas: in exchange set 0, (replicas - 1) shards of an accumulator set, each of
                          accumulators_stride / replicas bytes, rounded up to a multiple of 64; with `shards` the
                          gradients of as large a part as any replica has */
  int buckets;       /* that an exchange is in, each as soon as it is complete; 0: it is whole */
  const struct pd_bucket_range *bucket_ranges; /* by bucket, then by place: all of an accumulator set */
  int n_bucket_ranges;
  size_t moments, moments_stride;
  int n_moments;
  const struct pd_moment *own_moments; /* where some have shapes of their own: all, by parameter and number */
  size_t scratch;                      /* of a rule over whole tensors, as much as its row asked for; 0: none */
  size_t meeting, meeting_bytes;       /* of a collective between its begin and its end; 0: none is in two */
  bool tf32;                           /* on GPUs: products round operands in f32 to 10 bits */
  bool has_masters;
  size_t masters; /* the newest weights in f32, laid out like moments: weights are copies */
  /* Where replicas share moments, masters and averages, and one has no own shape: a struct of all is in cells, replica r
   * has bytes shards[r] to shards[r + 1] of the first, and of each likewise, `replicas` + 1 numbers further; one of its
   * parts behind the other. The stage's places are of so much. NULL: they do not */
  int shard_cells; /* 0: one */
  const size_t *shards;
  size_t averages; /* of the newest weights over the updates, laid out like moments, too */
  double ema;      /* what an update leaves of them; 0: there are none */
  bool per_batch;
  int64_t lag; /* the schedule drains at every batch; else an update follows by so many turns */
  const struct pd_parameter *parameters;
  int n_parameters; /* held here */
  const struct pd_input *inputs;
  int n_inputs; /* all of the model's, used here or not */
  const struct pd_tensor *tensors;
  int n_tensors; /* saved and received values, in forward order */
  const struct pd_part *parts;
  int n_parts;
  int chunks; /* parts of the model held here: 1, unless interleaved */
  struct pd_channel activations_in[PD_MAX_CHUNKS],
      activations_out[PD_MAX_CHUNKS]; /* by chunk; empty at the ends */
  struct pd_channel gradients_in[PD_MAX_CHUNKS], gradients_out[PD_MAX_CHUNKS];
  const struct pd_spilled *spilled; /* NULL: everything is in memory */
  const struct pd_figure *figures;
  int n_figures, n_losses;                /* all of the model's: losses, then metrics */
  const struct pd_generation *generation; /* NULL: it generates nothing */
  const struct pd_prediction *predictions;
  int n_predictions; /* all of the model's */
  const struct pd_optimizer *optimizer;
  double lr, clip_norm;
  const void *arguments; /* the optimizer's: a struct pd_<optimizer>_arguments */
  double ahead, damping; /* corrections of the gradients' delay (optimizers/pd_rate.h); 0: none */
  const struct pd_group *groups;
  int n_groups;
  pd_lr_schedule *lr_schedule;
  const void *lr_arguments; /* a struct pd_lr_<schedule>_arguments */
  int64_t lr_total;         /* updates after which the schedule ends; 0: never */
  /* What is trained whatever the plan, for checkpoints, which are not to be resumed as something else: what the model
   * computes, a digest for each of its parts, and the settings; names and values by turns. NULL: it is not known. */
  const char *const *function;
  int n_function; /* pairs */
  const char *const *settings;
  int n_settings;
  /* The layer whose statistics of a microbatch evaluation computes, too: samples that fill one up would count. NULL: there is
   * none; "": the model itself. */
  const char *statistics;
  /* What the model computes, by fields of Hugging Face's config.json (config.c); names and values by turns. */
  const char *const *traits;
  int n_traits; /* pairs */
  /* planned, for --emulate: of a microbatch, by chunk; weights: backward's part that PD_WEIGHTS does (0: none) */
  double forward_seconds[PD_MAX_CHUNKS], backward_seconds[PD_MAX_CHUNKS], weights_seconds[PD_MAX_CHUNKS];
  double update_seconds; /* of an update */
  bool inference;        /* the program only runs the model: what trains it is not there */
};

/* ---- the run (run.c, options.c) -------------------------------------------------------------- */

/* Read-only for stage programs once pd_start has returned. */
extern struct pd_run {
  const struct pd_stage *stage;
  int rank,
      ranks; /* numbered stage by stage; of this rank's pipeline, where ranks of a shard group stand side by side */
  int self,
      everyone; /* the same of all pipelines' ranks, those of a shard group one after the other: who it is for people */
  int place;       /* the launch's number for this rank: those of a machine mostly follow each other */
  int replica;     /* among its stage's ranks */
  int tensor_rank; /* among the ranks that share its layers (messages/tensor.c) */
  int64_t steps;   /* updates at the end of the run; microbatches are steps * stage->microbatches. A signal to stop
                         makes them fewer (signals.c) */
  int64_t first_step; /* updates done before the run (--resume): microbatches start behind theirs */
  uint64_t seed;
  bool emulate;  /* sleep for planned times instead of computing */
  bool evaluate; /* the run is one evaluation: there is no batch to train on */
  bool training; /* false while validating: dropout keeps everything */
  char *arena;   /* the stage's arena_bytes, page aligned and zero; on a GPU see device.h */
} pd;

/* On processors: so many bytes of zeros for a program to work in, in huge pages where the kernel has them and it is
 * worth while, for all of it is used, and matmuls walk over it. NULL with errno: there is not so much. */
char *pd_map_arena(size_t bytes);

/* Options, MPI, the check that all ranks hold the same plan, data, arena, initial weights into version
 * buffer 0, the log's first line. */
void pd_start(const struct pd_stage *stage, int argc, char **argv);
/* Last log line, --save, MPI_Finalize; returns the exit status for main. */
int pd_finish(void);
PD_NORETURN void pd_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Progresses all pending messages and watches --timeout; cheap; called between layers. */
void pd_progress(void);
void pd_emulate(double seconds); /* sleeps, progressing messages */

/* ---- work (trace.c) ---------------------------------------------------------------------------- */

enum pd_work { /* what --trace shows; the first five are the stage program's */
               PD_FORWARD,
               PD_RECOMPUTE,
               PD_BACKWARD,
               PD_WEIGHTS,
               PD_UPDATE,
               PD_SEND_ACTIVATIONS,
               PD_SEND_GRADIENTS,
               PD_RECEIVE_ACTIVATIONS,
               PD_RECEIVE_GRADIENTS,
               PD_REDUCE,
               PD_EXCHANGE,
               PD_GATHER,
               PD_WAIT,
               PD_VALIDATE,
               PD_CHECKPOINT,
               PD_AUDIT,
               PD_BLOCKS,
               PD_MEET,
               PD_MEET_BACKWARD
};
/* while (pd_begin(work, k)) { the work; pd_end(); } is work on microbatch (PD_UPDATE: update) k: once; twice where
 * --audit compares what it writes; not at all under --emulate, when pd_begin sleeps for the planned time. With chunks
 * k counts turns, but for PD_UPDATE. */
bool pd_begin(enum pd_work work, int64_t k);
void pd_end(void);

/* ---- messages between stages (comm.c) --------------------------------------------------------- */
/* Ranks count from 1 what they do themselves. A rank's k-th microbatch of the run is the pipeline's number
 * (k - 1) * replicas + replica + 1, and comes from and goes to replica (that number - 1) % replicas of the
 * neighbouring stage; here, in data and in figures, k is the rank's own count. Slots: k % slots. With chunks,
 * messages count turns (compiler/schedule/program.h): turn k's chunk and microbatch follow from it, forward in
 * the first two functions and the fifth, backward in the others. The next receives are posted as soon as k
 * has arrived, so a transfer runs during the compute. Sending posts and returns; before a microbatch writes
 * into its slot again, pd_await_..._slot waits until the slot's last message is out. */
void pd_receive_activations(int64_t k);
void pd_send_activations(int64_t k);
void pd_receive_gradients(int64_t k);
void pd_send_gradients(int64_t k);
/* Waits until the slots that microbatch k will write for sending are free. */
void pd_await_activations_slot(int64_t k);
void pd_await_gradients_slot(int64_t k);
/* From then on: the slot of a chunk's microbatch k that is for sending, in the arena or, laid out alike, where its reader
 * on this machine has it. What is sent in a validation, or made again by a recomputation, stands in the arena. */
void *pd_activations_slot(int chunk, int64_t k);
void *pd_gradients_slot(int chunk, int64_t k);

/* ---- parts that come and go (spill.c) ------------------------------------------------------------ */
/* Before a turn's work (PD_FORWARD, PD_BACKWARD with the forward pass before it, or PD_VALIDATE, whose turn is the part, from 1)
 * waits until all of it is in memory, and begins to read what the next turn works with; after it begins to write what
 * changed and is not needed next, and, behind a part's last backward turn of a batch, adds up the gradients that are
 * complete and their squares. A file that cannot be written, or is not what was written, ends the launch. */
void pd_promote(enum pd_work work, int64_t turn);
void pd_demote(enum pd_work work, int64_t turn);

/* ---- data (load.c) --------------------------------------------------------------------------- */
/* Copies microbatch k's input number `input` (index into stage->inputs) to `to`: [microbatch][dim...]. */
void pd_load(int input, int64_t k, void *to);
/* First sample's global index of microbatch k: dropout counts from it. */
int64_t pd_first_sample(int64_t k);

/* ---- figures, gradients, updates (train.c, exchange.c, optimizer.c) ----------------------------- */
/* Adds up the elements of a figure (index into stage->figures) for microbatch k, in double, in order; when one
 * of a loss is not finite, names step, rank and the first tensor that is not, and ends the launch. On a GPU the
 * elements are copied in the order of the work and added up later. */
void pd_figure(int figure, int64_t k, const float *elements, int64_t n);
/* In a backward pass: nothing behind here adds to the gradients of this bucket, nor of those before it. If the microbatch
 * is its batch's last, starts their reduction among replicas. */
void pd_bucket_complete(int bucket);
/* Batch t's accumulators are complete: starts their reduction among replicas (replica 0's first, then the
 * others added in order), then of tied parameters to their other holders, then squares and figures of all. */
void pd_exchange(int64_t t);
/* Waits for what update t needs; returns the factor of its gradients: 1 / N_t, clipped by the global
 * norm when clip_norm is set. */
float pd_gradient_scale(int64_t t);
/* W(t+1) = optimizer(W(t), scale * gradient of batch t); from and to may be the same struct (one
 * version) or two. gradient: batch t's accumulator set. Tied uses are summed from last to first. */
void pd_update(int64_t t, float scale, const void *from, void *to, void *gradient);
/* Where replicas share the optimizer's state, and pd_update made a part of W(t) alone: sends it to the others and posts the
 * receives of theirs (update/optimizer_shards.c). */
void pd_share_weights(int64_t t);
/* Waits until W(t) is whole; t: it, or a version before it. */
void pd_await_weights(int64_t t);
/* How many of its batch's microbatches follow the one that starts with this sample, over all replicas: what
 * pd_share's weights depend on (pd_math.h). */
int64_t pd_following(int64_t first_sample);
/* Whether there is a microbatch k (with chunks: turn) for this rank to go forward with; k counts from 1. Waits while
 * the ranks agree on where to stop. */
bool pd_goes_on(int64_t k);
/* After update t: writes the log's line of every update whose figures have arrived, and progress; true
 * when a validation is due with the new weights. */
bool pd_updated(int64_t t);

/* ---- generation (generate.c) --------------------------------------------------------------------- */
/* for (k = 1; pd_generation_next(k); k++) { receive, load, forward, logits, send }: each step feeds the next
 * token of every sample or, without caches, all of their positions; where its logits are for a token that is not
 * known yet, one is drawn, and the next step waits for it. */
struct pd_generation {
  int64_t context, classes; /* positions; tokens that may be drawn, the first of... */
  int64_t logits;           /* ... so many a row */
  int tokens, position;     /* inputs; position -1: no caches */
  int stage;                /* where logits are computed */
};
bool pd_generation_next(int64_t k);
void pd_generation_load(int input, int64_t k, void *to);
/* n logits: of one row a sample, or of one for each position. */
void pd_generation_logits(int figure, int64_t k, const float *logits, int64_t n);

/* ---- evaluation (evaluate.c) ------------------------------------------------------------------- */
/* Losses and metrics over all of the samples to evaluate, each once and in their order. Validation while training:
 * for (v = 1; pd_evaluation_next(v); v++) { pd_evaluation_receive(v, slot); load, forward,
 * pd_evaluation_send(v, slot); }. Like k, v counts what this rank does itself; in receive and send it counts
 * turns: chunk c of microbatch v is turn (v - 1) * chunks + c + 1, one microbatch after the other. Samples of a
 * last, incomplete microbatch are padded by its first sample and not counted. slot: a slot of the chunk's
 * channel that no microbatch in flight and no receive posted ahead uses at that point; a sent one is free again
 * when pd_evaluation_send returns. Programs for inference, where nothing else is in flight, receive and send as a
 * training does: pd_receive_activations(v), pd_send_activations(v). */
bool pd_evaluation_next(int64_t v);
void pd_evaluation_load(int input, int64_t v, void *to);
void pd_evaluation_receive(int64_t v, int64_t slot);
void pd_evaluation_send(int64_t v, int64_t slot);
void pd_evaluation_figure(int figure, int64_t v, const float *elements, int64_t n);
/* Output number `prediction` of microbatch v, where the stage's passes leave it: its rows go to --predict's file,
 * if there is one. */
void pd_predict(int prediction, int64_t v, const float *rows);

#ifdef __cplusplus
} /* extern "C": what follows takes operands of several types */
#endif

/* ---- library calls (kernels/matmul.c) ------------------------------------------------------------ */
/* c[m, n] = a @ b (+ bias[n]), sums in f32, oneDNN, user scratchpad. Strides in elements; `batch` many, 1 when 2-D.
 * Accumulating ones add to c. Made once at the start, for operands of these types, executed many times. few_rows:
 * kernels/few_rows.c does it, which for up to PD_FEW_ROWS rows costs one reading of b: batch and a_column are 1, and
 * b_row or b_column is; nothing is accumulated. GPUs take no notice of few_rows and types, but of the operands'. */
enum { PD_FEW_ROWS = 8 };
/* The most that oneDNN may use, before any other call of its; and the room that kernels may ask for (0: any), beyond which
 * they end the program. (kernels/limit.c) */
enum pd_instructions { PD_SSE41, PD_AVX, PD_AVX2, PD_AVX512, PD_AVX512_BF16, PD_ALL_INSTRUCTIONS };
void pd_limit_library(enum pd_instructions most);
const char *pd_library_name(void); /* "oneDNN 3.7.2" */
extern size_t pd_scratch_planned;
void pd_check_scratch(size_t bytes);
/* What becomes of a product's result, on GPUs alone: GELU, by its approximation with tanh, or the gradient of that.
 * Then batch is 1, nothing is accumulated, and c and `before` are of bf16 with the same strides. Or what is made beside it:
 * the sums over k of a, m of them, or of b, n. Then batch is 1, there is no bias, and sums are f32 side by side. */
enum pd_epilogue { PD_PLAIN, PD_GELU, PD_GELU_GRADIENT, PD_SUMS_OF_A, PD_SUMS_OF_B };
struct pd_matmul_shape {
  int64_t batch, m, n, k;
  int64_t a_batch, a_row, a_column, b_batch, b_row, b_column, c_batch, c_row; /* c's column stride is 1 */
  enum pd_type a_type, b_type, bias_type, c_type;
  enum pd_epilogue epilogue;
  bool bias, accumulate, few_rows;
};
/* In a shape's initializer: all types are f32, and the result stays what it is. */
#define PD_MATMUL_F32 \
  .a_type = PD_F32, .b_type = PD_F32, .bias_type = PD_F32, .c_type = PD_F32, .epilogue = PD_PLAIN
struct pd_matmul;
struct pd_matmul *pd_matmul_new(struct pd_matmul_shape shape);
size_t pd_matmul_scratch(const struct pd_matmul *m); /* bytes, from a multiple of 64 on */
void pd_matmul(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, void *scratch);
/* PD_GELU: c = gelu(before), before = a @ b + bias. PD_GELU_GRADIENT: c = (a @ b) gelu'(before). */
void pd_matmul_gelu(const struct pd_matmul *m, pd_in a, pd_in b, pd_in bias, pd_out c, pd_out before,
                    void *scratch);
void pd_matmul_gelu_gradient(const struct pd_matmul *m, pd_in a, pd_in b, pd_in before, pd_out c, void *scratch);
/* PD_SUMS_OF_A, PD_SUMS_OF_B: c = a @ b, and sums; accumulating ones add to both. */
void pd_matmul_sums(const struct pd_matmul *m, pd_in a, pd_in b, pd_out c, float *sums, void *scratch);

/* ---- rates (kernels/rates.c) ------------------------------------------------------------------- */
/* On processors, with as many threads as loops get: operations a second of products of 1024 x 1024 matrices of this
 * type, and bytes a second at which memory is read. The best of several rounds; about half a second each. */
double pd_product_rate(enum pd_type type);
double pd_memory_rate(void);

/* ---- convolution (kernels/convolution.c) ----------------------------------------------------------- */
/* Images are [batch][height][width][channels], dense, f32; weights [out][in / groups][kernel 0][kernel 1], as
 * files hold them; output channel o sees the input channels of group o / (out / groups). A result has (size + 2
 * padding - dilation (kernel - 1) - 1) / stride + 1 pixels along an axis; pairs are of height and width. What it
 * is for is chosen when it is made: `bias` goes with PD_CONVOLUTION, `accumulate` (adds to dw) with
 * PD_CONVOLUTION_WEIGHTS. Bits do not depend on the number of threads. */
enum pd_convolution_kind { PD_CONVOLUTION, PD_CONVOLUTION_BACKWARD, PD_CONVOLUTION_WEIGHTS };
struct pd_convolution_shape {
  enum pd_convolution_kind kind;
  int64_t batch, in_channels, out_channels, groups, height, width; /* of x */
  enum pd_type x_type, w_type, bias_type,
      y_type; /* of x or dx, of w or dw, of y or dy; GPUs take no notice of them */
  bool bias, accumulate;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
};
struct pd_convolution;
struct pd_convolution *pd_convolution_new(struct pd_convolution_shape shape);
size_t pd_convolution_scratch(const struct pd_convolution *c); /* bytes */
void pd_convolution(const struct pd_convolution *c, pd_in x, pd_in w, pd_in bias, pd_out y, void *scratch);
void pd_convolution_backward(const struct pd_convolution *c, pd_in dy, pd_in w, pd_out dx, void *scratch);
void pd_convolution_weights(const struct pd_convolution *c, pd_in x, pd_in dy, pd_out dw, void *scratch);

/* ---- pooling (kernels/pooling.c) ------------------------------------------------------------------- */
/* Of images as above. Every window holds a pixel of x; out is what the caller rounds (size + 2 padding - kernel) /
 * stride + 1 to. count_padding: an average counts the padding's zeros. adaptive: window i along an axis goes from
 * floor(i size / out) to before ceil((i + 1) size / out), and neither kernel, stride nor padding count. Of several
 * equal maxima the first has the gradient. x and y are read by the maximum's backward pass alone. */
struct pd_pooling {
  int64_t batch, channels, height, width; /* of x */
  bool maximum, count_padding, adaptive;
  int64_t out[2], kernel[2], stride[2], padding[2];
};
void pd_pooling(const struct pd_pooling *p, pd_in x, pd_out y);
void pd_pooling_backward(const struct pd_pooling *p, pd_in x, pd_in y, pd_in dy, pd_out dx);

/* ---- attention (kernels/attention.c) ---------------------------------------------------------------- */
/* Scaled dot-product attention over [batch][heads][length][size] with strides, size contiguous; kv_heads
 * divides heads (grouped heads). Blocked, online softmax: scores are never stored. */
struct pd_attention {
  int64_t batch, heads, kv_heads, length, kv_length, size;
  bool causal;
  float scale;
  bool masked;
  struct {
    int64_t batch, head, row;
  } q, k, v, o, dq, dk, dv, d_o; /* strides in elements */
  struct {
    int64_t batch, row;
  } mask; /* 0: the same for all samples, for all rows */
};
size_t pd_attention_scratch(const struct pd_attention *a, int threads);
/* lse: [batch][heads][length], log of the sum of exponentials, for the backward pass. */
void pd_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_out o, pd_out lse,
                          void *scratch);
void pd_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse, pd_in d_o,
                           pd_out dq, pd_out dk, pd_out dv, void *scratch);
/* The same with a mask (`masked` says so), kv_length floats contiguous in a row, added to the scaled scores of all
 * heads. An element of PD_ATTENTION_HIDDEN or less hides its key; a row that sees no key gives zeros and gradients
 * of zero. */
#define PD_ATTENTION_HIDDEN (-10000.0f)
void pd_masked_attention_forward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in mask, pd_out o,
                                 pd_out lse, void *scratch);
void pd_masked_attention_backward(const struct pd_attention *a, pd_in q, pd_in k, pd_in v, pd_in o, pd_in lse,
                                  pd_in d_o, pd_in mask, pd_out dq, pd_out dk, pd_out dv, void *scratch);

/* ---- attention from a cache (kernels/cached_attention.c) --------------------------------------------- */
/* The next position of every sample: k and v of [batch][kv_heads][size] become row position[sample] of the caches,
 * [batch][kv_heads][context][size] and dense, and q of [batch][heads][size] attends to the rows up to it. */
struct pd_cached_attention {
  int64_t batch, heads, kv_heads, context, size;
  float scale;
  struct {
    int64_t batch, head;
  } q, k, v, o; /* strides in elements; size contiguous */
};
void pd_cached_attention(const struct pd_cached_attention *a, pd_in q, pd_in k, pd_in v, const int32_t *position,
                         pd_out o, pd_out keys, pd_out values);

/* ---- LSTM (kernels/lstm.c) ------------------------------------------------------------------------- */
/* The recurrence of one layer in one direction; all arrays are dense. x: [batch][length][4 hidden], the input's
 * product and the biases, for the gates i, f, g, o; w: [4 hidden][hidden]; h0 and c0: [batch][hidden], the state
 * before, zeros where NULL; lengths: [batch], 0 to length, a sample's steps, or NULL: at later ones h is zero and
 * the state stays. */
struct pd_lstm {
  int64_t batch, length, hidden;
  bool reverse; /* from a sample's last step to its first */
};
size_t pd_lstm_scratch(const struct pd_lstm *l); /* bytes */
size_t pd_lstm_backward_scratch(const struct pd_lstm *l);
/* h: [batch][length][hidden]; h_n, c_n: [batch][hidden], the state after; for the backward pass c: as h, the
 * state's cells, and gates: as x, after their functions. */
void pd_lstm_forward(const struct pd_lstm *l, pd_in x, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths,
                     pd_out h, pd_out h_n, pd_out c_n, pd_out c, pd_out gates, void *scratch);
/* From the gradients dh, dh_n and dc_n (zeros where NULL): d_gates, that of x; dh0 and dc0, both or neither
 * NULL; previous: as h, the state h before each step, so that the gradient of w is d_gates^T @ previous. */
void pd_lstm_backward(const struct pd_lstm *l, pd_in w, pd_in h0, pd_in c0, const int32_t *lengths, pd_in h,
                      pd_in c, pd_in gates, pd_in dh, pd_in dh_n, pd_in dc_n, pd_out d_gates, pd_out previous,
                      pd_out dh0, pd_out dc0, void *scratch);

/* ---- what the ranks of a shard group do together (collectives.c) ---------------------------------------- */
/* Each rank calls the same ones in the same order. y[i] = x[i] of rank 0 + that of rank 1 + ...: the same bits on all.
 * scratch: the bytes of pd_all_reduce_scratch. */
#ifdef __cplusplus
extern "C" {
#endif
void pd_all_reduce(pd_in x, int64_t n, pd_out y, void *scratch);
/* The largest of the ranks' x[i]. */
void pd_all_reduce_max(pd_in x, int64_t n, pd_out y, void *scratch);
enum { PD_SHORT_SUM = 4096 }; /* elements of which everyone sends all to everyone; of more each adds up a part */
static inline int64_t pd_all_reduce_scratch(int64_t n,
                                            int ranks) { /* a part of x of each, in lines; all of a short one */
  int64_t part = n <= PD_SHORT_SUM ? n : (n + ranks - 1) / ranks;
  return (part + 15) / 16 * 16 * ranks * (int64_t)sizeof(float);
}
/* A whole value is `runs` runs of `part` elements of each rank: x are this rank's, y are all. scratch: of y's size. */
void pd_all_gather(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch);
/* The other way round, of summands: y is this rank's part of what pd_all_reduce would make of x, to the bit. scratch: the
 * bytes of pd_reduce_scatter_scratch. */
void pd_reduce_scatter(pd_in x, int64_t runs, int64_t part, pd_out y, void *scratch);
static inline int64_t pd_reduce_scatter_scratch(int64_t n,
                                                int ranks) { /* n: of y; parts that come and go, in lines */
  return 2 * ((n + 15) / 16 * 16) * ranks * (int64_t)sizeof(float);
}
/* Of a whole value this rank's part, which needs no message. */
void pd_take_part(pd_in x, int64_t runs, int64_t part, pd_out y);
/* The same in two calls: from the first on x stays as it is and y is nobody else's, y is there after the second one. None of
 * the group's other calls may stand between the two. */
void pd_all_reduce_begin(pd_in x, int64_t n, pd_out y);
void pd_all_reduce_max_begin(pd_in x, int64_t n, pd_out y);
void pd_all_gather_begin(pd_in x, int64_t runs, int64_t part, pd_out y);
void pd_reduce_scatter_begin(pd_in x, int64_t runs, int64_t part, pd_out y);
void pd_collective_end(pd_out y);
/* What a begin needs of the arena's `meeting` to show so many bytes: whole pages, wherever it starts. */
enum { PD_SHOWN_PAGE = 4096 };
static inline int64_t pd_shown_bytes(int64_t bytes) {
  return ((bytes + PD_SHOWN_PAGE - 1) / PD_SHOWN_PAGE + 1) * PD_SHOWN_PAGE;
}
#ifdef __cplusplus
}
#endif

/* ---- embedding rows (kernels/gather.c) ----------------------------------------------------------------- */
/* out[r] = table[index[r]]; rows of `width` floats, out rows `stride` apart. */
void pd_gather(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride);
/* accumulator[index[r]] += gradient[r], rows in order; first: zeroes all `classes` rows before. */
void pd_gather_gradient(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                        int64_t stride, int64_t classes, bool first);
/* Of a table of which a rank has so many rows, from `first_row` on: out[r] is zero where another rank has the row, and
 * the accumulator is of these rows alone. */
void pd_gather_part(pd_in table, const int32_t *index, int64_t rows, int64_t width, pd_out out, int64_t stride,
                    int64_t own, int64_t first_row);
void pd_gather_gradient_part(pd_out accumulator, const int32_t *index, pd_in gradient, int64_t rows, int64_t width,
                             int64_t stride, int64_t own, bool first, int64_t first_row);

#if !defined __cplusplus && !defined PD_KERNELS
#include "pd_calls.h"
#endif

#endif
