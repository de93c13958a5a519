/* Private to engine/grammar/: kinds of characters, as bits of 64.
 *
 * Lower case letters, upper case letters and digits of ASCII are a kind each, and every other ASCII
 * character is a kind by itself, except that most control characters share one. The kinds of
 * characters beyond ASCII depend on their first byte; they separate what patterns leave out, which
 * is spaces and line ends (U+00A0, U+1680, U+2000 to U+205F, U+3000, U+FEFF), from the rest. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_CHARACTER_KINDS_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_CHARACTER_KINDS_H

#include "engine/grammar/machine/grammar_vocabulary.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KIND_LOWER 0
#define KIND_UPPER 1
#define KIND_DIGIT 2
#define KIND_FIRST_BEYOND_ASCII 3
#define KIND_FIRST_SINGLE 12 /* first of the kinds that are one character, in byte order */
#define KIND_END_SINGLES 46
#define KIND_TAB 60 /* then the ends of lines */
#define KIND_NEWLINE 61
#define KIND_RETURN 62
#define KIND_CONTROLS 63 /* all others */
#define KIND_BIT(kind) (UINT64_C(1) << (kind))

/* Characters of two to four bytes: those with a first byte in first..last have a second byte in
 * second..second_last and then that number of further bytes (Unicode 15.0, table 3-7). */
struct lead_range {
    uint8_t kind, first, last, second, second_last;
    int num_more;
};

extern const struct lead_range character_lead_ranges[];
extern const int character_num_lead_ranges;

/* Returns NULL if no character, or an ASCII one, begins with the byte. */
const struct lead_range *character_lead_range(uint8_t byte);
/* Returns the kind of an ASCII character. */
int character_kind(uint8_t byte);
/* Returns the only byte of a kind from KIND_FIRST_SINGLE on, except KIND_CONTROLS. */
uint8_t character_of_single(int kind);
/* Returns the number of bytes of the character at the start of these bytes; 0: there is none. */
size_t character_length(const uint8_t *bytes, size_t length);
/* Returns the kinds of the characters of a JSON string that need no escape. */
uint64_t character_plain_kinds(void);

/* --- Tails of tokens, which make masks of strings and other long runs of characters cheap ---
 *
 * The tail of a token is what follows a node of the vocabulary's tree. If all tails after a node
 * consist of whole characters, their kinds and their greatest length tell whether a set accepts
 * them all (open_runs.h); the walk then skips the node's subtree. For plain tokens, which are text
 * of a JSON string without escapes, there are masks by length. */

/* Fills tail_length of all nodes, and tail_kinds; the rest of the tree is complete. */
void token_tails_mark(struct vocabulary_tree *tree);
/* Returns the number of characters of a plain token; 0 for others. */
int token_tails_plain_length(struct text piece);

#endif
