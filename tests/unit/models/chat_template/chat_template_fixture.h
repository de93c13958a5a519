/* One rendering of a template, for the tests of chat templates. */
#ifndef QUIRE_TESTS_UNIT_MODELS_CHAT_TEMPLATE_CHAT_TEMPLATE_FIXTURE_H
#define QUIRE_TESTS_UNIT_MODELS_CHAT_TEMPLATE_CHAT_TEMPLATE_FIXTURE_H

#include "models/chat_template/chat_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#define FIXTURE_ARENA_BYTES ((size_t)16 << 20)

static inline struct template_value *fixture_text(struct template_arena *arena, const char *text,
                                                  enum template_origin origin) {
    return template_string(arena, text, strlen(text), origin);
}

static inline void fixture_set(struct template_arena *arena, struct template_value *map,
                               const char *key, struct template_value *item) {
    struct text name = {key, strlen(key)};
    assert_non_null(template_map_set(arena, map, name, TEMPLATE_ORIGIN_CLIENT, item));
}

/* client: "Client", ours: "Server", mixed: a list of both, tool: {"name": "f", "n": 1}. */
static inline struct template_value *fixture_variables(struct template_arena *arena) {
    struct template_value *variables = template_map(arena), *mixed = template_list(arena);
    struct template_value *client = fixture_text(arena, "Client", TEMPLATE_ORIGIN_CLIENT);
    struct template_value *ours = fixture_text(arena, "Server", TEMPLATE_ORIGIN_SERVER);
    struct template_value *tool = template_map(arena);
    assert_non_null(template_list_append(arena, mixed, client));
    assert_non_null(template_list_append(arena, mixed, ours));
    fixture_set(arena, tool, "name", fixture_text(arena, "f", TEMPLATE_ORIGIN_CLIENT));
    fixture_set(arena, tool, "n", template_int(arena, 1));
    fixture_set(arena, variables, "client", client);
    fixture_set(arena, variables, "ours", ours);
    fixture_set(arena, variables, "mixed", mixed);
    fixture_set(arena, variables, "tool", tool);
    return variables;
}

/* The text with a client's parts in double angle quotes, or the error's message, in out. */
static inline int fixture_render_source(const char *source, size_t length, char *out,
                                        size_t out_bytes) {
    struct template_arena *arena = template_arena_create(FIXTURE_ARENA_BYTES);
    struct chat_template *chat = NULL;
    struct chat_text text;
    struct error err = {0};
    assert_non_null(arena);
    int status = chat_template_create(source, length, &chat, &err);
    if (status == 0)
        status = chat_template_render(chat, arena, fixture_variables(arena), 0, &text, &err);
    if (status != 0)
        snprintf(out, out_bytes, "%s", err.message);
    size_t at = 0, span = 0;
    for (size_t i = 0; status == 0 && i <= text.length; i++) {
        assert_in_range(at, 0, out_bytes - 8);
        if (span < text.num_client_spans && i == text.client_spans[span].end) {
            at += (size_t)sprintf(out + at, "\xc2\xbb");
            span++;
        }
        if (span < text.num_client_spans && i == text.client_spans[span].begin)
            at += (size_t)sprintf(out + at, "\xc2\xab");
        out[at] = i < text.length ? text.data[i] : '\0';
        at++;
    }
    chat_template_destroy(chat);
    template_arena_destroy(arena);
    return status;
}

static inline int fixture_render(const char *source, char *out, size_t out_bytes) {
    return fixture_render_source(source, strlen(source), out, out_bytes);
}

static inline void assert_renders(const char *source, const char *expected) {
    char got[4096];
    int status = fixture_render(source, got, sizeof(got));
    if (status != 0)
        fail_msg("%s: %s", source, got);
    assert_string_equal(got, expected);
}

/* The message begins so. */
static inline void assert_fails(const char *source, const char *expected) {
    char got[4096];
    if (fixture_render(source, got, sizeof(got)) == 0)
        fail_msg("%s is rendered: %s", source, got);
    if (strncmp(got, expected, strlen(expected)) != 0)
        fail_msg("%s: %s, not: %s", source, got, expected);
}

#endif
