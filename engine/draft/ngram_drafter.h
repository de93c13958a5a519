/* Prompt lookup: what followed the history's last tokens at an earlier occurrence is likely to
 * follow again. Summaries, edits of code and answers from documents repeat their prompt for whole
 * passages.
 *
 * The n-gram is the longest suffix of the history, of lookup_min to lookup_max tokens, that occurs
 * earlier in it, possibly across the border of prompt and output, and possibly overlapping itself,
 * like vLLM's `method: ngram` (vllm/v1/spec_decode/ngram_proposer.py; the idea is Saxena's, 2023,
 * github.com/apoorvumang/prompt-lookup-decoding). Of several occurrences vLLM takes the earliest,
 * this drafter the most recent one: text that is being written continues what was written last
 * rather than what was at the top, and the search goes backwards, so that it can end at the first
 * n-gram of lookup_max tokens. When a text is copied, the two differ little once lookup_max is 16
 * or so.
 *
 * When the history ends before enough tokens followed, the proposal continues with its own
 * beginning: the history repeats itself with that period ("ab ab ab" is followed by "ab ab").
 *
 * A pure function of the history, in one pass over it. */
#ifndef QUIRE_ENGINE_DRAFT_NGRAM_DRAFTER_H
#define QUIRE_ENGINE_DRAFT_NGRAM_DRAFTER_H

#include "config/base/error.h"
#include "engine/draft/drafter.h"

#define NGRAM_MAX_LOOKUP 32

/* 1 <= lookup_min <= lookup_max <= NGRAM_MAX_LOOKUP. The caller frees it with its ops->destroy.
 * Returns -1 with ERROR_MEMORY. */
int ngram_drafter_create(int32_t lookup_max, int32_t lookup_min, struct drafter **out,
                         struct error *err);

#endif
