#include "engine/scheduler.h"

#include "config/check.h"

#include <stdlib.h>
#include <string.h>

int scheduler_init(struct scheduler *scheduler, const struct scheduler_config *config,
                   int32_t num_blocks) {
    CHECK(config->max_num_seqs >= 1 && config->max_num_batched_tokens >= config->max_num_seqs);
    CHECK(config->block_size >= 1);
    struct scheduler made = {.config = *config};
    made.plan.entries = calloc((size_t)config->max_num_seqs, sizeof(*made.plan.entries));
    if (made.plan.entries == NULL)
        return -1;
    if (block_pool_init(&made.pool, num_blocks) != 0) {
        free(made.plan.entries);
        return -1;
    }
    *scheduler = made;
    return 0;
}

void scheduler_finish(struct scheduler *scheduler) {
    CHECK(scheduler->waiting.count == 0 && scheduler->running.count == 0);
    block_pool_finish(&scheduler->pool);
    free(scheduler->plan.entries);
    memset(scheduler, 0, sizeof(*scheduler));
}

void scheduler_add(struct scheduler *scheduler, struct sequence *sequence) {
    CHECK(sequence->status == SEQUENCE_NEW);
    sequence->status = SEQUENCE_WAITING;
    sequence_list_insert(&scheduler->waiting, sequence);
}

void scheduler_remove(struct scheduler *scheduler, struct sequence *sequence) {
    if (sequence->status == SEQUENCE_WAITING)
        sequence_list_remove(&scheduler->waiting, sequence);
    else if (sequence->status == SEQUENCE_RUNNING)
        sequence_list_remove(&scheduler->running, sequence);
    CHECK(sequence->status != SEQUENCE_FINISHED);
    block_table_release(&sequence->table, &scheduler->pool);
    sequence->status = SEQUENCE_FINISHED;
}

void scheduler_commit(struct scheduler *scheduler, const struct planned_sequence *entry) {
    struct sequence *sequence = entry->sequence;
    CHECK(sequence->status == SEQUENCE_RUNNING && sequence->num_planned == entry->num_tokens);
    sequence->num_computed += entry->num_tokens;
    sequence->num_planned = 0;
    if (sequence->num_computed > sequence->most_computed)
        sequence->most_computed = sequence->num_computed;
}

static int32_t budget_left(const struct scheduler *scheduler) {
    return scheduler->config.max_num_batched_tokens - scheduler->plan.num_tokens;
}

static void preempt(struct scheduler *scheduler, struct sequence *victim) {
    scheduler->plan.num_tokens -= victim->num_planned;
    scheduler->plan.num_preempted++;
    victim->num_planned = 0;
    victim->num_computed = 0;
    block_table_release(&victim->table, &scheduler->pool);
    sequence_list_remove(&scheduler->running, victim);
    victim->status = SEQUENCE_WAITING;
    sequence_list_insert(&scheduler->waiting, victim);
}

/* Who gives up blocks for the sequence; NULL: it has to wait. */
static struct sequence *find_victim(const struct scheduler *scheduler,
                                    const struct sequence *sequence) {
    struct sequence *victim = NULL;
    for (struct sequence *s = scheduler->running.last; s != NULL; s = s->previous) {
        if (s->table.num_blocks == 0 || s == sequence)
            continue;
        if (s->group->stalled)
            return s;
        if (victim == NULL && sequence_before(sequence, s))
            victim = s;
    }
    return victim;
}

static bool take_block(struct scheduler *scheduler, struct sequence *sequence) {
    while (!block_table_grow(&sequence->table, &scheduler->pool)) {
        struct sequence *victim = find_victim(scheduler, sequence);
        if (victim == NULL)
            return false;
        preempt(scheduler, victim);
    }
    return true;
}

/* Plans up to num_tokens more tokens of the sequence: as many as it gets blocks for. */
static void grant(struct scheduler *scheduler, struct sequence *sequence, int32_t num_tokens) {
    CHECK(sequence->status == SEQUENCE_RUNNING);
    int32_t begin = sequence->num_computed + sequence->num_planned;
    int32_t covered = sequence->table.num_blocks * scheduler->config.block_size - begin;
    while (covered < num_tokens && take_block(scheduler, sequence))
        covered += scheduler->config.block_size;
    int32_t granted = covered < num_tokens ? covered : num_tokens;
    sequence->num_planned += granted;
    scheduler->plan.num_tokens += granted;
}

static void plan_decodes(struct scheduler *scheduler) {
    for (struct sequence *s = scheduler->running.first; s != NULL; s = s->next)
        if (sequence_num_pending(s) == 1 && sequence_can_run(s))
            grant(scheduler, s, 1);
}

static int32_t missing_blocks(const struct scheduler *scheduler, const struct sequence *sequence) {
    int32_t needed = block_table_blocks_for(sequence->num_tokens, scheduler->config.block_size);
    return needed > sequence->table.num_blocks ? needed - sequence->table.num_blocks : 0;
}

/* Free blocks that nobody seated will need for the tokens it has, less one for each to grow by. */
static int64_t unpromised_blocks(const struct scheduler *scheduler) {
    int64_t blocks = block_pool_num_free(&scheduler->pool);
    for (const struct sequence *s = scheduler->running.first; s != NULL; s = s->next)
        blocks -= 1 + missing_blocks(scheduler, s);
    return blocks;
}

static bool evict_stalled(struct scheduler *scheduler) {
    struct sequence *s = scheduler->running.last;
    while (s != NULL && !s->group->stalled)
        s = s->previous;
    if (s == NULL)
        return false;
    preempt(scheduler, s);
    return true;
}

static void seat(struct scheduler *scheduler, struct sequence *sequence) {
    sequence_list_remove(&scheduler->waiting, sequence);
    sequence->status = SEQUENCE_RUNNING;
    sequence_list_insert(&scheduler->running, sequence);
}

/* With nobody seated the whole pool is free, and engine_core let in only what fits in it alone. */
static bool has_room_for(const struct scheduler *scheduler, const struct sequence *sequence) {
    return scheduler->running.count == 0 ||
           (scheduler->running.count < scheduler->config.max_num_seqs &&
            missing_blocks(scheduler, sequence) <= unpromised_blocks(scheduler));
}

/* A sequence that cannot run yet is passed over; the first that can keeps its turn. */
static void admit(struct scheduler *scheduler) {
    struct sequence *s = scheduler->waiting.first, *next;
    for (; s != NULL; s = next) {
        if (sequence_can_run(s)) {
            while (!has_room_for(scheduler, s))
                if (!evict_stalled(scheduler))
                    return;
        }
        next = s->next;
        if (sequence_can_run(s))
            seat(scheduler, s);
    }
}

static bool can_grow(const struct scheduler *scheduler, const struct sequence *sequence) {
    int32_t room = sequence->table.num_blocks * scheduler->config.block_size;
    return room > sequence->num_computed + sequence->num_planned ||
           block_pool_num_free(&scheduler->pool) > 0 || find_victim(scheduler, sequence) != NULL;
}

/* Has been given nothing yet, and would take something. */
static bool is_next_in_line(const struct scheduler *scheduler, const struct sequence *sequence) {
    return sequence->num_planned == 0 && sequence_num_pending(sequence) > 0 &&
           sequence_can_run(sequence) && can_grow(scheduler, sequence);
}

static struct sequence *first_in_line(const struct scheduler *scheduler) {
    struct sequence *s = scheduler->running.first;
    while (s != NULL && !is_next_in_line(scheduler, s))
        s = s->next;
    return s;
}

/* The shortest of the most urgent priority. */
static struct sequence *shortest_in_line(const struct scheduler *scheduler) {
    struct sequence *best = NULL;
    for (struct sequence *s = scheduler->running.first; s != NULL; s = s->next) {
        if (!is_next_in_line(scheduler, s))
            continue;
        if (best != NULL && s->group->request->priority != best->group->request->priority)
            break;
        if (best == NULL || sequence_num_pending(s) < sequence_num_pending(best))
            best = s;
    }
    return best;
}

static void grant_pending(struct scheduler *scheduler, struct sequence *sequence, int32_t most) {
    int32_t wanted = sequence_num_pending(sequence) - sequence->num_planned;
    grant(scheduler, sequence, wanted < most ? wanted : most);
}

/* Shortest first while budget lasts; none of a less urgent priority than `least`. */
static void grant_down_the_line(struct scheduler *scheduler, int32_t least) {
    while (budget_left(scheduler) > 0) {
        struct sequence *s = shortest_in_line(scheduler);
        if (s == NULL || s->group->request->priority > least)
            return;
        grant_pending(scheduler, s, budget_left(scheduler));
    }
}

static void plan_prefills(struct scheduler *scheduler) {
    struct sequence *first = first_in_line(scheduler);
    if (first == NULL || budget_left(scheduler) == 0)
        return;
    grant_pending(scheduler, first, (budget_left(scheduler) + 1) / 2);
    grant_down_the_line(scheduler, first->group->request->priority);
    grant_pending(scheduler, first, budget_left(scheduler));
    grant_down_the_line(scheduler, INT32_MAX);
}

static void list_entries(struct scheduler *scheduler) {
    struct step_plan *plan = &scheduler->plan;
    for (struct sequence *s = scheduler->running.first; s != NULL; s = s->next)
        if (s->num_planned > 0)
            plan->entries[plan->num_entries++] = (struct planned_sequence){s, s->num_planned};
}

const struct step_plan *scheduler_plan(struct scheduler *scheduler) {
    struct step_plan *plan = &scheduler->plan;
    plan->num_entries = 0;
    plan->num_tokens = 0;
    plan->num_preempted = 0;
    plan_decodes(scheduler);
    if (plan->num_preempted == 0)
        admit(scheduler);
    plan_prefills(scheduler);
    list_entries(scheduler);
    return plan;
}
