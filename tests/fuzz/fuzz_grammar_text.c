/* Any bytes as a grammar in GBNF or Lark's notation; the first says how to walk. What is taken must
 * build, or be too large or without a text, and always let some token come next. */
#include "engine/grammar/grammar_text.h"
#include "tests/unit/engine/grammar/grammar_fixture.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GRAMMAR 1024 /* bytes; a longer one is not more than slow */
#define NUM_TOKENS 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static const struct grammar_vocabulary *the_vocabulary(void) {
    static struct tokenizer tokenizer;
    static struct grammar_vocabulary *vocabulary;
    struct error err = {0};
    if (vocabulary == NULL) {
        fixture_init_bytes(&tokenizer);
        fixture_add(&tokenizer, "ab", 2);
        fixture_add(&tokenizer, "\xC3\xA9", 2);
        require(grammar_vocabulary_create(&tokenizer, &vocabulary, &err) == 0);
    }
    return vocabulary;
}

/* Returns the allowed token that the choice falls on. */
static int32_t choose(const uint32_t *mask, unsigned choice) {
    int32_t count = 0, token = -1;
    for (int i = 0; i < FIXTURE_WORDS; i++)
        count += __builtin_popcount(mask[i]);
    require(count > 0);
    for (int32_t left = (int32_t)(choice % (unsigned)count); left >= 0;) {
        token++;
        left -= (int32_t)(mask[token / 32] >> (token % 32) & 1);
    }
    return token;
}

static void walk(struct grammar *grammar, unsigned choice) {
    struct grammar_state *state = grammar_state_create(grammar, the_vocabulary());
    require(state != NULL);
    for (int i = 0; i < NUM_TOKENS && !grammar_state_is_final(state); i++) {
        uint32_t mask[FIXTURE_WORDS] = {0};
        require(grammar_state_mask(state, mask) == 0);
        require(grammar_state_accept(state, choose(mask, choice + (unsigned)i)) == 0);
    }
    grammar_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[MAX_GRAMMAR + 1] = {0};
    if (bytes < 1 || bytes > MAX_GRAMMAR)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err = {0};
    grammar_node root;
    require(builder != NULL);
    if (grammar_text(builder, text, &root, &err) != 0)
        require(err.code == ERROR_SYNTAX && err.message[0] != '\0');
    else if (grammar_build(builder, root, &grammar, &err) != 0)
        require(err.code == ERROR_SYNTAX && strstr(err.message, "left-recursive, or") == NULL &&
                strstr(err.message, "repeats what may be empty") == NULL);
    else
        walk(grammar, data[0]);
    grammar_unref(grammar);
    grammar_builder_destroy(builder);
    return 0;
}
