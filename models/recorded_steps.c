#include "models/recorded_steps.h"

#include "config/base/numbers.h"

static int32_t next_size(int32_t size) {
    if (size < 4)
        return size * 2;
    if (size < 8)
        return 8;
    return size + (size < 64 ? 8 : size < 256 ? 16 : 32);
}

int32_t recorded_steps_sizes(int32_t max_rows, int32_t out[static RECORDED_STEPS_MAX_SIZES]) {
    int32_t count = 0, most = min_int32(max_rows, RECORDED_STEPS_MAX_ROWS);
    for (int32_t size = 1; size < most; size = next_size(size))
        out[count++] = size;
    if (most > 0)
        out[count++] = most;
    return count;
}

static bool is_recordable(const struct batch *batch) {
    int32_t n = batch->inputs.num_seqs;
    if (batch->inputs.num_tokens != n || batch->num_sample_rows != n || batch->num_hidden_sums > 0)
        return false;
    for (int32_t i = 0; i < n; i++)
        if (batch->logit_rows[i] != i)
            return false;
    return n > 0;
}

const struct recorded_step *recorded_steps_find(const struct recorded_steps *steps,
                                                const struct batch *batch) {
    if (steps->count == 0 || !is_recordable(batch))
        return NULL;
    int32_t first = 0, end = steps->count;
    while (first < end) {
        int32_t middle = first + (end - first) / 2;
        if (steps->steps[middle].num_rows < batch->inputs.num_seqs)
            first = middle + 1;
        else
            end = middle;
    }
    return first < steps->count ? &steps->steps[first] : NULL;
}
