/* Requests of which it is known what they generate, or how much, whatever the model computes: so a
 * run on one device can be compared with one on another, whose logits differ. */
#ifndef QUIRE_TESTS_DEVICES_KNOWN_REQUEST_H
#define QUIRE_TESTS_DEVICES_KNOWN_REQUEST_H

#include "engine/request/request.h"
#include "tests/sim/random.h"

struct known_request_shape {
    int32_t vocab_size; /* > 100 */
    int32_t max_prompt_tokens;
    int32_t min_output_tokens, max_output_tokens; /* at most 100 */
    int32_t max_choices;
    bool tokens;        /* what is generated is known, too */
    uint64_t text_seed; /* prompts of one seed have beginnings in common */
};

/* *out_tokens: whether it is known what is generated, and not only how much. */
struct request *known_request(struct random *random, const struct known_request_shape *shape,
                              bool *out_tokens);

#endif
