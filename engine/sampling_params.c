#include "engine/sampling_params.h"

bool sampling_params_count_prompt(const struct sampling_params *params) {
    return params->repetition_penalty != 1.0f;
}

bool sampling_params_count_output(const struct sampling_params *params) {
    return params->repetition_penalty != 1.0f || params->frequency_penalty != 0.0f ||
           params->presence_penalty != 0.0f;
}
