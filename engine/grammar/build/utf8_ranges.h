/* Private to engine/grammar/: a class of characters as sequences of byte ranges, which is what a
 * machine that reads bytes can follow.
 *
 * A range of characters is cut where the number of bytes changes and where a byte would begin a
 * range that is not whole (R. Cox, "Regular Expression Matching in the Wild", 2010, does the same).
 */
#ifndef QUIRE_ENGINE_GRAMMAR_UTF8_RANGES_H
#define QUIRE_ENGINE_GRAMMAR_UTF8_RANGES_H

#include "config/base/utf8.h"
#include "engine/grammar/build/grammar_builder.h"

/* All characters whose i-th byte lies in first[i]..last[i]. */
struct utf8_sequence {
    int num_bytes;
    uint8_t first[UTF8_MAX_BYTES], last[UTF8_MAX_BYTES];
};

/* The characters in the ranges (any order, overlaps allowed, all <= U+10FFFF), or with `negated`
 * those outside of them; never surrogates. *out is the caller's to free; sequences rise and are
 * disjoint. Returns how many there are, -1 when memory is short. */
int32_t utf8_ranges_split(const struct character_range *ranges, int32_t num_ranges, bool negated,
                          struct utf8_sequence **out);

#endif
