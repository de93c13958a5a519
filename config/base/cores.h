/* How many processor cores this process may use: those it may run on, less what the control groups'
 * quotas take away (a container's --cpus, systemd's CPUQuota). Any thread. */
#ifndef QUIRE_CONFIG_BASE_CORES_H
#define QUIRE_CONFIG_BASE_CORES_H

#define CORES_UNLIMITED 1000000

/* Returns the cores that the calling thread may run on; never CORES_UNLIMITED. */
int cores_allowed(void);

/* Returns the smallest quota of this process's control group and of those above it, in cores,
 * rounded to the nearest whole number and at least 1; CORES_UNLIMITED when there is none. With one
 * thread too many, all threads are stopped for the rest of each period; with one too few, that part
 * of the quota is unused. So half a core counts as one. Reads cpu.max (version 2) or
 * cpu.cfs_quota_us and cpu.cfs_period_us of the controller cpu (version 1) of the groups that
 * control_group_visit finds below root, "" usually (Linux, Admin Guide: cgroup-v2.rst, and
 * Scheduler: sched-bwc.rst). A file that cannot be read sets no limit. */
int cores_quota(const char *root);

/* Returns the smaller of the two, for this process. */
int cores_available(void);

#endif
