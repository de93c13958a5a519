#include "server/api/constraint/reasoning_grammar.h"

#include <string.h>

#define MAX_LINE_FEEDS 2 /* between reasoning and answer */

static grammar_node literal(struct grammar_builder *builder, const char *text) {
    return grammar_literal(builder, text, strlen(text));
}

static grammar_node other_than(struct grammar_builder *builder, char first, char second) {
    const struct character_range ranges[] = {{(uint32_t)first, (uint32_t)first},
                                             {(uint32_t)second, (uint32_t)second}};
    return grammar_characters(builder, ranges, 2, true);
}

/* What may stand between a '<' and the next one without completing the marker: nothing, or what
 * leaves the marker at its first character or a later one.
 *     (nothing | other text* | '/' (nothing | other text* | 't' (...))) */
static grammar_node broken_marker(struct grammar_builder *builder, grammar_node text) {
    static const char marker[] = "/think>";
    grammar_node rest = GRAMMAR_FAILED;
    for (size_t i = strlen(marker); i-- > 0;) {
        grammar_node other[] = {other_than(builder, '<', marker[i]), text};
        grammar_node choices[] = {literal(builder, ""), grammar_sequence(builder, other, 2), 0};
        bool is_last = i + 1 == strlen(marker);
        if (!is_last) {
            grammar_node next[] = {grammar_literal(builder, &marker[i], 1), rest};
            choices[2] = grammar_sequence(builder, next, 2);
        }
        rest = grammar_alternatives(builder, choices, is_last ? 2 : 3);
    }
    return rest;
}

/* Everything up to the first "</think>", and that. */
static grammar_node reasoning(struct grammar_builder *builder) {
    grammar_node text = grammar_repeat(builder, other_than(builder, '<', '<'), 0, -1);
    grammar_node segment[] = {literal(builder, "<"), broken_marker(builder, text)};
    grammar_node segments = grammar_repeat(builder, grammar_sequence(builder, segment, 2), 0, -1);
    grammar_node items[] = {text, segments, literal(builder, "</think>"),
                            grammar_repeat(builder, literal(builder, "\n"), 0, MAX_LINE_FEEDS)};
    return grammar_sequence(builder, items, 4);
}

grammar_node reasoning_grammar_before(struct grammar_builder *builder,
                                      const struct output_parser_config *model,
                                      grammar_node answer) {
    if (model->reasoning == REASONING_FORMAT_NONE)
        return answer;
    grammar_node inside = reasoning(builder);
    if (!model->begins_in_reasoning) {
        grammar_node opened[] = {literal(builder, "<think>"), inside};
        inside = grammar_repeat(builder, grammar_sequence(builder, opened, 2), 0, 1);
    }
    grammar_node items[] = {inside, answer};
    return grammar_sequence(builder, items, 2);
}
