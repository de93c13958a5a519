#include "config/base/check.h"
#include "engine/schedule/scheduler_private.h"

static int32_t find(struct scheduler *scheduler, struct sequence *sequence) {
    const struct token_view tokens = sequence_tokens(sequence);
    int32_t num_found = block_manager_match(&scheduler->blocks, &sequence->table, &tokens,
                                            sequence_group_reusable(sequence));
    if (num_found > 0) {
        sequence->num_computed += num_found;
        scheduler_release_window(scheduler, sequence);
    }
    return num_found;
}

/* Hits are tokens that nobody computed for the group before; it may have lost them again. A choice
 * that starts late finds the prompt once more, but for what choice 0 computed. */
static void count_hits(struct scheduler *scheduler, struct sequence *sequence, int32_t from) {
    int32_t end = sequence->num_computed, num_prompt = sequence_num_prompt(sequence);
    int32_t known = from > sequence->max_computed ? from : sequence->max_computed;
    if (end <= known)
        return;
    sequence->max_computed = end;
    if (sequence->choice > 0)
        return;
    scheduler->num_hit_tokens += (uint64_t)(end - known);
    if (end > num_prompt)
        end = num_prompt;
    if (end > known)
        sequence->group->num_cached_tokens += end - known;
}

int32_t prefix_match(struct scheduler *scheduler, struct sequence *sequence) {
    CHECK(sequence->num_computed == 0);
    return find(scheduler, sequence);
}

void prefix_match_commit(struct scheduler *scheduler, struct sequence *sequence,
                         int32_t num_found) {
    if (!sequence->group->started)
        scheduler->num_queried_tokens += (uint64_t)sequence_group_reusable(sequence);
    if (num_found > 0)
        count_hits(scheduler, sequence, 0);
}

void prefix_match_rollback(struct scheduler *scheduler, struct sequence *sequence) {
    block_manager_release(&scheduler->blocks, &sequence->table);
    sequence->num_computed = 0;
}

void prefix_match_extend(struct scheduler *scheduler, struct sequence *sequence) {
    int32_t before = sequence->num_computed;
    int32_t covered = sequence->table.num_blocks * scheduler->config.kv.limits->block_size;
    if (before == covered && sequence->in_flight.num_tokens == 0 &&
        sequence_num_pending(sequence) > 1 && find(scheduler, sequence) > 0)
        count_hits(scheduler, sequence, before);
}

/* The first comparisons only spare the others. */
bool prefix_match_is_next_of(struct scheduler *scheduler, struct sequence *sequence,
                             struct sequence *other) {
    int32_t size = scheduler->config.kv.limits->block_size;
    int32_t begin = sequence->num_computed;
    int32_t num_new = other->in_flight.num_tokens + other->num_scheduled_tokens;
    if (!scheduler->config.kv.caching || sequence->in_flight.num_tokens > 0 ||
        other->num_computed < begin || other->num_computed >= begin + size || num_new == 0 ||
        begin % size != 0 || other->num_tokens < begin + size ||
        sequence_group_reusable(sequence) < begin + size ||
        sequence_token(sequence, begin) != sequence_token(other, begin))
        return false;
    const struct token_view tokens = sequence_tokens(sequence);
    const struct token_view other_tokens = sequence_tokens(other);
    return block_manager_same_next(&scheduler->blocks, &sequence->table, &tokens, &other->table,
                                   &other_tokens, begin / size);
}
