/* Private to models/: rewrites a regex in Oniguruma's syntax for PCRE2, see pretokenizer_regex.h.
 */
#ifndef QUIRE_MODELS_TOKENIZER_PRETOKENIZER_SYNTAX_H
#define QUIRE_MODELS_TOKENIZER_PRETOKENIZER_SYNTAX_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"
#include "models/files/tensor_file.h"

#define PRETOKENIZER_MAX_PATTERN 4096

/* Appends the rewritten pattern. ERROR_MODEL names the pattern and what is not known of it. */
int pretokenizer_syntax_rewrite(struct text pattern, struct byte_buffer *out, struct error *err);

#endif
