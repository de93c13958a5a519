/* What the scheduler decided for one step: which sequences, and how many of each one's pending
 * tokens. The blocks for them are already in the sequences' tables. */
#ifndef QUIRE_ENGINE_STEP_PLAN_H
#define QUIRE_ENGINE_STEP_PLAN_H

#include "engine/sequence.h"

struct planned_sequence {
    struct sequence *sequence;
    int32_t num_tokens; /* >= 1 */
};

struct step_plan {
    struct planned_sequence *entries; /* [num_entries], room for max_num_seqs */
    int32_t num_entries;
    int32_t num_tokens;    /* of all entries */
    int32_t num_preempted; /* sequences that lost their blocks for this step */
};

#endif
