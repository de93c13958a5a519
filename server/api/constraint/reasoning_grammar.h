/* The form of reasoning in front of an answer whose own form is forced. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_REASONING_GRAMMAR_H
#define QUIRE_SERVER_API_CONSTRAINT_REASONING_GRAMMAR_H

#include "engine/grammar/grammar.h"
#include "server/output/output_parser.h"

/* `answer`, with the model's reasoning in front of it where it has any (model.reasoning): what is
 * left of it where the prompt has opened it, else optional. The output parser then finds the
 * answer, and nothing else, behind it. */
grammar_node reasoning_grammar_before(struct grammar_builder *builder,
                                      const struct output_parser_config *model,
                                      grammar_node answer);

#endif
