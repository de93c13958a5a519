/* Private to models/: Unicode normal forms C and KC (Unicode Standard Annex 15), on utf8proc's
 * tables. */
#ifndef QUIRE_MODELS_TOKENIZER_UNICODE_FORM_H
#define QUIRE_MODELS_TOKENIZER_UNICODE_FORM_H

#include "config/base/byte_buffer.h"
#include "models/files/tensor_file.h"

#include <stdint.h>

enum unicode_form { UNICODE_FORM_C = 1, UNICODE_FORM_KC = 2 };

/* Returns a byte for each code point below UNICODE_FORM_TABLE with the forms it is inert in as
 * bits: text may be cut before it and it stays itself. So text of inert characters is in normal
 * form already. Above, all are. NULL when memory is short; freed by the caller. */
#define UNICODE_FORM_TABLE 0x30000
uint8_t *unicode_form_table(void);

/* Appends `text`, valid UTF-8, in a normal form. Time is linear, whatever marks follow each other.
 * Returns -1 when memory is short. */
int unicode_form_append(const uint8_t *table, enum unicode_form form, struct text text,
                        struct byte_buffer *out);

#endif
