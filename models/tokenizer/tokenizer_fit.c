#include "models/tokenizer/tokenizer_spec.h"
#include "models/tokenizer/vocabulary.h"

#include <string.h>

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

/* Keeps the added tokens below vocab_size and marks the others in `dropped`, by id. */
static void drop_added(struct tokenizer_spec *spec, int32_t vocab_size, bool *dropped) {
    size_t kept = 0;
    for (size_t i = 0; i < spec->num_added; i++) {
        if (spec->added[i].id < vocab_size)
            spec->added[kept++] = spec->added[i];
        else
            dropped[spec->added[i].id - vocab_size] = true;
    }
    spec->num_added = kept;
}

static void drop_ends(struct tokenizer_spec *spec, int32_t vocab_size) {
    int kept = 0;
    for (int i = 0; i < spec->num_eos; i++)
        if (spec->eos[i] < vocab_size)
            spec->eos[kept++] = spec->eos[i];
    spec->num_eos = kept;
}

static int cut_down(struct tokenizer_spec *spec, int32_t vocab_size, struct error *err) {
    bool *dropped = tokenizer_spec_alloc(spec, (size_t)(spec->num_tokens - vocab_size));
    if (dropped == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %d tokens",
                         spec->num_tokens);
    drop_added(spec, vocab_size, dropped);
    for (int32_t id = vocab_size; id < spec->num_tokens; id++)
        if (!dropped[id - vocab_size] && spec->tokens[id].length > 0)
            return error_set(err, ERROR_MODEL,
                             "token %d is beyond the model's vocabulary of %d, and not an added "
                             "token, which could be left out",
                             id, vocab_size);
    drop_ends(spec, vocab_size);
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
