/* The rules of Transformers' beam search over the whole vocabulary, written once more for the tests
 * of engine/sequence/beam_search.c: with its placeholders of -1e9, its (1 + end tokens) * width
 * candidates and whole sequences in place of slots and shared histories. Follows
 * GenerationMixin._beam_search of Transformers 5.23 (src/transformers/generation/utils.py), one
 * sequence in the batch. */
#ifndef QUIRE_TESTS_UNIT_ENGINE_SEQUENCE_BEAM_RULES_H
#define QUIRE_TESTS_UNIT_ENGINE_SEQUENCE_BEAM_RULES_H

#include "engine/sequence/beam_search.h"

enum { RULES_MAX_WIDTH = 8, RULES_MAX_TOKENS = 16, RULES_MAX_VOCAB = 16, RULES_MAX_ENDS = 3 };

/* Log probabilities of what follows these tokens, [vocab]. */
typedef void rules_model(const void *model, const int32_t *tokens, int32_t num_tokens,
                         float *out_logprobs);

struct rules_sequence {
    int32_t tokens[RULES_MAX_TOKENS];
    int32_t num_tokens;
    double score; /* while it runs: the sum */
    bool finished, ended;
};

/* Writes the final list to out[width], best first. vocab - num_end_tokens must be at least
 * width. */
void beam_rules_run(const struct beam_params *params, int32_t vocab, rules_model *model,
                    const void *model_data, struct rules_sequence *out);

#endif
