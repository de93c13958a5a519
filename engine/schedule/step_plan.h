/* Says what the scheduler decided for one step: which sequences, and how many of each one's pending
 * tokens. The blocks for them are already in the sequences' tables; what must be moved for that is
 * in the block manager's lists. */
#ifndef QUIRE_ENGINE_SCHEDULE_STEP_PLAN_H
#define QUIRE_ENGINE_SCHEDULE_STEP_PLAN_H

#include "engine/sequence/sequence_group.h"

struct planned_sequence {
    struct sequence *sequence;
    int32_t num_tokens; /* >= 1 */
};

struct step_plan {
    struct planned_sequence *entries; /* [num_entries], room for max_num_seqs */
    int32_t num_entries;
    int32_t num_tokens; /* of all entries */
    /* Groups that lost their blocks for this step. */
    int32_t num_swapped_out;
    int32_t num_dropped; /* to be recomputed */
};

#endif
