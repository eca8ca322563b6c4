/* The parameters of all stages, as rank 0 knows them from the ranks that provide them. */
#include "checkpoint/checkpoint.h"

#include <stdlib.h>
#include <string.h>

struct description {
  int32_t order, writer, rank, name_at; /* writer: of MPI's ranks; rank: of the tensor */
  int64_t dim[PD_MAX_RANK], elements;
};

/* Descriptions of the parameters that this rank provides, followed by their names. */
static char *describe(int32_t *bytes) {
  const struct pd_stage *s = pd.stage;
  size_t n = 0, names = 0;
  for (int i = 0; i < s->n_parameters; i++)
    if (pd_provides(&s->parameters[i])) {
      n++;
      names += strlen(s->parameters[i].name) + 1;
    }
  size_t head = n * sizeof(struct description);
  *bytes = (int32_t)(sizeof(int64_t) + head + (names + 7) / 8 * 8);
  char *all = pd_allocate((size_t)*bytes), *name = all + sizeof(int64_t) + head;
  *(int64_t *)all = (int64_t)n;
  struct description *d = (struct description *)(all + sizeof(int64_t));
  for (int i = 0; i < s->n_parameters; i++) {
    const struct pd_parameter *p = &s->parameters[i];
    if (!pd_provides(p)) continue;
    *d = (struct description){.order = p->order,
                              .writer = pd.rank,
                              .rank = p->rank,
                              .name_at = (int32_t)(name - all),
                              .elements = pd_whole_shape(p).elements};
    pd_file_shape(p, d->dim);
    d++;
    name = stpcpy(name, p->name) + 1;
  }
  return all;
}

struct pd_entry *pd_gather_entries(int *writer) {
  int n = pd.stage->n_model_parameters, total = 0;
  int32_t mine_bytes, *bytes = pd_allocate(sizeof *bytes * (size_t)pd.ranks),
                      *at = pd_allocate(sizeof *at * (size_t)pd.ranks);
  char *mine = describe(&mine_bytes);
  MPI_Request request;
  MPI_Iallgather(&mine_bytes, 1, MPI_INT32_T, bytes, 1, MPI_INT32_T, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to describe their weights", -1, NULL, -1);
  for (int r = 0; r < pd.ranks; r++) {
    at[r] = total;
    total += bytes[r];
  }
  char *all = pd_allocate((size_t)total);
  MPI_Igatherv(mine, mine_bytes, MPI_BYTE, all, bytes, at, MPI_BYTE, 0, pd_comm_control, &request);
  pd_wait(1, &request, "all ranks to describe their weights", -1, NULL, -1);
  free(mine);
  struct pd_entry *entries = pd_allocate(sizeof *entries * (size_t)n);
  for (int r = 0; r < pd.ranks && !pd.rank; r++) {
    const char *from = all + at[r];
    const struct description *d = (const struct description *)(from + sizeof(int64_t));
    for (int64_t i = *(const int64_t *)from; i > 0; i--, d++) {
      struct pd_entry *e = &entries[d->order];
      *e = (struct pd_entry){.name = pd_copy_text(from + d->name_at), .rank = d->rank, .elements = d->elements};
      memcpy(e->dim, d->dim, sizeof d->dim);
      if (writer) writer[d->order] = d->writer;
    }
  }
  free(all);
  free(bytes);
  free(at);
  return entries;
}

void pd_free_entries(struct pd_entry *entries) {
  for (int i = 0; i < pd.stage->n_model_parameters; i++) free(entries[i].name);
  free(entries);
}
