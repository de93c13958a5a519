/* Private to chat_template/: Python's two ways of formatting. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FORMAT_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_FORMAT_H

#include "models/chat_template/template_call.h"

/* How one value is written. */
struct template_format {
    char type;      /* 's', 'r', or a conversion of numbers; 0: as str() */
    char align;     /* '<', '>', '^' or '='; 0: as the type has it */
    char sign;      /* '+', ' ' or 0 */
    bool zero;      /* filled with zeros behind the sign */
    bool alternate; /* '#' */
    bool grouped;   /* ',' between thousands */
    int64_t width;
    int64_t precision; /* -1: none */
    struct text fill;  /* one character */
};

/* Adds the value to the builder. */
int template_format_value(struct template_run *run, const struct template_value *value,
                          const struct template_format *format, struct template_builder *builder);
/* format % values: a tuple's, a map's by name, or one value. */
int template_format_percent(struct template_run *run, const struct template_value *format,
                            const struct template_value *values, struct template_value *out);
/* format.format(arguments) */
int template_format_braces(struct template_run *run, const struct template_value *format,
                           const struct template_arguments *arguments, struct template_value *out);

#endif
