#include "models/weights/packed_file.h"

#include "config/base/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FORMAT_VERSION 1
#define CHUNK_BYTES ((size_t)4 << 20)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define PAGE_BYTES ((size_t)4096)
#define MAX_SPANS ((size_t)1 << 24)
#define MAX_THREADS 16
#define ABANDONED_S 60 /* without a lock and a write */

static const char magic[8] = "QUIREPKW";

/* Followed by the table of the spans, then the checksums. */
struct head {
    char magic[8];
    uint32_t version, num_spans;
    uint64_t file_bytes, body_offset;
    uint8_t key[CONTENT_HASH_BYTES];
    uint64_t checksum; /* of the whole head, this being 0 */
};

struct span {
    uint64_t offset, bytes;
};

static uint64_t align_up(uint64_t value, uint64_t alignment) {
    return (value + alignment - 1) / alignment * alignment;
}

/* --- Layout --- */

/* Returns how many chunks have a part of the body. */
static size_t num_chunks(uint64_t body_offset, uint64_t file_bytes) {
    return (size_t)(align_up(file_bytes, CHUNK_BYTES) / CHUNK_BYTES - body_offset / CHUNK_BYTES);
}

/* Returns the part of the body that is in its chunk with this index. */
static struct span chunk_at(const struct head *head, size_t index) {
    uint64_t number = head->body_offset / CHUNK_BYTES + index;
    uint64_t begin = number * CHUNK_BYTES, end = begin + CHUNK_BYTES;
    begin = begin > head->body_offset ? begin : head->body_offset;
    end = end < head->file_bytes ? end : head->file_bytes;
    return (struct span){begin, end - begin};
}

static struct span *spans_of(const struct head *head) {
    return (struct span *)(head + 1);
}

static uint64_t *checksums_of(const struct head *head) {
    return (uint64_t *)(spans_of(head) + head->num_spans);
}

static size_t head_bytes(size_t num_spans, size_t count) {
    return sizeof(struct head) + num_spans * sizeof(struct span) + count * sizeof(uint64_t);
}

static uint64_t body_bytes(const struct packed_bytes *spans, size_t num_spans) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < num_spans; i++)
        bytes += align_up(spans[i].bytes, PACKED_ALIGNMENT);
    return bytes;
}

/* The head is as large as its checksums need, one more than the body alone may have. */
static uint64_t body_offset_of(const struct packed_bytes *spans, size_t num_spans) {
    size_t most = (size_t)(body_bytes(spans, num_spans) / CHUNK_BYTES) + 2;
    return align_up(head_bytes(num_spans, most), PAGE_BYTES);
}

uint64_t packed_file_bytes(const struct packed_bytes *spans, size_t num_spans) {
    return body_offset_of(spans, num_spans) + body_bytes(spans, num_spans);
}

static uint64_t checksum_of(const struct head *head) {
    struct head blank = *head;
    uint8_t parts[2][CONTENT_HASH_BYTES];
    size_t count = num_chunks(head->body_offset, head->file_bytes);
    blank.checksum = 0;
    content_hash_of(&blank, sizeof(blank), parts[0]);
    content_hash_of(head + 1, head_bytes(head->num_spans, count) - sizeof(*head), parts[1]);
    return content_hash_short(parts, sizeof(parts));
}

/* --- Writing --- */

/* The caller frees. NULL: no memory. The checksums are not known yet. */
static struct head *create_head(const uint8_t *key, const struct packed_bytes *spans,
                                size_t num_spans) {
    uint64_t offset = body_offset_of(spans, num_spans);
    struct head *head = calloc(1, (size_t)offset);
    if (head == NULL)
        return NULL;
    *head = (struct head){.version = FORMAT_VERSION,
                          .num_spans = (uint32_t)num_spans,
                          .file_bytes = packed_file_bytes(spans, num_spans),
                          .body_offset = offset};
    memcpy(head->magic, magic, sizeof(magic));
    memcpy(head->key, key, sizeof(head->key));
    for (size_t i = 0; i < num_spans; i++) {
        spans_of(head)[i] = (struct span){offset, spans[i].bytes};
        offset += align_up(spans[i].bytes, PACKED_ALIGNMENT);
    }
    return head;
}

static int failed(const char *path, const char *what, struct error *err) {
    return error_set(err, ERROR_IO, "%s: %s: %s", path, what, strerror(errno));
}

static int write_at(int fd, const char *path, const void *data, size_t bytes, uint64_t offset,
                    struct error *err) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = pwrite(fd, (const char *)data + done, bytes - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return failed(path, "cannot be written", err);
        done += (size_t)n;
    }
    return 0;
}

/* Copies what a chunk has of the spans from *next on, which is moved to the last of them. */
static void gather(const struct head *head, const struct packed_bytes *spans, struct span chunk,
                   size_t *next, uint8_t *out) {
    uint64_t end = chunk.offset + chunk.bytes;
    memset(out, 0, (size_t)chunk.bytes);
    for (size_t i = *next; i < head->num_spans; i++) {
        const struct span *span = &spans_of(head)[i];
        if (span->offset >= end)
            break;
        *next = i;
        uint64_t from = span->offset > chunk.offset ? span->offset : chunk.offset;
        uint64_t to = span->offset + span->bytes < end ? span->offset + span->bytes : end;
        if (from < to)
            memcpy(out + (from - chunk.offset),
                   (const uint8_t *)spans[i].data + (from - span->offset), (size_t)(to - from));
    }
}

/* *out_complete: it was not stopped before the end. */
static int write_all(int fd, const char *path, struct head *head, const struct packed_bytes *spans,
                     const atomic_bool *stop, bool *out_complete, struct error *err) {
    size_t count = num_chunks(head->body_offset, head->file_bytes), next = 0;
    void *buffer = aligned_alloc(PAGE_BYTES, CHUNK_BYTES);
    int status = buffer != NULL ? 0 : error_set(err, ERROR_MEMORY, "%s: no memory", path);
    for (size_t i = 0; i < count && status == 0 && !atomic_load(stop); i++) {
        struct span chunk = chunk_at(head, i);
        gather(head, spans, chunk, &next, buffer);
        checksums_of(head)[i] = content_hash_short(buffer, (size_t)chunk.bytes);
        status = write_at(fd, path, buffer, (size_t)chunk.bytes, chunk.offset, err);
    }
    free(buffer);
    *out_complete = status == 0 && !atomic_load(stop);
    if (!*out_complete)
        return status;
    head->checksum = checksum_of(head);
    return write_at(fd, path, head, (size_t)head->body_offset, 0, err);
}

/* Opens the temporary file as its only writer. Returns -1 with ERROR_NONE if another process writes
 * it. */
static int open_temporary(const char *path, struct error *err) {
    struct stat opened, named;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(path, "cannot be created", err);
    /* Another writer may have renamed it before it gave up its lock. */
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0 && fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
        return fd;
    close(fd);
    return -1;
}

/* Takes the room on the disk first: what is short is short at once. */
static int write_temporary(int fd, const char *path, struct head *head,
                           const struct packed_bytes *spans, const atomic_bool *stop,
                           bool *out_complete, struct error *err) {
    *out_complete = false;
    if (fchmod(fd, 0600) != 0 || ftruncate(fd, 0) != 0)
        return failed(path, "cannot be written", err);
    if (fallocate(fd, 0, 0, (off_t)head->file_bytes) != 0 && errno != EOPNOTSUPP)
        return failed(path, "has no room", err);
    return write_all(fd, path, head, spans, stop, out_complete, err);
}

int packed_file_write(const char *path, const uint8_t key[static CONTENT_HASH_BYTES],
                      const struct packed_bytes *spans, size_t num_spans, const atomic_bool *stop,
                      bool *out_written, struct error *err) {
    char temporary[4400];
    struct error why = {0};
    *out_written = false;
    CHECK(num_spans < MAX_SPANS);
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp", path) >= sizeof(temporary))
        return error_set(err, ERROR_IO, "%s: the path is too long", path);
    int fd = open_temporary(temporary, &why);
    if (fd < 0)
        return why.code == ERROR_NONE ? 0 : error_set(err, why.code, "%s", why.message);
    struct head *head = create_head(key, spans, num_spans);
    int status = head == NULL ? error_set(err, ERROR_MEMORY, "%s: no memory", path)
                              : write_temporary(fd, temporary, head, spans, stop, out_written, err);
    if (status == 0 && *out_written && rename(temporary, path) != 0)
        status = failed(path, "cannot be created", err);
    *out_written = *out_written && status == 0;
    if (!*out_written)
        unlink(temporary);
    free(head);
    close(fd);
    return status;
}

/* --- Mapping --- */

static enum packed_file_state refuse(const char *path, const char *why, struct error *err) {
    error_set(err, ERROR_MODEL, "%s: %s", path, why);
    return PACKED_FILE_UNUSABLE;
}

/* At a huge page, so that the system can map the file's large pages as such. What follows the file
 * in the reserved memory is zeros. */
static int map(int fd, size_t bytes, struct packed_file *out) {
    size_t reserved_bytes = (size_t)align_up(bytes, PAGE_BYTES) + 2 * HUGE_PAGE_BYTES;
    void *reserved =
        mmap(NULL, reserved_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return -1;
    size_t skipped = (size_t)(align_up((uintptr_t)reserved, HUGE_PAGE_BYTES) - (uintptr_t)reserved);
    *out = (struct packed_file){.reserved = reserved, .reserved_bytes = reserved_bytes};
    void *data = mmap((char *)reserved + skipped, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    if (data == MAP_FAILED) {
        packed_file_unmap(out);
        return -1;
    }
    madvise(data, bytes, MADV_HUGEPAGE); /* a help where the file system has large pages */
    out->data = data;
    out->bytes = bytes;
    return 0;
}

/* Whether the head describes exactly this file, so that everything it names lies within it. */
static const char *check_head(const struct packed_file *file, const uint8_t *key) {
    const struct head *head = (const struct head *)(const void *)file->data;
    if (file->bytes < sizeof(*head) || memcmp(head->magic, magic, sizeof(magic)) != 0 ||
        head->version != FORMAT_VERSION)
        return "not a file of packed weights";
    if (head->file_bytes != file->bytes)
        return "is truncated";
    if (head->body_offset > file->bytes || head->num_spans > MAX_SPANS ||
        head_bytes(head->num_spans, num_chunks(head->body_offset, head->file_bytes)) >
            head->body_offset ||
        checksum_of(head) != head->checksum)
        return "its head is damaged";
    if (memcmp(head->key, key, CONTENT_HASH_BYTES) != 0)
        return "is of another model";
    for (uint32_t i = 0; i < head->num_spans; i++) {
        const struct span *span = &spans_of(head)[i];
        if (span->offset % PACKED_ALIGNMENT != 0 || span->offset > file->bytes ||
            span->bytes > file->bytes - span->offset)
            return "its head is damaged";
    }
    return NULL;
}

struct verification {
    const struct packed_file *file;
    size_t count;
    atomic_size_t next; /* chunk */
    atomic_bool is_damaged;
};

static void *verify_chunks(void *context) {
    struct verification *job = context;
    const struct head *head = (const struct head *)(const void *)job->file->data;
    size_t i;
    while ((i = atomic_fetch_add(&job->next, 1)) < job->count && !atomic_load(&job->is_damaged)) {
        struct span chunk = chunk_at(head, i);
        if (content_hash_short(job->file->data + chunk.offset, (size_t)chunk.bytes) !=
            checksums_of(head)[i])
            atomic_store(&job->is_damaged, true);
    }
    return NULL;
}

/* Threads inherit the cores of the caller, and with them the NUMA node where pages are read to. */
static bool verify(const struct packed_file *file, int num_threads) {
    const struct head *head = (const struct head *)(const void *)file->data;
    struct verification job = {.file = file,
                               .count = num_chunks(head->body_offset, head->file_bytes)};
    pthread_t threads[MAX_THREADS];
    int num_started = 0, wanted = num_threads < MAX_THREADS ? num_threads : MAX_THREADS;
    while (num_started < wanted - 1 &&
           pthread_create(&threads[num_started], NULL, verify_chunks, &job) == 0)
        num_started++;
    verify_chunks(&job);
    for (int i = 0; i < num_started; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return !atomic_load(&job.is_damaged);
}

static enum packed_file_state map_opened(int fd, const char *path, const uint8_t *key,
                                         int num_threads, struct packed_file *out,
                                         struct error *err) {
    struct stat stat;
    if (fstat(fd, &stat) != 0 || !S_ISREG(stat.st_mode))
        return refuse(path, "not a regular file", err);
    if (stat.st_uid != geteuid() || (stat.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return refuse(path, "other users may write to it", err);
    if (stat.st_size < (off_t)sizeof(struct head))
        return refuse(path, "is truncated", err);
    struct packed_file file;
    if (map(fd, (size_t)stat.st_size, &file) != 0)
        return refuse(path, strerror(errno), err);
    const char *wrong = check_head(&file, key);
    if (wrong == NULL && !verify(&file, num_threads))
        wrong = "is damaged";
    if (wrong != NULL) {
        packed_file_unmap(&file);
        return refuse(path, wrong, err);
    }
    file.num_spans = ((const struct head *)(const void *)file.data)->num_spans;
    *out = file;
    return PACKED_FILE_VALID;
}

enum packed_file_state packed_file_map(const char *path,
                                       const uint8_t key[static CONTENT_HASH_BYTES],
                                       int num_threads, struct packed_file *out,
                                       struct error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT)
        return PACKED_FILE_MISSING;
    if (fd < 0)
        return refuse(path, strerror(errno), err);
    enum packed_file_state state = map_opened(fd, path, key, num_threads, out, err);
    if (state == PACKED_FILE_VALID)
        futimens(fd, NULL); /* for packed_file_prune; on a read-only disk it fails */
    close(fd);
    return state;
}

struct packed_bytes packed_file_span(const struct packed_file *file, size_t index) {
    const struct head *head = (const struct head *)(const void *)file->data;
    CHECK(index < file->num_spans);
    const struct span *span = &spans_of(head)[index];
    return (struct packed_bytes){.data = file->data + span->offset, .bytes = (size_t)span->bytes};
}

void packed_file_unmap(struct packed_file *file) {
    if (file->reserved != NULL)
        munmap(file->reserved, file->reserved_bytes);
    *file = (struct packed_file){0};
}

/* --- The folder --- */

struct found {
    char name[NAME_MAX + 1];
    uint64_t bytes;
    struct timespec used;
};

static bool ends_in(const char *name, const char *suffix) {
    size_t length = strlen(name), part = strlen(suffix);
    return length >= part && strcmp(name + length - part, suffix) == 0;
}

/* What a crash has left: nobody is its writer, or is about to be. */
static bool is_abandoned(int folder, const char *name, const struct stat *stat) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (time(NULL) - stat->st_mtim.tv_sec < ABANDONED_S)
        return false;
    int fd = openat(folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    bool is_free = fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* Adds a file to the list, in the order of use; drops what a crash has left. */
static void add_file(int folder, const char *name, const char *kept, struct found **files,
                     size_t *count) {
    struct stat stat;
    bool is_temporary = ends_in(name, PACKED_FILE_SUFFIX ".tmp");
    if ((!is_temporary && !ends_in(name, PACKED_FILE_SUFFIX)) || strcmp(name, kept) == 0 ||
        fstatat(folder, name, &stat, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(stat.st_mode))
        return;
    if (is_temporary) {
        if (is_abandoned(folder, name, &stat))
            unlinkat(folder, name, 0);
        return;
    }
    struct found *grown = realloc(*files, (*count + 1) * sizeof(*grown));
    if (grown == NULL)
        return;
    *files = grown;
    struct found *file = &grown[(*count)++];
    *file = (struct found){.bytes = (uint64_t)stat.st_size, .used = stat.st_mtim};
    snprintf(file->name, sizeof(file->name), "%s", name);
}

static int by_use(const void *a, const void *b) {
    const struct timespec *x = &((const struct found *)a)->used;
    const struct timespec *y = &((const struct found *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return x->tv_nsec == y->tv_nsec ? 0 : x->tv_nsec < y->tv_nsec ? -1 : 1;
}

void packed_file_prune(const char *folder, const char *kept, uint64_t more_bytes,
                       uint64_t max_bytes) {
    struct found *files = NULL;
    size_t count = 0;
    uint64_t sum = more_bytes;
    DIR *entries = opendir(folder);
    const struct dirent *entry;
    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL)
        add_file(dirfd(entries), entry->d_name, kept, &files, &count);
    for (size_t i = 0; i < count; i++)
        sum += files[i].bytes;
    if (count > 0)
        qsort(files, count, sizeof(*files), by_use);
    for (size_t i = 0; i < count && sum > max_bytes; i++) {
        unlinkat(dirfd(entries), files[i].name, 0);
        sum -= files[i].bytes;
    }
    free(files);
    closedir(entries);
}
