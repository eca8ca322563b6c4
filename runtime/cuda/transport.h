/* Transports of messages in device memory; transfer.cu chooses them at start. */
#ifndef PD_TRANSPORT_H
#define PD_TRANSPORT_H

#include "run/run.h"
#include "transfer.h"

#include "pd_cuda.h"

/* The stream of the additions between the ranks' messages (sums.cu). */
extern cudaStream_t pd_exchange_stream;
/* The stream of a shard group between a collective's begin and end (group.cu). */
extern cudaStream_t pd_meeting_stream;

/* Common first members of all transports' lines and transfers: the stream of the line's side. */
struct pd_line {
  const struct pd_transport *by;
  cudaStream_t side;
};
struct pd_transfer {
  cudaStream_t side;
};

/* The use of a line: messages between two ranks of neighbouring stages, or exchanges of all ranks of a group. */
enum pd_line_use { PD_OF_STAGES, PD_OF_GROUP };

/* The functions of transfer.h; open's last parameter is the side's stream. */
struct pd_transport {
  pd_line *(*open)(MPI_Comm comm, int n, const int *ranks, pd_line_use use, cudaStream_t side);
  pd_transfer *(*make)(int messages, size_t bytes);
  void (*post)(pd_transfer *t, pd_line *line, int n, const pd_message *message);
  bool (*passed)(pd_transfer *t);
  bool (*through)(pd_transfer *t);
  void (*progress)();
  void (*watch)();
  void (*abort)();
  void (*finish)();
};
extern const pd_transport pd_nccl_transport, pd_staged_transport, pd_peer_transport;

/* ---- transfer_peer.cu: to ranks of neighbouring stages whose GPU's memory this one can write ------------- */

/* Pairs of such ranks: the number with peer access, the number without, and a pair without, with its cause for a
 * message. */
struct pd_peers {
  int reached, others;
  int a, b, why;
};
pd_peers pd_peers_start(bool wanted);   /* collective; not wanted: no peer copies */
bool pd_peers_apart(const pd_peers *p); /* a and b are on different machines */
const char *pd_peers_why(const pd_peers *p);
bool pd_peer_reached(int rank);
/* Tests an open line with a first message; ends the launch if the message does not arrive. */
void pd_peer_greet(pd_line *line, int peer, bool sends, pd_kind kind);

/* A stream for messages, with priority over computation. */
cudaStream_t pd_message_stream();
/* Orders future work of `later` after all work of `earlier` so far, by an `event` of its own. */
void pd_order(cudaStream_t earlier, cudaStream_t later, cudaEvent_t event);

#endif
