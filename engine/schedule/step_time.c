#include "engine/schedule/step_time.h"

#include "engine/schedule/scheduler_private.h"

#include <math.h>

struct step_chunk step_time_chunk(const struct scheduler *scheduler,
                                  const struct sequence *sequence, int32_t num_tokens) {
    int32_t begin = sequence_num_computed_ahead(sequence);
    bool is_scored = sequence->choice == 0 && sequence_group_is_scoring(sequence->group);
    bool samples = begin + num_tokens >= sequence_num_tokens_ahead(sequence);
    return (struct step_chunk){.begin = begin,
                               .num_tokens = num_tokens,
                               .num_rows = is_scored ? num_tokens : samples,
                               .window = scheduler->config.limits->window};
}

static struct step_work scheduled_work(const struct scheduler *scheduler) {
    struct step_work work = {0};
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        const struct step_chunk chunk = step_time_chunk(scheduler, s, s->num_scheduled_tokens);
        step_work_add(&work, &chunk);
    }
    return work;
}

/* Returns whether somebody may be reading the sequence's text as it grows, also if its next token
 * depends on a step in flight. */
static bool is_decoding(const struct sequence *sequence) {
    const struct sequence_group *group = sequence->group;
    return group->beams == NULL && !sequence_group_is_held(group) &&
           sequence_num_pending(sequence) <= 1 &&
           sequence_num_tokens_ahead(sequence) > sequence_num_prompt(sequence);
}

/* Returns what the steps of those that decode take, or where nobody does one of a single token. */
static double decoding_ns(const struct scheduler *scheduler, bool *out_is_read) {
    struct step_work work = {0};
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        if (!is_decoding(s))
            continue;
        const struct step_chunk chunk = step_time_chunk(scheduler, s, 1);
        step_work_add(&work, &chunk);
    }
    *out_is_read = work.amounts[STEP_WORK_TOKENS] > 0;
    if (!*out_is_read)
        step_work_add(&work, &(struct step_chunk){.num_tokens = 1, .num_rows = 1});
    return step_cost_ns(&scheduler->step_cost, &work);
}

double step_time_limit_ns(const struct scheduler *scheduler) {
    int64_t limit = scheduler->config.max_step_ns;
    bool is_read;
    if (limit == 0)
        return 0;
    double ns = decoding_ns(scheduler, &is_read);
    if (is_read)
        return limit > 0 ? (double)limit : fmax(3 * ns, SCHEDULER_LEAST_STEP_NS);
    return fmax(fmax(10 * ns, SCHEDULER_LEAST_PROMPT_STEP_NS), (double)limit);
}

int32_t step_time_fit(const struct scheduler *scheduler, const struct sequence *sequence,
                      int32_t most, double limit_ns, double part) {
    const struct step_work work = scheduled_work(scheduler);
    struct step_chunk chunk =
        step_time_chunk(scheduler, sequence, sequence->num_scheduled_tokens + most);
    chunk.begin += sequence->num_scheduled_tokens;
    chunk.num_tokens = most;
    double used_ns = step_cost_careful_ns(&scheduler->step_cost, &work);
    return step_cost_fit(&scheduler->step_cost, &work, &chunk,
                         used_ns + (limit_ns - used_ns) * part);
}
