/* What control groups let this process take, on Linux. */
#ifndef PDC_PLAN_CONTAINER_H
#define PDC_PLAN_CONTAINER_H

#include <stdint.h>

/* Bytes of memory: the least limit of the groups that a process is in and of those around them, as its list of groups
 * (/proc/self/cgroup) names them below `root` (/sys/fs/cgroup), of version 1 or 2; INT64_MAX: there is none. A container may
 * see its own group as the root, whatever the list says. */
int64_t container_bytes(const char *root, const char *groups);

#endif
