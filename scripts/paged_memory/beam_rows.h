/* Log probabilities of the next token of a beam, for beam searches without a model: the best log
 * probabilities of rows that SmolLM2-135M-Instruct gave in beam searches of its own
 * (make_beam_rows.py, which wrote beam_rows.inc), picked at random.
 *
 * Beams of one search that differ by a word get similar log probabilities from a model: in one step
 * out of several all of them get the same row, in the others each gets its own. How often is fitted
 * to the recorded searches: so that beams share their history as far back as they did there. */
#ifndef QUIRE_SCRIPTS_PAGED_MEMORY_BEAM_ROWS_H
#define QUIRE_SCRIPTS_PAGED_MEMORY_BEAM_ROWS_H

#include <stdint.h>

#define BEAM_ROW_LOGPROBS 6 /* of the most probable tokens */

/* Returns the row of a beam: `history` is a hash of its tokens, `prompt` one of what all beams of
 * the search begin with, `position` that of its last token. Thousandths, falling. */
const int16_t *beam_row_choose(uint64_t history, uint64_t prompt, int32_t position);

#endif
