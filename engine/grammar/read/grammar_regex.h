/* Regular expressions as nodes of a grammar: what a client's pattern may contain.
 *
 * Supported: characters, "." (not a line feed; in a JSON string, as in ECMA-262, not any end of a
 * line), classes "[a-z]" and "[^a-z]", \d \w \s and their opposites (as in
 * ECMA-262: digits and letters of ASCII, spaces of Unicode),
 * \n \r \t \f \v \0 \xHH \uHHHH and escaped punctuation, groups "(...)" "(?:...)" "(?<name>...)"
 * "(?P<name>...)", "|", "*", "+", "?", "{m}", "{m,}", "{m,n}", all also followed by a lazy "?"
 * (which changes nothing about what matches), and "^" and "$" at the ends of the outermost
 * alternatives. Everything else is refused by name. Nothing is ever matched by backtracking. */
#ifndef QUIRE_ENGINE_GRAMMAR_REGEX_H
#define QUIRE_ENGINE_GRAMMAR_REGEX_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_REGEX_MAX_DEPTH 64 /* of groups */

enum regex_mode {
    REGEX_TEXT,        /* the whole text matches */
    REGEX_JSON_STRING, /* the content of a JSON string, without its quotes, of which some part
                        * matches; characters that JSON escapes are written escaped */
    REGEX_SEARCH,      /* a text of which some part matches */
};

/* ERROR_SYNTAX says what is wrong with the pattern or not supported, at which byte, without a
 * subject; also when the grammar is too large. ERROR_MEMORY. */
int grammar_regex(struct grammar_builder *builder, const char *pattern, enum regex_mode mode,
                  grammar_node *out, struct error *err);

#endif
