/* Loaded before a program's libraries (LD_PRELOAD): makes its reads (pread) or writes (pwrite) of
 * large pieces of files in the folder HANG_DISK_FOLDER take long. The files HANG_DISK_FILE.read and
 * .write have milliseconds; a call does not end while its file exists and the time is not over. */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define BLOCK_BYTES 65536
#define PAUSE_MS 10

static long asked_ms(const char *kind) {
    char path[4096];
    long ms = 0;
    const char *base = getenv("HANG_DISK_FILE");
    if (base == NULL || snprintf(path, sizeof(path), "%s.%s", base, kind) >= (int)sizeof(path))
        return 0;
    FILE *stream = fopen(path, "re");
    if (stream == NULL)
        return 0;
    if (fscanf(stream, "%ld", &ms) != 1)
        ms = 0;
    fclose(stream);
    return ms;
}

static bool is_in_folder(int fd) {
    char name[64], path[4096];
    const char *folder = getenv("HANG_DISK_FOLDER");
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    return folder != NULL && strncmp(path, folder, strlen(folder)) == 0;
}

static void hang(const char *kind, int fd, size_t bytes) {
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000};
    if (bytes < BLOCK_BYTES || !is_in_folder(fd))
        return;
    for (long ms = 0; ms < asked_ms(kind); ms += PAUSE_MS)
        nanosleep(&pause, NULL);
}

/* dlsym gives an object's address, which is a function's here. */
static void find_next(const char *name, void *out) {
    void *next = dlsym(RTLD_NEXT, name);
    memcpy(out, &next, sizeof(next));
}

ssize_t pread64(int fd, void *data, size_t bytes, off_t at);
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at);

ssize_t pread64(int fd, void *data, size_t bytes, off_t at) {
    ssize_t (*next)(int, void *, size_t, off_t);
    find_next("pread64", &next);
    hang("read", fd, bytes);
    return next(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    ssize_t (*next)(int, const void *, size_t, off_t);
    find_next("pwrite64", &next);
    hang("write", fd, bytes);
    return next(fd, data, bytes, at);
}
