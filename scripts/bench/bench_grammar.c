/* How long masks take with the vocabulary of a real model: bench_grammar MODEL. The grammar is any
 * JSON object; each line is a place in the text, the time of the mask there when it is requested
 * first, and when it is requested again. */
#include "engine/grammar/machine/grammar.h"
#include "config/base/clock.h"
#include "engine/grammar/build/character_class.h"
#include "engine/grammar/read/grammar_regex.h"
#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double now_us(void) {
    return (double)clock_now_ns() / 1e3;
}

/* {"string": "string" or number, ...}, with objects in objects. */
static struct grammar *build(struct error *err) {
    struct grammar_builder *b = grammar_builder_create();
    struct grammar *grammar = NULL;
    if (b == NULL)
        return NULL;
    grammar_node object = grammar_rule(b), quote = grammar_literal(b, "\"", 1);
    grammar_node string_items[] = {quote, grammar_repeat(b, character_class_json(b), 0, -1), quote};
    grammar_node string = grammar_sequence(b, string_items, 3), number, comma;
    if (grammar_regex(b, "-?(?:0|[1-9]\\d{0,15})(?:\\.\\d{1,16})?", REGEX_TEXT, &number, err) ==
            0 &&
        grammar_regex(b, ", ?", REGEX_TEXT, &comma, err) == 0) {
        grammar_node values[] = {string, number, object};
        grammar_node member_items[] = {string, grammar_literal(b, ": ", 2),
                                       grammar_alternatives(b, values, 3)};
        grammar_node member = grammar_sequence(b, member_items, 3);
        grammar_node more = grammar_sequence(b, (grammar_node[]){comma, member}, 2);
        grammar_node all[] = {grammar_open_object(b), member, grammar_repeat(b, more, 0, -1),
                              grammar_literal(b, "}", 1)};
        grammar_define(b, object, grammar_sequence(b, all, 4));
        grammar_build(b, object, &grammar, err);
    }
    grammar_builder_destroy(b);
    return grammar;
}

static bool feed(struct grammar_state *state, const struct tokenizer *tokenizer, const char *text) {
    int32_t tokens[256];
    int64_t count = tokenizer_encode(tokenizer, text, strlen(text), 0, tokens, 256);
    for (int64_t i = 0; i < count; i++)
        if (grammar_state_accept(state, tokens[i]) != 0)
            return false;
    return count >= 0;
}

static int measure(const struct tokenizer *tokenizer, const struct grammar_vocabulary *vocabulary,
                   struct grammar *grammar, const char *text, uint32_t *mask) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    if (state == NULL || !feed(state, tokenizer, text)) {
        fprintf(stderr, "the grammar does not take %s\n", text);
        grammar_state_destroy(state);
        return -1;
    }
    double begin = now_us();
    int result = grammar_state_mask(state, mask);
    double first = now_us();
    for (int i = 0; i < 1000; i++)
        result |= grammar_state_mask(state, mask);
    double again = (now_us() - first) / 1000;
    int32_t num_allowed = 0;
    for (int32_t i = 0; i < tokenizer_vocab_size(tokenizer); i++)
        num_allowed += (mask[i / 32] >> (i % 32) & 1) != 0;
    printf("%-32s %6d tokens, first %8.1f us, again %6.2f us\n", text, num_allowed, first - begin,
           again);
    grammar_state_destroy(state);
    return result;
}

static int run(const struct tokenizer *tokenizer, struct error *err) {
    static const char *const texts[] = {"",
                                        "{\"",
                                        "{\"name",
                                        "{\"name\"",
                                        "{\"name\": ",
                                        "{\"name\": \"Bob",
                                        "{\"name\": 12",
                                        "{\"name\": 12, \"",
                                        "{\"name\": 12, \"address",
                                        "{\"name\": {\"first\": \"Bob"};
    struct grammar_vocabulary *vocabulary = NULL;
    double begin = now_us();
    if (grammar_vocabulary_create(tokenizer, &vocabulary, err) != 0)
        return -1;
    double built = now_us();
    struct grammar *grammar = build(err);
    printf("vocabulary of %d tokens: %.1f ms; grammar: %.1f us\n", tokenizer_vocab_size(tokenizer),
           (built - begin) / 1e3, now_us() - built);
    uint32_t *mask = calloc((size_t)tokenizer_vocab_size(tokenizer) / 32 + 1, sizeof(*mask));
    int result = grammar != NULL && mask != NULL ? 0 : -1;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && result == 0; i++)
        result = measure(tokenizer, vocabulary, grammar, texts[i], mask);
    free(mask);
    grammar_unref(grammar);
    grammar_vocabulary_destroy(vocabulary);
    return result;
}

int main(int argc, char **argv) {
    struct error err = {0};
    struct model *model = NULL;
    struct tokenizer *tokenizer = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: bench_grammar MODEL\n");
        return 2;
    }
    int result = model_open(argv[1], &model, &err);
    if (result == 0)
        result = tokenizer_open(model, &tokenizer, &err);
    if (result == 0)
        result = run(tokenizer, &err);
    if (result != 0)
        fprintf(stderr, "bench_grammar: %s\n", err.message);
    tokenizer_close(tokenizer);
    model_close(model);
    return result != 0;
}
