/* Any JSON object as a JSON schema. What is refused gets a 400; what is taken always lets some token
 * come next, all the way to an end. */
#include "config/base/json_scan.h"
#include "server/api/constraint/json_schema.h"
#include "server/json/json_integer.h"
#include "tests/unit/engine/grammar/grammar_fixture.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define NUM_TOKENS 24

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
    for (unsigned i = 0; i < NUM_TOKENS && !grammar_state_is_final(state); i++) {
        uint32_t mask[FIXTURE_WORDS] = {0};
        require(grammar_state_mask(state, mask) == 0);
        require(grammar_state_accept(state, choose(mask, choice * (i + 1))) == 0);
    }
    grammar_state_destroy(state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 20000};
    const char *text = (const char *)data;
    struct error error = {0};
    struct api_error err = {0};
    struct grammar *grammar = NULL;
    grammar_node root;
    if (json_scan(text, bytes, &limits, &error) != 0)
        return 0;
    cJSON *schema = cJSON_ParseWithLength(text, bytes);
    struct grammar_builder *builder = grammar_builder_create();
    require(schema != NULL && builder != NULL && json_integer_keep(schema, text, bytes) == 0);
    if (json_schema_node(builder, schema, "schema", bytes % 2 == 1, &root, &err) != 0 ||
        json_schema_build(builder, root, "schema", &grammar, &err) != 0)
        require(err.status == 400 && err.message[0] != '\0');
    else
        walk(grammar, (unsigned)bytes);
    grammar_unref(grammar);
    grammar_builder_destroy(builder);
    cJSON_Delete(schema);
    return 0;
}
