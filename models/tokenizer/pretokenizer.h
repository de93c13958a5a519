/* Splits a text into the pieces that are merged separately, as the `pre_tokenizer` of a model's
 * tokenizer.json does: steps, each splitting what the one before left. A step sees nothing of a
 * piece's surroundings: look-ahead ends where the piece ends. */
#ifndef QUIRE_MODELS_TOKENIZER_PRETOKENIZER_H
#define QUIRE_MODELS_TOKENIZER_PRETOKENIZER_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"

#include <stdbool.h>
#include <stddef.h>

/* Immutable; shared by all threads. */
struct pretokenizer;

/* Creates one from the steps of spec, of which it keeps nothing. ERROR_MODEL names a pattern that
 * is refused. */
int pretokenizer_create(const struct tokenizer_spec *spec, struct pretokenizer **out,
                        struct error *err);
/* Accepts NULL. */
void pretokenizer_destroy(struct pretokenizer *pretokenizer);

/* Creates the scratch of one thread, for texts of `length` bytes in all: a file's own patterns have
 * a time budget that grows with it. NULL when memory is short. */
struct pretokenizer_scratch;
struct pretokenizer_scratch *pretokenizer_scratch_create(const struct pretokenizer *pretokenizer,
                                                         size_t length);
/* Accepts NULL. */
void pretokenizer_scratch_destroy(struct pretokenizer_scratch *scratch);

/* Receives a piece, never empty; anything but 0 stops. */
typedef int (*pretokenizer_sink)(void *context, const char *piece, size_t length);

/* The place of a text: some steps put a space in front of it. */
enum pretokenizer_place {
    PRETOKENIZER_INSIDE,    /* behind a token */
    PRETOKENIZER_BEGINS,    /* all begins with it */
    PRETOKENIZER_CONTINUES, /* behind a byte that is not UTF-8: nothing is put in front */
};

/* Hands out the pieces of text[0..length), which must be valid UTF-8, in order. Returns 0, what the
 * sink returned, -1 when memory is short, or TOKENIZER_TOO_COSTLY when the time budget is spent. */
int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, enum pretokenizer_place place,
                     pretokenizer_sink sink, void *context);

#endif
