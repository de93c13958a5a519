#include "kernels/cuda/state/cuda_levels.h"

#include <stdio.h>
#include <string.h>

/* Best last. Of 10.0 and 12.0 nothing is used yet that 9.0 lacks, and both lack wgmma. */
static const struct cuda_level levels[] = {
    {.name = "sm_80", .capability = 80, .code = 80},
    {.name = "sm_89", .capability = 89, .code = 80, .multiplies_fp8 = true},
    {.name = "sm_90", .capability = 90, .code = 90, .multiplies_fp8 = true, .begins_early = true},
#if QUIRE_CUDA_SM_90A
    {.name = "sm_90a",
     .capability = 90,
     .code = 90,
     .is_alone = true,
     .multiplies_fp8 = true,
     .begins_early = true,
     .has_wgmma = true},
#endif
};
enum { NUM_LEVELS = sizeof(levels) / sizeof(levels[0]) };

const struct cuda_level *cuda_levels_select(const char *isa, int capability, int code,
                                            struct error *err) {
    char supported[128] = "auto";
    for (int i = NUM_LEVELS - 1; i >= 0; i--) {
        if (levels[i].capability > capability || levels[i].code > code ||
            (levels[i].is_alone && levels[i].capability != capability))
            continue;
        if (isa == NULL || strcmp(isa, "auto") == 0 || strcmp(isa, levels[i].name) == 0)
            return &levels[i];
        const size_t used = strlen(supported);
        snprintf(supported + used, sizeof(supported) - used, ", %s", levels[i].name);
    }
    error_set(
        err, ERROR_CONFIG,
        "instruction set '%s': with this module this GPU, of compute capability %d.%d, has %s", isa,
        capability / 10, capability % 10, supported);
    return NULL;
}
