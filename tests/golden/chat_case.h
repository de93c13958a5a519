/* What the tests of chat templates share: JSON as values of a template, and one rendering. */
#ifndef QUIRE_TESTS_GOLDEN_CHAT_CASE_H
#define QUIRE_TESTS_GOLDEN_CHAT_CASE_H

#include "config/base/error.h"
#include "models/chat_template/chat_template.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* FOLDER/NAME with a NUL behind it, which *out_length does not count; the caller frees. Ends the
 * program where it cannot be read. */
char *chat_case_read(const char *folder, const char *name, size_t *out_length);

/* The template, or NULL with the reason. */
struct chat_template *chat_case_compile(const char *source, size_t length, struct error *err);

/* Strings are a client's, except for roles and the tokens around a text. Whole numbers are ints. */
struct template_value *chat_case_value(struct template_arena *arena, const cJSON *item);

/* A rendering; `text` lives in `arena`, which the caller destroys. */
struct chat_case {
    struct template_arena *arena;
    int status;
    struct chat_text text;
    struct error err;
};

struct chat_case chat_case_render(const struct chat_template *chat, const cJSON *variables,
                                  int64_t now);

/* Whether the spans rise, lie apart and in the text, and none is empty. */
bool chat_case_spans_are_sound(const struct chat_text *text);

#endif
