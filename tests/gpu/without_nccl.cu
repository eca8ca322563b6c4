/* In place of transfer_nccl.cu on a machine without NCCL (toolchain.py): no line can be opened. A program of one rank
 * opens none, nor do stages that copy to each other's GPU and share nothing else. */
#include "transport.h"

[[noreturn]] static void refuse() { pd_fail("this program was built without NCCL: use --comm mpi"); }
static pd_line *open(MPI_Comm, int, const int *, pd_line_use, cudaStream_t) { refuse(); }
static pd_transfer *make(int, size_t) { return new pd_transfer{}; }
static void post(pd_transfer *, pd_line *, int, const pd_message *) { refuse(); }
static bool answer(pd_transfer *) { refuse(); }
static void nothing() {}

const pd_transport pd_nccl_transport = {open, make, post, answer, answer, nothing, nothing, nothing, nothing};
