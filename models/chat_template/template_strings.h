/* Private to chat_template/: values as text, and helpers shared by filters, methods and operators
 * of strings. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H

#include "models/chat_template/template_run.h"

/* --- Values as text (template_repr.c) --- */

/* Add str(value) and repr(value), as Python writes them, to the builder. */
int template_repr_str(struct template_run *run, const struct template_value *value,
                      struct template_builder *builder);
int template_repr_repr(struct template_run *run, const struct template_value *value,
                       struct template_builder *builder);
/* Returns str(value), which is the value itself if it is a string. */
int template_repr_string(struct template_run *run, const struct template_value *value,
                         struct template_value *out);

/* --- Parts of strings, and case --- */

enum template_strip { TEMPLATE_STRIP_LEFT = 1, TEMPLATE_STRIP_RIGHT = 2, TEMPLATE_STRIP_BOTH = 3 };

/* Strips the characters of `chars` from both ends; chars NULL: white space. */
int template_strings_strip(struct template_run *run, const struct template_value *string,
                           const struct text *chars, enum template_strip sides,
                           struct template_value *out);
/* Returns the byte offset of the first or last occurrence of the part, or -1. */
int64_t template_strings_find(struct text text, struct text part, bool from_end);
/* Replaces `old` at most `most` times; -1: all. */
int template_strings_replace(struct template_run *run, const struct template_value *string,
                             struct text old, const struct template_value *by, int64_t most,
                             struct template_value *out);
/* Joins strings, with the separator between them; values that are not strings are written as str().
 */
int template_strings_join(struct template_run *run, const struct template_value *separator,
                          const struct template_sequence *items, struct template_value *out);
/* Splits into lines, without line ends unless they should be kept. */
int template_strings_lines(struct template_run *run, const struct template_value *string,
                           bool keep_ends, struct template_value *out);
/* Writes &, <, >, ' and " as HTML does; Markup stays as it is. The result is Markup. */
int template_strings_escape(struct template_run *run, const struct template_value *string,
                            struct template_value *out);

/* Like upper, lower, capitalize and title of Python's str, and Jinja's filter title, whose words
 * end only at white space, dashes and opening brackets, and whose result is not Markup. */
enum template_strings_case {
    TEMPLATE_STRINGS_UPPER,
    TEMPLATE_STRINGS_LOWER,
    TEMPLATE_STRINGS_CAPITALIZE,
    TEMPLATE_STRINGS_TITLE,
    TEMPLATE_STRINGS_TITLE_WORDS
};
int template_strings_change_case(struct template_run *run, const struct template_value *string,
                                 enum template_strings_case to, struct template_value *out);

/* --- Python's two ways of formatting ---
 * Anything else in a format is an error. */

/* format % values: a tuple's, a map's by name, or one value. A conversion is
 * %[(name)][-][0][width][.precision] and one of s r d i f %. */
int template_strings_format_percent(struct template_run *run, const struct template_value *format,
                                    const struct template_value *values,
                                    struct template_value *out);
/* format.format(arguments). A field is {[position or name][:specification]}, a specification is
 * [[fill]align][0][width][.precision][type] with one of < > ^ for align and of s d f for type. */
int template_strings_format_braces(struct template_run *run, const struct template_value *format,
                                   const struct template_arguments *arguments,
                                   struct template_value *out);

#endif
