/* Help texts, wrapped at the terminal's width. A text's lines are:
 *
 *   "usage: quire ..." and "       quire ..."   usage, continued below the first word after "quire"
 *   "  TERM\tmeaning"                           a term; its meaning is aligned with its neighbours'
 *   anything else                               a paragraph, indented as its beginning is
 */
#ifndef QUIRE_CONFIG_BASE_HELP_TEXT_H
#define QUIRE_CONFIG_BASE_HELP_TEXT_H

#include "config/base/byte_buffer.h"

#include <stddef.h>
#include <stdio.h>

/* Returns the columns of the terminal that file is: COLUMNS if it is set, else what the terminal
 * says, 80 if it is not one; between 40 and 200. */
size_t help_text_width(FILE *file);

/* Appends text, wrapped between words so that no line has more than width columns; a longer word
 * has a line of its own. Only ASCII is counted right. */
void help_text_wrap(const char *text, size_t width, struct byte_buffer *out);

/* Writes text to file at its width. */
void help_text_print(const char *text, FILE *file);

#endif
