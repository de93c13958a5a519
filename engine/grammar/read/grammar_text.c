#include "engine/grammar/read/grammar_text.h"

#include "engine/grammar/read/notation_reader.h"

#include <string.h>

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* Passes blank lines, and those that are a comment in either notation. */
static const char *skip_comments(const char *at) {
    for (;;) {
        while (is_space(*at))
            at++;
        if (at[0] != '#' && !(at[0] == '/' && at[1] == '/'))
            return at;
        at += strcspn(at, "\n");
    }
}

static bool is_gbnf(const char *text) {
    const char *at = skip_comments(text);
    while (notation_is_name(*at) || *at == '-')
        at++;
    while (is_space(*at))
        at++;
    return strncmp(at, "::=", 3) == 0;
}

int grammar_text(struct grammar_builder *builder, const char *text, grammar_node *out,
                 struct error *err) {
    struct notation n;
    if (strlen(text) > GRAMMAR_TEXT_MAX_BYTES)
        return error_set(err, ERROR_SYNTAX, "the grammar's text is longer than %d bytes",
                         GRAMMAR_TEXT_MAX_BYTES);
    notation_init(&n, builder, text, err);
    int result = is_gbnf(text) ? grammar_gbnf(&n, out) : grammar_lark(&n, out);
    notation_finish(&n);
    return result;
}
