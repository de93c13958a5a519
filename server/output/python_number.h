/* Python's numbers as JSON has them. */
#ifndef QUIRE_SERVER_OUTPUT_PYTHON_NUMBER_H
#define QUIRE_SERVER_OUTPUT_PYTHON_NUMBER_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"

#include <stdbool.h>

/* Appends a number, which a sign may stand in front of: underscores between digits are left out, a
 * missing 0 at a point is put in, hexadecimal, octal and binary integers of up to 64 bits become
 * decimal. False: the word is none (docs.python.org/3/reference/lexical_analysis.html, section
 * 2.6), and nothing is appended. */
bool python_number_append(struct text word, struct byte_buffer *out);

#endif
