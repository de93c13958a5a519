/* Loaded before a program's libraries (LD_PRELOAD): makes chosen allocations of it fail while it
 * runs. The file named by FAIL_MALLOC_FILE holds a struct control, which another process maps and
 * writes (allocations.py). Works on top of AddressSanitizer's allocator too, if both are preloaded,
 * this one first. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

struct control {
    _Atomic uint64_t seen;   /* allocations so far */
    _Atomic uint64_t failed; /* of them */
    _Atomic uint64_t first;  /* number, as in `seen`, of the first that may fail */
    _Atomic uint64_t end;    /* one beyond the last that may; 0: none */
    _Atomic uint64_t one_in; /* of those: 1: all, N: an Nth of them, by a hash of the number */
};

static struct control none;
static struct control *control = &none;

static void *(*next_malloc)(size_t);
static void *(*next_calloc)(size_t, size_t);
static void *(*next_realloc)(void *, size_t);
static int (*next_memalign)(void **, size_t, size_t);
static void (*next_free)(void *);

/* What dlsym itself allocates while the others are looked for; never given back. */
static alignas(16) char early[65536];
static size_t early_used;
static bool is_resolving;

static void *take_early(size_t bytes) {
    size_t begin = (early_used + 15) / 16 * 16;
    if (bytes > sizeof(early) || begin > sizeof(early) - bytes)
        abort();
    early_used = begin + bytes;
    return early + begin;
}

static bool is_early(const void *data) {
    return (const char *)data >= early && (const char *)data < early + sizeof(early);
}

static void find(const char *name, void *out) {
    void *symbol = dlsym(RTLD_NEXT, name);
    memcpy(out, &symbol, sizeof(symbol));
}

static void resolve(void) {
    is_resolving = true;
    find("calloc", &next_calloc);
    find("realloc", &next_realloc);
    find("posix_memalign", &next_memalign);
    find("free", &next_free);
    find("malloc", &next_malloc);
    is_resolving = false;
}

__attribute__((constructor)) static void map_control(void) {
    const char *path = getenv("FAIL_MALLOC_FILE");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *data = MAP_FAILED;
    if (fd >= 0) {
        data = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
    }
    if (data != MAP_FAILED)
        control = data;
}

static bool fails(void) {
    uint64_t number = atomic_fetch_add(&control->seen, 1);
    uint64_t one_in = control->one_in, hash = (number + 1) * 0x9e3779b97f4a7c15U;
    hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9U;
    if (number < control->first || number >= control->end || one_in == 0 ||
        (hash >> 32) % one_in != 0)
        return false;
    control->failed++;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t bytes) {
    if (next_malloc == NULL && !is_resolving)
        resolve();
    if (next_malloc == NULL)
        return take_early(bytes);
    return fails() ? NULL : next_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    if (next_malloc == NULL && !is_resolving)
        resolve();
    if (next_malloc == NULL)
        return take_early(count * bytes); /* static memory is zero */
    return fails() ? NULL : next_calloc(count, bytes);
}

void *realloc(void *data, size_t bytes) {
    if (next_malloc == NULL && !is_resolving)
        resolve();
    if (next_malloc == NULL || is_early(data))
        abort();
    return fails() ? NULL : next_realloc(data, bytes);
}

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    if (next_malloc == NULL)
        resolve();
    return fails() ? ENOMEM : next_memalign(out, alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes) {
    void *data = NULL;
    return posix_memalign(&data, alignment, bytes) == 0 ? data : NULL;
}

void free(void *data) {
    if (data == NULL || is_early(data))
        return;
    next_free(data);
}

/* Memory of no file. */
void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) != 0 && fails())
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, bytes, protection, flags, fd, offset);
}
