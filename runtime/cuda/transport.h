/* How messages of device memory travel: transfer.cu chooses one of two transports at start. */
#ifndef PD_TRANSPORT_H
#define PD_TRANSPORT_H

#include "internal.h"
#include "transfer.h"

#include "pd_cuda.h"

/* The stream of the additions between the ranks' messages (sums.cu). */
extern cudaStream_t pd_exchange_stream;

/* What both transports' lines and transfers begin with: the stream of the line's side. */
struct pd_line {
  cudaStream_t side;
};
struct pd_transfer {
  cudaStream_t side;
};

/* transfer.h says what the functions do; open's last parameter is the side's stream. */
struct pd_transport {
  pd_line *(*open)(MPI_Comm comm, int n, const int *ranks, cudaStream_t side);
  pd_transfer *(*make)(int messages, size_t bytes);
  void (*post)(pd_transfer *t, pd_line *line, int n, const pd_message *message);
  bool (*passed)(pd_transfer *t);
  bool (*through)(pd_transfer *t);
  void (*progress)();
  void (*watch)();
  void (*abort)();
  void (*finish)();
};
extern const pd_transport pd_nccl_transport, pd_staged_transport;

/* A stream of messages: it runs beside computation, and before it where both could. */
cudaStream_t pd_message_stream();
/* Work of `later` from now on starts behind that of `earlier` so far. `event` is for this alone. */
void pd_order(cudaStream_t earlier, cudaStream_t later, cudaEvent_t event);

#endif
