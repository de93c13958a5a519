/* Private to engine/grammar/: kinds of characters, as bits of 64.
 *
 * Lower case letters, upper case letters and digits of ASCII are a kind each, every other character
 * of ASCII is one by itself but most of the control characters, which share one. Characters beyond
 * ASCII are of some kinds by their first byte; those part what patterns leave out, which are spaces
 * and ends of lines (U+00A0, U+1680, U+2000 to U+205F, U+3000, U+FEFF), from the rest. */
#ifndef QUIRE_ENGINE_GRAMMAR_CHARACTER_KINDS_H
#define QUIRE_ENGINE_GRAMMAR_CHARACTER_KINDS_H

#include "engine/grammar/machine/grammar_vocabulary.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIND_LOWER 0
#define KIND_UPPER 1
#define KIND_DIGIT 2
#define KIND_FIRST_BEYOND_ASCII 3
#define KIND_FIRST_SINGLE 12 /* the kinds of one character, in the order of their bytes */
#define KIND_END_SINGLES 46
#define KIND_TAB 60 /* then the ends of lines */
#define KIND_NEWLINE 61
#define KIND_RETURN 62
#define KIND_CONTROLS 63 /* all others */
#define KIND_BIT(kind) (UINT64_C(1) << (kind))

/* Characters of two to four bytes: those with a first byte of first..last have a second one of
 * second..second_last and so many more (Unicode 15.0, table 3-7). */
struct lead_range {
    uint8_t kind, first, last, second, second_last;
    int num_more;
};

extern const struct lead_range character_lead_ranges[];
extern const int character_num_lead_ranges;

/* NULL: no character begins with the byte, or one of ASCII. */
const struct lead_range *character_lead_range(uint8_t byte);
/* Of a character of ASCII. */
int character_kind(uint8_t byte);
/* The only byte of a kind from KIND_FIRST_SINGLE on, but KIND_CONTROLS. */
uint8_t character_of_single(int kind);
/* Returns the bytes of the character at the start of these; 0: there is none. */
size_t character_length(const uint8_t *bytes, size_t length);
/* The kinds of the characters of a JSON string that need no escape. */
uint64_t character_plain_kinds(void);

/* --- Tails of tokens, which make masks of strings and other long runs of characters cheap ---
 *
 * The tail of a token is what is behind a node of the vocabulary's tree. Where all tails behind a
 * node are of whole characters, their kinds and their greatest length say
 * whether a set takes them all (open_runs.h); the walk passes such a node's subtree. Of plain
 * tokens, texts of a JSON string without escapes, there are masks by their length. */

/* Fills tail_length of all nodes and tail_kinds; what else the tree has is there. */
void token_tails_mark(struct vocabulary_tree *tree);
/* Returns the characters of a plain token; 0 of others. */
int token_tails_plain_length(struct text piece);

#endif
