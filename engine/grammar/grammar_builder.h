/* Private to engine/grammar/: a builder fails once, and then is of no use. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILDER_H
#define QUIRE_ENGINE_GRAMMAR_BUILDER_H

#include "engine/grammar/grammar_nodes.h"

/* Remembers the first failure; returns GRAMMAR_FAILED. reason: static. */
grammar_node grammar_builder_fail(struct grammar_builder *builder, enum error_code code,
                                  const char *reason);

#endif
