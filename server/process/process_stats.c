#include "server/process/process_stats.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Since Linux 6.2 the folder's size is the number of descriptors. */
static int64_t count_files(void) {
    struct stat status;
    int64_t count = 0;
    if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0)
        return status.st_size;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        return 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1; /* that of the folder */
}

/* Start times are ticks since the boot, which CLOCK_BOOTTIME counts from. */
static double boot_seconds(void) {
    struct timespec now, since;
    clock_gettime(CLOCK_REALTIME, &now);
    clock_gettime(CLOCK_BOOTTIME, &since);
    return (double)(now.tv_sec - since.tv_sec) + (double)(now.tv_nsec - since.tv_nsec) * 1e-9;
}

/* The name, in brackets, may contain anything: the fields follow its end. */
static void read_stat(const char *path, struct process_stats *out) {
    char text[1024];
    unsigned long long user, system, start, virtual_bytes;
    long long pages;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    size_t length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *fields = strrchr(text, ')');
    double ticks = (double)sysconf(_SC_CLK_TCK);
    if (fields == NULL ||
        sscanf(fields + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d "
               "%llu %llu %lld",
               &user, &system, &start, &virtual_bytes, &pages) != 5)
        return;
    out->cpu_seconds = (double)(user + system) / ticks;
    out->start_seconds = boot_seconds() + (double)start / ticks;
    out->virtual_bytes = (size_t)virtual_bytes;
    out->resident_bytes = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

void process_stats_read(struct process_stats *out) {
    struct rlimit limit;
    *out = (struct process_stats){.num_files = count_files()};
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->max_files = (int64_t)limit.rlim_cur;
    read_stat("/proc/self/stat", out);
}

void process_stats_read_child(pid_t pid, struct process_stats *out) {
    char path[64];
    *out = (struct process_stats){0};
    snprintf(path, sizeof(path), "/proc/%lld/stat", (long long)pid);
    if (pid > 0)
        read_stat(path, out);
}
