/* Any text up to a marker, as a node of a grammar. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_TEXT_UNTIL_H
#define QUIRE_SERVER_API_CONSTRAINT_TEXT_UNTIL_H

#include "engine/grammar/machine/grammar.h"

/* Returns everything up to the first `marker`, and that. Its first byte, ASCII as all of it is,
 * comes in it once only. */
grammar_node text_until_node(struct grammar_builder *builder, const char *marker);

#endif
