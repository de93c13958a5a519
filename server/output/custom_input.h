/* Extracts the input of a custom tool from the arguments of the function that represents it
 * (server/api/conversation/tools.h): {"input": "..."}, as it arrives. Arguments that begin
 * differently are themselves the input, unchanged, so that nothing of the model's output is
 * lost. */
#ifndef QUIRE_SERVER_OUTPUT_CUSTOM_INPUT_H
#define QUIRE_SERVER_OUTPUT_CUSTOM_INPUT_H

#include "config/base/byte_buffer.h"
#include "config/json/json_unescape.h"

#define CUSTOM_INPUT_MAX_HEAD                                                                      \
    32 /* bytes up to the string; with more white space it is other JSON */

enum custom_input_state {
    CUSTOM_INPUT_HEAD,   /* before the string */
    CUSTOM_INPUT_STRING, /* in it */
    CUSTOM_INPUT_TAIL,   /* after it: the rest is ignored */
    CUSTOM_INPUT_OTHER,  /* other arguments, passed on */
};

/* A zeroed struct is at the start of a call's arguments. */
struct custom_input {
    enum custom_input_state state;
    char head[CUSTOM_INPUT_MAX_HEAD]; /* what has come */
    int head_length, num_matched; /* num_matched: of the head's characters without white space */
    struct json_unescape unescape;
};

/* Takes more of the arguments, and appends what it adds to the input. */
void custom_input_push(struct custom_input *input, const char *text, size_t length,
                       struct byte_buffer *out);

#endif
