#include "scripts/paged_memory/gpu_model.h"

#define WEIGHT_SECONDS 0.020         /* 26 GB at 1.3 TB/s */
#define CONTEXT_BYTES_PER_S 1.0e12   /* attention over scattered blocks */
#define FLOPS_PER_TOKEN (2 * 13.0e9) /* two for each weight */
#define PROMPT_FLOPS_PER_S 130.0e12
#define STEP_SECONDS 0.004
#define SEQUENCE_SECONDS 0.00026

double gpu_step_seconds(const struct step_load *load) {
    return WEIGHT_SECONDS + STEP_SECONDS + SEQUENCE_SECONDS * load->num_sequences +
           (double)load->num_context_tokens * GPU_TOKEN_BYTES / CONTEXT_BYTES_PER_S +
           (double)load->num_prompt_tokens * FLOPS_PER_TOKEN / PROMPT_FLOPS_PER_S;
}
