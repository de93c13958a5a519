#include "engine/executor/rank_turn.h"

#include "config/base/clock.h"
#include "engine/executor/rank_executor.h"
#include "engine/executor/step_turns.h"

bool rank_turn_covers(const struct rank_thread *thread) {
    const struct rank_executor *executor = thread->executor;
    uint64_t step = thread->num_begun;
    return executor->config.turns == NULL || step < executor->turn.end ||
           executor->steps[step % EXECUTOR_MAX_STEPS].batch->inputs.num_tokens == 0 ||
           rank_is_asynchronous(&executor->ranks[thread->index]);
}

/* One after those that were begun, or as many stages as can compute at the same time. */
static void cover_next_steps(struct rank_executor *executor, uint64_t num_begun) {
    executor->turn.end = num_begun + (executor->setup.num_stages > 1 ? EXECUTOR_MAX_STEPS : 1);
    pthread_cond_broadcast(&executor->changed);
}

bool rank_turn_take(struct rank_thread *thread) {
    struct rank_executor *executor = thread->executor;
    if (executor->turn.state != TURN_NONE)
        return false;
    executor->turn.state = TURN_REQUESTED;
    pthread_mutex_unlock(&executor->lock);
    step_turns_take(executor->config.turns, executor->config.turn_slot);
    pthread_mutex_lock(&executor->lock);
    executor->turn.state = TURN_HELD;
    executor->turn.taken_ns = clock_now_ns();
    cover_next_steps(executor, thread->num_begun);
    return true;
}

void rank_turn_give(struct rank_executor *executor) {
    if (executor->turn.state != TURN_HELD)
        return;
    for (int32_t r = 0; r < executor->num_ranks; r++)
        if (executor->threads[r].num_finished < executor->most_begun)
            return;
    int64_t used_ns = clock_now_ns() - executor->turn.taken_ns;
    bool is_next_submitted = executor->num_submitted > executor->most_begun;
    if (is_next_submitted && executor->error.code == ERROR_NONE &&
        !step_turns_is_over(executor->config.turns, executor->config.turn_slot, used_ns)) {
        cover_next_steps(executor, executor->most_begun);
        return;
    }
    step_turns_give(executor->config.turns, executor->config.turn_slot, used_ns);
    executor->turn.state = TURN_NONE;
    pthread_cond_broadcast(&executor->changed);
}
