/* From gradients to weights: sums over microbatches and ranks, the optimizer, and where weights and the optimizer's state stand. Offsets
 * are bytes of the arena, sizes elements of a parameter. */
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
struct pd_shape pd_moment_shape(const struct pd_parameter *p, int i);
/* Bytes of copies of what an update writes, where it is run twice (watch/twice.c): of all that are run twice at once, and of a
 * tile. */
size_t pd_update_copy_bytes(void);
size_t pd_update_tile_copy_bytes(void);
/* What so many bytes take in a copy: all begin where words do. */
static inline size_t pd_copy_step(size_t bytes) { return (bytes + 15) / 16 * 16; }
size_t pd_moments_bytes(void); /* from the stage's `moments` on, to clear */
/* Where use `use` of parameter p has its gradient of batch t, whose accumulator set is `gradient`. */
float *pd_use_at(const struct pd_parameter *p, int use, int64_t t, void *gradient);
/* Where parameter p's whole gradient stands: at its last use; NULL when it has none. */
float *pd_gradient_at(const struct pd_parameter *p, int64_t t, void *gradient);
bool pd_in_norm(const struct pd_parameter *p); /* this rank contributes the squares of its gradient */

/* ---- optimizer_shards.c: replicas that share the optimizer's state ---------------------------------------- */

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
void pd_optimizer_shards_start(void);                  /* collective among replicas */
void pd_optimizer_shards_finish(void);                 /* waits until no part of the weights is under way */
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

/* Updates of which exchanges have memory at a time. */
int pd_exchange_sets(void);
/* Returns how many updates may be exchanged and not logged. */
int pd_exchange_start(void);
/* Waits until update t's gradients are complete here; known: until all ranks' figures are, too. */
void pd_exchange_await(int64_t t, bool known);
bool pd_exchange_known(int64_t t);
void pd_exchange_forget(int64_t t); /* update t, the next to be, is logged */
/* Adds a microbatch's sum to this rank's of batch t; first: it is the batch's first one. */
void pd_add_figure(int figure, int64_t t, bool first, double sum);
double pd_figure_sum(int figure, int64_t t); /* of all ranks, once known */
double pd_gradient_norm(int64_t t);          /* of the mean gradient, once known */
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

/* ---- init.c ---------------------------------------------------------------------------------- */

void pd_initialise(const struct pd_parameter *p, uint64_t seed, float *to);

/* ---- weights.c --------------------------------------------------------------------------------- */

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
/* Collective: the weights of all stages, by rank 0: averaged ones, where there are any and `raw` does not say
 * otherwise. */
void pd_save_weights(const char *path, bool raw);
/* Collective. On rank 0: the whole model's parameters by order of declaration, as in a file that holds them, and
 * the rank that writes each (writer may be NULL). A parameter that nothing uses stands on no rank: its entry has
 * no name. */
struct pd_entry *pd_gather_entries(int *writer);
void pd_free_entries(struct pd_entry *entries);
void pd_file_shape(const struct pd_parameter *p, int64_t *dim); /* a parameter's shape in a file */

#ifdef __cplusplus
}
#endif

#endif
