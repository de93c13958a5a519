#include "engine/batch/token_mask.h"

#include "engine/grammar/grammar.h"
#include "engine/sequence/sequence_group.h"

#include <math.h>
#include <string.h>

static bool allows(const uint32_t *mask, int32_t token) {
    return (mask[token / 32] >> (token % 32) & 1) != 0;
}

static bool fill_grammar(struct sequence *sequence, const struct grammar_vocabulary *vocabulary,
                         uint32_t *mask) {
    if (sequence->grammar == NULL)
        sequence->grammar = grammar_state_create(sequence_params(sequence)->grammar, vocabulary);
    return sequence->grammar != NULL && grammar_state_mask(sequence->grammar, mask) == 0;
}

static void fill_allowed(const int32_t *tokens, int32_t count, int32_t num_words, uint32_t *mask) {
    memset(mask, 0, (size_t)num_words * sizeof(*mask));
    for (int32_t i = 0; i < count; i++)
        mask[tokens[i] / 32] |= UINT32_C(1) << (tokens[i] % 32);
}

/* Takes from the mask what `other` lacks, if anything is left then. */
static void intersect(uint32_t *mask, const uint32_t *other, int32_t num_words) {
    uint32_t common = 0;
    for (int32_t i = 0; i < num_words; i++)
        common |= mask[i] & other[i];
    for (int32_t i = 0; common != 0 && i < num_words; i++)
        mask[i] &= other[i];
}

bool token_mask_fill(struct sequence *sequence, const struct grammar_vocabulary *vocabulary,
                     int32_t vocab_size, uint32_t *scratch, uint32_t *mask) {
    const struct sampling_params *params = sequence_params(sequence);
    int32_t num_words = SAMPLE_MASK_WORDS(vocab_size);
    bool has_grammar = params->grammar != NULL && fill_grammar(sequence, vocabulary, mask);
    int32_t forced = thinking_state_forced(&sequence->thinking, &params->thinking);
    const int32_t *allowed = forced >= 0 ? &forced : params->allowed_tokens;
    int32_t num_allowed = forced >= 0 ? 1 : params->num_allowed_tokens;
    if (num_allowed == 0)
        return has_grammar;
    fill_allowed(allowed, num_allowed, num_words, has_grammar ? scratch : mask);
    if (has_grammar)
        intersect(mask, scratch, num_words);
    return true;
}

static bool bans_allowed(const struct token_bias *bias, const uint32_t *mask) {
    return bias->bias == -INFINITY && allows(mask, bias->token);
}

int32_t token_mask_drop_bans(const uint32_t *mask, int32_t vocab_size, struct token_bias *biases,
                             int32_t num_biases) {
    int32_t num_left = 0, kept = 0;
    for (int32_t i = 0; i < num_biases; i++)
        num_left -= bans_allowed(&biases[i], mask);
    for (int32_t i = 0; i < SAMPLE_MASK_WORDS(vocab_size); i++)
        num_left += __builtin_popcount(mask[i]);
    if (num_left > 0)
        return num_biases;
    for (int32_t i = 0; i < num_biases; i++)
        if (!bans_allowed(&biases[i], mask))
            biases[kept++] = biases[i];
    return kept;
}
