/* Text of any kind up to one of several triggers, which is what tools of models look like among
 * prose, or up to a marker. */
#ifndef QUIRE_ENGINE_GRAMMAR_FREE_TEXT_H
#define QUIRE_ENGINE_GRAMMAR_FREE_TEXT_H

#include "config/base/text.h"
#include "engine/grammar/build/grammar_builder.h"

#define FREE_TEXT_MAX_CHARACTERS 1024 /* of all triggers */

struct free_text_trigger {
    struct text text; /* not empty, UTF-8 */
    grammar_node behind;
};

/* Returns text without any trigger, then a trigger and what is behind it; with may_end, or that
 * text alone. Where several triggers end at a place, what is behind each may follow. GRAMMAR_FAILED
 * where a trigger is empty or no UTF-8, or their characters are too many. */
grammar_node grammar_free_text(struct grammar_builder *builder,
                               const struct free_text_trigger *triggers, int count, bool may_end);

/* Returns everything up to the first `marker`, and that. Its first byte, ASCII as all of it is,
 * comes in it once only. */
grammar_node text_until_node(struct grammar_builder *builder, const char *marker);

#endif
