/* Any bytes as a grammar in GBNF or Lark's notation; the first says how to walk. What is taken must
 * build, or be too large or without a text, and always let some token come next. */
#include "engine/grammar/read/grammar_text.h"
#include "tests/fuzz/grammar_walk.h"

#include <stdint.h>
#include <string.h>

#define MAX_GRAMMAR 1024 /* bytes; a longer one is not more than slow */
#define NUM_TOKENS 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char text[MAX_GRAMMAR + 1] = {0};
    if (bytes < 1 || bytes > MAX_GRAMMAR)
        return 0;
    memcpy(text, data + 1, bytes - 1);
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err = {0};
    grammar_node root;
    fuzz_require(builder != NULL);
    if (grammar_text(builder, text, &root, &err) != 0)
        fuzz_require(err.code == ERROR_SYNTAX && err.message[0] != '\0');
    else if (grammar_build(builder, root, &grammar, &err) != 0)
        fuzz_require(err.code == ERROR_SYNTAX &&
                     strstr(err.message, "left-recursive, or") == NULL &&
                     strstr(err.message, "repeats an item that may be empty") == NULL);
    else
        grammar_walk(grammar, data[0], NUM_TOKENS);
    grammar_unref(grammar);
    grammar_builder_destroy(builder);
    return 0;
}
