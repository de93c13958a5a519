/* Any bytes as a regular expression: the first says of which mode, and how to walk. What is taken
 * must build or be too large, and always let some token come next, all the way to an end. */
#include "engine/grammar/read/grammar_regex.h"
#include "tests/fuzz/grammar_walk.h"

#include <stdint.h>
#include <string.h>

#define MAX_PATTERN 512 /* bytes; a longer one is not more than slow */
#define NUM_TOKENS 12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char pattern[MAX_PATTERN + 1] = {0};
    if (bytes < 1 || bytes > MAX_PATTERN)
        return 0;
    memcpy(pattern, data + 1, bytes - 1);
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct error err = {0};
    grammar_node root;
    fuzz_require(builder != NULL);
    enum regex_mode mode = data[0] & 1   ? REGEX_JSON_STRING
                           : data[0] & 2 ? REGEX_SEARCH
                                         : REGEX_TEXT;
    if (grammar_regex(builder, pattern, mode, &root, &err) != 0)
        fuzz_require(err.code == ERROR_SYNTAX && err.message[0] != '\0');
    else if (grammar_build(builder, root, &grammar, &err) != 0)
        fuzz_require(err.code == ERROR_SYNTAX);
    else
        grammar_walk(grammar, data[0] >> 1, NUM_TOKENS);
    grammar_unref(grammar);
    grammar_builder_destroy(builder);
    return 0;
}
