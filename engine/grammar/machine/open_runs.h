/* Private to engine/grammar/: how many characters of which kinds may follow a set, whichever they
 * are.
 *
 * A run: from a set all characters of some kinds lead to one and the same next set, from there
 * again, and so on, as in strings with a bound of their length or without. Or a few sets lead to
 * nothing but each other by some kinds, which are open then: strings with a pattern, names but
 * some. What is found is kept with the sets (parse_store.h). It counts as the machine's work, and
 * may drop sets like a step. */
#ifndef QUIRE_ENGINE_GRAMMAR_OPEN_RUNS_H
#define QUIRE_ENGINE_GRAMMAR_OPEN_RUNS_H

#include "engine/grammar/machine/grammar_machine.h"

#define OPEN_RUNS_UNKNOWN (-2)
#define OPEN_RUNS_FAILED (-1) /* memory is short */

/* Returns 1 when any `count` characters of the kinds may follow in the set; 0 when that is not so,
 * or would take long to find out; or OPEN_RUNS_FAILED. */
int open_runs_may_follow(struct grammar_machine *machine, int32_t set, uint64_t kinds, int count);
/* Returns a number of characters, at most VOCABULARY_MAX_TAIL: the plain tokens of no more than
 * that may all follow in the set, and no longer ones. OPEN_RUNS_UNKNOWN: it is not so, or would
 * take long to find out; or OPEN_RUNS_FAILED. */
int open_runs_plain(struct grammar_machine *machine, int32_t set);
/* The byte leads from one set to the other: keeps with that what is known of the first one's run.
 */
void open_runs_pass(struct grammar_machine *machine, int32_t from, int32_t to, uint8_t byte);

/* --- Many items of a repetition at once ---
 *
 * A repetition with a bound keeps its count in a frame, so that after each item the machine is in
 * another set, which differs from the last one only in that count. As long as the count is compared
 * with nothing it comes near to, such sets behave alike: what leads from the first to the second
 * leads from the second to the third. */

/* Texts of the same kind of at most REPEAT_SHIFT_MAX_BYTES lead from set `from` to `to`. Where `to`
 * is `from` with one count higher by one, finds how many more such texts, at most `most`, lead from
 * `to` to sets that are again higher by one each. Returns how many, with the last set in *out_set;
 * 0 when it is not so; -1 when memory is short. Drops no sets. */
#define REPEAT_SHIFT_MAX_BYTES 4
int32_t repeat_shift(struct grammar_machine *machine, int32_t from, int32_t to, int32_t most,
                     int32_t *out_set);

#endif
