#include "models/chat_template/chat_template.h"

#include "config/base/utf8.h"
#include "models/chat_template/template_eval.h"
#include "models/chat_template/template_parser.h"
#include "models/chat_template/template_run.h"

#include <stdlib.h>

/* The builtins of every template: Jinja's own, those Transformers adds, and the methods of Python's
 * types. */
static const struct template_function *const filters[] = {template_filters, template_item_filters,
                                                          template_json_filters, NULL};
static const struct template_function *const tests[] = {template_tests, NULL};
static const struct template_function *const functions[] = {template_functions, NULL};

static const char *const refused_of_maps[] = {"clear",      "pop",    "popitem",
                                              "setdefault", "update", NULL};
static const char *const refused_of_lists[] = {"append", "clear",  "pop",    "reverse", "insert",
                                               "sort",   "extend", "remove", NULL};

static const struct template_methods methods[] = {
    {TEMPLATE_STRING, template_string_methods, NULL},
    {TEMPLATE_MAP, template_map_methods, refused_of_maps},
    {TEMPLATE_LIST, NULL, refused_of_lists},
    {TEMPLATE_LOOP, template_loop_methods, NULL},
    {TEMPLATE_MISSING, NULL, NULL},
};

static const struct template_builtins library = {filters, tests, functions, methods};

/* Bounds the nodes: about twice as much as the largest source makes. */
#define MAX_NODE_BYTES ((size_t)256 << 20)

struct chat_template {
    struct template_arena *arena;
    struct template_names names;
    struct template_node *body;
    int64_t max_steps;
};

static int create(const char *source, size_t length, size_t max_bytes, int64_t max_steps,
                  struct chat_template **out, struct error *err) {
    if (length > max_bytes)
        return error_set(err, ERROR_SYNTAX, "the chat template has %zu bytes, more than %zu",
                         length, max_bytes);
    if (utf8_valid_prefix(source, length) != length)
        return error_set(err, ERROR_SYNTAX, "the chat template is not UTF-8");
    struct chat_template *chat = calloc(1, sizeof(*chat));
    if (chat == NULL || (chat->arena = template_arena_create(MAX_NODE_BYTES)) == NULL) {
        chat_template_destroy(chat);
        return error_set(err, ERROR_MEMORY, "no memory for a chat template");
    }
    if (template_parser_run(chat->arena, (struct text){source, length}, &library, &chat->names,
                            &chat->body, err) != 0) {
        chat_template_destroy(chat);
        return -1;
    }
    chat->max_steps = max_steps;
    *out = chat;
    return 0;
}

int chat_template_create(const char *source, size_t length, struct chat_template **out,
                         struct error *err) {
    return create(source, length, CHAT_TEMPLATE_MAX_BYTES, CHAT_TEMPLATE_MAX_STEPS, out, err);
}

int chat_template_create_client(const char *source, size_t length, struct chat_template **out,
                                struct error *err) {
    return create(source, length, CHAT_TEMPLATE_CLIENT_MAX_BYTES, CHAT_TEMPLATE_CLIENT_MAX_STEPS,
                  out, err);
}

void chat_template_destroy(struct chat_template *chat) {
    if (chat == NULL)
        return;
    template_arena_destroy(chat->arena);
    free(chat);
}

/* Finds the parts of the text that are marked as the client's. */
static int find_spans(struct template_run *run, const struct template_value *text,
                      struct chat_text *out) {
    const uint8_t *marks = text->string.marks;
    size_t length = text->string.length, num = 0;
    for (size_t i = 0; marks != NULL && i < length; i++)
        num += marks[i] == TEMPLATE_ORIGIN_CLIENT && (i == 0 || marks[i - 1] != marks[i]);
    if (marks == NULL)
        num = length > 0 && text->origin == TEMPLATE_ORIGIN_CLIENT;
    struct text_span *spans = template_arena_alloc_items(run->arena, num, sizeof(*spans));
    if (spans == NULL)
        return template_run_fail_memory(run);
    if (marks == NULL && num == 1)
        spans[0] = (struct text_span){0, length};
    for (size_t i = 0, span = 0; marks != NULL && i < length; i++) {
        if (marks[i] != TEMPLATE_ORIGIN_CLIENT)
            continue;
        spans[span].begin = i;
        while (i < length && marks[i] == TEMPLATE_ORIGIN_CLIENT)
            i++;
        spans[span++].end = i;
    }
    *out = (struct chat_text){text->string.data, length, spans, num};
    return 0;
}

int chat_template_render(const struct chat_template *chat, struct template_arena *arena,
                         const struct template_value *variables, int64_t now, struct chat_text *out,
                         struct error *err) {
    struct template_run run = {.arena = arena,
                               .variables = variables,
                               .names = &chat->names,
                               .builtins = &library,
                               .now = now,
                               .err = err,
                               .steps = chat->max_steps,
                               .line = 1};
    struct template_scope scope = {0};
    struct template_value text;
    if (variables == NULL || variables->kind != TEMPLATE_MAP)
        return template_arena_failed(arena)
                   ? template_run_fail_memory(&run)
                   : error_set(err, ERROR_SYNTAX, "the chat template's variables are not a map");
    if (template_statement_capture(&run, chat->body, &scope, &text) != 0)
        return -1;
    return find_spans(&run, &text, out);
}
