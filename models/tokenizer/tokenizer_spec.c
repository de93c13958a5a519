#include "models/tokenizer/tokenizer_spec.h"

#include "models/tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct spec_block {
    struct spec_block *next;
    _Alignas(max_align_t) char data[];
};

void *tokenizer_spec_alloc(struct tokenizer_spec *spec, size_t bytes) {
    if (bytes > SIZE_MAX - sizeof(struct spec_block))
        return NULL;
    struct spec_block *block = calloc(1, sizeof(*block) + bytes);
    if (block == NULL)
        return NULL;
    block->next = spec->blocks;
    spec->blocks = block;
    return block->data;
}

void tokenizer_spec_finish(struct tokenizer_spec *spec) {
    for (struct spec_block *block = spec->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    *spec = (struct tokenizer_spec){0};
}

uint64_t tokenizer_spec_seed(void) {
    uint64_t seed = 0;
    return getrandom(&seed, sizeof(seed), GRND_NONBLOCK) == sizeof(seed) ? seed : 0;
}

static int fill_up(struct tokenizer_spec *spec, int32_t vocab_size, struct error *err) {
    size_t size = (size_t)vocab_size, used = (size_t)spec->num_tokens;
    struct text *tokens = tokenizer_spec_alloc(spec, size * sizeof(*tokens));
    uint8_t *types = tokenizer_spec_alloc(spec, size);
    float *scores = tokenizer_spec_alloc(spec, spec->scores != NULL ? size * sizeof(*scores) : 0);
    if (tokens == NULL || types == NULL || scores == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %d tokens", vocab_size);
    memcpy(tokens, spec->tokens, used * sizeof(*tokens));
    memset(types, TOKEN_UNUSED, size);
    memcpy(types, spec->types, used);
    if (spec->scores != NULL)
        memcpy(scores, spec->scores, used * sizeof(*scores));
    spec->scores = spec->scores != NULL ? scores : NULL;
    spec->tokens = tokens;
    spec->types = types;
    spec->num_tokens = vocab_size;
    return 0;
}

/* Drops the tokens from vocab_size on, which must be added ones. */
static int cut_down(struct tokenizer_spec *spec, int32_t vocab_size, struct error *err) {
    bool *dropped = tokenizer_spec_alloc(spec, (size_t)(spec->num_tokens - vocab_size));
    if (dropped == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %d tokens",
                         spec->num_tokens);
    size_t num_added = 0;
    for (size_t i = 0; i < spec->num_added; i++) {
        if (spec->added[i].id < vocab_size)
            spec->added[num_added++] = spec->added[i];
        else
            dropped[spec->added[i].id - vocab_size] = true;
    }
    spec->num_added = num_added;
    for (int32_t id = vocab_size; id < spec->num_tokens; id++)
        if (!dropped[id - vocab_size] && spec->tokens[id].length > 0)
            return error_set(err, ERROR_MODEL,
                             "token %d is beyond the model's vocabulary of %d, and not an added "
                             "token, which could be left out",
                             id, vocab_size);
    size_t num_named = 0;
    for (size_t i = 0; i < spec->num_named; i++)
        if (spec->named[i].id < vocab_size)
            spec->named[num_named++] = spec->named[i];
    spec->num_named = num_named;
    int num_eos = 0;
    for (int i = 0; i < spec->num_eos; i++)
        if (spec->eos[i] < vocab_size)
            spec->eos[num_eos++] = spec->eos[i];
    spec->num_eos = num_eos;
    spec->num_tokens = vocab_size;
    return 0;
}

int tokenizer_spec_fit(struct tokenizer_spec *spec, int32_t vocab_size, struct error *err) {
    if (vocab_size == 0)
        return 0;
    if (spec->num_tokens < vocab_size)
        return fill_up(spec, vocab_size, err);
    return spec->num_tokens > vocab_size ? cut_down(spec, vocab_size, err) : 0;
}
