/* Messages by MPI between two ranks that are alike, all of one tag, come in the order in which they were posted, whatever
 * their sizes, and whatever of the posts before is still being copied. */
#include "../runtime/test.h"
#include "messages/messages.h"

#include "transfer.h"

enum { ROUNDS = 20, MESSAGES = 6, SIZES = 7 };

/* Some of more pieces than a message has buffers. */
static size_t floats_of(int round, int i) {
  static const size_t sizes[SIZES] = {1, 3000, 16, 1400000, 40, 280000, 7};
  return sizes[(round * MESSAGES + i) % SIZES];
}

static float value_of(int rank, int round, int i) { return (float)((rank * ROUNDS + round) * MESSAGES + i + 1); }

static size_t bytes_of_round(int round) {
  size_t n = 0;
  for (int i = 0; i < MESSAGES; i++) n += floats_of(round, i) * sizeof(float);
  return n;
}

/* Both ways; what is sent is in the places behind in one round, before in the next. */
static void post(pd_transfer *transfer, pd_line *line, int round, char *out, char *in) {
  pd_message messages[2 * MESSAGES];
  for (int i = 0; i < MESSAGES; i++) {
    size_t bytes = floats_of(round, i) * sizeof(float);
    messages[round % 2 ? i : MESSAGES + i] = {1 - pd.self, true, 5, out, bytes};
    messages[round % 2 ? MESSAGES + i : i] = {1 - pd.self, false, 5, in, bytes};
    out += bytes;
    in += bytes;
  }
  pd_transfer_post(transfer, line, 2 * MESSAGES, messages);
  while (!pd_transfer_passed(transfer)) pd_transfers_progress();
}

static void fill(int round, size_t at) {
  for (int i = 0; i < MESSAGES; i++) {
    std::vector<float> x(floats_of(round, i), value_of(pd.self, round, i));
    put(at, x.data(), x.size() * sizeof(float));
    at += x.size() * sizeof(float);
  }
}

static void compare(int round, size_t at) {
  for (int i = 0; i < MESSAGES; i++) {
    std::vector<float> x = fetch(at, (int64_t)floats_of(round, i));
    for (float v : x) CHECK(v == value_of(1 - pd.self, round, i));
    at += x.size() * sizeof(float);
  }
}

int main(int argc, char **argv) {
  static const int replicas[] = {1, 1}, ranks[] = {0, 1};
  char why[PD_WHY] = "";
  size_t all = 0;
  for (int r = 0; r < ROUNDS; r++) all += bytes_of_round(r);
  pd_stage stage = {};
  stage.arena_bytes = 2 * all;
  stage.replicas = replicas;
  stage.n_stages = 2;
  stage.chunks = 1;
  pd.stage = &stage;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &stage.stage);
  pd_comm_open(stage.stage);
  pd.training = true;
  pd_options.timeout = 100;
  pd_options.comm = "mpi";
  CHECK(pd_device_start(why) && pd_transfers_start(why));
  pd_line *line = pd_line_open(pd_comm_control, 2, ranks, PD_COMPUTING);
  pd_transfer *transfer = pd_transfer_new(2 * MESSAGES, 1400000 * sizeof(float));
  size_t at = 0;
  for (int r = 0; r < ROUNDS; at += bytes_of_round(r++)) fill(r, at);
  at = 0;
  for (int r = 0; r < ROUNDS; at += bytes_of_round(r++))
    post(transfer, line, r, pd.arena + at, pd.arena + all + at);
  while (!pd_transfer_through(transfer)) pd_transfers_progress();
  at = all;
  for (int r = 0; r < ROUNDS; at += bytes_of_round(r++)) compare(r, at);
  MPI_Barrier(pd_comm_control);
  pd_transfers_finish();
  pd_device_finish();
  MPI_Finalize();
  return 0;
}
