/* A tokenizer of a few dozen pieces, in place of models/tokenizer/tokenizer.c when a test is linked
 * with it: letters that make up stop strings across tokens, parts of UTF-8 characters, invalid
 * bytes, special and end tokens. */
#ifndef QUIRE_TESTS_SIM_FAKE_TOKENIZER_H
#define QUIRE_TESTS_SIM_FAKE_TOKENIZER_H

#include "models/tokenizer/tokenizer.h"

#define FAKE_VOCAB_SIZE 32
#define FAKE_EOS 0 /* tokens 0 and 1 end generation */
#define FAKE_NUM_EOS 2
#define FAKE_SPECIAL 2     /* special, but no end */
#define FAKE_FIRST_PLAIN 3 /* ordinary text from here on */

/* There is no state: the pointer only has to be passed around. */
const struct tokenizer *fake_tokenizer(void);

#endif
