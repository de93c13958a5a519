#include "models/chat_template/template_builder.h"

#include "config/checked.h"

#include <string.h>

enum { MIN_CAPACITY = 64 };

/* Bytes and marks lie in one piece, [capacity] each, which grows where it is while it is the
 * arena's last. */
static bool resize(struct template_builder *builder, size_t capacity, bool has_marks) {
    size_t width = has_marks ? 2 : 1, bytes, had = builder->capacity;
    had *= builder->marks != NULL ? 2 : 1;
    if (!checked_mul(capacity, width, &bytes))
        bytes = SIZE_MAX;
    char *data = builder->data;
    if (data == NULL || !template_arena_extend_text(builder->arena, data + had, bytes - had)) {
        data = template_arena_alloc_text(builder->arena, bytes);
        if (data == NULL)
            return false;
        if (builder->length > 0)
            memcpy(data, builder->data, builder->length);
    }
    if (builder->marks != NULL)
        memmove(data + capacity, builder->marks, builder->length);
    else if (has_marks)
        memset(data + capacity, builder->origin, builder->length);
    builder->data = data;
    builder->capacity = capacity;
    builder->marks = has_marks ? (uint8_t *)data + capacity : NULL;
    return true;
}

static bool reserve(struct template_builder *builder, size_t bytes) {
    size_t needed, doubled = builder->capacity == 0 ? MIN_CAPACITY : builder->capacity * 2;
    if (!checked_add(builder->length, bytes, &needed))
        needed = SIZE_MAX;
    if (needed <= builder->capacity)
        return true;
    return resize(builder, needed > doubled ? needed : doubled, builder->marks != NULL);
}

void template_builder_add(struct template_builder *builder, struct text text,
                          enum template_origin origin) {
    if (text.length == 0 || template_arena_failed(builder->arena) || !reserve(builder, text.length))
        return;
    if (builder->length == 0 && builder->marks == NULL)
        builder->origin = origin;
    if (origin != builder->origin && builder->marks == NULL &&
        !resize(builder, builder->capacity, true))
        return;
    memcpy(builder->data + builder->length, text.data, text.length);
    if (builder->marks != NULL)
        memset(builder->marks + builder->length, origin, text.length);
    builder->length += text.length;
}

void template_builder_add_server(struct template_builder *builder, const char *literal) {
    template_builder_add(builder, (struct text){literal, strlen(literal)}, TEMPLATE_ORIGIN_SERVER);
}

void template_builder_add_string(struct template_builder *builder,
                                 const struct template_value *string) {
    struct text text = {string->string.data, string->string.length};
    const uint8_t *marks = string->string.marks;
    if (marks == NULL) {
        template_builder_add(builder, text, string->origin);
        return;
    }
    for (size_t begin = 0, end; begin < text.length; begin = end) {
        for (end = begin + 1; end < text.length && marks[end] == marks[begin];)
            end++;
        template_builder_add(builder, (struct text){text.data + begin, end - begin}, marks[begin]);
    }
}

void template_builder_add_part(struct template_builder *builder,
                               const struct template_value *string, size_t begin, size_t end) {
    struct template_value part = template_data_part(*string, begin, end);
    template_builder_add_string(builder, &part);
}

void template_builder_add_repeated(struct template_builder *builder,
                                   const struct template_value *string, size_t times) {
    size_t bytes;
    if (string->string.length == 0)
        return;
    if (!checked_mul(string->string.length, times, &bytes))
        bytes = SIZE_MAX;
    if (!reserve(builder, bytes))
        return;
    for (size_t i = 0; i < times; i++)
        template_builder_add_string(builder, string);
}

bool template_builder_finish(struct template_builder *builder, struct template_value *out) {
    if (template_arena_failed(builder->arena))
        return false;
    size_t unused = builder->capacity - builder->length;
    if (builder->marks != NULL) {
        char *end = (char *)builder->marks + builder->capacity;
        builder->marks = memmove(builder->data + builder->length, builder->marks, builder->length);
        template_arena_shrink_text(builder->arena, end, unused * 2);
    } else if (builder->data != NULL) {
        template_arena_shrink_text(builder->arena, builder->data + builder->capacity, unused);
    }
    builder->capacity = builder->length;
    *out = (struct template_value){
        .kind = TEMPLATE_STRING,
        .origin = (uint8_t)builder->origin,
        .string = {builder->data != NULL ? builder->data : "", builder->length, builder->marks}};
    return true;
}
