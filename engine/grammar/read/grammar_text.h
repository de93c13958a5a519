/* Grammars as clients write them, in one of two notations, as nodes of a grammar. The first
 * definition decides which notation it is: "name ::=" is GBNF, "name:" is Lark's.
 *
 * GBNF, of llama.cpp, and what xgrammar's EBNF (vLLM, SGLang) shares with it: rules of letters,
 * digits, "-" and "_" with the start rule root; "text", classes "[a-z]" and "[^a-z]", "." (any
 * character), groups "(...)", "|", "*", "+", "?", "{m}", "{m,}", "{m,n}"; escapes
 * \r \t \\ \xHH \uHHHH \UHHHHHHHH and those of punctuation; comments from "#" on. A rule ends where
 * the next one is defined, over any number of lines. Refused by name: tokens "<[1]>" and "<text>",
 * lookahead "(=...)", texts in single quotes.
 *
 * Lark's: rules (lower case) and TERMINALS (upper case) with the start rule start; "text", "text"i
 * (letters of ASCII), "a".."z", /regex/ (grammar_regex.h, without anchors) with the flags i, m, s
 * and u, groups, [optional], "|", "*", "+", "?", ~n and ~n..m; "?" and "!" before a rule, its
 * priority, and aliases "-> name", which change nothing about what matches; %ignore; %import of the
 * library common; comments from "//" or "#" on. Refused by name: templates, other directives and
 * imports, attributes of rules, special tokens, and "&" and "~" before a terminal.
 *
 * Grammars of both are context-free over bytes; there is no lexer. What matches is a superset of
 * what a parser with a lexer accepts: a keyword may also be read as a name, a terminal may end
 * where a longer match would be, and a lazy repetition is like any other. What %ignore names may
 * occur at the start and after every text, regex and TERMINAL of a rule. Left recursion is allowed,
 * and so is the repetition of items that may be empty (grammar_build). */
#ifndef QUIRE_ENGINE_GRAMMAR_READ_GRAMMAR_TEXT_H
#define QUIRE_ENGINE_GRAMMAR_READ_GRAMMAR_TEXT_H

#include "engine/grammar/machine/grammar.h"

#define GRAMMAR_TEXT_MAX_BYTES (256 << 10)
#define GRAMMAR_TEXT_MAX_RULES 8192
#define GRAMMAR_TEXT_MAX_DEPTH 64 /* of groups */

/* Fails with ERROR_SYNTAX, saying what is wrong or not supported at which line and column (from 1,
 * in characters), without a subject, or that the grammar is too large; or with ERROR_MEMORY. */
int grammar_text(struct grammar_builder *builder, const char *text, grammar_node *out,
                 struct error *err);

/* The same for the content of a JSON string, without its quotes, whose value is a text of the
 * grammar. Characters are written as they are, or by their shortest escape if they must be
 * escaped. */
int grammar_text_json(struct grammar_builder *builder, const char *text, grammar_node *out,
                      struct error *err);

#endif
