/* Private to engine/grammar/: how many characters, all of certain kinds but otherwise arbitrary,
 * may follow a set.
 *
 * A run: all characters of some kinds lead from a set to the same next set, from there again to one
 * set, and so on, as in strings with or without a bound on their length. Or a few sets lead only to
 * each other by some kinds, which are then open: strings with a pattern, or all names except some.
 * Results are stored with the sets (parse_store.h). The search counts as the machine's work, and
 * may drop sets like a step. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_OPEN_RUNS_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_OPEN_RUNS_H

#include "engine/grammar/machine/grammar_machine.h"

#define OPEN_RUNS_UNKNOWN (-2)
#define OPEN_RUNS_FAILED (-1) /* memory is short */

/* Returns 1 when any `count` characters of the kinds may follow the set; 0 when they may not, or
 * finding out would take too long; or OPEN_RUNS_FAILED. */
int open_runs_may_follow(struct grammar_machine *machine, int32_t set, uint64_t kinds, int count);
/* Returns a length n of at most VOCABULARY_MAX_TAIL characters such that all plain tokens of up to
 * n characters may follow the set, and no longer ones. OPEN_RUNS_UNKNOWN: there is no such n, or
 * finding out would take too long. OPEN_RUNS_FAILED: memory is short. */
int open_runs_plain(struct grammar_machine *machine, int32_t set);
/* Passes on what is known of the run of set `from` to the set that the byte leads to.
 */
void open_runs_pass(struct grammar_machine *machine, int32_t from, int32_t to, uint8_t byte);

/* --- Many items of a repetition at once ---
 *
 * A repetition with a bound keeps its count in a frame, so that after each item the machine is in
 * another set, which differs from the previous one only in that count. As long as the count is not
 * near a bound that it is compared with, such sets behave alike: what leads from the first to the
 * second leads from the second to the third. */

/* Texts of the same kind of at most REPEAT_SHIFT_MAX_BYTES lead from set `from` to `to`. Where `to`
 * is `from` with one count higher by one, finds how many more such texts, at most `most`, lead from
 * `to` to sets that are again higher by one each. Returns their number, and the last set in
 * *out_set; 0 when `to` is not such a set; -1 when memory is short. Drops no sets. */
#define REPEAT_SHIFT_MAX_BYTES 4
int32_t repeat_shift(struct grammar_machine *machine, int32_t from, int32_t to, int32_t most,
                     int32_t *out_set);

#endif
