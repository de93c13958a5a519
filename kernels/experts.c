#include "kernels/experts.h"

#include "config/base/checked.h"

#define ARRAY_ALIGNMENT 64

/* Bytes of an array of `count` items of 4 bytes, whole cache lines. */
static bool add_array(size_t *bytes, size_t count) {
    size_t array;
    if (!checked_mul(count, sizeof(int32_t), &array) ||
        !checked_add(array, ARRAY_ALIGNMENT - 1, &array))
        return false;
    return checked_add(*bytes, array / ARRAY_ALIGNMENT * ARRAY_ALIGNMENT, bytes);
}

size_t expert_choices_bytes(int32_t num_tokens, int32_t num_chosen, int32_t num_own) {
    size_t choices, bytes = 0;
    if (!checked_mul((size_t)num_tokens, (size_t)num_chosen, &choices) ||
        !add_array(&bytes, choices) || !add_array(&bytes, choices) || !add_array(&bytes, choices) ||
        !add_array(&bytes, (size_t)num_own + 1))
        return SIZE_MAX;
    return bytes;
}

struct expert_choices expert_choices_at(void *data, int32_t num_tokens, int32_t num_chosen,
                                        int32_t num_own) {
    size_t step = 0;
    add_array(&step, (size_t)num_tokens * (size_t)num_chosen);
    char *start = data;
    return (struct expert_choices){
        .experts = data,
        .weights = (float *)(void *)(start + step),
        .order = (int32_t *)(void *)(start + 2 * step),
        .first = (int32_t *)(void *)(start + 3 * step),
    };
}
