/* The end of a launch that has failed. */
#include "run/run.h"

/* Open MPI's MPI_Abort first prints eight lines about itself, which bury the message that says what failed; then it calls
 * this function, which other libraries do not have. */
extern int ompi_mpi_abort(MPI_Comm comm, int status) __attribute__((weak));

void pd_abort(void) {
  if (ompi_mpi_abort)
    ompi_mpi_abort(MPI_COMM_WORLD, 1);
  else
    MPI_Abort(MPI_COMM_WORLD, 1);
}
