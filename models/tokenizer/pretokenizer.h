/* Splits a text into the pieces that are merged separately, like the `pre_tokenizer` of a model's
 * tokenizer.json: each step splits the pieces of the previous one. A step does not see a piece's
 * surroundings: look-ahead ends at the end of the piece. */
#ifndef QUIRE_MODELS_TOKENIZER_PRETOKENIZER_H
#define QUIRE_MODELS_TOKENIZER_PRETOKENIZER_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer_spec.h"

#include <stdbool.h>
#include <stddef.h>

/* Immutable; shared by all threads. */
struct pretokenizer;

/* Creates one from the steps of spec, keeping no reference to it. ERROR_MODEL names a refused
 * pattern. */
int pretokenizer_create(const struct tokenizer_spec *spec, struct pretokenizer **out,
                        struct error *err);
/* Accepts NULL. */
void pretokenizer_destroy(struct pretokenizer *pretokenizer);

/* Creates the scratch of one thread, for texts of `length` bytes in all: the time budget of a
 * file's own patterns grows with it. NULL when memory is short. */
struct pretokenizer_scratch;
struct pretokenizer_scratch *pretokenizer_scratch_create(const struct pretokenizer *pretokenizer,
                                                         size_t length);
/* Accepts NULL. */
void pretokenizer_scratch_destroy(struct pretokenizer_scratch *scratch);

/* Receives a piece, never empty; anything but 0 stops. */
typedef int (*pretokenizer_sink)(void *context, const char *piece, size_t length);

/* The place of a text: some steps put a space in front of it. */
enum pretokenizer_place {
    PRETOKENIZER_INSIDE,    /* after a token */
    PRETOKENIZER_BEGINS,    /* at the beginning of everything */
    PRETOKENIZER_CONTINUES, /* after a byte that is not UTF-8: nothing is put in front */
};

/* Passes the pieces of text[0..length), which must be valid UTF-8, to the sink in order. Returns 0,
 * what the sink returned, -1 when memory is short, or TOKENIZER_TOO_COSTLY when the time budget is
 * spent. */
int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, enum pretokenizer_place place,
                     pretokenizer_sink sink, void *context);

#endif
