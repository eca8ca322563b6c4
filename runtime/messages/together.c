/* Collective agreement where a rank may fail. */
#include "messages/messages.h"
#include "run/upward.h"

#include <time.h>

void pd_leave_to_others(void) {
  pd_signals_mute();
  for (double until = pd_seconds() + 10; pd_seconds() < until;) {
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, pd_comm_control, &flag, MPI_STATUS_IGNORE);
    pd_exchange_progress();
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  pd_leave();
}

void pd_agree(const char *why) {
  int mine = *why ? pd.self : pd.everyone, first;
  MPI_Request request;
  MPI_Iallreduce(&mine, &first, 1, MPI_INT, MPI_MIN, pd_comm_everyone, &request);
  pd_wait(1, &request, "all ranks to check their start", -1, NULL, -1);
  if (first == pd.everyone) return;
  if (first == pd.self) pd_fail("%s", why);
  pd_leave_to_others();
}
