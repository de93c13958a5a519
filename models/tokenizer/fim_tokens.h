/* The tokens that mark the parts of a text with a gap, for models that were trained to fill it in
 * (fill-in-the-middle). */
#ifndef QUIRE_MODELS_TOKENIZER_FIM_TOKENS_H
#define QUIRE_MODELS_TOKENIZER_FIM_TOKENS_H

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary.h"

/* Completes ids[NUM_FIM_PARTS], of which -1 are not known: with those of the first family of models
 * whose three names the vocabulary has, as written, whatever their type. The names are those that
 * llama.cpp's loader knows (llama-vocab.cpp). False: at least one stays unknown. */
bool fim_tokens_find(const struct vocabulary *vocabulary, int32_t *ids);
/* Completes marks[NUM_FIM_MARKS], of which -1 are not known, with the first name of each that the
 * vocabulary has. Writes the tokens that end what fills a gap to ends[FIM_MAX_ENDS], each once, and
 * returns how many: the marks, every token of their names, and those that end a text, by name
 * (llama-vocab.cpp's, and StarCoder2's and CodeGemma's). */
int fim_tokens_find_marks(const struct vocabulary *vocabulary, int32_t *marks, int32_t *ends);

#endif
