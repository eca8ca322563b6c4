/* Communication: communicators, messages between stages, collective agreement, and signals. All ranks must make
 * collective calls in the same order. */
#ifndef PD_MESSAGES_H
#define PD_MESSAGES_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- comm.c ---------------------------------------------------------------------------------- */

extern MPI_Comm pd_comm_control, pd_comm_replicas, pd_comm_ties, pd_comm_figures, pd_comm_checkpoints,
    pd_comm_signals;
void pd_comm_open(int stage); /* after MPI_Init: creates communicators, numbers this rank */
void pd_comm_start(void);     /* posts the first receives */
void pd_comm_finish(void);    /* waits until all messages of this rank are sent */
/* Start of a channel's slot 0, in bytes into the arena; values of a slot are in any order. 0: empty channel. */
size_t pd_channel_start(const struct pd_channel *c);
/* Waits until ready(of) is true and advances all other work meanwhile. After --timeout the launch ends with
 * "waited S s for WHAT NUMBER DIRECTION rank PEER", without negative NUMBER and PEER. False if ready(of) was true
 * at once. */
bool pd_wait_until(bool (*ready)(void *), void *of, const char *what, int64_t number, const char *direction,
                   int peer);
int64_t pd_waiting_for(void);  /* the rank that this rank waits for; -1: all; -2: does not wait */
int64_t pd_turns_posted(void); /* the last turn with a posted receive from a neighbour */
/* pd_wait_until for all n requests. */
bool pd_wait(int n, MPI_Request *request, const char *what, int64_t number, const char *direction, int peer);

/* ---- together.c -------------------------------------------------------------------------------- */

/* Collective. Returns if `why` is empty on all ranks; else the lowest rank with a reason reports it and the launch
 * ends. */
void pd_agree(const char *why);
/* Leaves the report of a failure to another rank: advances messages until the launch ends. */
PD_NORETURN void pd_leave_to_others(void);

/* ---- tensor.c: tensor parallelism ---------------------------------------------------------- */

int pd_tensor_degree(void); /* ranks of a shard group; 1: no tensor parallelism */
int pd_self_of(int rank);   /* pd.self of a rank of this pipeline; negative numbers are unchanged */
extern MPI_Comm pd_comm_everyone;
void pd_tensor_open(MPI_Comm everyone, MPI_Comm *pipeline);
void pd_tensor_start(void);                /* collective in a shard group, once messages work */
void pd_collectives_start(MPI_Comm group); /* for one group (collectives.c) */
struct pd_shape {
  int rank;
  int64_t dim[PD_MAX_RANK], elements;
};
/* For a parameter that this rank holds in part (tensor.c) or whole: the shape of the whole parameter, and the
 * index in it of element i of this rank's part. */
struct pd_shape pd_whole_shape(const struct pd_parameter *p);
int64_t pd_whole_element(const struct pd_parameter *p, int64_t i);
/* Elements of this rank's part that belong to the whole parameter; zeros follow. pd_take_own copies them from the
 * whole. */
int64_t pd_own_elements(const struct pd_parameter *p);
void pd_take_own(const struct pd_parameter *p, const float *whole, float *own);
/* Collective in a shard group that holds p in parts: returns all of p on the first rank, valid until the next
 * call, and NULL on all other ranks. own: this rank's part, in host memory. */
const float *pd_join(const struct pd_parameter *p, const float *own);

/* ---- signals.c -------------------------------------------------------------------------------- */

void pd_signals_prepare(void); /* before MPI starts: installs handlers */
void pd_signals_start(
    void); /* training then handles signals; before, and without training, a stop signal ends the process */
void pd_signals_finish(void); /* after all ranks have finished their work */
/* Handles signals of this rank and, if `patient`, of other ranks; advances the ranks' agreement. */
void pd_signals_poll(bool patient);
int64_t pd_last_turn_to_post(int64_t last); /* the last turn to post receives for: at most `last` */
/* After update t, in pd_updated: waits for an agreement about the update. True: write a checkpoint. */
bool pd_signals_at_update(int64_t t);
int pd_stopped_by(void); /* the signal that lowered pd.steps; 0: none */
const char *pd_stopped_by_name(void);
/* Describes why `peer` (-1: all) does not answer, for a message: ", which waits for rank 2, which does not
 * answer". Takes half a second. */
void pd_signals_ask(int peer, char *story, size_t room);

int64_t pd_updates_begun(void); /* updates whose batches this rank has begun, which it must finish */

void pd_signals_mute(void); /* signals are silent: another rank reports */

#ifdef __cplusplus
}
#endif

#endif
