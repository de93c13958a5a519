#include "engine/sampling_params.h"

bool sampling_params_count_prompt(const struct sampling_params *params) {
    return params->settings.repetition_penalty != 1.0f;
}

bool sampling_params_count_output(const struct sampling_params *params) {
    return params->settings.repetition_penalty != 1.0f ||
           params->settings.frequency_penalty != 0.0f || params->settings.presence_penalty != 0.0f;
}
