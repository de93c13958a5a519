/* The life of groups in the core: linked by arrival, ended choice by choice. Part of the core. */
#ifndef QUIRE_ENGINE_CORE_GROUPS_H
#define QUIRE_ENGINE_CORE_GROUPS_H

#include "engine/core/engine_core_state.h"

/* At the end of the live groups. */
void core_groups_link(struct engine_core *core, struct sequence_group *group);
void core_groups_unlink(struct engine_core *core, struct sequence_group *group);
/* When a group is scheduled for the first time, or ends before that. */
void core_groups_leave_queue(struct engine_core *core, struct sequence_group *group);
/* The step at deadline_ns is the latest that something must be done about a group. */
void core_groups_note_stall(struct engine_core *core, int64_t deadline_ns);

void core_groups_notify(struct engine_core *core, const struct sequence_group *group);
/* Frees the blocks of a sequence whose finish is set, and counts it. */
void core_groups_retire(struct engine_core *core, struct sequence *sequence);
/* After a choice's last event was pushed. Frees the group with its last one. */
void core_groups_close(struct engine_core *core, struct sequence *sequence);
/* Of a retired choice: pushes its last event, now or in a later step. May free the group. */
void core_groups_push_end(struct engine_core *core, struct sequence *sequence);
/* Ends a choice from outside. May free its group. */
void core_groups_end_choice(struct engine_core *core, struct sequence *sequence,
                            enum finish_reason reason);
/* Ends what has not ended; pushes last events that found no memory before. May free the group. */
void core_groups_end(struct engine_core *core, struct sequence_group *group,
                     enum finish_reason reason);

#endif
