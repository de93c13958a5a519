/* Blocks that no token will look at again. Part of the scheduler. */
#ifndef QUIRE_ENGINE_SCHEDULE_KV_WINDOW_H
#define QUIRE_ENGINE_SCHEDULE_KV_WINDOW_H

#include "engine/schedule/scheduler_state.h"

/* Gives back the blocks that lie before the window of the next token to be computed. */
void kv_window_release(struct scheduler *scheduler, struct sequence *sequence);
/* Whether `sequence` still has what a token after the first num_tokens sees. */
bool kv_window_holds(const struct scheduler *scheduler, const struct sequence *sequence,
                     int32_t num_tokens);

#endif
