/* Input: a file of clusters. Reads every block by name, and the file without a name. */
#include "fuzz.h"

#include "cluster/cluster.h"
#include "syntax/ast.h"

static void read_one(const Cluster *c) {
  diagnostics_flush();
  if (!c) return;
  cluster_verify(c);
  cluster_least(c, cluster_devices(c));
}

static int run(const uint8_t *data, size_t size) {
  const char *path = fuzz_file(data, size);
  const Ast *file = parse_file(path);
  diagnostics_flush();
  if (!file) return 0;
  for (int i = 0; i < file->list.n; i++)
    if (file->list.at[i]->kind == AST_CLUSTER) {
      read_one(cluster_make(file->list.at[i]));
      read_one(cluster_read(format("%s:%s", path, file->list.at[i]->name)));
    }
  read_one(cluster_read(path));
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return fuzz_afresh(run, data, size); }
