/* Any JSON object as a JSON schema. What is refused gets a 400; what is taken always lets some
 * token come next, all the way to an end. */
#include "engine/grammar/read/json_schema.h"
#include "config/json/json_read.h"
#include "tests/fuzz/grammar_walk.h"

#include <stdint.h>
#include <string.h>

#define NUM_TOKENS 24

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 20000};
    const char *text = (const char *)data;
    struct error error = {0};
    struct api_error err = {0};
    struct grammar *grammar = NULL;
    grammar_node root;
    cJSON *schema = json_read(text, bytes, &limits, &error);
    if (schema == NULL)
        return 0;
    struct grammar_builder *builder = grammar_builder_create();
    fuzz_require(builder != NULL);
    static const char *const spaces[] = {NULL, "", "[ \\n]*"};
    if (json_schema_node(builder, schema, "schema", bytes % 2 == 1, spaces[bytes % 3], &root,
                         &err) != 0 ||
        json_schema_build(builder, root, "schema", &grammar, &err) != 0)
        fuzz_require(err.status == 400 && err.message[0] != '\0');
    else
        grammar_walk(grammar, (unsigned)bytes, NUM_TOKENS);
    grammar_unref(grammar);
    grammar_builder_destroy(builder);
    cJSON_Delete(schema);
    return 0;
}
