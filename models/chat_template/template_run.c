#include "models/chat_template/template_run.h"

#include "config/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

/* A cut message must not end within a character, and one of a template may have several lines. */
int template_run_fail(struct template_run *run, const char *format, ...) {
    char text[sizeof(run->err->message) - 32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    int length = (int)utf8_valid_prefix(text, strlen(text));
    for (int i = 0; i < length; i++)
        text[i] = text[i] == '\n' ? ' ' : text[i];
    return error_set(run->err, ERROR_SYNTAX, "line %d: %.*s", run->line, length, text);
}

int template_run_fail_memory(struct template_run *run) {
    if (template_arena_is_full(run->arena))
        return template_run_fail(run, "the template's values and output need more than %zu bytes",
                                 template_arena_max_bytes(run->arena));
    return error_set(run->err, ERROR_MEMORY, "no memory to apply the chat template");
}

int template_run_charge(struct template_run *run, size_t units) {
    if (units > (size_t)run->steps) {
        run->steps = 0;
        return template_run_fail(run, "the template takes more steps than are allowed");
    }
    run->steps -= (int64_t)units;
    return 0;
}

int template_run_charge_text(struct template_run *run, size_t bytes) {
    enum { BYTES_PER_STEP = 64 };
    return template_run_charge(run, bytes / BYTES_PER_STEP);
}

int template_run_finish(struct template_run *run, struct template_builder *builder,
                        struct template_value *out) {
    return template_builder_finish(builder, out) ? 0 : template_run_fail_memory(run);
}

int template_run_copy(struct template_run *run, struct text text, struct template_value *out) {
    char *copy = template_arena_alloc_text(run->arena, text.length);
    if (copy == NULL)
        return template_run_fail_memory(run);
    char *end = copy;
    *out = template_data_text(text_copy(text, &end), TEMPLATE_ORIGIN_SERVER);
    return 0;
}
