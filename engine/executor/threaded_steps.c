/* A rank's thread runs its steps while the engine's prepares the next. The ranks of one executor
 * need not be at the same step, but for the ops in which they wait for one another. */
#include "engine/executor/rank_executor.h"

#include "config/base/check.h"
#include "config/base/clock.h"

static struct rank *rank_of(struct rank_thread *thread) {
    return &thread->executor->ranks[thread->index];
}

/* --- The rank's thread ------------------------------------------------------------------------ */

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The following are called with the lock held, which is released while the rank works. */

static int64_t start_work(struct rank_thread *thread) {
    pthread_mutex_unlock(&thread->executor->lock);
    return clock_now_ns();
}

/* What of the time is the group's is known by its end alone. */
static void end_work(struct rank_thread *thread, int64_t start_ns) {
    struct rank_stats *stats = &thread->stats;
    int64_t elapsed_ns = clock_now_ns() - start_ns;
    struct backend_group_traffic traffic = rank_traffic(rank_of(thread));
    pthread_mutex_lock(&thread->executor->lock);
    stats->compute_ns += elapsed_ns - (traffic.wait_ns - stats->communication_ns);
    stats->communication_ns = traffic.wait_ns;
    stats->bytes_sent = traffic.bytes_sent;
}

static void begin_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = rank_executor_step(executor, thread->num_begun++);
    executor->most_begun = most(executor->most_begun, thread->num_begun);
    int64_t start_ns = start_work(thread);
    rank_begin(rank_of(thread), step->batch);
    end_work(thread, start_ns);
}

static void sample_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    const struct submitted_step *step = rank_executor_step(executor, thread->num_sampled++);
    executor->most_sampled = most(executor->most_sampled, thread->num_sampled);
    int64_t start_ns = start_work(thread);
    rank_sample(rank_of(thread), step->batch, step->result);
    end_work(thread, start_ns);
}

static void finish_step(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    struct error err = {0};
    int64_t start_ns = start_work(thread);
    int status = rank_wait(rank_of(thread), &err);
    end_work(thread, start_ns);
    if (status != 0)
        rank_executor_fail_step(thread, &err);
    thread->num_finished++;
    pthread_cond_broadcast(&executor->changed);
}

/* Ends all steps after a failure, without another look at them. */
static void fail_steps(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    rank_executor_fail_step(thread, &executor->error);
    thread->num_begun = thread->num_sampled = thread->num_finished = executor->num_submitted;
}

/* Returns whether to wait for the oldest step that was sampled. A device that works by itself is
 * given the next one first: the wait keeps the thread from doing that, so that it begins only when
 * the engine cannot submit another, or when that one's inputs depend on this one's results. */
static bool should_finish(struct rank_thread *thread) {
    const struct rank_executor *executor = thread->executor;
    uint64_t num_enqueued = thread->num_sampled - thread->num_finished;
    if (num_enqueued == 0)
        return false;
    bool is_next_late = thread->num_begun > thread->num_sampled;
    bool is_next_submitted = executor->num_submitted > thread->num_begun;
    bool is_awaited = executor->num_waited_for > thread->num_finished;
    return is_next_late || !rank_is_asynchronous(rank_of(thread)) ||
           num_enqueued == EXECUTOR_MAX_STEPS || (is_awaited && !is_next_submitted);
}

/* Returns whether the rank may come to a part of a step of which it has done so many. After a
 * failure it only keeps up with the others, which wait for it in their collective ops. */
static bool may_go_on(const struct rank_executor *executor, uint64_t num_done,
                      uint64_t most_of_others) {
    return !rank_executor_has_failed(executor) || num_done < most_of_others;
}

/* Does what comes next; false when there is nothing to do. */
static bool work(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    bool is_begun = thread->num_begun > thread->num_sampled;
    if (is_begun && rank_executor_step(executor, thread->num_sampled)->is_supplied &&
        may_go_on(executor, thread->num_sampled, executor->most_sampled))
        sample_step(thread);
    else if (!rank_executor_has_failed(executor) && should_finish(thread))
        finish_step(thread);
    else if (!is_begun && executor->num_submitted > thread->num_begun &&
             may_go_on(executor, thread->num_begun, executor->most_begun))
        begin_step(thread);
    else if (rank_executor_has_failed(executor) && thread->num_finished < executor->num_submitted)
        fail_steps(thread);
    else
        return false;
    return true;
}

void threaded_steps_run(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    pthread_mutex_lock(&executor->lock);
    while (executor->phase == PHASE_RUN)
        if (!work(thread))
            pthread_cond_wait(&executor->changed, &executor->lock);
    pthread_mutex_unlock(&executor->lock);
}

/* --- The engine's thread ---------------------------------------------------------------------- */

void threaded_steps_submit(struct executor *base, const struct batch *batch,
                           struct step_result *result) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_submitted - executor->num_waited_for < EXECUTOR_MAX_STEPS);
    *rank_executor_step(executor, executor->num_submitted++) = (struct submitted_step){
        .batch = batch, .result = result, .is_supplied = !batch->has_late_inputs};
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

void threaded_steps_supply(struct executor *base) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    struct submitted_step *step = rank_executor_step(executor, executor->num_submitted - 1);
    CHECK(executor->num_submitted > executor->num_waited_for && !step->is_supplied);
    step->is_supplied = true;
    pthread_cond_broadcast(&executor->changed);
    pthread_mutex_unlock(&executor->lock);
}

static uint64_t num_finished(const struct rank_executor *executor) {
    uint64_t least = UINT64_MAX;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        if (executor->threads[r].num_finished < least)
            least = executor->threads[r].num_finished;
    return least;
}

int threaded_steps_wait(struct executor *base, struct error *err) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    CHECK(executor->num_waited_for < executor->num_submitted);
    uint64_t num_steps = ++executor->num_waited_for;
    pthread_cond_broadcast(&executor->changed);
    while (num_finished(executor) < num_steps && rank_executor_await_change(executor))
        continue;
    bool is_successful = num_steps <= executor->num_successful;
    struct error failure = executor->error;
    pthread_mutex_unlock(&executor->lock);
    if (is_successful)
        return 0;
    return error_set(err, failure.code, "%s", failure.message);
}

int32_t threaded_steps_stats(struct executor *base, struct rank_stats *out) {
    struct rank_executor *executor = (struct rank_executor *)base;
    pthread_mutex_lock(&executor->lock);
    int32_t num_ranks = executor->num_ranks;
    for (int32_t r = 0; r < num_ranks; r++)
        out[r] = executor->threads[r].stats;
    pthread_mutex_unlock(&executor->lock);
    return num_ranks;
}
