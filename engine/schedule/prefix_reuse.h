/* Tokens whose keys and values the prefix cache has need not be computed. Part of the scheduler. */
#ifndef QUIRE_ENGINE_SCHEDULE_PREFIX_REUSE_H
#define QUIRE_ENGINE_SCHEDULE_PREFIX_REUSE_H

#include "engine/schedule/scheduler_state.h"

/* For a sequence that holds nothing: takes what the cache has from its first token on. Returns how
 * many tokens that are; undo gives them back, count counts them. */
int32_t prefix_reuse_begin(struct scheduler *scheduler, struct sequence *sequence);
void prefix_reuse_undo(struct scheduler *scheduler, struct sequence *sequence);
void prefix_reuse_count(struct scheduler *scheduler, struct sequence *sequence, int32_t num_found);
/* For one that runs: goes on from what is computed, if that ends with a block. What others computed
 * meanwhile of a prefix they share with it is thus not computed again. */
void prefix_reuse_extend(struct scheduler *scheduler, struct sequence *sequence);
/* Whether what is planned for `other` makes the block that the sequence would compute next. */
bool prefix_reuse_follows(struct scheduler *scheduler, struct sequence *sequence,
                          struct sequence *other);

#endif
