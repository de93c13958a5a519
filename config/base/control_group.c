#include "config/base/control_group.h"

#include <stdio.h>
#include <string.h>

#define MAX_PATH_BYTES 4096

struct walk {
    const char *root, *controller;
    const char *path; /* of the group, from the root of its hierarchy or namespace */
    bool is_version_2;
    void (*visit)(void *context, const char *folder);
    void *context;
};

/* Returns whether a list as "cpu,cpuacct" or "rw,cpu" has the word. */
static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    while (list != NULL) {
        if (strncmp(list, word, length) == 0 && (list[length] == ',' || list[length] == '\0'))
            return true;
        list = strchr(list, ',');
        list += list != NULL;
    }
    return false;
}

/* Returns whether it is "/.." repeated that many times: above the namespace's root. */
static bool is_above(const char *path) {
    while (strncmp(path, "/..", 3) == 0)
        path += 3;
    return *path == '\0';
}

/* Returns the group's path below the root of a mount; NULL: the mount shows other groups. A mount
 * above the namespace contains the group at a path that is not visible from inside. */
static const char *path_below(const char *path, const char *mount_root) {
    size_t length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
    if (strncmp(path, mount_root, length) == 0 && (path[length] == '/' || path[length] == '\0'))
        return path + length;
    return is_above(mount_root) ? "" : NULL;
}

/* Goes up from the group to where it is mounted. */
static void visit_mount(const struct walk *walk, const char *mount_root, const char *mount) {
    char folder[MAX_PATH_BYTES];
    const char *path = path_below(walk->path, mount_root);
    size_t top = strlen(walk->root) + strlen(mount);
    int length =
        path == NULL ? -1 : snprintf(folder, sizeof(folder), "%s%s%s", walk->root, mount, path);
    if (length < 0 || (size_t)length >= sizeof(folder))
        return;
    for (;;) {
        char *end = strrchr(folder + top, '/');
        if (end == NULL || end[1] != '\0')
            walk->visit(walk->context, folder);
        if (end == NULL)
            return;
        *end = '\0';
    }
}

/* A line of proc_pid_mountinfo(5): 31 23 0:28 ROOT MOUNT OPTIONS [TAG...] - TYPE SOURCE OPTIONS. */
static void read_mount(const struct walk *walk, const char *line) {
    char root[MAX_PATH_BYTES], mount[MAX_PATH_BYTES], type[16], options[CONTROL_GROUP_LINE_BYTES];
    const char *end = strstr(line, " - ");
    if (end == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) != 2 ||
        sscanf(end, " - %15s %*s %4095s", type, options) != 2)
        return;
    if (walk->is_version_2 ? strcmp(type, "cgroup2") == 0
                           : strcmp(type, "cgroup") == 0 && has_word(options, walk->controller))
        visit_mount(walk, root, mount);
}

static FILE *open_below(const char *root, const char *name) {
    char path[MAX_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s%s", root, name);
    return length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
}

/* A line of /proc/self/cgroup: NUMBER:CONTROLLERS:PATH, of version 2 without controllers. */
static void read_group(struct walk *walk, char *line) {
    char mount_line[2 * MAX_PATH_BYTES];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path;
    if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL || path[1] != '/')
        return;
    *path++ = '\0';
    walk->is_version_2 = *controllers == '\0';
    walk->path = path;
    if (!walk->is_version_2 && !has_word(controllers, walk->controller))
        return;
    FILE *mounts = open_below(walk->root, "/proc/self/mountinfo");
    if (mounts == NULL)
        return;
    while (fgets(mount_line, sizeof(mount_line), mounts) != NULL)
        read_mount(walk, mount_line);
    fclose(mounts);
}

void control_group_visit(const char *root, const char *controller,
                         void (*visit)(void *context, const char *folder), void *context) {
    struct walk walk = {.root = root, .controller = controller, .visit = visit, .context = context};
    char line[CONTROL_GROUP_LINE_BYTES];
    FILE *groups = open_below(root, "/proc/self/cgroup");
    if (groups == NULL)
        return;
    while (fgets(line, sizeof(line), groups) != NULL)
        read_group(&walk, line);
    fclose(groups);
}

bool control_group_read(const char *folder, const char *name,
                        char line[static CONTROL_GROUP_LINE_BYTES]) {
    char path[MAX_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    bool is_read = fgets(line, CONTROL_GROUP_LINE_BYTES, file) != NULL;
    fclose(file);
    return is_read;
}
