/* Decodes a JSON string that arrives byte by byte: escapes are decoded, a surrogate pair is joined,
 * half a pair is replaced by U+FFFD. A zeroed struct is at the start of a string. */
#ifndef QUIRE_CONFIG_JSON_JSON_UNESCAPE_H
#define QUIRE_CONFIG_JSON_JSON_UNESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_UNESCAPE_MAX_BYTES 8 /* that one byte can release */

struct json_unescape {
    bool in_escape; /* after a backslash */
    int num_hex;    /* digits of \uXXXX still to come */
    uint32_t code;  /* of the digits so far */
    uint32_t high;  /* the first half of a pair, whose second may follow; 0: none */
};

/* Return the value of a hexadecimal digit, and of the letter after a backslash, except for 'u'; -1
 * if it is not one. */
int json_unescape_digit(int byte);
int json_unescape_letter(int byte);

/* Adds a byte from between the quotes, which has been checked to be JSON. Writes what is decided
 * now and returns its length. */
size_t json_unescape_push(struct json_unescape *string, char byte,
                          char out[static JSON_UNESCAPE_MAX_BYTES]);
/* Ends the string. Writes what was still held, and returns its length. */
size_t json_unescape_end(struct json_unescape *string, char out[static JSON_UNESCAPE_MAX_BYTES]);

#endif
