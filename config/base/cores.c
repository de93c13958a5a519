#include "config/base/cores.h"

#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_PATH_BYTES 4096
#define MAX_LINE_BYTES 4096

int cores_allowed(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return online > 0 ? (int)online : 1;
}

/* The first line of a file. */
static bool read_line(const char *dir, const char *name, char line[static MAX_LINE_BYTES]) {
    char path[MAX_PATH_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", dir, name);
    FILE *file = length > 0 && (size_t)length < sizeof(path) ? fopen(path, "re") : NULL;
    if (file == NULL)
        return false;
    bool is_read = fgets(line, MAX_LINE_BYTES, file) != NULL;
    fclose(file);
    return is_read;
}

static int whole_cores(int64_t quota_us, int64_t period_us) {
    if (quota_us <= 0 || period_us <= 0 || quota_us / period_us >= CORES_UNLIMITED)
        return CORES_UNLIMITED;
    int64_t nearest = quota_us / period_us + (quota_us % period_us >= period_us - period_us / 2);
    return nearest > 0 ? (int)nearest : 1;
}

static int group_quota(const char *dir) {
    char quota[MAX_LINE_BYTES], period[MAX_LINE_BYTES];
    int64_t quota_us, period_us;
    if (read_line(dir, "cpu.max", quota) &&
        sscanf(quota, "%" SCNd64 " %" SCNd64, &quota_us, &period_us) == 2)
        return whole_cores(quota_us, period_us);
    if (read_line(dir, "cpu.cfs_quota_us", quota) && read_line(dir, "cpu.cfs_period_us", period) &&
        sscanf(quota, "%" SCNd64, &quota_us) == 1 && sscanf(period, "%" SCNd64, &period_us) == 1)
        return whole_cores(quota_us, period_us);
    return CORES_UNLIMITED;
}

/* Of the group `path`, which begins with a slash, and those above it up to `mount`. */
static int least_quota(const char *mount, const char *path) {
    char dir[MAX_PATH_BYTES];
    size_t mount_length = strlen(mount);
    int length = snprintf(dir, sizeof(dir), "%s%s", mount, path);
    if (length < 0 || (size_t)length >= sizeof(dir))
        return CORES_UNLIMITED;
    int least = CORES_UNLIMITED;
    for (;;) {
        int quota = group_quota(dir);
        least = quota < least ? quota : least;
        char *end = strrchr(dir + mount_length, '/');
        if (end == NULL)
            return least;
        *end = '\0';
    }
}

/* Whether a list as "cpu,cpuacct" names the controller cpu. */
static bool has_cpu(const char *controllers) {
    while (controllers != NULL) {
        if (strncmp(controllers, "cpu", 3) == 0 &&
            (controllers[3] == ',' || controllers[3] == '\0'))
            return true;
        controllers = strchr(controllers, ',');
        controllers += controllers != NULL;
    }
    return false;
}

/* A line is NUMBER:CONTROLLERS:PATH, of version 2 without controllers. What version 1 mounts for
 * several controllers is there by the name of each as well. */
static int line_quota(char *line, const char *root) {
    char mount[MAX_PATH_BYTES];
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'), *path;
    if (controllers == NULL || (path = strchr(++controllers, ':')) == NULL || path[1] != '/')
        return CORES_UNLIMITED;
    *path++ = '\0';
    if (*controllers == '\0')
        return least_quota(root, path);
    int length = snprintf(mount, sizeof(mount), "%s/cpu", root);
    if (!has_cpu(controllers) || length < 0 || (size_t)length >= sizeof(mount))
        return CORES_UNLIMITED;
    return least_quota(mount, path);
}

int cores_quota(const char *cgroups, const char *root) {
    char line[MAX_LINE_BYTES];
    FILE *file = fopen(cgroups, "re");
    if (file == NULL)
        return CORES_UNLIMITED;
    int least = CORES_UNLIMITED;
    while (fgets(line, sizeof(line), file) != NULL) {
        int quota = line_quota(line, root);
        least = quota < least ? quota : least;
    }
    fclose(file);
    return least;
}

int cores_available(void) {
    int allowed = cores_allowed(), quota = cores_quota("/proc/self/cgroup", "/sys/fs/cgroup");
    return quota < allowed ? quota : allowed;
}
