/* Private to models/: normalises a text step by step before it is split, like the `normalizer` of a
 * tokenizer.json. Immutable after init. */
#ifndef QUIRE_MODELS_TOKENIZER_NORMALIZER_H
#define QUIRE_MODELS_TOKENIZER_NORMALIZER_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"

struct normalizer {
    int num_steps;
    struct normalizer_step steps[TOKENIZER_MAX_STEPS]; /* texts are copies */
    char *texts;
    uint8_t *inert; /* by code point, the normal forms it is inert in; NULL: no step needs it */
};

int normalizer_init(const struct tokenizer_spec *spec, struct normalizer *out, struct error *err);
/* Accepts a zeroed struct. */
void normalizer_finish(struct normalizer *normalizer);

/* Two texts that steps write in turn. Initially zeroed except for the budget: the bytes that all
 * steps may write until it is set again. It is needed because steps that replace a character by
 * several grow a text without bound. */
struct normalizer_scratch {
    struct byte_buffer buffers[2];
    size_t budget_bytes;
};
/* Returns a budget that is enough for texts of text_bytes bytes in all. */
size_t normalizer_budget(size_t text_bytes);
void normalizer_scratch_finish(struct normalizer_scratch *scratch);

/* Normalises a text, which is valid UTF-8: *out is valid until the next call, or is the text itself
 * if nothing changes. `continues`: the text follows bytes that are not UTF-8, so nothing is put in
 * front. Returns -1 when memory is short, TOKENIZER_TOO_COSTLY when the budget is spent. Time is
 * linear. */
int normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                   struct text text, bool continues, struct text *out);

#endif
