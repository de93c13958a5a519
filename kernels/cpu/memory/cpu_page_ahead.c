/* madvise readies pages without looking at what is in them, so it may meet the compute threads in
 * the same page. It holds the lock of the process's memory map meanwhile, for which every thread
 * that asks for memory waits: so a portion is a huge page at most, and the thread that readies it
 * has the priority of the others. That of the lowest priority only tells when a core is idle: with
 * the lock in hand, busy neighbours would keep it, and all who wait for it, from running for
 * seconds. Where the system does not know the call (before Linux 5.14), pages come when they are
 * touched. */
#include "kernels/cpu/memory/cpu_page_ahead.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "kernels/spin_wait.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PORTION_BYTES ((size_t)2 << 20)
#define LEAST_AHEAD_BYTES ((size_t)4 << 20)
#define MOST_AHEAD_BYTES ((size_t)64 << 20)
#define USED_PER_AHEAD 8

struct cpu_page_ahead {
    pthread_t worker, idle;
    const void *followed; /* the caller's alone; NULL: nothing */
    size_t next_bytes;    /* likewise: with less in use there is nothing new */

    pthread_mutex_t busy; /* held while a portion is readied */
    struct buffer buffer; /* guarded by busy */
    size_t ready_bytes;   /* likewise */
    atomic_size_t used, goal;
    atomic_bool stopping;
    atomic_uint calls;   /* for a portion; the idle thread sleeps on it */
    atomic_uint permits; /* one for each call that met an idle core; the worker sleeps on it */
};

size_t cpu_page_ahead_goal(size_t used_bytes, size_t buffer_bytes) {
    size_t more = used_bytes / USED_PER_AHEAD;
    more = min_size(more > LEAST_AHEAD_BYTES ? more : LEAST_AHEAD_BYTES, MOST_AHEAD_BYTES);
    return more < buffer_bytes && used_bytes < buffer_bytes - more ? used_bytes + more
                                                                   : buffer_bytes;
}

/* With busy held. The portion may begin with pages that are there. Returns whether the system can
 * do it. */
static bool ready_portion(struct cpu_page_ahead *ahead) {
    uintptr_t first = (uintptr_t)ahead->buffer.data, last = first + ahead->buffer.bytes;
    uintptr_t begin = (first + ahead->ready_bytes) / PORTION_BYTES * PORTION_BYTES;
    uintptr_t end = begin + PORTION_BYTES;
    begin = begin > first ? begin : first;
    end = end < last ? end : last;
    ahead->ready_bytes = end - first;
#ifdef MADV_POPULATE_WRITE
    return madvise((void *)begin, end - begin, MADV_POPULATE_WRITE) == 0;
#else
    return false;
#endif
}

/* Returns whether there is more to do. */
static bool work(struct cpu_page_ahead *ahead) {
    bool done = true;
    CHECK(pthread_mutex_lock(&ahead->busy) == 0);
    size_t used = atomic_load(&ahead->used);
    if (ahead->ready_bytes < used)
        ahead->ready_bytes = used;
    if (ahead->buffer.data != NULL && ahead->ready_bytes < atomic_load(&ahead->goal))
        done = !ready_portion(ahead);
    CHECK(pthread_mutex_unlock(&ahead->busy) == 0);
    return !done;
}

static void count_up(atomic_uint *counter) {
    atomic_fetch_add(counter, 1);
    spin_wait_wake_all(counter);
}

/* Returns the counter's value, another than `seen` unless the threads are to end. */
static unsigned wait_for_next(struct cpu_page_ahead *ahead, atomic_uint *counter, unsigned seen) {
    unsigned now = atomic_load(counter);
    for (; now == seen && !atomic_load(&ahead->stopping); now = atomic_load(counter))
        spin_wait_sleep(counter, seen);
    return now;
}

static void *worker_main(void *argument) {
    struct cpu_page_ahead *ahead = argument;
    unsigned seen = 0;
    while (!atomic_load(&ahead->stopping)) {
        seen = wait_for_next(ahead, &ahead->permits, seen);
        if (!atomic_load(&ahead->stopping) && work(ahead))
            count_up(&ahead->calls);
    }
    return NULL;
}

static void *idle_main(void *argument) {
    struct cpu_page_ahead *ahead = argument;
    const struct sched_param lowest = {0};
    sched_setscheduler(0, SCHED_IDLE, &lowest);
    unsigned seen = 0;
    while (!atomic_load(&ahead->stopping)) {
        seen = wait_for_next(ahead, &ahead->calls, seen);
        count_up(&ahead->permits);
    }
    return NULL;
}

static int start_thread(pthread_t *thread, void *(*main)(void *), struct cpu_page_ahead *ahead,
                        struct error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = pthread_create(thread, NULL, main, ahead);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start the threads that ready pages: %s",
                         strerror(status));
    pthread_setname_np(*thread, "pages");
    return 0;
}

static void stop_thread(struct cpu_page_ahead *ahead, pthread_t thread, atomic_uint *counter) {
    atomic_store(&ahead->stopping, true);
    count_up(counter);
    pthread_join(thread, NULL);
}

struct cpu_page_ahead *cpu_page_ahead_create(struct error *err) {
    struct cpu_page_ahead *ahead = calloc(1, sizeof(*ahead));
    if (ahead == NULL) {
        error_set(err, ERROR_MEMORY, "out of memory for threads that ready pages");
        return NULL;
    }
    if (start_thread(&ahead->worker, worker_main, ahead, err) != 0) {
        free(ahead);
        return NULL;
    }
    if (start_thread(&ahead->idle, idle_main, ahead, err) != 0) {
        stop_thread(ahead, ahead->worker, &ahead->permits);
        free(ahead);
        return NULL;
    }
    CHECK(pthread_mutex_init(&ahead->busy, NULL) == 0);
    return ahead;
}

void cpu_page_ahead_destroy(struct cpu_page_ahead *ahead) {
    if (ahead == NULL)
        return;
    stop_thread(ahead, ahead->idle, &ahead->calls);
    stop_thread(ahead, ahead->worker, &ahead->permits);
    pthread_mutex_destroy(&ahead->busy);
    free(ahead);
}

static void follow_from_start(struct cpu_page_ahead *ahead, const struct buffer *buffer) {
    CHECK(pthread_mutex_lock(&ahead->busy) == 0);
    ahead->buffer = *buffer;
    ahead->ready_bytes = 0;
    atomic_store(&ahead->used, 0);
    atomic_store(&ahead->goal, 0);
    CHECK(pthread_mutex_unlock(&ahead->busy) == 0);
    ahead->followed = buffer->data;
    ahead->next_bytes = 0;
}

void cpu_page_ahead_follow(struct cpu_page_ahead *ahead, const struct buffer *buffer,
                           size_t used_bytes) {
    if (buffer->bytes <= LEAST_AHEAD_BYTES)
        return;
    if (ahead->followed != buffer->data)
        follow_from_start(ahead, buffer);
    if (used_bytes < ahead->next_bytes)
        return;
    ahead->next_bytes = used_bytes + PORTION_BYTES;
    atomic_store(&ahead->used, used_bytes);
    atomic_store(&ahead->goal, cpu_page_ahead_goal(used_bytes, buffer->bytes));
    count_up(&ahead->calls);
}

void cpu_page_ahead_forget(struct cpu_page_ahead *ahead, const struct buffer *buffer) {
    if (buffer->data != NULL && ahead->followed == buffer->data)
        follow_from_start(ahead, &(struct buffer){0});
}
