/* The part of MPI that the runtime uses, for a launch of one rank, where no MPI is installed. Collectives copy
 * input to output, requests are complete when posted, and a message to another rank is an error that ends the
 * launch. A type is its size in bytes. */
#ifndef PD_SINGLE_MPI_H
#define PD_SINGLE_MPI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int MPI_Comm, MPI_Request, MPI_Op, MPI_Info, MPI_Errhandler;
typedef size_t MPI_Datatype;
typedef struct {
  int MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
typedef void MPI_Comm_errhandler_function(MPI_Comm *, int *, ...);

enum { MPI_SUCCESS, MPI_ERR_RANK = 6, MPI_ERR_OTHER = 15, MPI_MAX_ERROR_STRING = 256 };
enum { MPI_COMM_NULL, MPI_COMM_WORLD, MPI_COMM_SELF };
enum { MPI_REQUEST_NULL, MPI_INFO_NULL = 0, MPI_COMM_TYPE_SHARED = 0, MPI_UNDEFINED = -32766 };
enum { MPI_TAG_UB };
enum { MPI_ANY_SOURCE = -1, MPI_ANY_TAG = -1, MPI_PROC_NULL = -2 };
enum { MPI_MAX, MPI_MIN, MPI_SUM, MPI_LAND, MPI_LOR };
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };

#define MPI_IN_PLACE ((void *)-1)
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
#define MPI_STATUSES_IGNORE ((MPI_Status *)0)
#define MPI_BYTE sizeof(char)
#define MPI_CHAR sizeof(char)
#define MPI_UNSIGNED_CHAR sizeof(unsigned char)
#define MPI_INT sizeof(int)
#define MPI_INT32_T sizeof(int32_t)
#define MPI_INT64_T sizeof(int64_t)
#define MPI_UINT64_T sizeof(uint64_t)
#define MPI_FLOAT sizeof(float)
#define MPI_UINT16_T sizeof(uint16_t)
#define MPI_DOUBLE sizeof(double)

/* ---- the launch ------------------------------------------------------------------------------- */

/* Fails in a launch of several ranks, which the launcher announces in the environment. */
static inline int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
  (void)argc, (void)argv;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const char *ranks = getenv(sizes[i]);
    if (!ranks || atoi(ranks) <= 1) continue;
    fprintf(stderr, "pd: this program was built without MPI and runs as one rank, but the launch has %s ranks\n",
            ranks);
    return MPI_ERR_OTHER;
  }
  *provided = required;
  return MPI_SUCCESS;
}

static inline int MPI_Finalize(void) { return MPI_SUCCESS; }

static inline int MPI_Abort(MPI_Comm comm, int status) {
  (void)comm;
  fflush(NULL);
  _Exit(status);
}

static inline int MPI_Error_string(int code, char *text, int *length) {
  *length = snprintf(text, MPI_MAX_ERROR_STRING, "error %d of a launch without MPI", code);
  return MPI_SUCCESS;
}

/* ---- communicators: all of the one rank ---------------------------------------------------------- */

static inline int MPI_Comm_rank(MPI_Comm comm, int *rank) {
  (void)comm;
  *rank = 0;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_size(MPI_Comm comm, int *size) {
  (void)comm;
  *size = 1;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy) {
  *copy = comm;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *part) {
  (void)key;
  *part = color == MPI_UNDEFINED ? (MPI_Comm)MPI_COMM_NULL : comm;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *part) {
  (void)info;
  return MPI_Comm_split(comm, type, key, part);
}

static inline int MPI_Comm_get_attr(MPI_Comm comm, int key, void *value, int *known) {
  static int most_tags = 1 << 30;
  (void)comm, (void)key;
  *(int **)value = &most_tags;
  *known = 1;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_free(MPI_Comm *comm) {
  *comm = MPI_COMM_NULL;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function *function, MPI_Errhandler *handler) {
  (void)function;
  *handler = 0;
  return MPI_SUCCESS;
}

static inline int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler) {
  (void)comm, (void)handler;
  return MPI_SUCCESS;
}

/* ---- collective operations ------------------------------------------------------------------------- */

static inline int pd_single_copy(const void *from, int n, MPI_Datatype type, void *to, MPI_Request *request) {
  if (from != MPI_IN_PLACE && n > 0) memmove(to, from, (size_t)n * type);
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

static inline int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
  (void)comm;
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

static inline int MPI_Ibcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request) {
  (void)root;
  return (void)comm, pd_single_copy(MPI_IN_PLACE, n, type, data, request);
}

static inline int MPI_Iallreduce(const void *from, void *to, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                                 MPI_Request *request) {
  (void)op, (void)comm;
  return pd_single_copy(from, n, type, to, request);
}

static inline int MPI_Iallgather(const void *from, int n, MPI_Datatype type, void *to, int n_each,
                                 MPI_Datatype each, MPI_Comm comm, MPI_Request *request) {
  (void)n_each, (void)each, (void)comm;
  return pd_single_copy(from, n, type, to, request);
}

static inline int MPI_Igatherv(const void *from, int n, MPI_Datatype type, void *to, const int *n_each,
                               const int *first, MPI_Datatype each, int root, MPI_Comm comm,
                               MPI_Request *request) {
  (void)n_each, (void)root, (void)comm;
  return pd_single_copy(from, n, type, (char *)to + (size_t)first[0] * each, request);
}

/* ---- messages and requests ------------------------------------------------------------------------- */

static inline int pd_single_message(const char *direction, int rank) {
  fprintf(stderr, "pd: a message %s rank %d, but the program was built without MPI for one rank\n", direction,
          rank);
  return MPI_Abort(MPI_COMM_WORLD, 1);
}

static inline int MPI_Isend(const void *data, int n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                            MPI_Request *request) {
  (void)data, (void)n, (void)type, (void)tag, (void)comm, (void)request;
  return pd_single_message("to", rank);
}

static inline int MPI_Irecv(void *data, int n, MPI_Datatype type, int rank, int tag, MPI_Comm comm,
                            MPI_Request *request) {
  (void)data, (void)n, (void)type, (void)tag, (void)comm, (void)request;
  return pd_single_message("from", rank);
}

static inline int MPI_Request_free(MPI_Request *request) {
  *request = MPI_REQUEST_NULL;
  return MPI_SUCCESS;
}

static inline int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
  (void)source, (void)tag, (void)comm, (void)status;
  *flag = 0;
  return MPI_SUCCESS;
}

static inline int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status) {
  (void)request, (void)status;
  *flag = 1;
  return MPI_SUCCESS;
}

static inline int MPI_Testall(int n, MPI_Request *requests, int *flag, MPI_Status *statuses) {
  (void)n, (void)requests, (void)statuses;
  *flag = 1;
  return MPI_SUCCESS;
}

#ifdef __cplusplus
}
#endif

#endif
