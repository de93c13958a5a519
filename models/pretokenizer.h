/* Splits a text into the pieces that a byte-level BPE merges separately, as the `pre_tokenizer` of
 * a model's tokenizer.json does: one or more regexes, each splitting what the one before left.
 *
 * GGUF files name it in `tokenizer.ggml.pre`. Known, with the names that mean the same splits:
 *   gpt-2 (also gpt2, default, and files without the key), smollm (also starcoder, refact),
 *   llama-bpe (also llama3, llama-v3), qwen2 (also deepseek-r1-qwen).
 * qwen2's tokenizer.json also puts text into Unicode normal form C first; that is not done here.
 *
 * Letters, numbers and white space are those of Unicode 16.0, whatever PCRE2's own tables hold, as
 * in the Oniguruma that Hugging Face's tokenizers 0.2x carry. */
#ifndef QUIRE_MODELS_PRETOKENIZER_H
#define QUIRE_MODELS_PRETOKENIZER_H

#include "config/error.h"
#include "models/tensor_file.h"

#include <stdbool.h>
#include <stddef.h>

/* Immutable; shared by all threads. */
struct pretokenizer;

/* ERROR_MODEL for a name that is not known; the message lists those that are. */
int pretokenizer_create(struct text name, struct pretokenizer **out, struct error *err);
/* Accepts NULL. */
void pretokenizer_destroy(struct pretokenizer *pretokenizer);

/* The first of the names of what was created, e.g. "llama-bpe" for llama3. */
const char *pretokenizer_name(const struct pretokenizer *pretokenizer);
/* What goes with it in tokenizer.json and is not in every GGUF file: `ignore_merges`, and whether
 * prompts start with bos where the file does not say. */
bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer);
bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer);

/* Scratch of one thread, reusable. NULL when memory is short. */
struct pretokenizer_scratch;
struct pretokenizer_scratch *pretokenizer_scratch_create(const struct pretokenizer *pretokenizer);
/* Accepts NULL. */
void pretokenizer_scratch_destroy(struct pretokenizer_scratch *scratch);

/* Receives a piece, never empty; anything but 0 stops. */
typedef int (*pretokenizer_sink)(void *context, const char *piece, size_t length);

/* Hands out the pieces of text[0..length), which must be valid UTF-8, in order and without gaps.
 * Returns 0, or what the sink returned. Time is linear in length. */
int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, pretokenizer_sink sink, void *context);

#endif
