#include "models/chat_template/template_builder.h"

#include "config/base/checked.h"

#include <string.h>

enum { MIN_CAPACITY = 64, LARGE_CAPACITY = 1 << 18 };

/* Bytes and marks lie in one piece, [capacity] each. */
static bool resize(struct template_builder *builder, size_t capacity, bool has_marks) {
    size_t had = builder->capacity, least = had < capacity ? had : capacity, bytes;
    bool had_marks = builder->marks != NULL;
    if (!checked_mul(capacity, has_marks ? 2 : 1, &bytes))
        bytes = SIZE_MAX;
    if (had_marks && capacity < had)
        memmove(builder->data + capacity, builder->marks, least);
    char *data =
        template_arena_resize_text(builder->arena, builder->data, had_marks ? had * 2 : had, bytes);
    if (data == NULL)
        return false;
    if (had_marks && capacity > had)
        memmove(data + capacity, data + had, builder->length);
    else if (!had_marks && has_marks)
        memset(data + capacity, builder->origin, builder->length);
    builder->data = data;
    builder->capacity = capacity;
    builder->marks = has_marks ? (uint8_t *)data + capacity : NULL;
    return true;
}

static bool reserve(struct template_builder *builder, size_t bytes) {
    size_t needed, had = builder->capacity;
    size_t usual = had < MIN_CAPACITY ? MIN_CAPACITY : had < LARGE_CAPACITY ? had * 2 : had / 4 * 5;
    if (!checked_add(builder->length, bytes, &needed))
        needed = SIZE_MAX;
    if (needed <= builder->capacity)
        return true;
    return resize(builder, needed > usual ? needed : usual, builder->marks != NULL);
}

void template_builder_reserve(struct template_builder *builder, size_t bytes) {
    if (!template_arena_failed(builder->arena))
        reserve(builder, bytes);
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
    if (text.length == 0 || template_arena_failed(builder->arena) || !reserve(builder, text.length))
        return;
    if (builder->marks == NULL && !resize(builder, builder->capacity, true))
        return;
    memcpy(builder->data + builder->length, text.data, text.length);
    memcpy(builder->marks + builder->length, marks, text.length);
    builder->length += text.length;
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
    if (builder->data != NULL && !resize(builder, builder->length, builder->marks != NULL))
        return false;
    *out = (struct template_value){
        .kind = TEMPLATE_STRING,
        .origin = (uint8_t)builder->origin,
        .is_markup = builder->is_markup,
        .string = {builder->data != NULL ? builder->data : "", builder->length, builder->marks}};
    return true;
}
