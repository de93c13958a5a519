/* Private to chat_template/: what filters and methods of strings have in common. */
#ifndef QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H
#define QUIRE_MODELS_CHAT_TEMPLATE_TEMPLATE_STRINGS_H

#include "models/chat_template/template_run.h"

enum template_strip { TEMPLATE_STRIP_LEFT = 1, TEMPLATE_STRIP_RIGHT = 2, TEMPLATE_STRIP_BOTH = 3 };

/* Without the characters of `chars` at its ends; chars NULL: without white space. */
int template_strings_strip(struct template_run *run, const struct template_value *string,
                           const struct text *chars, enum template_strip sides,
                           struct template_value *out);
/* The byte at which the part begins, the first or the last time, or -1. */
int64_t template_strings_find(struct text text, struct text part, bool from_end);
/* At most `most` times; -1: all. */
int template_strings_replace(struct template_run *run, const struct template_value *string,
                             struct text old, const struct template_value *by, int64_t most,
                             struct template_value *out);
/* Strings, with the separator between them; values that are no strings are written as str(). */
int template_strings_join(struct template_run *run, const struct template_value *separator,
                          const struct template_sequence *items, struct template_value *out);
/* The lines, without their ends unless they are to be kept. */
int template_strings_lines(struct template_run *run, const struct template_value *string,
                           bool keep_ends, struct template_value *out);
/* With &, <, >, ' and " as HTML writes them; Markup stays as it is. The result is Markup. */
int template_strings_escape(struct template_run *run, const struct template_value *string,
                            struct template_value *out);

int template_strings_upper(struct template_run *run, const struct template_value *string,
                           struct template_value *out);
int template_strings_lower(struct template_run *run, const struct template_value *string,
                           struct template_value *out);
/* str.capitalize and str.title of Python, and Jinja's filter title, whose words end only at white
 * space, dashes and opening brackets. */
int template_strings_capitalize(struct template_run *run, const struct template_value *string,
                                struct template_value *out);
int template_strings_title(struct template_run *run, const struct template_value *string,
                           struct template_value *out);
int template_strings_title_words(struct template_run *run, const struct template_value *string,
                                 struct template_value *out);

#endif
