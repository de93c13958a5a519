/* Runs a group's beam search: its sequences are the slots of a beam_search, and share the blocks of
 * what they have in common. Engine thread only. */
#ifndef QUIRE_ENGINE_CORE_BEAM_GROUP_H
#define QUIRE_ENGINE_CORE_BEAM_GROUP_H

#include "engine/schedule/scheduler.h"
#include "engine/core/step_output.h"

/* Takes one step of a group whose beams all have their row: beams fork, end and get their next
 * tokens. Returns 0; 1 when the search is over; -1 when memory is short. */
int beam_group_advance(struct scheduler *scheduler, struct sequence_group *group);

/* Makes a choice's sequence the hypothesis of that rank and pushes its tokens, once the search is
 * over and no sequence holds blocks any more. Returns how many tokens these are, or -1 when memory
 * is short. With fewer hypotheses than choices, which a tiny vocabulary can lead to, it is 0. */
int32_t beam_group_output(struct step_output *output, struct sequence *choice);

#endif
