/* A prompt that this server computes and another one continues, from a store that both have. The
 * last tokens of such a prompt, those after its full blocks, are computed once the store has the
 * blocks: when its first token is there, so are they. What does not come to the store within some
 * seconds, because the disk is full or slow, the other server computes. */
#include "engine/core/engine_core_private.h"

#include "config/base/log.h"

#define PATIENCE_NS INT64_C(4000000000)   /* without a block that has come to the store */
#define OFFER_AGAIN_NS INT64_C(500000000) /* a block may have been left out, or forgotten */
#define MAX_OFFERS 3                      /* while nothing is being written */
#define SAVE_NS INT64_C(1000000)          /* what the host has goes to the store without a step */

static void offer(struct engine_core *core, const struct sequence *leader, int64_t now_ns) {
    struct handover *handover = &leader->group->handover;
    block_manager_offer(&core->scheduler.blocks, &leader->table);
    handover->num_offers++;
    handover->offer_ns = now_ns + OFFER_AGAIN_NS;
}

static void note_stored(struct engine_core *core, const struct sequence *leader, int64_t now_ns) {
    struct handover *handover = &leader->group->handover;
    int32_t block_size = core->config.schedule.kv.limits->block_size;
    int32_t num_tokens =
        block_size * block_manager_num_stored(&core->scheduler.blocks, &leader->table,
                                              handover->num_stored_tokens / block_size,
                                              handover->num_tokens / block_size);
    if (num_tokens > handover->num_stored_tokens || handover->num_offers == 0)
        handover->progress_ns = now_ns;
    handover->num_stored_tokens = num_tokens;
}

static void end_wait(struct engine_core *core, struct sequence_group *group, int64_t now_ns) {
    struct handover *handover = &group->handover;
    int32_t num_missing = handover->num_tokens - handover->num_stored_tokens;
    handover->is_awaited = false;
    if (num_missing > 0 && engine_core_may_log(&core->handed_over_logged_ns, now_ns))
        log_warning(
            "request %llu: %d of %d tokens to be handed over are not in the store: the other "
            "server computes them",
            (unsigned long long)group->request->id, num_missing, handover->num_tokens);
}

/* Returns the leader if all that it waits for is computed; NULL: it does not wait, or not yet. */
static struct sequence *find_computed(const struct sequence_group *group) {
    const struct handover *handover = &group->handover;
    struct sequence *leader = handover->is_awaited ? sequence_group_leader(group) : NULL;
    bool is_computed = leader != NULL && leader->status == SEQUENCE_RUNNING &&
                       leader->num_computed >= handover->num_tokens;
    return is_computed ? leader : NULL;
}

void engine_core_await_stored(struct engine_core *core, struct sequence_group *group,
                              int64_t now_ns) {
    struct handover *handover = &group->handover;
    struct sequence *leader = find_computed(group);
    handover->is_storing = false;
    if (leader == NULL) {
        handover->num_offers = 0; /* it may have been preempted, and then waits anew */
        return;
    }
    scheduler_publish(&core->scheduler, leader); /* it may have been swapped in */
    note_stored(core, leader, now_ns);
    bool is_stored = handover->num_stored_tokens == handover->num_tokens;
    bool is_idle = !block_manager_has_writes(&core->scheduler.blocks);
    bool gives_up = now_ns - handover->progress_ns >= PATIENCE_NS ||
                    (is_idle && handover->num_offers >= MAX_OFFERS);
    if (is_stored || gives_up) {
        end_wait(core, group, now_ns);
        return;
    }
    bool offers = is_idle || handover->num_offers == 0 || now_ns >= handover->offer_ns;
    if (offers)
        offer(core, leader, now_ns);
    handover->is_storing = true;
    core->num_storing++;
    engine_core_note_deadline(core, offers ? now_ns + SAVE_NS : handover->offer_ns);
}

void engine_core_note_found(struct engine_core *core, int64_t now_ns) {
    for (struct sequence_group *group = core->first_group; group != NULL; group = group->next) {
        if (group->handover.is_storing || find_computed(group) == NULL)
            continue;
        core->num_storing++;
        engine_core_note_deadline(core, now_ns);
    }
}
