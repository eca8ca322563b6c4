/* Messages of arena memory between ranks, and what is added up between them. As with device.h one of two folders
 * implements this:
 *   host/ ranks of a machine see each other's receive slots, otherwise MPI reads and writes the arena (--comm);
 *   cuda/ copies go to the memory of GPUs of the same machine, NCCL moves device memory in streams of its own, or MPI
 *         does from pinned copies (--comm).
 * Work and messages keep an order without the host's waiting for it: a message starts behind all work that was
 * asked for on its side before it was posted, and once a transfer has passed, work asked for later on its side
 * starts behind it. Passing tells the host nothing of whether bytes have moved; being through does. */
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

/* Whose work a line's messages keep order with: passes and updates, what lies between them (exchange.c), or what a shard
 * group computes between a collective's begin and its end (collectives.c). */
enum pd_side { PD_COMPUTING, PD_EXCHANGING, PD_MEETING, PD_SIDES };

struct pd_message {
  int peer;     /* rank */
  bool sent;    /* else received */
  int tag;      /* at most 32767; those alike (line, peer, direction, tag) are told apart by their order */
  void *at;     /* in the arena */
  size_t bytes; /* the same at both ends */
};

/* Collective, before lines are opened: chooses how messages travel. False after filling `why`. */
bool pd_transfers_start(char *why);
void pd_transfers_finish(void); /* collective: no message is under way any more */
void pd_transfers_abort(void);  /* the launch fails: device work that waits for other ranks is let go */
const char *pd_messages_travel(
    void); /* between stages and replicas, for the log: "shared memory", "mpi"; NULL: there are none */

/* A line carries messages among these n ranks, ascending, of which this is one. Opening is collective among them.
 * Two that one rank opens one after the other no other rank may open the other way around. */
struct pd_line;
struct pd_line *pd_line_open(MPI_Comm comm, int n, const int *ranks, enum pd_side side);
/* A line to or from a rank of a neighbouring stage, opened by both: all messages of this kind and direction between the
 * two, of which one receive at a time is posted. They may go through memory that both see. */
enum pd_kind { PD_ACTIVATIONS, PD_GRADIENTS, PD_VALIDATION, PD_KINDS };
struct pd_line *pd_line_between(MPI_Comm comm, int peer, bool sends, enum pd_kind kind);
/* At the sending end: the slot into which what is posted next on the line will be received, if this rank can write
 * there, the receive is posted, its values are laid out as the channel's are here, and the receiver has so many slots
 * at least; else NULL. `cut`: the chunk before it. */
struct pd_channel;
char *pd_line_slot(const struct pd_line *line, int cut, int64_t least, const struct pd_channel *c);

/* A transfer is so many messages, of so many bytes each, at most; made at start and used again and again. */
struct pd_transfer;
struct pd_transfer *pd_transfer_new(int messages, size_t bytes);
/* Starts messages that are one operation: none is waited for before all are under way. Messages between two ranks
 * are posted in the same order at both; the transfer's last ones have passed. */
void pd_transfer_post(struct pd_transfer *t, struct pd_line *line, int n, const struct pd_message *message);
bool pd_transfer_passed(struct pd_transfer *t);
bool pd_transfer_through(struct pd_transfer *t);

/* Moves what is under way; cheap. Watching looks for errors, too, that only a device knows of: the launch ends. */
void pd_transfers_progress(void);
void pd_transfers_watch(void);

/* ---- replicas that see each other's accumulators (host/replicas.c) ---------------------------------- */

/* Whether the replicas of this stage add up gradients in place, without messages; the same at each of them. It has
 * these rounds then, for each batch and bucket in turn; both are over when every replica has done its part. */
bool pd_replicas_shared(void);
void pd_replicas_ready(int64_t t, int bucket);    /* this rank's gradients are complete */
bool pd_replicas_gathered(int64_t t, int bucket); /* everyone's are */
void pd_replicas_sum(int64_t t, int bucket);      /* this rank's shard becomes the sum, everywhere */
bool pd_replicas_spread(int64_t t, int bucket);   /* all shards are */

/* ---- sums (host/sums.c, cuda/sums.cu) -------------------------------------------------------------- */

void pd_sums_start(int batches); /* how many batches may be combined before their squares are asked for */
void pd_sums_finish(void);
/* What is asked for below, and posted on lines of PD_EXCHANGING, starts behind all work asked for so far. */
void pd_sums_begin(void);
/* own[i] = the sum over this stage's replicas, in their order, of their numbers: this one's are in `own`, those of
 * the others in `others`, in their order and `stride` apart. */
void pd_add_replicas(float *own, const float *others, size_t stride, size_t n);
/* Adds each parameter's uses of batch t, from last to first, into the last one's place; sums the squares of the
 * gradients that this rank contributes to the norm. */
void pd_combine(int64_t t);
/* Of a model that spills: does so already with the gradients that have just become complete. */
void pd_combine_ready(int64_t t);
/* False while the squares of batch t, combined last but so many, are not known; else adds them to `to`, at
 * pd_square_at(). */
bool pd_squares(int64_t t, double *to);
/* Whether pd_combine leaves where the update finds it what that multiplies gradients by, clipped: then the host need not
 * know their norm before. */
bool pd_sums_clip(void);
/* The sum of a parameter's n squares, in the order in which one rank alone adds up those of its tiles. */
double pd_add_squares(const double *square, int n);
/* Work asked for from now on finds batch t's gradients complete; pd_combine(t) has been called. */
void pd_gradients_complete(int64_t t);

/* ---- what the ranks of a shard group do with each other's values (host/group.c, cuda/group.cu) ------ */

/* to[i] = the sum over the group's ranks, in their order, of their numbers, or the largest: this one's are in `own`, that
 * of rank r in `others` from r * stride on. */
enum pd_group_operation { PD_GROUP_SUM, PD_GROUP_MAX };
void pd_reduce_group(enum pd_side side, enum pd_group_operation how, pd_in own, pd_in others, int64_t stride,
                     int64_t n, pd_out to);
/* Puts rank r's part, `runs` runs of `part` elements, where the whole value has it; the other way round. */
void pd_spread_part(enum pd_side side, pd_in x, int64_t runs, int64_t part, int r, pd_out whole);
void pd_pack_part(enum pd_side side, pd_in whole, int64_t runs, int64_t part, int r, pd_out y);
/* What is asked for and posted on PD_MEETING from now on starts behind all work asked for so far; work asked for from now on
 * starts behind all of that. */
void pd_group_leaves(void);
void pd_group_returns(void);

/* Another way than messages for a shard group's values, where its ranks have one. */
struct pd_meeting {
  void (*reduce)(enum pd_group_operation how, pd_in x, int64_t n, pd_out y);
  void (*gather)(pd_in x, int64_t runs, int64_t part, pd_out y);
  void (*scatter)(pd_in x, int64_t runs, int64_t part, pd_out y);
  /* The same in two: shows n elements, waiting for nobody; goes on with what it has shown, and all others. */
  void (*show)(pd_in x, int64_t n);
  void (*reduce_shown)(enum pd_group_operation how, pd_in x, int64_t n, pd_out y);
  void (*gather_shown)(pd_in x, int64_t runs, int64_t part, pd_out y);
  void (*scatter_shown)(pd_in x, int64_t runs, int64_t part, pd_out y);
};
/* Collective in the group; NULL: there is none (host/meeting.c, cuda/group.cu). */
const struct pd_meeting *pd_meeting_start(MPI_Comm group);
int64_t
pd_meeting_shared(void); /* on processors: bytes of the arena that it has put into memory that ranks share */

#ifdef __cplusplus
}
#endif

#endif
