/* The control groups (cgroups) of this process, whose limits hold beside the machine's: a
 * container's, a systemd unit's and its slices', nested as they may be. Any thread. */
#ifndef QUIRE_CONFIG_BASE_CONTROL_GROUP_H
#define QUIRE_CONFIG_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_GROUP_LINE_BYTES 4096

/* Visits the folder of the process' group of a controller ("cpu", "memory") and those of the groups
 * above it, as far as they are mounted, in version 2 and in those of version 1 that have it: the
 * least limit of all counts. root goes before /proc/self/cgroup, /proc/self/mountinfo and the
 * places of the mounts ("" is the machine). In a namespace, paths and the roots of mounts are told
 * from the group that it began with, and may lie above it ("/..", see cgroup_namespaces(7)). What
 * cannot be read is not visited. */
void control_group_visit(const char *root, const char *controller,
                         void (*visit)(void *context, const char *folder), void *context);

/* Reads the first line of a file of a group. */
bool control_group_read(const char *folder, const char *name,
                        char line[static CONTROL_GROUP_LINE_BYTES]);

#endif
