/* Which sequences take part in a step, with how many of their tokens: those that decode, then those
 * that waiting groups bring, then prompts, as long as there are blocks, tokens and time. */
#include "engine/schedule/scheduler.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/schedule/scheduler_private.h"

#include <math.h>

/* Tokens of a prompt that are computed in a step although there is no time for them. */
#define LEAST_CHUNK 4

/* --- Blocks --- */

static bool holds_blocks(const struct sequence_group *group) {
    for (int32_t i = 0; i < group->num_sequences; i++)
        if (group->sequences[i].table.num_blocks > 0)
            return true;
    return false;
}

/* Returns the last group in order that may be preempted for the sequence, or NULL. */
static struct sequence_group *last_preemptible(const struct scheduler *scheduler,
                                               const struct sequence *sequence) {
    struct sequence_group *victim = NULL;
    for (struct sequence_group *g = scheduler->running.last; g != NULL; g = g->list_previous) {
        if (g == sequence->group || g->swapped_in_this_step || !holds_blocks(g))
            continue;
        if (g->stalled)
            return g;
        if (victim == NULL && sequence_group_before(sequence->group, g))
            victim = g;
    }
    return victim;
}

/* Returns whom to preempt for the sequence; NULL: it has to wait. */
static struct sequence_group *find_victim(struct scheduler *scheduler,
                                          const struct sequence *sequence) {
    struct sequence_group *victim = last_preemptible(scheduler, sequence);
    if (victim == NULL || victim->num_in_flight == 0)
        return victim;
    scheduler->must_collect = true;
    return NULL;
}

static bool preempt_for(struct scheduler *scheduler, const struct sequence *sequence) {
    struct sequence_group *victim = find_victim(scheduler, sequence);
    if (victim != NULL)
        admission_preempt(scheduler, victim);
    return victim != NULL;
}

static int32_t budget_left(const struct scheduler *scheduler) {
    return scheduler->config.kv.limits->max_num_batched_tokens - scheduler->plan->num_tokens;
}

/* Schedules up to `most` further pending tokens of the sequence: as many as it gets blocks for. */
static void grant(struct scheduler *scheduler, struct sequence *sequence, int32_t most) {
    CHECK(sequence->status == SEQUENCE_RUNNING);
    struct block_manager *blocks = &scheduler->blocks;
    int32_t block_size = scheduler->config.kv.limits->block_size;
    int32_t begin = sequence_num_computed_ahead(sequence) + sequence->num_scheduled_tokens;
    int32_t pending = sequence_num_pending(sequence) - sequence->num_scheduled_tokens;
    int32_t wanted = pending < most ? pending : most;
    int32_t covered = sequence->table.num_blocks * block_size - begin;
    while (covered > 0 && !block_manager_make_writable(blocks, &sequence->table, begin))
        if (!preempt_for(scheduler, sequence))
            return;
    while (covered < wanted) {
        if (block_manager_grow(blocks, &sequence->table))
            covered += block_size;
        else if (!preempt_for(scheduler, sequence))
            break;
    }
    int32_t granted = covered < wanted ? covered : wanted;
    sequence->num_scheduled_tokens += granted;
    scheduler->plan->num_tokens += granted;
}

/* --- How much of the time a chunk of a prompt may take --- */

static int32_t longest_window(const struct scheduler *scheduler) {
    return serving_limits_longest_window(scheduler->config.kv.limits);
}

/* Returns the sequence's first num_tokens pending tokens as work of the step. */
static struct step_chunk chunk_of(const struct scheduler *scheduler,
                                  const struct sequence *sequence, int32_t num_tokens) {
    int32_t begin = sequence_num_computed_ahead(sequence);
    bool is_scored = sequence->choice == 0 && sequence_group_is_scoring(sequence->group);
    bool samples = begin + num_tokens >= sequence_num_tokens_ahead(sequence);
    return (struct step_chunk){.begin = begin,
                               .num_tokens = num_tokens,
                               .num_rows = is_scored ? num_tokens : samples,
                               .window = longest_window(scheduler)};
}

static struct step_work scheduled_work(const struct scheduler *scheduler) {
    struct step_work work = {0};
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        const struct step_chunk chunk = chunk_of(scheduler, s, s->num_scheduled_tokens);
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
        const struct step_chunk chunk = chunk_of(scheduler, s, 1);
        step_work_add(&work, &chunk);
    }
    *out_is_read = work.amounts[STEP_WORK_TOKENS] > 0;
    if (!*out_is_read)
        step_work_add(&work, &(struct step_chunk){.num_tokens = 1, .num_rows = 1});
    return step_cost_ns(&scheduler->step_cost, &work);
}

/* Returns how long the step may take; 0: as long as it likes. */
static double step_limit_ns(const struct scheduler *scheduler) {
    int64_t limit = scheduler->config.max_step_ns;
    bool is_read;
    if (limit == 0)
        return 0;
    double ns = decoding_ns(scheduler, &is_read);
    if (is_read)
        return limit > 0 ? (double)limit : fmax(3 * ns, SCHEDULER_LEAST_STEP_NS);
    return fmax(fmax(10 * ns, SCHEDULER_LEAST_PROMPT_STEP_NS), (double)limit);
}

/* Returns how many further pending tokens of the sequence, up to `most`, are computed in `part` of
 * the time that what is scheduled leaves of limit_ns, which is not 0. */
static int32_t fit_tokens(const struct scheduler *scheduler, const struct sequence *sequence,
                          int32_t most, double limit_ns, double part) {
    const struct step_work work = scheduled_work(scheduler);
    struct step_chunk chunk = chunk_of(scheduler, sequence, sequence->num_scheduled_tokens + most);
    chunk.begin += sequence->num_scheduled_tokens;
    chunk.num_tokens = most;
    double used_ns = step_cost_careful_ns(&scheduler->step_cost, &work);
    return step_cost_fit(&scheduler->step_cost, &work, &chunk,
                         used_ns + (limit_ns - used_ns) * part);
}

/* --- Planning --- */

static bool is_pipelined(const struct scheduler *scheduler) {
    return scheduler->config.num_steps_abreast > 1;
}

/* The first stage learns what the last one samples with the results of the step. */
static bool can_run(const struct scheduler *scheduler, const struct sequence *sequence) {
    bool is_sampled = is_pipelined(scheduler) && sequence->in_flight.num_samples > 0;
    return !is_sampled && !sequence_waits_to_jump(sequence) && sequence->table.num_awaited == 0 &&
           sequence_group_can_run(sequence);
}

static bool can_grow(struct scheduler *scheduler, const struct sequence *sequence) {
    int32_t begin = sequence_num_computed_ahead(sequence) + sequence->num_scheduled_tokens;
    int32_t covered = sequence->table.num_blocks * scheduler->config.kv.limits->block_size;
    int32_t num_missing =
        covered > begin ? block_manager_num_copies(&scheduler->blocks, &sequence->table, begin)
                        : sequence->table.num_groups;
    return block_pool_num_free(&scheduler->blocks.pool) >= num_missing ||
           find_victim(scheduler, sequence) != NULL;
}

/* Returns whether the sequence has nothing scheduled yet, and would get something. */
static bool is_schedulable(struct scheduler *scheduler, const struct sequence *sequence) {
    return sequence->num_scheduled_tokens == 0 && sequence_num_pending(sequence) > 0 &&
           !sequence->is_of_next_step && !sequence->waits_for_prefix &&
           can_run(scheduler, sequence) && can_grow(scheduler, sequence);
}

static struct sequence *first_schedulable(struct scheduler *scheduler) {
    struct sequence *s = scheduler_first_running(scheduler);
    while (s != NULL && !is_schedulable(scheduler, s))
        s = scheduler_next_running(s);
    return s;
}

/* Returns whether the sequence is of its share's most urgent priority among those of this walk,
 * which goes through the running groups in order. */
static bool is_most_urgent(struct scheduler *scheduler, const struct sequence *sequence,
                           uint64_t walk) {
    struct share *share = &scheduler->waiting.shares[sequence->request->share];
    if (share->walk != walk)
        share->walk_priority = sequence->request->priority;
    share->walk = walk;
    return share->walk_priority == sequence->request->priority;
}

/* Notes for each share how urgent its first schedulable sequence is. */
static void note_urgent(struct scheduler *scheduler) {
    uint64_t walk = ++scheduler->num_walks;
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s))
        if (is_schedulable(scheduler, s) && is_most_urgent(scheduler, s, walk))
            scheduler->waiting.shares[s->request->share].urgent_priority = s->request->priority;
}

/* Returns the one with the fewest pending tokens of those most urgent in their shares. */
static struct sequence *shortest_schedulable(struct scheduler *scheduler, bool only_urgent) {
    uint64_t walk = ++scheduler->num_walks;
    struct sequence *best = NULL;
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        const struct share *share = &scheduler->waiting.shares[s->request->share];
        if (only_urgent && s->request->priority > share->urgent_priority)
            continue;
        if (is_schedulable(scheduler, s) && is_most_urgent(scheduler, s, walk) &&
            (best == NULL || sequence_num_pending(s) < sequence_num_pending(best)))
            best = s;
    }
    return best;
}

/* Returns whether another sequence computes the next block of this one, in this step or in one in
 * flight: one of those before `end`; NULL: of all. */
static bool waits_for_prefix(struct scheduler *scheduler, struct sequence *sequence,
                             const struct sequence *end) {
    for (struct sequence *s = scheduler_first_running(scheduler); s != end;
         s = scheduler_next_running(s))
        if (s != sequence && prefix_match_is_next_of(scheduler, sequence, s))
            return true;
    return false;
}

/* Waits for what those before it compute, but not for those after it. */
static struct sequence *first_prefill(struct scheduler *scheduler) {
    struct sequence *s;
    while ((s = first_schedulable(scheduler)) != NULL) {
        s->waits_for_prefix = waits_for_prefix(scheduler, s, s);
        if (!s->waits_for_prefix)
            break;
    }
    return s;
}

/* Returns how many further tokens of the sequence the step has room for, `part` of the tokens and
 * of the time that are left. A chunk that time cuts ends with a block, if it gets so far: only
 * whole ones are shared with others that have the same prefix. */
static int32_t room_for(const struct scheduler *scheduler, const struct sequence *sequence,
                        double limit_ns, double part) {
    int32_t most = min_int32((int32_t)ceil(budget_left(scheduler) * part),
                             sequence_num_pending(sequence) - sequence->num_scheduled_tokens);
    if (limit_ns == 0 || most <= 0)
        return most;
    int32_t fitting = fit_tokens(scheduler, sequence, most, limit_ns, part);
    int32_t begin = sequence_num_computed_ahead(sequence) + sequence->num_scheduled_tokens;
    int32_t beyond = (begin + fitting) % scheduler->config.kv.limits->block_size;
    return fitting < most && beyond < fitting ? fitting - beyond : fitting;
}

/* Shortest first while budget and time last. */
static void grant_shortest_first(struct scheduler *scheduler, double limit_ns, bool only_urgent) {
    while (budget_left(scheduler) > 0) {
        struct sequence *s = shortest_schedulable(scheduler, only_urgent);
        if (s == NULL)
            return;
        s->waits_for_prefix = waits_for_prefix(scheduler, s, NULL);
        if (s->waits_for_prefix)
            continue;
        int32_t room = room_for(scheduler, s, limit_ns, 1);
        if (room == 0)
            return;
        grant(scheduler, s, room);
    }
}

/* A group whose running sequences have all finished continues with its next one. */
static void begin_plan(struct scheduler *scheduler, struct step_plan *plan) {
    *plan = (struct step_plan){.entries = plan->entries};
    scheduler->plan = plan;
    scheduler->must_collect = false;
    scheduler->num_plans++;
    for (struct sequence_group *g = scheduler->running.first; g != NULL; g = g->list_next) {
        g->swapped_in_this_step = false;
        if (sequence_group_find(g, 0, SEQUENCE_RUNNING) == NULL)
            sequence_group_leader(g)->status = SEQUENCE_RUNNING;
    }
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s))
        s->waits_for_prefix = false;
}

/* Returns how many sequences decode in the step being planned: their part of those that do, in
 * flight or not. */
static int32_t most_decodes(const struct scheduler *scheduler) {
    int32_t num_steps = scheduler->config.num_steps_abreast, count = 0;
    if (!is_pipelined(scheduler))
        return INT32_MAX;
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s))
        count += sequence_num_pending(s) == 1;
    return (count + num_steps - 1) / num_steps;
}

static void plan_decodes(struct scheduler *scheduler, int32_t most) {
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        if (sequence_num_pending(s) != 1 || !can_run(scheduler, s))
            continue;
        s->is_of_next_step = most == 0;
        if (most > 0)
            grant(scheduler, s, 1);
        most -= s->num_scheduled_tokens;
    }
}

static void plan_prefills(struct scheduler *scheduler) {
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        if (s->table.num_awaited > 0)
            prefix_match_load(scheduler, s);
        if (s->num_scheduled_tokens == 0 && can_run(scheduler, s))
            prefix_match_extend(scheduler, s);
    }
    struct sequence *first = budget_left(scheduler) > 0 ? first_prefill(scheduler) : NULL;
    if (first == NULL)
        return;
    note_urgent(scheduler);
    double limit_ns = step_limit_ns(scheduler);
    int32_t least = limit_ns > 0 ? min_int32(budget_left(scheduler), LEAST_CHUNK) : 0;
    grant(scheduler, first, max_int32(room_for(scheduler, first, limit_ns, 0.5), least));
    grant_shortest_first(scheduler, limit_ns, true);
    grant(scheduler, first, room_for(scheduler, first, limit_ns, 1));
    grant_shortest_first(scheduler, limit_ns, false);
}

/* Schedules drafts after the only pending token, which is known. They preempt nobody. Returns their
 * number. */
static int32_t grant_drafts(struct scheduler *scheduler, struct sequence *sequence, int32_t most) {
    int32_t block_size = scheduler->config.kv.limits->block_size;
    int32_t begin = sequence->num_tokens;
    int32_t covered = sequence->table.num_blocks * block_size - begin;
    if (most == 0)
        return 0;
    while (covered < most && block_manager_grow(&scheduler->blocks, &sequence->table))
        covered += block_size;
    int32_t granted = max_int32(min_int32(covered, most), 0);
    sequence->num_scheduled_tokens += granted;
    scheduler->plan->num_tokens += granted;
    return granted;
}

/* Returns how many drafts the sequence may get after its only pending token; 0 also if that is not
 * known yet. */
static int32_t most_drafts(const struct scheduler *scheduler, const struct sequence *sequence) {
    int32_t begin = sequence->num_tokens;
    if (sequence->num_scheduled_tokens != 1 || sequence->num_computed + 1 != begin ||
        sequence->in_flight.num_tokens > 0)
        return 0;
    int32_t most = min_int32(sequence->num_wanted_drafts, sequence->max_tokens - begin - 1);
    return max_int32(min_int32(most, budget_left(scheduler)), 0);
}

/* Returns how many of the tokens from `begin` on the draft model computes in the step: a token
 * takes it no longer than the model, and both share the step's budget. */
static int32_t room_for_inputs(const struct scheduler *scheduler, int32_t begin,
                               int32_t num_tokens) {
    const struct step_plan *plan = scheduler->plan;
    int32_t room = min_int32(budget_left(scheduler) - plan->num_draft_inputs, num_tokens - begin);
    double limit_ns = room > LEAST_CHUNK ? step_limit_ns(scheduler) : 0;
    const struct step_chunk chunk = {
        .begin = begin, .num_tokens = room, .window = longest_window(scheduler)};
    if (limit_ns == 0)
        return max_int32(room, 0);
    return max_int32(step_cost_fit(&scheduler->step_cost, &plan->work, &chunk, limit_ns),
                     LEAST_CHUNK);
}

/* Has the draft model propose up to `most` drafts. Before that it computes what it has not computed
 * yet of the sequence; if the step has no room for all of it, only a part, and no draft. An MTP
 * layer computes all tokens but the first, each one place earlier, and the drafts once more when
 * they were accepted. It has to compute the last token, so the place before it must not be that of
 * another sequence too, which may continue in another way. */
static void grant_model_drafts(struct scheduler *scheduler, struct planned_sequence *entry,
                               int32_t most) {
    struct step_plan *plan = scheduler->plan;
    struct sequence *sequence = entry->sequence;
    struct block_manager *blocks = &scheduler->blocks;
    if (most == 0 || !scheduler->may_draft || blocks->num_submitted > blocks->num_collected)
        return;
    int32_t num_tokens = sequence->num_tokens, shift = scheduler->config.has_mtp ? 1 : 0;
    if (shift > 0 && block_manager_num_copies(blocks, &sequence->table, num_tokens - 2) > 0)
        return;
    int32_t begin =
        block_manager_num_drafted(blocks, &sequence->table, num_tokens - 1 - shift) + shift;
    sequence->num_missed = num_tokens - begin;
    if (sequence->num_missed > sequence->most_missed)
        return;
    int32_t num_inputs = room_for_inputs(scheduler, begin, num_tokens);
    int32_t room = budget_left(scheduler) - plan->num_draft_inputs - num_inputs;
    bool is_complete = begin + num_inputs == num_tokens;
    if (is_complete)
        entry->num_drafts = grant_drafts(scheduler, sequence, min_int32(most, room));
    if (num_inputs == 0 || (is_complete && entry->num_drafts == 0))
        return;
    entry->draft_begin = begin;
    entry->num_draft_inputs = num_inputs;
    plan->num_draft_inputs += num_inputs;
    int32_t num_kept = scheduler->config.has_mtp ? 0 : max_int32(entry->num_drafts - 1, 0);
    block_manager_add_drafted(blocks, &sequence->table, begin - shift,
                              begin - shift + num_inputs + num_kept);
}

static void add_entry(struct scheduler *scheduler, struct sequence *sequence) {
    struct step_plan *plan = scheduler->plan;
    int32_t begin = sequence_num_computed_ahead(sequence);
    int32_t end = begin + sequence->num_scheduled_tokens;
    struct planned_sequence *entry = &plan->entries[plan->num_entries++];
    *entry = (struct planned_sequence){
        .sequence = sequence,
        .begin = begin,
        .samples = end == sequence_num_tokens_ahead(sequence) && end < sequence->max_tokens,
        .hidden_sum = -1,
        .first_draft = -1,
    };
    int32_t most = most_drafts(scheduler, sequence);
    if (sequence->wants_model_drafts)
        grant_model_drafts(scheduler, entry, most);
    else
        entry->num_drafts = grant_drafts(scheduler, sequence, most);
    entry->num_tokens = sequence->num_scheduled_tokens;
    struct step_chunk chunk = chunk_of(scheduler, sequence, sequence->num_scheduled_tokens);
    chunk.num_rows += entry->num_drafts;
    step_work_add(&plan->work, &chunk);
}

/* With a prompt in it a step is long already, and what drafts cost there is not measured. */
static bool only_decodes(const struct scheduler *scheduler) {
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s))
        if (s->num_scheduled_tokens > 1)
            return false;
    return true;
}

void scheduler_plan(struct scheduler *scheduler, struct step_plan *plan) {
    bool is_alone = scheduler->must_collect; /* nothing is in flight, nor will be */
    begin_plan(scheduler, plan);
    if (scheduler->alone != NULL)
        admission_clear(scheduler);
    plan_decodes(scheduler, is_alone ? INT32_MAX : most_decodes(scheduler));
    if (scheduler->alone != NULL || (plan->num_swapped_out == 0 && plan->num_dropped == 0))
        admission_run(scheduler);
    plan_prefills(scheduler);
    if (plan->num_tokens == 0) /* a prompt has preempted those that were to decode now */
        plan_decodes(scheduler, INT32_MAX);
    block_manager_save(&scheduler->blocks);
    prefix_match_read_ahead(scheduler);
    scheduler->may_draft = only_decodes(scheduler);
    for (struct sequence *s = scheduler_first_running(scheduler); s != NULL;
         s = scheduler_next_running(s)) {
        s->is_of_next_step = false;
        if (s->num_scheduled_tokens > 0)
            add_entry(scheduler, s);
    }
}
