/* Messages of arena memory between ranks, and sums over ranks. As for device.h, one of two folders implements this
 * interface:
 *   host/ ranks on a machine access each other's receive slots, or MPI reads and writes the arena (--comm);
 *   cuda/ copies to GPUs on the same machine, NCCL in its own streams, or MPI from pinned copies (--comm).
 * Messages are ordered with work without the host waiting: a message starts after all work enqueued on its side
 * before it was posted, and once a transfer has passed, work enqueued later on its side starts after the transfer.
 * A transfer that has passed may still move bytes; a transfer that is through is complete. */
#ifndef PD_TRANSFER_H
#define PD_TRANSFER_H

#define OMPI_SKIP_MPICXX
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pd_operand.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The work that a line's messages are ordered with: passes and updates, exchanges (exchange.c), or the work of a
 * shard group between a collective's begin and end (collectives.c). */
enum pd_side { PD_COMPUTING, PD_EXCHANGING, PD_MEETING, PD_SIDES };

struct pd_message {
  int peer;     /* rank */
  bool sent;    /* else received */
  int tag;      /* at most 32767; messages with equal line, peer, direction and tag match in order */
  void *at;     /* in the arena */
  size_t bytes; /* the same at both ends */
};

/* Collective, before lines are opened: chooses the transport. False after filling `why`. */
bool pd_transfers_start(char *why);
void pd_transfers_finish(void); /* collective; no message may be in flight */
void pd_transfers_abort(void);  /* on failure: releases device work that waits for other ranks */
const char *pd_messages_travel(
    void); /* transport between stages and replicas, for the log: "shared memory", "mpi"; NULL: no messages */

/* A line carries messages among n ranks, in ascending order and including this one. Opening is collective among
 * them; all ranks must open their common lines in the same order. */
struct pd_line;
struct pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, enum pd_side side);
/* A line between ranks of neighbouring stages, opened by both, for all messages of one kind and direction; one
 * receive is posted at a time. Messages may use shared memory. */
enum pd_kind { PD_ACTIVATIONS, PD_GRADIENTS, PD_VALIDATION, PD_KINDS };
struct pd_line *pd_line_between(MPI_Comm comm, int peer, bool sends, enum pd_kind kind);
/* Sender: the receiver's slot for the next message of the line, if this rank can write there: the receive is
 * posted, the layout equals channel c's, and the receiver has at least `least` slots. Else NULL. `cut`: the chunk
 * before it. */
struct pd_channel;
char *pd_line_slot(const struct pd_line *line, int cut, int64_t least, const struct pd_channel *c);

/* A transfer is a set of at most `messages` messages of at most `bytes` bytes; created at start and reused. */
struct pd_transfer;
struct pd_transfer *pd_transfer_new(int messages, size_t bytes);
/* Starts messages as one operation: all are in flight before any is awaited. Two ranks post their messages in the
 * same order. The transfer's previous messages must have passed. */
void pd_transfer_post(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message);
bool pd_transfer_passed(struct pd_transfer *t);
bool pd_transfer_through(struct pd_transfer *t);

/* Advance messages in flight; cheap. pd_transfers_watch also checks for device errors, which end the launch. */
void pd_transfers_progress(void);
void pd_transfers_watch(void);

/* ---- replicas with shared accumulators (host/replicas.c) ---------------------------------- */

/* True, on all replicas of a stage or none, if they add up gradients in shared memory, without messages. Each
 * batch and bucket then has the two rounds below; a round ends when every replica has done its part. */
bool pd_replicas_shared(void);
void pd_replicas_ready(int64_t t, int bucket);    /* declares this rank's gradients complete */
bool pd_replicas_gathered(int64_t t, int bucket); /* all replicas' gradients are complete */
void pd_replicas_sum(int64_t t, int bucket);      /* writes the sum of this rank's shard to all replicas */
bool pd_replicas_spread(int64_t t, int bucket);   /* all shards are written */

/* ---- sums (host/sums.c, cuda/sums.cu) -------------------------------------------------------------- */

void pd_sums_start(int batches); /* batches that may be combined before their squares are read */
void pd_sums_finish(void);
/* Work of the functions below and messages on lines of PD_EXCHANGING start after all work enqueued so far. */
void pd_sums_begin(void);
/* own[i] = the sum over this stage's replicas, in their order: this replica's numbers are in `own`, the numbers of
 * all other replicas in `others`, in order and `stride` floats apart. */
void pd_add_replicas(float *own, const float *others, size_t stride, size_t n);
/* Adds the gradients of each parameter's uses of batch t, from last to first, into the last use's, and sums the
 * squares of the gradients that this rank contributes to the norm. */
void pd_combine(int64_t t);
/* With offload: combines the gradients that have just become complete. */
void pd_combine_ready(int64_t t);
/* False while the squares of batch t are not available; else adds them to `to`, at pd_square_at(). */
bool pd_squares(int64_t t, double *to);
/* True if pd_combine also computes the clipped gradient scale for the update, so that the host need not wait for
 * the norm. */
bool pd_sums_clip(void);
/* The sum of n squares of a parameter, in the order in which a single rank adds up its tiles. */
double pd_add_squares(const double *square, int n);
/* Orders later work after the gradients of batch t are complete; pd_combine(t) was called. */
void pd_gradients_complete(int64_t t);

/* ---- operations on values of a shard group (host/group.c, cuda/group.cu) ---------------------------- */

/* to[i] = the sum over the group's ranks, in their order, or the maximum: this rank's numbers are in `own`, those
 * of rank r in `others` from r * stride. */
enum pd_group_operation { PD_GROUP_SUM, PD_GROUP_MAX };
void pd_reduce_group(enum pd_side side, enum pd_group_operation how, pd_in own, pd_in others, int64_t stride,
                     int64_t n, pd_out to);
/* pd_spread_part copies rank r's part, `runs` runs of `part` elements, into the whole value; pd_pack_part copies
 * it out. */
void pd_spread_part(enum pd_side side, pd_in x, int64_t runs, int64_t part, int r, pd_out whole);
void pd_pack_part(enum pd_side side, pd_in whole, int64_t runs, int64_t part, int r, pd_out y);
/* pd_group_leaves: later work and messages on PD_MEETING start after all work enqueued so far. pd_group_returns:
 * later work starts after all of PD_MEETING's. */
void pd_group_leaves(void);
void pd_group_returns(void);

/* Collectives of a shard group without messages, if its ranks share memory. */
struct pd_meeting {
  void (*reduce)(enum pd_group_operation how, pd_in x, int64_t n, pd_out y);
  void (*gather)(pd_in x, int64_t runs, int64_t part, pd_out y);
  void (*scatter)(pd_in x, int64_t runs, int64_t part, pd_out y);
  /* In two steps: `show` exposes n elements without waiting; the others continue with the elements that all ranks
   * expose. */
  void (*show)(pd_in x, int64_t n);
  void (*reduce_shown)(enum pd_group_operation how, pd_in x, int64_t n, pd_out y);
  void (*gather_shown)(pd_in x, int64_t runs, int64_t part, pd_out y);
  void (*scatter_shown)(pd_in x, int64_t runs, int64_t part, pd_out y);
};
/* Collective in the group; NULL: use messages (host/meeting.c, cuda/group.cu). */
const struct pd_meeting *pd_meeting_start(MPI_Comm group);
int64_t pd_meeting_shared(void); /* CPU: bytes of the arena that are in shared memory for this purpose */

#ifdef __cplusplus
}
#endif

#endif
