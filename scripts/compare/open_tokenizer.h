/* The tokenizer of a model file, or of the tokenizer.json in a folder, for the programs here. */
#ifndef QUIRE_SCRIPTS_COMPARE_OPEN_TOKENIZER_H
#define QUIRE_SCRIPTS_COMPARE_OPEN_TOKENIZER_H

#include "config/base/error.h"
#include "models/tokenizer/tokenizer.h"

/* Ended by tokenizer_close. */
int open_tokenizer(const char *path, struct tokenizer **out, struct error *err);

#endif
