#include "scripts/paged_memory/beam_rows.h"

#include "scripts/paged_memory/hash.h"

#define NUM_ROWS 256
#define COMMON_STEPS_PERCENT 60

static const int16_t rows[NUM_ROWS][BEAM_ROW_LOGPROBS] = {
#include "scripts/paged_memory/beam_rows.inc"
};

const int16_t *beam_row_choose(uint64_t history, uint64_t prompt, int32_t position) {
    uint64_t step = hash_mix(prompt + hash_mix((uint64_t)position));
    uint64_t choice = step % 100 < COMMON_STEPS_PERCENT ? step : history;
    return rows[hash_mix(choice) % NUM_ROWS];
}
