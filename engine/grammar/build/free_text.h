/* Any text up to one of several triggers, which is how a model's tool calls appear within prose, or
 * up to a marker. */
#ifndef QUIRE_ENGINE_GRAMMAR_BUILD_FREE_TEXT_H
#define QUIRE_ENGINE_GRAMMAR_BUILD_FREE_TEXT_H

#include "config/base/text.h"
#include "engine/grammar/build/grammar_builder.h"

#define FREE_TEXT_MAX_CHARACTERS 1024 /* in all triggers together */

struct free_text_trigger {
    struct text text; /* not empty, UTF-8 */
    grammar_node behind;
};

/* Returns the node of text without any trigger, then a trigger and what follows it; with may_end,
 * that text alone matches too. If several triggers end at the same place, what follows any of them
 * may follow. GRAMMAR_FAILED if a trigger is empty or not UTF-8, or if the triggers have too many
 * characters. */
grammar_node grammar_free_text(struct grammar_builder *builder,
                               const struct free_text_trigger *triggers, int count, bool may_end);

/* Returns the node of everything up to and including the first `marker`. The marker is ASCII, and
 * its first byte occurs in it only once. */
grammar_node text_until_node(struct grammar_builder *builder, const char *marker);

#endif
