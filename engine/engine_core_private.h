/* How sequences and groups end, for the files that make up the core (engine_core.c, step_commit.c).
 */
#ifndef QUIRE_ENGINE_ENGINE_CORE_PRIVATE_H
#define QUIRE_ENGINE_ENGINE_CORE_PRIVATE_H

#include "engine/engine_core.h"

void engine_core_notify(struct engine_core *core, const struct sequence_group *group);
/* Frees the blocks of a sequence whose finish is set, and counts it. */
void engine_core_retire(struct engine_core *core, struct sequence *sequence);
/* After a choice's last event was pushed. Frees the group with its last one. */
void engine_core_close_sequence(struct engine_core *core, struct sequence *sequence);
/* Of a retired choice: pushes its last event, now or in a later step. May free the group. */
void engine_core_push_end(struct engine_core *core, struct sequence *sequence);
/* Ends a choice from outside. May free its group. */
void engine_core_end_sequence(struct engine_core *core, struct sequence *sequence,
                              enum finish_reason reason);
/* Ends what has not ended; pushes last events that found no memory before. May free the group. */
void engine_core_end_group(struct engine_core *core, struct sequence_group *group,
                           enum finish_reason reason);

#endif
