#include "engine/schedule/kv_window.h"

void kv_window_release(struct scheduler *scheduler, struct sequence *sequence) {
    int32_t window = scheduler->config.limits->window;
    if (window > 0 && sequence->num_computed >= window)
        block_manager_drop_before(&scheduler->blocks, &sequence->table,
                                  sequence->num_computed - window + 1);
}

bool kv_window_holds(const struct scheduler *scheduler, const struct sequence *sequence,
                     int32_t num_tokens) {
    int32_t first_seen = num_tokens - scheduler->config.limits->window + 1;
    int32_t num_dropped = sequence->table.num_dropped;
    return num_dropped == 0 || num_dropped * scheduler->config.limits->block_size <= first_seen;
}
