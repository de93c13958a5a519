/* Private to engine/grammar/: goes through many items of one repetition at once.
 *
 * A repetition with a bound keeps its count in a frame, so that after each item the machine is in
 * another set, which differs from the last one only in that count. As long as the count is compared
 * with nothing it comes near to, such sets behave alike: what leads from the first to the second
 * leads from the second to the third. */
#ifndef QUIRE_ENGINE_GRAMMAR_REPEAT_SHIFT_H
#define QUIRE_ENGINE_GRAMMAR_REPEAT_SHIFT_H

#include "engine/grammar/machine/grammar_machine.h"

/* Texts of the same kind of at most REPEAT_SHIFT_MAX_BYTES lead from set `from` to `to`. Where `to`
 * is `from` with one count higher by one, finds how many more such texts, at most `most`, lead from
 * `to` to sets that are again higher by one each. Returns how many, with the last set in *out_set;
 * 0 when it is not so; -1 when memory is short. Drops no sets. */
#define REPEAT_SHIFT_MAX_BYTES 4
int32_t repeat_shift(struct grammar_machine *machine, int32_t from, int32_t to, int32_t most,
                     int32_t *out_set);

#endif
