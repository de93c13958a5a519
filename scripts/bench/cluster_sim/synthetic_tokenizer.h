/* A tokenizer without a model, linked in place of models/tokenizer/tokenizer.c: every token is a
 * letter, and none ends a text, so that answers end by their length. */
#ifndef QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_SYNTHETIC_TOKENIZER_H
#define QUIRE_SCRIPTS_BENCH_CLUSTER_SIM_SYNTHETIC_TOKENIZER_H

#include "models/tokenizer/tokenizer.h"

#define SYNTHETIC_VOCAB_SIZE 4096

const struct tokenizer *synthetic_tokenizer(void);

#endif
