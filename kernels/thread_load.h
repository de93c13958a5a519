/* Private to thread_pool.c: how many threads of a pool are worth their while. Another process that
 * keeps a core busy takes it from some thread for milliseconds at a time, and whoever needs what
 * that thread has begun waits so long: two threads then do less than one. So of n threads that lose
 * the n-th part of their time one is left out for a while, whose core the other process gets; then
 * it is tried again, at longer and longer intervals while that turns out badly.
 *
 * Pure but for what it is told: no clock, no thread. */
#ifndef QUIRE_KERNELS_THREAD_LOAD_H
#define QUIRE_KERNELS_THREAD_LOAD_H

#include <stdint.h>

#define THREAD_LOAD_WINDOW_NS 20000000     /* of work, after which it is judged */
#define THREAD_LOAD_MIN_PAUSE_NS 200000000 /* of a thread that was left out */
#define THREAD_LOAD_MAX_PAUSE_NS 3200000000

struct thread_load {
    int num_threads;
    int num_active; /* 1..num_threads: threads to use */
    /* of the work since it was judged last */
    int64_t elapsed_ns, lost_ns;
    int64_t pause_ns;     /* how long the next thread is left out */
    int64_t paused_until; /* while threads are left out */
};

void thread_load_init(struct thread_load *load, int num_threads);
/* Adds work of num_active threads that ended now and took elapsed_ns, of which lost_ns went by
 * while all waited for a thread that another process kept from its core. May change num_active. */
void thread_load_add(struct thread_load *load, int64_t now_ns, int64_t elapsed_ns, int64_t lost_ns);

#endif
