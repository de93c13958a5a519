/* A job is published by raising `generation`. Workers enter it through the gate, which the caller
 * closes once every range is handed out: it then waits for those inside alone. A worker that
 * another thread keeps from its core thus delays nobody but by the range it holds, and finds the
 * gate closed when it comes too late: the others have taken the ranges of its share.
 *
 * Between steps some workers may be left out (thread_load.h): these sleep on `num_active`.
 *
 * Both sides wait as spin_wait.h says, and prefetch meanwhile what thread_pool_expect has named; a
 * pool of more threads than cores does not spin. */
#include "kernels/thread_pool.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/base/cores.h"
#include "config/base/numbers.h"
#include "kernels/spin_wait.h"
#include "kernels/thread_load.h"

#include <pthread.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define CACHE_LINE 64
#define MAX_THREADS 1024
#define GATE_CLOSED (1U << 31)
#define LATE_RANGES 8 /* times the usual duration of a range: a longer wait is too long */
#define PREFETCH_BYTES ((size_t)256 << 10) /* of a thread: leaves room in the second cache */
#define PREFETCH_LINES 8                   /* between two looks at what is waited for */

struct worker {
    struct thread_pool *pool;
    pthread_t thread;
    int index;
};

/* Consecutive items that are handed out in turn: one worker's, until another has no more. */
struct share {
    alignas(CACHE_LINE) atomic_int_least64_t next;
    int64_t end;
};

struct range_job {
    int64_t grain;
    void (*body)(void *context, int64_t begin, int64_t end, int worker);
    void *context;
};

/* The caller's notes on the step it is in. */
struct step_notes {
    bool is_running;
    int64_t begin_ns, begin_cpu_ns; /* the latter by its thread's own time */
    long begin_preemptions;
    int64_t num_ranges;        /* that it ran */
    int64_t slept_ns, late_ns; /* while it waited for workers; what of that was too long */
};

struct thread_pool {
    int size;
    int num_started; /* workers with a thread, for the destruction of a half-made pool */
    int64_t spin_ns;
    struct worker *workers; /* [size]; the first is the caller and has no thread */
    struct share *shares;   /* [size], of the job */
    struct range_job *job;  /* the caller's, while the gate is open or a worker inside */
    bool stopping;
    struct thread_load load;
    struct step_notes step;
    /* Of what is read next. A pair that does not belong together is only a bad hint. */
    atomic_uintptr_t expected;
    atomic_size_t expected_bytes;

    alignas(CACHE_LINE) atomic_uint num_active; /* threads that take part, the first ones */
    alignas(CACHE_LINE) atomic_uint generation;
    atomic_int num_sleepers;
    alignas(CACHE_LINE) atomic_uint gate; /* workers inside the job, and GATE_CLOSED */
    atomic_bool caller_sleeps;
};

/* Prefetches the beginning of the worker's share of what is expected, wherever it lies (an address
 * that is not mapped does no harm), then spins. Returns whether done(word, value) became true. */
static bool spin(struct thread_pool *pool, int worker, atomic_uint *word,
                 bool (*done)(unsigned now, unsigned value), unsigned value) {
    size_t share = atomic_load_explicit(&pool->expected_bytes, memory_order_relaxed) /
                   atomic_load_explicit(&pool->num_active, memory_order_relaxed);
    const char *next = (const char *)atomic_load_explicit(&pool->expected, memory_order_relaxed) +
                       (size_t)worker * share;
    const char *end = next + (share < PREFETCH_BYTES ? share : PREFETCH_BYTES);
    while (pool->spin_ns > 0 && next < end) {
        if (done(atomic_load_explicit(word, memory_order_acquire), value))
            return true;
        for (int i = 0; i < PREFETCH_LINES; i++, next += CACHE_LINE)
            __builtin_prefetch(next, 0, 2);
    }
    return spin_wait_until(word, done, value, pool->spin_ns);
}

static void wait_to_take_part(struct thread_pool *pool, int worker) {
    unsigned num_active;
    while ((num_active = atomic_load(&pool->num_active)) <= (unsigned)worker)
        spin_wait_sleep(&pool->num_active, num_active);
}

static void wait_for_job(struct thread_pool *pool, int worker, unsigned seen) {
    if (spin(pool, worker, &pool->generation, spin_wait_differs, seen))
        return;
    atomic_fetch_add(&pool->num_sleepers, 1);
    while (atomic_load(&pool->generation) == seen)
        spin_wait_sleep(&pool->generation, seen);
    atomic_fetch_sub(&pool->num_sleepers, 1);
}

static void publish_job(struct thread_pool *pool, struct range_job *job) {
    pool->job = job;
    atomic_store(&pool->gate, 0);
    atomic_fetch_add(&pool->generation, 1);
    if (atomic_load(&pool->num_sleepers) > 0)
        spin_wait_wake_all(&pool->generation);
}

static bool enter(struct thread_pool *pool) {
    unsigned gate = atomic_load(&pool->gate);
    while ((gate & GATE_CLOSED) == 0)
        if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1))
            return true;
    return false;
}

static void leave(struct thread_pool *pool) {
    if (atomic_fetch_sub(&pool->gate, 1) == (GATE_CLOSED | 1) && atomic_load(&pool->caller_sleeps))
        spin_wait_wake_all(&pool->gate);
}

/* Balanced to a single item; the caller, who is there first, has no less than the others. */
static void deal_shares(struct thread_pool *pool, int64_t num_items) {
    int64_t begin = 0;
    for (int w = 0; w < pool->size; w++) {
        int64_t left = num_items - begin, num_sharers = max_int32(pool->load.num_active - w, 1);
        atomic_store_explicit(&pool->shares[w].next, begin, memory_order_relaxed);
        begin += (left + num_sharers - 1) / num_sharers;
        pool->shares[w].end = begin;
    }
}

/* Returns how many ranges it ran. */
static int64_t run_share(const struct range_job *job, struct share *share, int worker) {
    for (int64_t num_ranges = 0;; num_ranges++) {
        int64_t begin =
            atomic_load_explicit(&share->next, memory_order_relaxed) < share->end
                ? atomic_fetch_add_explicit(&share->next, job->grain, memory_order_relaxed)
                : share->end;
        int64_t left = share->end - begin;
        if (left <= 0)
            return num_ranges;
        job->body(job->context, begin, begin + (left < job->grain ? left : job->grain), worker);
    }
}

/* Its own share, then what the next ones have left of theirs. */
static int64_t run_ranges(const struct thread_pool *pool, const struct range_job *job, int worker) {
    int64_t num_ranges = 0;
    for (int i = 0; i < pool->size; i++)
        num_ranges += run_share(job, &pool->shares[(worker + i) % pool->size], worker);
    return num_ranges;
}

static void note_sleep(struct step_notes *step, int64_t begin_ns) {
    if (!step->is_running)
        return;
    int64_t slept_ns = clock_now_ns() - begin_ns;
    int64_t usual_ns = (begin_ns - step->begin_ns) / max_int64(step->num_ranges, 1);
    step->slept_ns += slept_ns;
    step->late_ns += max_int64(slept_ns - LATE_RANGES * usual_ns, 0);
}

/* Lets no more workers in, and waits for those inside. */
static void close_job(struct thread_pool *pool) {
    atomic_fetch_or(&pool->gate, GATE_CLOSED);
    if (spin(pool, 0, &pool->gate, spin_wait_equals, GATE_CLOSED))
        return;
    int64_t begin_ns = clock_now_ns();
    atomic_store(&pool->caller_sleeps, true);
    unsigned gate;
    while ((gate = atomic_load(&pool->gate)) != GATE_CLOSED)
        spin_wait_sleep(&pool->gate, gate);
    atomic_store(&pool->caller_sleeps, false);
    note_sleep(&pool->step, begin_ns);
}

/* A worker that lags may enter the next job, and then that one again: nothing is left of it. */
static void *worker_main(void *argument) {
    struct worker *worker = argument;
    struct thread_pool *pool = worker->pool;
    for (unsigned seen = 0;;) {
        wait_to_take_part(pool, worker->index);
        wait_for_job(pool, worker->index, seen);
        seen = atomic_load(&pool->generation);
        if (!enter(pool))
            continue;
        if (pool->stopping)
            return NULL;
        run_ranges(pool, pool->job, worker->index);
        leave(pool);
    }
}

/* Signals are for the threads that expect them, so workers start with all of them blocked. */
static int start_workers(struct thread_pool *pool, struct error *err) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int status = 0;
    for (int i = 1; i < pool->size && status == 0; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){.pool = pool, .index = i};
        status = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (status == 0) {
            pthread_setname_np(worker->thread, "compute");
            pool->num_started++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status != 0)
        return error_set(err, ERROR_IO, "cannot start compute thread %d of %d: %s",
                         pool->num_started + 1, pool->size, strerror(status));
    return 0;
}

struct thread_pool *thread_pool_create(int num_threads, struct error *err) {
    if (num_threads < 0 || num_threads > MAX_THREADS) {
        error_set(err, ERROR_CONFIG, "threads %d: must be 0 (one per core) to %d", num_threads,
                  MAX_THREADS);
        return NULL;
    }
    int num_cores = cores_available();
    int size = num_threads > 0 ? num_threads : num_cores < MAX_THREADS ? num_cores : MAX_THREADS;
    struct thread_pool *pool = aligned_alloc(CACHE_LINE, sizeof(*pool));
    struct worker *workers = calloc((size_t)size, sizeof(*workers));
    struct share *shares = aligned_alloc(CACHE_LINE, (size_t)size * sizeof(*shares));
    if (pool == NULL || workers == NULL || shares == NULL) {
        free(pool);
        free(workers);
        free(shares);
        error_set(err, ERROR_MEMORY, "out of memory for %d compute threads", size);
        return NULL;
    }
    memset(pool, 0, sizeof(*pool));
    pool->size = size;
    pool->workers = workers;
    pool->shares = shares;
    pool->num_active = (unsigned)size;
    thread_load_init(&pool->load, size);
    pool->spin_ns = size <= num_cores ? SPIN_WAIT_NS : 0;
    pool->gate = GATE_CLOSED;
    if (start_workers(pool, err) != 0) {
        thread_pool_destroy(pool);
        return NULL;
    }
    return pool;
}

/* No job is running. */
static void use_threads(struct thread_pool *pool, int num_active) {
    if ((unsigned)num_active == atomic_load(&pool->num_active))
        return;
    atomic_store(&pool->num_active, (unsigned)num_active);
    spin_wait_wake_all(&pool->num_active);
}

void thread_pool_destroy(struct thread_pool *pool) {
    if (pool == NULL)
        return;
    pool->stopping = true;
    use_threads(pool, pool->size);
    publish_job(pool, NULL);
    for (int i = 1; i <= pool->num_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool->shares);
    free(pool);
}

int thread_pool_size(const struct thread_pool *pool) {
    return pool->size;
}

void thread_pool_for(struct thread_pool *pool, int64_t num_items, int64_t grain,
                     void (*body)(void *context, int64_t begin, int64_t end, int worker),
                     void *context) {
    CHECK(grain > 0);
    if (num_items <= 0)
        return;
    if (num_items <= grain) {
        body(context, 0, num_items, 0);
        return;
    }
    struct range_job job = {.grain = grain, .body = body, .context = context};
    bool shared = pool->load.num_active > 1;
    deal_shares(pool, num_items);
    if (shared)
        publish_job(pool, &job);
    pool->step.num_ranges += run_ranges(pool, &job, 0);
    if (shared)
        close_job(pool);
}

static int64_t timeval_ns(const struct timeval *time) {
    return (int64_t)time->tv_sec * CLOCK_NS_PER_S + (int64_t)time->tv_usec * 1000;
}

/* Returns how often the calling thread lost its core to another, and what it has used of cores. */
static long thread_usage(int64_t *out_cpu_ns) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_THREAD, &usage) == 0);
    *out_cpu_ns = timeval_ns(&usage.ru_utime) + timeval_ns(&usage.ru_stime);
    return usage.ru_nivcsw;
}

void thread_pool_step_begin(struct thread_pool *pool) {
    if (pool->size == 1 || pool->spin_ns == 0)
        return;
    struct step_notes *step = &pool->step;
    *step = (struct step_notes){.is_running = true, .begin_ns = clock_now_ns()};
    step->begin_preemptions = thread_usage(&step->begin_cpu_ns);
}

void thread_pool_step_end(struct thread_pool *pool) {
    struct step_notes *step = &pool->step;
    if (!step->is_running)
        return;
    step->is_running = false;
    int64_t now_ns = clock_now_ns(), cpu_ns, lost_ns = step->late_ns;
    int64_t elapsed_ns = now_ns - step->begin_ns;
    if (thread_usage(&cpu_ns) > step->begin_preemptions)
        lost_ns += max_int64(elapsed_ns - (cpu_ns - step->begin_cpu_ns) - step->slept_ns, 0);
    thread_load_add(&pool->load, now_ns, elapsed_ns, lost_ns);
    use_threads(pool, pool->load.num_active);
}

void thread_pool_expect(struct thread_pool *pool, const void *data, size_t bytes) {
    atomic_store_explicit(&pool->expected, (uintptr_t)data, memory_order_relaxed);
    atomic_store_explicit(&pool->expected_bytes, bytes, memory_order_relaxed);
}
