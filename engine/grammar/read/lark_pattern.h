/* Private to engine/grammar/: the pieces of text in Lark's notation that are more than a text. The
 * functions return -1 with *n->err filled. */
#ifndef QUIRE_ENGINE_GRAMMAR_LARK_PATTERN_H
#define QUIRE_ENGINE_GRAMMAR_LARK_PATTERN_H

#include "engine/grammar/read/notation_reader.h"

/* /regex/flags, at the first '/'. */
int lark_pattern(struct notation *n, grammar_node *out);
/* The text in n->bytes, which stands at `begin`, with letters of either case. */
int lark_folded_text(struct notation *n, const char *begin, grammar_node *out);
/* The one character that n->bytes holds; -1 where it is not one, without an error. */
int lark_one_character(const struct notation *n, uint32_t *out);

#endif
