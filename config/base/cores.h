/* How many processor cores the system gives this process: those it may run on, and of these what
 * the control groups' quotas leave (a container's --cpus, systemd's CPUQuota). Any thread. */
#ifndef QUIRE_CONFIG_BASE_CORES_H
#define QUIRE_CONFIG_BASE_CORES_H

#define CORES_UNLIMITED 1000000

/* Returns the cores that the calling thread may run on; CORES_UNLIMITED does not occur. */
int cores_allowed(void);

/* Returns the cores that the least quota of the process' control group and of those above it is
 * worth, to the nearest whole number and at least 1; CORES_UNLIMITED without one. A thread too many
 * has all threads stopped for the rest of each period; one too few leaves that part of the quota
 * unused: so half a core is one. Reads cpu.max (version 2) or cpu.cfs_quota_us and
 * cpu.cfs_period_us of the controller cpu (version 1) of the groups that control_group_visit finds
 * below root, "" usually (Linux, Admin Guide: cgroup-v2.rst, and Scheduler: sched-bwc.rst). What
 * cannot be read limits nothing. */
int cores_quota(const char *root);

/* Returns the lesser of both, of this process. */
int cores_available(void);

#endif
