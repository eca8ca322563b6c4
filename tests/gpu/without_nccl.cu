/* In place of transfer_nccl.cu on a machine without NCCL (toolchain.py): no line can be opened, and a program of one
 * rank opens none. */
#include "transport.h"

[[noreturn]] static void refuse() { pd_fail("this program was built without NCCL: use --comm mpi"); }
static pd_line *open(MPI_Comm, int, const int *, cudaStream_t) { refuse(); }
static pd_transfer *make(int, size_t) { refuse(); }
static void post(pd_transfer *, pd_line *, int, const pd_message *) { refuse(); }
static bool answer(pd_transfer *) { refuse(); }
static void nothing() {}

const pd_transport pd_nccl_transport = {open, make, post, answer, answer, nothing, nothing, nothing, nothing};
