#include "engine/grammar/read/text_until.h"

#include <string.h>

static grammar_node other_than(struct grammar_builder *builder, char first, char second) {
    const struct character_range ranges[] = {{(uint32_t)first, (uint32_t)first},
                                             {(uint32_t)second, (uint32_t)second}};
    return grammar_characters(builder, ranges, 2, true);
}

/* Returns what may stand between a marker's first byte and the next such byte without completing
 * the marker: nothing, or what leaves the marker at its second byte or a later one. Of "</t":
 *     (nothing | other text* | '/' (nothing | other text*)) */
static grammar_node broken_marker(struct grammar_builder *builder, const char *marker,
                                  grammar_node text) {
    size_t length = strlen(marker);
    grammar_node rest = GRAMMAR_FAILED;
    for (size_t i = length; i-- > 1;) {
        grammar_node other[] = {other_than(builder, marker[0], marker[i]), text};
        grammar_node choices[] = {grammar_literal(builder, "", 0),
                                  grammar_sequence(builder, other, 2), 0};
        bool is_last = i + 1 == length;
        if (!is_last) {
            grammar_node next[] = {grammar_literal(builder, &marker[i], 1), rest};
            choices[2] = grammar_sequence(builder, next, 2);
        }
        rest = grammar_alternatives(builder, choices, is_last ? 2 : 3);
    }
    return rest;
}

grammar_node text_until_node(struct grammar_builder *builder, const char *marker) {
    grammar_node text = grammar_repeat(builder, other_than(builder, marker[0], marker[0]), 0, -1);
    grammar_node segment[] = {grammar_literal(builder, marker, 1),
                              broken_marker(builder, marker, text)};
    grammar_node items[] = {text,
                            grammar_repeat(builder, grammar_sequence(builder, segment, 2), 0, -1),
                            grammar_literal(builder, marker, strlen(marker))};
    return grammar_sequence(builder, items, 3);
}
