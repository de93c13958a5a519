/* Private to chat_template/: a string that grows, and keeps of each byte whose it is. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_BUILDER_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_BUILDER_H

#include "models/chat_template/template_data.h"

/* Zeroed but for the arena at first. What is added after the arena failed is lost, which
 * template_builder_finish reports. */
struct template_builder {
    struct template_arena *arena;
    char *data;
    uint8_t *marks; /* [capacity]; NULL while all bytes are of one origin */
    size_t length, capacity;
    enum template_origin origin; /* of all bytes while there are no marks */
    bool is_markup;              /* the string will be Markup */
};

void template_builder_add(struct template_builder *builder, struct text text,
                          enum template_origin origin);
void template_builder_add_server(struct template_builder *builder, const char *literal);
void template_builder_add_string(struct template_builder *builder,
                                 const struct template_value *string);
/* Adds bytes begin <= i < end of a string. */
void template_builder_add_part(struct template_builder *builder,
                               const struct template_value *string, size_t begin, size_t end);
void template_builder_add_repeated(struct template_builder *builder,
                                   const struct template_value *string, size_t times);
/* Makes room, so that what is known to come is not copied. */
void template_builder_reserve(struct template_builder *builder, size_t bytes);
/* Gives the string so far. False: something was lost. */
bool template_builder_finish(struct template_builder *builder, struct template_value *out);

#endif
