/* Converts one Python literal to JSON, byte by byte: strings (either quote, three of them, 'r' and
 * 'u' in front, neighbours joined), integers, floats, True, False, None, and lists and dicts of
 * them (docs.python.org/3/reference/lexical_analysis.html, sections 2.5 and 2.6). JSON's own words
 * and its \/ are accepted too, because models write them. Other expressions are not literals.
 *
 * Depth costs no C stack. Strings are written as they are read; a number or a word at its end. */
#ifndef QUIRE_SERVER_OUTPUT_PYTHON_LITERAL_H
#define QUIRE_SERVER_OUTPUT_PYTHON_LITERAL_H

#include "config/base/byte_buffer.h"
#include "server/output/json_stream.h"
#include "config/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Python's numbers as JSON. */
/* Appends a number with an optional sign: underscores between digits are removed, a missing 0 next
 * to a point is added, and hexadecimal, octal and binary integers of up to 64 bits become decimal.
 * False: the word is not a number (docs.python.org/3/reference/lexical_analysis.html, section 2.6),
 * and nothing is appended. */
bool python_number_append(struct text word, struct byte_buffer *out);

#define PYTHON_LITERAL_MAX_DEPTH JSON_STREAM_MAX_DEPTH /* of nested lists and dicts */
#define PYTHON_LITERAL_MAX_WORD_BYTES 320              /* of a number */

enum python_literal_step {
    PYTHON_LITERAL_MORE,
    PYTHON_LITERAL_DONE,        /* the byte is the literal's last */
    PYTHON_LITERAL_DONE_BEFORE, /* the literal ended before the byte */
    PYTHON_LITERAL_BAD,         /* not a literal, or beyond a bound */
};

enum python_literal_state {
    PYTHON_LITERAL_VALUE,
    PYTHON_LITERAL_ITEM, /* of a list, or its end */
    PYTHON_LITERAL_KEY,  /* of a dict, or its end */
    PYTHON_LITERAL_COLON,
    PYTHON_LITERAL_AFTER_VALUE,
    PYTHON_LITERAL_WORD,
    PYTHON_LITERAL_QUOTE,  /* after one quote */
    PYTHON_LITERAL_QUOTES, /* after two */
    PYTHON_LITERAL_STRING,
    PYTHON_LITERAL_ESCAPE,
    PYTHON_LITERAL_DIGITS, /* of an escape */
    PYTHON_LITERAL_AFTER_STRING,
};

struct python_literal {
    enum python_literal_state state;
    struct byte_buffer out; /* JSON that the caller has not taken; owned */
    int depth;
    bool is_dict[PYTHON_LITERAL_MAX_DEPTH];
    bool has_item[PYTHON_LITERAL_MAX_DEPTH];
    bool is_key;
    char word[PYTHON_LITERAL_MAX_WORD_BYTES];
    size_t word_length;
    char quote;
    bool is_triple, is_raw;
    int num_quotes; /* quotes read of the three that end the string */
    int num_digits; /* digits that may still follow */
    bool is_octal;
    uint32_t code;
};

/* Begins a literal, in a struct that is zeroed or was used before. White space may come first. */
void python_literal_begin(struct python_literal *literal);
/* Appends to out. Must not be called after DONE, DONE_BEFORE or BAD. */
enum python_literal_step python_literal_push(struct python_literal *literal, char byte);
void python_literal_finish(struct python_literal *literal);

#endif
