/* From gradients to weights: sums over microbatches and ranks, the optimizer, and the places of weights and
 * optimizer state. Offsets are bytes of the arena, sizes are elements of a parameter. */
#ifndef PD_UPDATE_H
#define PD_UPDATE_H

#include "messages/messages.h"
#include "optimizers/elements.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- optimizer.c ----------------------------------------------------------------------------- */

/* The learning rate of update t (from 0). */
double pd_learning_rate(const struct pd_stage *s, int64_t t);

/* Rate and arguments of a group; group 0: parameters without a group. */
struct pd_rate pd_group_rate(const struct pd_stage *s, int group, int64_t t);
const void *pd_group_arguments(const struct pd_stage *s, int group);

/* Constants of an update: for each group, including 0, first without decay, then with decay. */
enum { PD_GROUP_STEPS = 2 * (PD_MAX_GROUPS + 1) };
static inline int pd_step_of(const struct pd_parameter *p) { return 2 * p->group + p->decays; }

/* The arguments of an elementwise update rule: W(t), the place of W(t + 1), batch t's accumulator set, and the
 * rule's constants, a struct pd_<optimizer>_step for each pd_step_of(). */
struct pd_update_arrays {
  int64_t t;
  const void *from;
  void *to, *gradient;
  const void *before; /* W(t - 1) for damped steps (optimizers/pd_rate.h), possibly at `to`; else NULL */
  const void *step[PD_GROUP_STEPS];
  int n_steps;
  int first, end; /* range of parameters to update: all, without offload */
};

/* The arguments of a whole-tensor update rule, for one parameter: f32 arrays of its elements, and moments of their
 * shapes, zero before the first update. from and to are the same array or do not overlap. With a device the arrays
 * are in device memory and the rule enqueues its work. */
struct pd_tensor_update {
  const struct pd_parameter *parameter;
  const void *arguments; /* of the parameter's group */
  int64_t t;
  struct pd_rate rate;
  float scale; /* of the gradient */
  const float *from, *gradient;
  float *to, *moment[PD_MAX_MOMENTS]; /* NULL: no such moment */
  void *scratch;                      /* of the rule's size (UpdateRule.scratch); NULL: none */
};

#define PD_NAME_RULE(rule, optimizer, moments) PD_RULE_##rule,
enum pd_rule { PD_ELEMENT_RULES(PD_NAME_RULE) PD_N_RULES };

/* An update rule. Each row of optimizers/list.h defines one. A whole-tensor rule gets one tensor at a time, so
 * that it can take norms, row sums or products before it writes weights; each target defines it as pd_<rule>. The
 * order of its additions must not depend on threads. */
struct pd_optimizer {
  const char *name;
  void (*tensor)(const struct pd_tensor_update *x); /* NULL: an elementwise rule: */
  void (*start)(const struct pd_parameter *p);      /* prepares updates of a parameter; NULL: nothing to prepare */
  enum pd_rule by_elements;
  /* fills a struct pd_<optimizer>_step */
  void (*constants)(const void *arguments, struct pd_rate rate, int64_t t, float scale, bool decays, void *to);
};

/* The trained parameters of this rank, divided into tiles for threads or device blocks. */
enum { PD_TILE = 16384 };
struct pd_tile {
  int parameter;
  int64_t first, n;
};
extern struct pd_tile *pd_tiles;
extern int pd_n_tiles;
void pd_deal_tiles(void);
int pd_first_tile(int parameter); /* first tile of this or a later parameter; pd_n_tiles: none */
void pd_start_rule(void);         /* prepares the stage's optimizer for its parameters */
static inline bool pd_is_trained(const struct pd_parameter *p) { return !p->buffer && !p->frozen; }
/* The address and shape of moment i of parameter p; NULL: no such moment. */
float *pd_moment_at(const struct pd_parameter *p, int i);
struct pd_shape pd_moment_shape(const struct pd_parameter *p, int i);
/* Bytes of the copies of an update's results, if it runs twice (watch/twice.c): of all tiles that run twice at
 * once, and of one tile. */
size_t pd_update_copy_bytes(void);
size_t pd_update_tile_copy_bytes(void);
/* Bytes that an array takes in a copy, aligned to 16. */
static inline size_t pd_copy_step(size_t bytes) { return (bytes + 15) / 16 * 16; }
size_t pd_moments_bytes(void); /* bytes to clear from the stage's `moments` */
/* The gradient of use `use` of parameter p in batch t, whose accumulator set is `gradient`. */
float *pd_use_at(const struct pd_parameter *p, int use, int64_t t, void *gradient);
/* The complete gradient of parameter p, at its last use; NULL: no gradient. */
float *pd_gradient_at(const struct pd_parameter *p, int64_t t, void *gradient);
bool pd_in_norm(const struct pd_parameter *p); /* this rank adds the gradient's squares to the norm */

/* ---- optimizer_shards.c: optimizer state sharding over replicas ---------------------------------------- */

struct pd_slice {
  int64_t first, n; /* elements */
};
/* The slice of a parameter that a replica updates, and the slice of a moment of `elements` elements that it keeps:
 * everything, without sharding. */
struct pd_slice pd_part_of(const struct pd_parameter *p, int replica);
struct pd_slice pd_own_part(const struct pd_parameter *p); /* of this replica */
struct pd_slice pd_part_of_tensor(const struct pd_parameter *p, int64_t elements, int replica);
bool pd_is_split(const struct pd_parameter *p); /* the slices are on several replicas */
/* The address that element 0 of p has, or would have, in moments, masters or averages that start at `section`; the
 * replica's slice is at its offset from there. */
char *pd_state_at(size_t section, const struct pd_parameter *p);
int64_t pd_state_offset(const struct pd_parameter *p); /* relative to `section`; may be negative */
void pd_optimizer_shards_start(void);                  /* collective among replicas */
void pd_optimizer_shards_finish(void);                 /* waits until all parts of the weights have arrived */
void pd_swap_part(float *a, float *b, int64_t n);      /* swaps arena contents */
/* Collective among replicas, each with the address of element 0: returns the whole tensor on the first replica,
 * valid until the next call, and NULL on all other replicas, which send their slices. */
const float *pd_whole(const struct pd_parameter *p, const float *at, int64_t elements);

/* ---- host/optimizer.c, cuda/optimizer.cu ------------------------------------------------------- */

void pd_optimizer_start(void); /* deals the tiles, starts the rule */
/* A target's update of all parameters of a stage: by an elementwise rule; or the remainder after a whole-tensor
 * rule, which is running averages, parameters without a gradient, and working copies of masters. */
typedef void pd_update_all(const struct pd_update_arrays *u);
struct pd_rules {
  pd_update_all *by_elements[PD_N_RULES], *after_tensors;
  pd_update_all *average; /* afterwards: updates the moving averages */
  /* Updates a parameter by the stage's whole-tensor rule; NULL: call the rule directly. */
  void (*tensor)(const struct pd_tensor_update *x);
  int at_once; /* tiles that run twice together with --audit; 0: one per thread */
  /* Returns the range of parameters of group `group`, from 0; false after the last group. */
  bool (*next_group)(int group, int *first, int *end);
};
bool pd_next_updated(int group, int *first, int *end); /* one group, without offload */
extern const struct pd_rules pd_rules;
void pd_update_with(const struct pd_rules *rules, int64_t t, float scale, const void *from, void *to,
                    void *gradient);
/* The elements of a parameter in an update: the updated arrays, which are masters if there are any, and their
 * working copy. */
struct pd_updated {
  const float *from, *gradient; /* gradient NULL: no gradient */
  float *to, *moment[PD_MAX_MOMENTS];
  void *working; /* NULL: `to` is the working copy */
  bool bf16;     /* the working copy */
  struct pd_change change;
};
/* elements NULL: parameters with a gradient are updated already. */
void pd_update_some(const struct pd_parameter *p, int64_t n, const struct pd_updated *r, pd_elements *elements,
                    const void *step);
/* Afterwards: moves averages towards the weights of update t. */
void pd_average_some(const struct pd_parameter *p, int64_t n, int64_t t, const float *w, float *average);
/* Host: updates all tiles by such a rule, NULL if parameters with a gradient are updated already. copy: NULL, or
 * pd_twice_copy(). */
void pd_update_tiles(const struct pd_update_arrays *u, pd_elements *elements, char *copy);

/* ---- reduce.c -------------------------------------------------------------------------------- */

/* Number of buckets in which replicas reduce gradients: pd_stage.buckets, or 1. */
enum { PD_MAX_BUCKETS = 64 };
int pd_buckets(void);
/* The runs of a bucket, in floats of an accumulator set, that a replica adds up. */
struct pd_stretch {
  size_t at, n;
};
int pd_runs_of_shard(int bucket, int replica, const struct pd_stretch **runs);
/* Sums a bucket of the replicas' accumulators of batch t, without shared memory, in two rounds of messages. The
 * first brings each replica's gradients of this rank's shard. The second, once the first has passed, adds them up
 * and sends the sum back. Replicas that share the optimizer's state send back only parameters that other stages
 * hold, too. Each function writes a round's messages to `to` and returns their number, at most
 * pd_reduce_messages() of pd_reduce_bytes() each; pd_reduce_messages() is 0 without other replicas. */
struct pd_message;
void pd_reduce_start(void);
int pd_reduce_messages(void);
size_t pd_reduce_bytes(void);
int pd_reduce_gather(int64_t t, int bucket, struct pd_message *to);
int pd_reduce_spread(int64_t t, int bucket, struct pd_message *to);

/* ---- exchange.c ------------------------------------------------------------------------------ */

bool pd_has_remote(const struct pd_parameter *p); /* p has a gradient, and another stage also holds p */
/* Index in the squares of an update for the elements of p from `first`: one per parameter, or one per tile with
 * sharding. */
int pd_square_at(const struct pd_parameter *p, int64_t first);

/* Number of exchange sets. */
int pd_exchange_sets(void);
/* Returns the number of updates that may be exchanged but not yet logged. */
int pd_exchange_start(void);
/* Waits until the gradients of update t are complete on this rank; known: also until all ranks' figures are. */
void pd_exchange_await(int64_t t, bool known);
bool pd_exchange_known(int64_t t);
void pd_exchange_forget(int64_t t); /* update t, the next in order, is logged */
/* Adds a microbatch's sum to this rank's sum of batch t; first: the first microbatch of the batch. */
void pd_add_figure(int figure, int64_t t, bool first, double sum);
double pd_figure_sum(int figure, int64_t t); /* over all ranks, once known */
double pd_gradient_norm(int64_t t);          /* of the mean gradient, once known */
char *pd_accumulators(int64_t t);
size_t pd_exchange_set(int64_t t); /* bytes from exchange set 0 to update t's */

/* ---- figures.c ------------------------------------------------------------------------------- */

/* Adds up the n elements of a figure of microbatch k in double, in order, and calls take(figure, k, sum), in the
 * order of calls: during a later call of these functions, once the elements are computed. */
typedef void pd_take_sum(int figure, int64_t k, double sum);
void pd_add_up(int figure, int64_t batch, int64_t k, const float *elements, int64_t n, pd_take_sum *take);
/* True if all sums of batches up to this one are taken; pd_figures_fold waits for them. */
bool pd_figures_are_known(int64_t batch);
void pd_figures_fold(int64_t batch);

/* ---- init.c ---------------------------------------------------------------------------------- */

void pd_initialise(const struct pd_parameter *p, uint64_t seed, float *to);

/* ---- weights.c --------------------------------------------------------------------------------- */

char *pd_weights_at(const struct pd_parameter *p, int64_t t); /* W(t) as passes read it */
/* Writes the zeros after parameters (pd_parameter.padding) in all versions, at start. */
void pd_clear_padding(void);
/* The newest weights W(t) in f32: pd_fill_newest returns room, pd_newest_filled stores it, with the working copy;
 * pd_view_newest reads, valid until the next call. */
float *pd_fill_newest(const struct pd_parameter *p, int64_t t);
void pd_newest_filled(const struct pd_parameter *p, int64_t t, const float *w);
/* With sharded masters: all of them, on the first replica. */
const float *pd_view_newest(const struct pd_parameter *p, int64_t t);
/* The moving average of p; NULL: none, as without `ema` and for frozen parameters. */
float *pd_average_at(const struct pd_parameter *p);
/* Switches the weights that passes read to the averages, or back to the newest masters. */
void pd_read_averages(int64_t t, bool averages);
void pd_start_fresh(const struct pd_parameter *p); /* sets W(0) from seed and name */
/* True if this rank provides p for files: the first replica of its owner. */
bool pd_provides(const struct pd_parameter *p);
void pd_file_shape(const struct pd_parameter *p, int64_t *dim); /* a parameter's shape in a file */

#ifdef __cplusplus
}
#endif

#endif
