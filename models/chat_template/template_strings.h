/* Private to chat_template/: what filters and methods of strings have in common. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H

#include "models/chat_template/template_run.h"

enum template_strip { TEMPLATE_STRIP_LEFT = 1, TEMPLATE_STRIP_RIGHT = 2, TEMPLATE_STRIP_BOTH = 3 };

/* Takes off the characters of `chars` at its ends; chars NULL: white space. */
int template_strings_strip(struct template_run *run, const struct template_value *string,
                           const struct text *chars, enum template_strip sides,
                           struct template_value *out);
/* Returns the byte at which the part begins, the first or the last time, or -1. */
int64_t template_strings_find(struct text text, struct text part, bool from_end);
/* Replaces `old` at most `most` times; -1: all. */
int template_strings_replace(struct template_run *run, const struct template_value *string,
                             struct text old, const struct template_value *by, int64_t most,
                             struct template_value *out);
/* Joins strings, with the separator between them; values that are no strings are written as str(). */
int template_strings_join(struct template_run *run, const struct template_value *separator,
                          const struct template_sequence *items, struct template_value *out);
/* Splits into lines, without their ends unless they are to be kept. */
int template_strings_lines(struct template_run *run, const struct template_value *string,
                           bool keep_ends, struct template_value *out);
/* Writes &, <, >, ' and " as HTML does; Markup stays as it is. The result is Markup. */
int template_strings_escape(struct template_run *run, const struct template_value *string,
                            struct template_value *out);

/* As upper, lower, capitalize and title of Python's str, and Jinja's filter title, whose words end
 * only at white space, dashes and opening brackets, and whose result is no Markup. */
enum template_strings_case {
    TEMPLATE_STRINGS_UPPER,
    TEMPLATE_STRINGS_LOWER,
    TEMPLATE_STRINGS_CAPITALIZE,
    TEMPLATE_STRINGS_TITLE,
    TEMPLATE_STRINGS_TITLE_WORDS
};
int template_strings_change_case(struct template_run *run, const struct template_value *string,
                                 enum template_strings_case to, struct template_value *out);

#endif
