/* Private to models/: puts a text into the form a tokenizer splits, step by step, as the
 * `normalizer` of a tokenizer.json does. Immutable after init. */
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

/* Two texts that steps write in turn. Start zeroed but for the bytes that all steps may write until
 * the budget is set anew: steps that replace a character by many grow a text without bound. */
struct normalizer_scratch {
    struct byte_buffer buffers[2];
    size_t budget_bytes;
};
/* Returns a budget that is enough for texts of so many bytes in all. */
size_t normalizer_budget(size_t text_bytes);
void normalizer_scratch_finish(struct normalizer_scratch *scratch);

/* Normalises a text, which is valid UTF-8: *out is valid until the next call, or the text itself
 * where nothing changes. `continues`: the text follows bytes that are not UTF-8, so
 * nothing is put in front. Returns -1 when memory is short, TOKENIZER_TOO_COSTLY when the budget is
 * spent. Time is linear. */
int normalizer_run(const struct normalizer *normalizer, struct normalizer_scratch *scratch,
                   struct text text, bool continues, struct text *out);

#endif
