/* The input of a custom tool, in the arguments of the function that stands for it
 * (server/api/conversation/tools.h): {"input": "..."}, as it comes. Arguments that begin in another
 * way are the input themselves, as they are written: what a model says is not lost. */
#ifndef QUIRE_SERVER_OUTPUT_CUSTOM_INPUT_H
#define QUIRE_SERVER_OUTPUT_CUSTOM_INPUT_H

#include "config/base/byte_buffer.h"
#include "config/json/json_unescape.h"

#define CUSTOM_INPUT_MAX_HEAD                                                                      \
    32 /* bytes up to the string; with more white space it is other JSON */

enum custom_input_state {
    CUSTOM_INPUT_HEAD,   /* before the string */
    CUSTOM_INPUT_STRING, /* in it */
    CUSTOM_INPUT_TAIL,   /* behind it: nothing follows that counts */
    CUSTOM_INPUT_OTHER,  /* other arguments, passed on */
};

/* A zeroed struct is at the start of a call's arguments. */
struct custom_input {
    enum custom_input_state state;
    char head[CUSTOM_INPUT_MAX_HEAD]; /* what has come */
    int head_length, num_matched; /* num_matched: of the head's characters without white space */
    struct json_unescape unescape;
};

/* Appends what more of the arguments adds to the input. */
void custom_input_push(struct custom_input *input, const char *text, size_t length,
                       struct byte_buffer *out);

#endif
