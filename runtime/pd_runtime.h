/* The interface of a stage program. A stage program is one rank of an MPI job: it describes itself in a `struct
 * pd_stage`, calls pd_start, runs its loops and calls pd_finish. A failure caused by the user ends the whole
 * launch with one message "pd: rank R (stage S): cause" and exit status 1. Units: bytes, seconds, elements, where
 * a name says so. */
#ifndef PD_RUNTIME_H
#define PD_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimizers/lr_schedules.h"
#include "optimizers/list.h"
#include "pd_kernels.h"

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

/* ---- a stage, as the compiler describes it ------------------------------------------------------ */

enum pd_init { PD_ZEROS, PD_ONES, PD_CONSTANT, PD_UNIFORM, PD_NORMAL };

/* One use of a parameter that has a gradient, on this stage or another, in the parameter's order of uses. */
struct pd_use {
  int stage; /* that computes the use's gradient */
  /* Use on this stage: bytes into an accumulator set. On another stage: bytes into the arena, of exchange set 0; update
   * t receives the gradient in exchange set t % exchange_sets, and sets are exchanged_stride apart. */
  size_t offset;
};

struct pd_parameter {
  const char *name;
  int order; /* index among all parameters of the model, in declaration order */
  int64_t dim[PD_MAX_RANK];
  int rank;
  enum pd_init init;
  double init_value; /* PD_CONSTANT: the value; PD_UNIFORM: the bound; PD_NORMAL: the standard deviation */
  bool has_zero_row; /* row `zero_row` of the whole parameter starts as zeros, regardless of `init` */
  int64_t zero_row;
  int64_t
      runs; /* tensor parallelism: number of contiguous runs of the whole parameter that are split over the shard
                  * group, rank by rank; 0: not split. dim and elements describe this rank's part */
  int split_axis;  /* axis that is split */
  int64_t surplus; /* rows of zeros that all parts together have beyond the whole parameter */
  bool decays;
  bool hidden;        /* optimizers with two methods: a hidden matrix, updated by the first method */
  int group;          /* optimizer group, from 1; 0: the stage's own settings */
  bool stored_in_out; /* files hold the matrix transposed */
  /* Not trained; its accumulator sums shares, not a gradient. With a momentum a running average, of shares of pd_share,
   * else a bias, which an update moves by `rate` towards the sign of the sum. */
  bool buffer;
  float momentum, rate;
  int64_t elements;
  int64_t padding; /* zeros after the elements in every copy; no update writes them, no file holds them */
  /* Bytes into a weights struct and, without masters, a moments struct; frozen: into the struct of frozen ones. */
  size_t offset;
  size_t state; /* with masters: bytes into the masters and each moments struct */
  bool bf16;    /* working copies are bfloat16; the stage then has masters, except of frozen parameters */
  bool frozen;  /* never updated: one copy for all versions, no master, no moments */
  int owner;    /* first stage that holds the parameter; adds the square to the norm */
  int n_uses, n_readers;
  const struct pd_use *uses;
  const int *readers; /* stages that hold the parameter but compute no gradient of it */
};

/* The source of an input's samples: a file, or the tokens x[n] of the same sample of another input (derive.c).
 * Brackets list the contents of `numbers`. */
enum pd_origin {
  PD_FILE,         /* as stored */
  PD_IMAGE,        /* (pixel - mean) / deviation [the channels' means, then their deviations] */
  PD_LENGTHS,      /* number of tokens before the trailing pads [pad] */
  PD_PRESENT,      /* 1 at tokens before the trailing pads, else 0 [pad] */
  PD_COUNTED,      /* batch * n / N where x is not the token, with N such positions in the batch; else 0 [token] */
  PD_SHIFTED,      /* x shifted right by one [the first token] */
  PD_SEGMENTS,     /* 1 after the first separator; 0 up to it and at pads [separator, pad] */
  PD_MASKED,       /* x with some positions changed [mask, share of chosen positions, tokens never chosen ...] */
  PD_CHOSEN,       /* PD_COUNTED over the positions that a PD_MASKED input chose */
  PD_NORMAL_NOISE, /* random numbers of no source: mean 0, deviation 1 */
  PD_UNIFORM_NOISE, /* in [0, 1) */
  PD_RANDOM_INT,    /* tokens, each with equal probability */
  PD_ABSENT         /* not read: no requested output needs the input (predict.c) */
};

struct pd_input {
  const char *name;
  bool target;
  bool predicts; /* an output depends on the input */
  bool token;    /* int32 in [0, classes); else float */
  int64_t classes;
  int64_t dim[PD_MAX_RANK]; /* of one sample */
  int rank;
  int64_t elements;
  bool bf16; /* floats are loaded as bfloat16 */
  enum pd_origin origin;
  int from; /* index of the source input */
  int n_numbers;
  const double *numbers;
};

struct pd_figure {           /* a loss or a metric: the mean over a batch is logged */
  int64_t elements;          /* of one sample */
  const char *metric;        /* name in the log; NULL: a loss */
  double (*of_mean)(double); /* metrics: function of the mean that is logged; NULL: the mean itself */
};

struct pd_prediction { /* an output that --predict writes, with one row of these dimensions per sample */
  const char *name;
  int64_t dim[PD_MAX_RANK];
  int rank;
  int64_t elements; /* of one sample */
};

struct pd_tensor { /* a named buffer, for reports of the first non-finite or, with --audit, differing tensor */
  const char *name;
  size_t offset; /* bytes into the arena of slot 0 */
  size_t stride; /* between slots */
  int slots;
  int64_t elements;
  bool bf16;
  int chunk;      /* chunk whose passes use the buffer */
  bool rewritten; /* the backward pass reuses the buffer for another value */
};

enum { PD_EVERY_CHUNK = -1 };
struct pd_part { /* a part of the arena that a pass of a microbatch writes */
  const char *name;
  size_t offset;   /* bytes into the arena of slot 0 */
  size_t bytes;    /* of one slot; slots are contiguous */
  int slots;       /* microbatch k uses slot k % slots ... */
  bool by_batch;   /* ... or batch t uses slot t % slots, for all chunks */
  int chunk;       /* chunk whose passes write the part, or PD_EVERY_CHUNK */
  unsigned passes; /* passes that write the part: 1 << PD_FORWARD and others */
};

struct pd_channel_value {
  size_t offset; /* bytes into the arena of slot 0 */
  size_t bytes;
};

struct pd_channel { /* the values that cross one cut in one direction, one message each */
  const struct pd_channel_value *values;
  int n_values; /* 0: no such cut */
  int slots;
  size_t stride; /* between slots */
  bool kept;     /* this stage reads sent values later */
};

struct pd_optimizer; /* an update rule (internal.h) */
#define PD_DECLARE_OPTIMIZER(rule, optimizer, moments) extern const struct pd_optimizer pd_##rule;
PD_ELEMENT_RULES(PD_DECLARE_OPTIMIZER)
PD_TENSOR_RULES(PD_DECLARE_OPTIMIZER)

/* A moment of a parameter: bytes into the arena, and shape. Zero elements: no moment. Buffers have no moments. */
struct pd_moment {
  size_t offset;
  int64_t dim[PD_MAX_RANK];
  int rank;
};

/* Offload (docs/guide/offload.md): a part is one of the rank's chunks. */
struct pd_spilled_parameter {
  uint64_t parts;      /* parts that read the parameter: bit p for part p */
  bool gradients_stay; /* resident, because other stages receive them */
  const int *uses;     /* by use: the part that computes the gradient; -1: on another stage */
};

struct
    pd_cut {  /* between a part and the previous part; sizes are of one slot, one slot per microbatch of a batch */
  bool keeps; /* the part saves activations and does not recompute */
  size_t activations, activations_bytes, returned, returned_bytes; /* returned: gradients; 0 bytes: none */
  size_t saved, saved_bytes;
};

struct pd_spilled {
  int parts;
  const struct pd_cut *cuts;                     /* by part; the cut of part 0 is empty */
  const struct pd_spilled_parameter *parameters; /* by parameter */
  size_t workspace, workspace_bytes;             /* in the arena; contents are valid for one step */
  size_t page;                                   /* bytes of memory moved at once */
  size_t room;                                   /* bytes of blocks that may be resident at once */
  size_t resident;                               /* bytes of the arena that are resident, with these blocks */
  int kept;          /* percent of the room for blocks that are pinned until their next use */
  bool at_home;      /* the host of the device updates parameters, in pinned memory */
  const char *place; /* default offload directory; NULL: --spill is required */
};

struct pd_bucket_range { /* of an accumulator set: gradients that replicas reduce together */
  int bucket;
  size_t offset, bytes; /* multiples of 64 */
};

enum { PD_MAX_GROUPS = 24 };
struct pd_group { /* parameters with their own optimizer arguments */
  const char *pattern;
  double lr;             /* scaled by the stage's learning rate schedule */
  const void *arguments; /* of the type of the stage's arguments */
};

struct pd_stage {
  const char *model, *schedule, *plan_hash;
  int stage, n_stages;
  const int *replicas; /* by stage; stage i's ranks follow those of stage i - 1 */
  int tensor;          /* tensor-parallel degree (tensor.c); 0: none */
  int collectives;     /* of the shard group, per microbatch */
  int64_t batch, microbatch,
      microbatches;          /* samples per update; samples; microbatches per update over all replicas */
  int64_t model_parameters;  /* elements of the whole model, without buffers */
  int n_model_parameters;    /* number of tensors, including buffers */
  double flops_per_sample;   /* operations of the model, forward and backward, for mfu */
  int64_t tokens_per_sample; /* 0: no token input */
  int threads;
  const int64_t *planned_peak_bytes; /* by rank */
  size_t arena_bytes;
  size_t scratch_bytes; /* largest of any kernel */
  /* arena bytes: */
  size_t weights, weights_stride;
  int versions;
  size_t frozen; /* struct of frozen parameters */
  size_t accumulators, accumulators_stride;
  int accumulator_sets;
  size_t exchanged, exchanged_stride;
  int exchange_sets; /* receive gradients of uses on other stages */
  /* With replicas: in exchange set 0, (replicas - 1) shards of an accumulator set, each of accumulators_stride / replicas
   * bytes, rounded up to a multiple of 64; with `shards`, as large as the largest replica's part. */
  size_t reduced;
  int buckets; /* buckets of an exchange, each reduced once complete; 0: no buckets */
  const struct pd_bucket_range *bucket_ranges; /* cover an accumulator set, by bucket, then by offset */
  int n_bucket_ranges;
  size_t moments, moments_stride;
  int n_moments;
  const struct pd_moment
      *own_moments; /* where some moments have their own shape: all moments, by parameter and number */
  size_t scratch;   /* of an update rule over whole tensors; 0: none */
  size_t meeting, meeting_bytes; /* buffer of a collective between begin and end; 0: no split collectives */
  bool tf32;                     /* GPUs: matrix products round f32 operands to 10 bits of mantissa */
  bool has_masters;
  size_t masters; /* the newest weights in f32, laid out like moments; weights are copies of them */
  /* Optimizer state sharding: a struct of moments, masters or averages is divided into cells. Replica r holds
   * bytes shards[r] to shards[r + 1] of cell 0; cell c starts `c * (replicas + 1)` entries further. The parts of a
   * replica are contiguous, and the stage has room for them alone. NULL: not sharded. */
  int shard_cells; /* 0 means 1 */
  const size_t *shards;
  size_t averages; /* exponential moving averages of the newest weights, laid out like moments */
  double ema;      /* decay of the averages per update; 0: no averages */
  bool per_batch;  /* the pipeline drains at every batch */
  int64_t lag;     /* otherwise: turns between the end of a batch and its update */
  const struct pd_parameter *parameters;
  int n_parameters; /* on this stage */
  const struct pd_input *inputs;
  int n_inputs; /* all inputs of the model, also those that this stage does not use */
  const struct pd_tensor *tensors;
  int n_tensors; /* saved and received values, in forward order */
  const struct pd_part *parts;
  int n_parts;
  int chunks; /* parts of the model on this rank: 1, unless interleaved */
  struct pd_channel activations_in[PD_MAX_CHUNKS],
      activations_out[PD_MAX_CHUNKS]; /* by chunk; empty at the ends of the pipeline */
  struct pd_channel gradients_in[PD_MAX_CHUNKS], gradients_out[PD_MAX_CHUNKS];
  const struct pd_spilled *spilled; /* NULL: everything is resident */
  const struct pd_figure *figures;
  int n_figures, n_losses;                /* all figures of the model: losses, then metrics */
  const struct pd_generation *generation; /* NULL: the program does not generate */
  const struct pd_prediction *predictions;
  int n_predictions; /* all outputs of the model */
  const struct pd_optimizer *optimizer;
  double lr, clip_norm;
  const void *arguments; /* a struct pd_<optimizer>_arguments */
  double ahead, damping; /* delay corrections (optimizers/pd_rate.h); 0: none */
  const struct pd_group *groups;
  int n_groups;
  pd_lr_schedule *lr_schedule;
  const void *lr_arguments; /* a struct pd_lr_<schedule>_arguments */
  int64_t lr_total;         /* updates after which the schedule ends; 0: never */
  /* Identity of the training, independent of the plan, which checkpoints record and --resume compares: a digest
   * for each part of the model, and the settings. Names and values alternate. NULL: unknown. */
  const char *const *function;
  int n_function; /* pairs */
  const char *const *settings;
  int n_settings;
  /* The layer that takes statistics over a microbatch during evaluation, where padding samples would count. NULL:
   * no such layer; "": the model itself. */
  const char *statistics;
  /* The model as fields of Hugging Face's config.json (config.c); names and values alternate. */
  const char *const *traits;
  int n_traits;               /* pairs */
  const char *adapter_config; /* of adapters (shared/adapters.h): PEFT's adapter_config.json; NULL: no adapters */
  /* planned times of a microbatch for --emulate, by chunk; weights: the part of backward in PD_WEIGHTS (0:
   * none) */
  double forward_seconds[PD_MAX_CHUNKS], backward_seconds[PD_MAX_CHUNKS], weights_seconds[PD_MAX_CHUNKS];
  double update_seconds; /* planned time of an update */
  bool inference;        /* forward passes only: the program cannot train */
};

/* ---- the run (run.c, options.c) -------------------------------------------------------------- */

/* Read-only for stage programs once pd_start has returned. */
extern struct pd_run {
  const struct pd_stage *stage;
  /* Within this rank's pipeline, stage by stage; the ranks of a shard group are in parallel pipelines. */
  int rank, ranks;
  /* Within the launch, where ranks of a shard group are adjacent; messages name `self`. */
  int self, everyone;
  int place;       /* rank number of the launcher; mostly contiguous on a machine */
  int replica;     /* index among the replicas of its stage */
  int tensor_rank; /* index in its shard group (messages/tensor.c) */
  /* Updates at the end of the run, lowered by a stop signal (signals.c); microbatches are steps * stage->microbatches. */
  int64_t steps;
  int64_t first_step; /* updates before this run (--resume); microbatches continue after theirs */
  uint64_t seed;
  bool emulate;  /* sleep for planned times instead of computing */
  bool evaluate; /* the run is one evaluation without training batches */
  bool training; /* false while validating: dropout keeps everything */
  char *arena;   /* the stage's arena_bytes, page aligned and zero; on a GPU see device.h */
} pd;

/* CPU: maps `bytes` of zeros as an arena, in huge pages where available, because the whole arena is used. NULL
 * with errno set if memory is short. */
char *pd_map_arena(size_t bytes);

/* Reads options, starts MPI, checks that all ranks have the same plan, opens data, maps the arena, puts initial
 * weights into version 0 and writes the first line of the log. */
void pd_start(const struct pd_stage *stage, int argc, char **argv);
/* Writes the last log line and --save's file, and ends MPI; returns the exit status of main. */
int pd_finish(void);
PD_NORETURN void pd_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Advances pending messages and checks --timeout; cheap, called between layers. */
void pd_progress(void);
void pd_emulate(double seconds); /* sleeps and advances messages */

/* ---- work (trace.c) ---------------------------------------------------------------------------- */

enum pd_work { /* kinds of work in --trace; the stage program does the first five */
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
               PD_MEET_BACKWARD,
               PD_DATA
};
/* while (pd_begin(work, k)) { work; pd_end(); } runs the work on microbatch k (PD_UPDATE: update k). The loop runs
 * once; twice where --audit compares results; not at all with --emulate, where pd_begin sleeps for the planned
 * time. With chunks, k counts turns, except for PD_UPDATE. */
bool pd_begin(enum pd_work work, int64_t k);
void pd_end(void);

/* ---- messages between stages (comm.c) --------------------------------------------------------- */
/* k counts this rank's microbatches of the run from 1. Microbatch k of a replica has the pipeline's number (k - 1)
 * * replicas + replica + 1; its neighbour in another stage is replica (number - 1) % replicas. Its slot is k %
 * slots. With chunks, k counts turns (compiler/schedule/program.h): forward turns in the functions on activations,
 * backward turns in those on gradients. Receives are posted as soon as microbatch k has arrived, so that transfers
 * overlap with computation. Sending returns immediately; pd_await_..._slot waits until the slot's last message is
 * out, before the slot is written again. */
void pd_receive_activations(int64_t k);
void pd_send_activations(int64_t k);
void pd_receive_gradients(int64_t k);
void pd_send_gradients(int64_t k);
/* Wait until the send slots of microbatch k are free. */
void pd_await_activations_slot(int64_t k);
void pd_await_gradients_slot(int64_t k);
/* Return the send slot of microbatch k of a chunk, once it is free: in the arena, or in the memory of a receiver
 * on the same machine, with the same layout. Values of validation and of recomputation are always in the arena. */
void *pd_activations_slot(int chunk, int64_t k);
void *pd_gradients_slot(int chunk, int64_t k);

/* ---- offload (spill.c) ------------------------------------------------------------ */
/* pd_promote, before a turn's work (PD_FORWARD; PD_BACKWARD with its forward pass; PD_VALIDATE, where `turn` is
 * the part, from 1), waits until the turn's blocks are resident and prefetches those of the next turn. pd_demote,
 * after the work, writes blocks that changed and are not needed next. After a part's last backward turn of a batch
 * pd_demote also adds up complete gradients and their squares. A failed write or a checksum mismatch ends the
 * launch. */
void pd_promote(enum pd_work work, int64_t turn);
void pd_demote(enum pd_work work, int64_t turn);

/* ---- data (load.c) --------------------------------------------------------------------------- */
/* Copies input `input` (index into stage->inputs) of microbatch k to `to`: [microbatch][dim...]. */
void pd_load(int input, int64_t k, void *to);
/* Global index of the first sample of microbatch k; dropout counts from this index. */
int64_t pd_first_sample(int64_t k);

/* ---- figures, gradients, updates (train.c, exchange.c, optimizer.c) ----------------------------- */
/* Adds up the elements of a figure (index into stage->figures) for microbatch k, in double and in order. A
 * non-finite loss ends the launch with step, rank and first non-finite tensor. On a GPU the elements are copied in
 * stream order and added up later. */
void pd_figure(int figure, int64_t k, const float *elements, int64_t n);
/* Declares, in a backward pass, the gradients of buckets up to this one complete. In the last microbatch of a
 * batch, starts their reduction among replicas. */
void pd_bucket_complete(int bucket);
/* Declares the accumulators of batch t complete. Starts their reduction among replicas, in the order of replicas,
 * then the exchange of tied parameters between stages, then the sums of squares and figures. */
void pd_exchange(int64_t t);
/* Waits for the gradients of update t; returns their factor 1 / N_t, reduced by clipping to clip_norm if set. */
float pd_gradient_scale(int64_t t);
/* W(t+1) = optimizer(W(t), scale * gradient of batch t). from and to are one weights struct (one version) or two.
 * gradient: the accumulator set of batch t. Tied uses are summed from last to first. */
void pd_update(int64_t t, float scale, const void *from, void *to, void *gradient);
/* Optimizer state sharding: sends this replica's part of W(t), which pd_update computed, to the other replicas and
 * posts the receives of their parts (update/optimizer_shards.c). */
void pd_share_weights(int64_t t);
/* Waits until all parts of W(t) have arrived; t may also be an earlier version. */
void pd_await_weights(int64_t t);
/* Number of microbatches of the batch, over all replicas, after the one that starts with this sample. The weights
 * of pd_share depend on it (pd_math.h). */
int64_t pd_following(int64_t first_sample);
/* True if this rank has a microbatch k (with chunks: turn k) to run, from 1. Waits while ranks agree on the last
 * update. */
bool pd_goes_on(int64_t k);
/* After update t: writes log lines and progress of updates whose figures have arrived. True if a validation of the
 * new weights is due. */
bool pd_updated(int64_t t);

/* ---- generation (generate.c) --------------------------------------------------------------------- */
/* for (k = 1; pd_generation_next(k); k++) { receive, load, forward, logits, send }: each step feeds known tokens of
 * all sequences, as many as the batch has rows, or without caches all positions. Past the prompt a token is sampled
 * from the logits, and the next step waits for this token. */
struct pd_generation {
  int64_t context, classes; /* positions; tokens that may be sampled */
  int64_t logits;           /* per row, of which the first `classes` count */
  int64_t ring;             /* the fewest positions that a cache holds, the last ones; 0: all of the context */
  int64_t samples;          /* sequences at the same time */
  int tokens;               /* input indices */
  int position, sequence;   /* -1: no caches; a row of the batch is then all positions of a sequence */
  int stage;                /* stage that computes logits */
  bool state;               /* caches keep the state after a sequence's last position, which cannot go back */
  /* Of a model with an encoder; sample b of the batch is then always sequence b. Its results are kept, so that it runs in
   * steps with a new source alone. */
  bool encoder;
  int source;         /* input index: the tokens that the encoder reads, [1 .. elements] of them */
  int64_t start, pad; /* the first token of every sequence; the token behind sources, -1: sources must be whole */
};
/* Whether an encoder would see none of these tokens. */
static inline bool pd_padding_alone(const struct pd_generation *g, const int32_t *tokens, int64_t n) {
  int64_t padding = 0;
  while (g->encoder && padding < n && tokens[padding] == g->pad) padding++;
  return n > 0 && padding == n;
}
bool pd_generation_next(int64_t k);
bool pd_generation_encodes(void); /* whether this step has a new source */
void pd_generation_load(int input, int64_t k, void *to);
/* n logits: one row per sample, or one row per position. */
void pd_generation_logits(int figure, int64_t k, const float *logits, int64_t n);

/* ---- evaluation (evaluate.c) ------------------------------------------------------------------- */
/* Losses and metrics over all evaluation samples, each once and in order. Validation during training: for (v = 1;
 * pd_evaluation_next(v); v++) { pd_evaluation_receive(v, slot); load, forward, pd_evaluation_send(v, slot); }. v
 * counts this rank's microbatches, and turns in receive and send: chunk c of microbatch v is turn (v - 1) * chunks
 * + c + 1. An incomplete last microbatch is padded with its first sample, which is not counted. slot: a slot of
 * the chunk's channel that no microbatch in flight and no posted receive uses; a sent slot is free when
 * pd_evaluation_send returns. Inference programs use pd_receive_activations(v) and pd_send_activations(v)
 * instead. */
bool pd_evaluation_next(int64_t v);
void pd_evaluation_load(int input, int64_t v, void *to);
void pd_evaluation_receive(int64_t v, int64_t slot);
void pd_evaluation_send(int64_t v, int64_t slot);
void pd_evaluation_figure(int figure, int64_t v, const float *elements, int64_t n);
/* Writes the rows of output `prediction` of microbatch v to --predict's file, if any. */
void pd_predict(int prediction, int64_t v, const float *rows);

#ifdef __cplusplus
}
#endif

#endif
