/* Memory limits of control groups, on Linux. */
#ifndef PDC_PLAN_CONTAINER_H
#define PDC_PLAN_CONTAINER_H

#include <stdint.h>

/* The memory limit of the process in bytes: the least limit of its groups and their ancestors, for versions 1 and
 * 2. groups: the list of groups (/proc/self/cgroup); root: their folder (/sys/fs/cgroup). INT64_MAX: no limit.
 * Reads the root's limit too, because a container may see its own group as the root. */
int64_t container_bytes(const char *root, const char *groups);

#endif
