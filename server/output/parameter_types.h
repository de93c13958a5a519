/* What the tools' schemas say of their parameters, for the formats that write a value without the
 * quotes that would tell a string from a number. */
#ifndef QUIRE_SERVER_OUTPUT_PARAMETER_TYPES_H
#define QUIRE_SERVER_OUTPUT_PARAMETER_TYPES_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"

enum parameter_type {
    PARAMETER_ANY = 'a', /* another type, several, or not known: JSON where the value is some */
    PARAMETER_STRING = 's',
    PARAMETER_NULLABLE_STRING = 'n', /* a string, unless it reads null */
};

/* The types are a text: of each function its name, and of each of its parameters that is a string
 * the type's letter and the name; each with its NUL, and one NUL more at the function's end. These
 * append to it. */
void parameter_types_begin(struct byte_buffer *types, const char *function);
void parameter_types_add(struct byte_buffer *types, enum parameter_type type, const char *name);
void parameter_types_end(struct byte_buffer *types);

/* Returns the parameters of a function, for parameter_types_of; NULL: it has none that are strings.
 */
const char *parameter_types_find(struct text types, const char *function, size_t length);
/* Accepts NULL: no parameter's type is known. */
enum parameter_type parameter_types_of(const char *parameters, const char *name, size_t length);

#endif
