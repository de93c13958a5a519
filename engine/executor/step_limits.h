/* How large a step may be on a device, and how many logits are computed at a time. Pure. */
#ifndef QUIRE_ENGINE_EXECUTOR_STEP_LIMITS_H
#define QUIRE_ENGINE_EXECUTOR_STEP_LIMITS_H

#include "config/error.h"

#include <stdint.h>

struct step_limits {
    int32_t max_num_seqs;
    int32_t max_num_batched_tokens; /* >= max_num_seqs */
    int32_t max_logit_rows;         /* the head runs over this many rows at a time */
};

/* Fills in what was not asked for (0) by the device's kind: a card needs many sequences in a step
 * to be busy, a CPU few. A number that was asked for pulls the other one along; two that contradict
 * each other are an ERROR_CONFIG. device: as backend_open names it. */
int step_limits_choose(const char *device, int32_t max_num_seqs, int32_t max_num_batched_tokens,
                       struct step_limits *out, struct error *err);

#endif
