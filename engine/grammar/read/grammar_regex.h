/* Regular expressions from clients as nodes of a grammar.
 *
 * Supported: characters, "." (not a line feed; in a JSON string, as in ECMA-262, not any end of a
 * line), classes "[a-z]" and "[^a-z]", \d \w \s and their opposites (as in
 * ECMA-262: digits and letters of ASCII, spaces of Unicode),
 * \n \r \t \f \v \0 \xHH \uHHHH and escaped punctuation, groups "(...)" "(?:...)" "(?<name>...)"
 * "(?P<name>...)", "|", "*", "+", "?", "{m}", "{m,}", "{m,n}", all also followed by a lazy "?"
 * (which changes nothing about what matches), and "^" and "$" at the ends of the outermost
 * alternatives. Everything else is refused by name. Nothing is ever matched by backtracking. */
#ifndef QUIRE_ENGINE_GRAMMAR_READ_GRAMMAR_REGEX_H
#define QUIRE_ENGINE_GRAMMAR_READ_GRAMMAR_REGEX_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_REGEX_MAX_DEPTH 64 /* of groups */

enum regex_mode {
    REGEX_TEXT,        /* the whole text matches */
    REGEX_JSON_STRING, /* the content of a JSON string, without its quotes, some part of which
                          matches; characters that JSON escapes are written escaped */
    REGEX_SEARCH,      /* a text some part of which matches */
};

/* Fails with ERROR_SYNTAX, saying what is wrong or not supported at which byte, without a subject,
 * or that the grammar is too large; or with ERROR_MEMORY. */
int grammar_regex(struct grammar_builder *builder, const char *pattern, enum regex_mode mode,
                  grammar_node *out, struct error *err);

#endif
