/* Ranks together: communicators, messages between stages, what all ranks do at once, and signals that all must answer. What one rank
 * does collectively all must do, in one order. */
#ifndef PD_MESSAGES_H
#define PD_MESSAGES_H

#include "run/run.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* ---- together.c -------------------------------------------------------------------------------- */

/* Collective: returns when no rank has a reason in `why`; else the lowest rank that has one reports it
 * and the launch ends. */
void pd_agree(const char *why);
/* Another rank reports what this one has seen too: keeps its messages moving until the launch ends. */
PD_NORETURN void pd_leave_to_others(void);

/* ---- tensor.c: ranks that share layers ---------------------------------------------------------- */

int pd_tensor_degree(void); /* of a shard group; 1: nothing is shared */
int pd_self_of(int rank);   /* pd.self of a rank of this pipeline; negative numbers stay */
extern MPI_Comm pd_comm_everyone;
void pd_tensor_open(MPI_Comm everyone, MPI_Comm *pipeline);
void pd_tensor_start(void);                /* collective in a shard group, once messages can travel */
void pd_collectives_start(MPI_Comm group); /* the same, of a group's own (collectives.c) */
struct pd_shape {
  int rank;
  int64_t dim[PD_MAX_RANK], elements;
};
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
/* Who waits for whom, for a message that says that this rank waits for `peer` (-1: all) in vain: ", which waits for
 * rank 2, which does not answer". Takes half a second. */
void pd_signals_ask(int peer, char *story, size_t room);

int64_t pd_updates_begun(void); /* so many at least are to be done: a rank has begun their batches */

void pd_signals_mute(void); /* another rank says it */

#ifdef __cplusplus
}
#endif

#endif
