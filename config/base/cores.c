#include "config/base/cores.h"

#include "config/base/control_group.h"

#include <inttypes.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

int cores_allowed(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0)
        return CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return online > 0 ? (int)online : 1;
}

static int whole_cores(int64_t quota_us, int64_t period_us) {
    if (quota_us <= 0 || period_us <= 0 || quota_us / period_us >= CORES_UNLIMITED)
        return CORES_UNLIMITED;
    int64_t nearest = quota_us / period_us + (quota_us % period_us >= period_us - period_us / 2);
    return nearest > 0 ? (int)nearest : 1;
}

static int group_quota(const char *folder) {
    char quota[CONTROL_GROUP_LINE_BYTES], period[CONTROL_GROUP_LINE_BYTES];
    int64_t quota_us, period_us;
    if (control_group_read(folder, "cpu.max", quota) &&
        sscanf(quota, "%" SCNd64 " %" SCNd64, &quota_us, &period_us) == 2)
        return whole_cores(quota_us, period_us);
    if (control_group_read(folder, "cpu.cfs_quota_us", quota) &&
        control_group_read(folder, "cpu.cfs_period_us", period) &&
        sscanf(quota, "%" SCNd64, &quota_us) == 1 && sscanf(period, "%" SCNd64, &period_us) == 1)
        return whole_cores(quota_us, period_us);
    return CORES_UNLIMITED;
}

static void take_least(void *context, const char *folder) {
    int *least = context, quota = group_quota(folder);
    *least = quota < *least ? quota : *least;
}

int cores_quota(const char *root) {
    int least = CORES_UNLIMITED;
    control_group_visit(root, "cpu", take_least, &least);
    return least;
}

int cores_available(void) {
    int allowed = cores_allowed(), quota = cores_quota("");
    return quota < allowed ? quota : allowed;
}
