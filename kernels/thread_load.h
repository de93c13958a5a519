/* Private to thread_pool.c: how many threads of a pool are worth using. Another process that keeps
 * a core busy takes it from some thread for milliseconds at a time, and all that depend on that
 * thread's work wait that long: two threads may then do less than one. So when n threads lose 1/n
 * of their time, one is left out for a while and its core left to the other process. Then it is
 * tried again, at increasing intervals while that fails.
 *
 * It depends only on its arguments: no clock, no thread. */
#ifndef QUIRE_KERNELS_THREAD_LOAD_H
#define QUIRE_KERNELS_THREAD_LOAD_H

#include <stdint.h>

#define THREAD_LOAD_WINDOW_NS 20000000     /* of work between two decisions */
#define THREAD_LOAD_MIN_PAUSE_NS 200000000 /* minimum pause of a thread that was left out */
#define THREAD_LOAD_MAX_PAUSE_NS 3200000000

struct thread_load {
    int num_threads;
    int num_active; /* 1..num_threads: threads to use */
    /* work since the last decision */
    int64_t elapsed_ns, lost_ns;
    int64_t pause_ns;     /* how long the next thread is left out */
    int64_t paused_until; /* while threads are left out */
};

void thread_load_init(struct thread_load *load, int num_threads);
/* Adds work of num_active threads that ended now and took elapsed_ns. During lost_ns of it all
 * waited for a thread that another process kept off its core. May change num_active. */
void thread_load_add(struct thread_load *load, int64_t now_ns, int64_t elapsed_ns, int64_t lost_ns);

#endif
