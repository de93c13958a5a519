/* Threads of a backend on the cores of the host. The caller is worker 0; the others spin for a
 * short bounded time between jobs of one step, then sleep on a futex. Not re-entrant: one caller at
 * a time. */
#ifndef QUIRE_KERNELS_THREAD_POOL_H
#define QUIRE_KERNELS_THREAD_POOL_H

#include "config/base/error.h"

#include <stddef.h>
#include <stdint.h>

struct thread_pool;

/* num_threads includes the caller; 0: one per core of this process (config/base/cores.h). NULL on
 * failure. */
struct thread_pool *thread_pool_create(int num_threads, struct error *err);
void thread_pool_destroy(struct thread_pool *pool); /* accepts NULL */
int thread_pool_size(const struct thread_pool *pool);

/* Calls body on sub-ranges that cover 0..num_items exactly, at most `grain` items at a time, and
 * returns when all are done; runs on the caller alone when there is no more than one grain. Worker
 * w takes the ranges of the w-th of equal shares in order, then ranges that others have not taken
 * yet. So it varies which worker 0..size-1 gets which range, and whether it gets any: a body's
 * result must not depend on it. */
void thread_pool_for(struct thread_pool *pool, int64_t num_items, int64_t grain,
                     void (*body)(void *context, int64_t begin, int64_t end, int worker),
                     void *context);

/* Announces memory that a job will read soon, each worker its share in order: waiting workers
 * prefetch it. It is never dereferenced and need not stay valid. */
void thread_pool_expect(struct thread_pool *pool, const void *data, size_t bytes);

/* Mark the beginning and the end of milliseconds of work done by many jobs. From how it went, the
 * pool decides how many threads later jobs get (thread_load.h). Neither call is required; a step
 * that is begun again counts from there. The thread that calls thread_pool_for calls them, because
 * its own preemptions count. */
void thread_pool_step_begin(struct thread_pool *pool);
void thread_pool_step_end(struct thread_pool *pool);

#endif
