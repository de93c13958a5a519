/* The control groups (cgroups) of this process, whose limits hold in addition to the machine's:
 * those of a container, a systemd unit and its slices, at any depth of nesting. Any thread. */
#ifndef QUIRE_CONFIG_BASE_CONTROL_GROUP_H
#define QUIRE_CONFIG_BASE_CONTROL_GROUP_H

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_GROUP_LINE_BYTES 4096

/* Visits the folder of this process's group of a controller ("cpu", "memory"), then those of the
 * groups above it, as far as they are mounted: in version 2, and in the hierarchies of version 1
 * that have the controller. The smallest limit of all of them counts. root is put before
 * /proc/self/cgroup, /proc/self/mountinfo and the mount points ("" is the real machine). In a
 * cgroup namespace, paths and mount roots are relative to the namespace's root group, and may lie
 * above it ("/..", see cgroup_namespaces(7)). Folders that cannot be read are not visited. */
void control_group_visit(const char *root, const char *controller,
                         void (*visit)(void *context, const char *folder), void *context);

/* Reads the first line of a file in a group's folder. */
bool control_group_read(const char *folder, const char *name,
                        char line[static CONTROL_GROUP_LINE_BYTES]);

#endif
