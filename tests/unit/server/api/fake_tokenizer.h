/* The tokens of fake_tokenizer.c beyond the 256 bytes. */
#ifndef QUIRE_TESTS_UNIT_SERVER_API_FAKE_TOKENIZER_H
#define QUIRE_TESTS_UNIT_SERVER_API_FAKE_TOKENIZER_H

#include "models/tokenizer/tokenizer.h"

#define FAKE_BOS 256
#define FAKE_EOS 257
#define FAKE_HELLO 258
#define FAKE_WORLD 259
#define FAKE_OTHER_A 260 /* the same text as byte 97 */
#define FAKE_NUM_NAMED 261
#define FAKE_FIM_PREFIX 261 /* these have no text */
#define FAKE_FIM_SUFFIX 262
#define FAKE_FIM_MIDDLE 263
#define FAKE_FIM_REPO 264
#define FAKE_FIM_FILE 265
#define FAKE_VOCAB_SIZE 300

/* A tokenizer that is this address has no tokens to fill in a gap. */
#define FAKE_WITHOUT_FIM ((const struct tokenizer *)1)

#endif
