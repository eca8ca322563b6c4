/* How messages of device memory travel: transfer.cu chooses transports at start. */
#ifndef PD_TRANSPORT_H
#define PD_TRANSPORT_H

#include "run/run.h"
#include "transfer.h"

#include "pd_cuda.h"

/* The stream of the additions between the ranks' messages (sums.cu). */
extern cudaStream_t pd_exchange_stream;
/* That of a shard group's values between a collective's begin and its end (group.cu). */
extern cudaStream_t pd_meeting_stream;

/* What all transports' lines and transfers begin with: the stream of the line's side. */
struct pd_line {
  const struct pd_transport *by;
  cudaStream_t side;
};
struct pd_transfer {
  cudaStream_t side;
};

/* The use of a line: messages between two ranks of neighbouring stages, or exchanges of all ranks of a group. */
enum pd_line_use { PD_OF_STAGES, PD_OF_GROUP };

/* transfer.h says what the functions do; open's last parameter is the side's stream. */
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

/* Of all pairs of such ranks: how many can, how many cannot, and of these the first whose cause is most worth telling. */
struct pd_peers {
  int reached, others;
  int a, b, why;
};
pd_peers pd_peers_start(bool wanted);   /* collective; not wanted: nobody can */
bool pd_peers_apart(const pd_peers *p); /* a and b are on different machines */
const char *pd_peers_why(const pd_peers *p);
bool pd_peer_reached(int rank);
/* Once a line is open: its first message, which ends the launch where it does not arrive. */
void pd_peer_greet(pd_line *line, int peer, bool sends, pd_kind kind);

/* A stream of messages: it runs beside computation, and before it where both could. */
cudaStream_t pd_message_stream();
/* Work of `later` from now on starts behind that of `earlier` so far. `event` is for this alone. */
void pd_order(cudaStream_t earlier, cudaStream_t later, cudaEvent_t event);

#endif
