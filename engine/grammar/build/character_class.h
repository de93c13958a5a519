/* Character classes of regular expressions, [a-z] and \d, as sets of ranges, and the grammar nodes
 * for one of their characters: as it is, or as written in a JSON string. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_CHARACTER_CLASS_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_CHARACTER_CLASS_H

#include "config/base/utf8.h"
#include "engine/grammar/build/grammar_builder.h"

#include <stdbool.h>
#include <stdint.h>

#define CHARACTER_CLASS_MAX_RANGES 256

/* The error of a pattern whose class has more ranges. */
#define CHARACTER_CLASS_FULL "too many ranges in a class"

/* A zeroed class has no characters. */
struct character_class {
    struct character_range ranges[CHARACTER_CLASS_MAX_RANGES];
    int count;
};

/* Return false when there are too many ranges: the class is then unusable. */
bool character_class_add(struct character_class *set, uint32_t first, uint32_t last);
/* Adds the class that is written \d, \w or \s, or its opposite (a capital letter), as in ECMA-262.
 */
bool character_class_add_named(struct character_class *set, char name);
/* Replaces the class by its complement. */
bool character_class_complement(struct character_class *set);

/* Makes the node of one character of the class; in a JSON string, of the way JSON writes it: an
 * escaped character has its short escape, or otherwise \u00 and two digits. Changes the set.
 * Returns NULL, or what is wrong: the set is empty or has too many ranges. */
const char *character_class_node(struct grammar_builder *builder, struct character_class *set,
                                 bool in_json_string, grammar_node *out);

/* Returns the node of one character of a JSON string's content, in any form that JSON allows. */
grammar_node character_class_json(struct grammar_builder *builder);

/* --- Byte ranges --- */

/* A class of characters as sequences of byte ranges, which a byte-based machine can follow.
 *
 * A range of characters is cut where the number of bytes changes and where a byte would begin a
 * range that is not whole (R. Cox, "Regular Expression Matching in the Wild", 2010, does the same).
 */

/* All characters whose i-th byte lies in first[i]..last[i]. */
struct utf8_sequence {
    int num_bytes;
    uint8_t first[UTF8_MAX_BYTES], last[UTF8_MAX_BYTES];
};

/* Splits the characters in the ranges (any order, overlaps allowed, all <= U+10FFFF), or with
 * `negated` those outside of them; never surrogates. The caller frees *out. The sequences are in
 * ascending order and disjoint. Returns their number, -1 when memory is short. */
int32_t utf8_ranges_split(const struct character_range *ranges, int32_t num_ranges, bool negated,
                          struct utf8_sequence **out);

#endif
