/* Builds forced arguments for the formats that write them one by one
 * (server/output/tool_members.h). */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_ARGUMENTS_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_ARGUMENTS_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* How a format writes an argument. */
struct argument_form {
    const char *key_begin, *key_end; /* around the name, before the value */
    const char *feed;                /* before value_end, if the value is not text */
    const char *value_end;           /* a marker of free_text.h, which cannot occur in a string */
    const char *behind;              /* text after the argument */
    const char *separator;           /* between two arguments */
    bool is_python;                  /* values are literals of Python: strings have quotes */
    const char *not_in_keys;         /* bytes that the name of an argument cannot have */
};

/* Makes the arguments of a function, whose parameters are a JSON schema of an object: the
 * properties in their order, and those not required are optional. On failure returns -1 and fills
 * *err: a 400 if the schema has something that this form cannot force, or 503. */
int tool_grammar_arguments(const struct argument_form *form, struct grammar_builder *builder,
                           const cJSON *schema, const char *path, bool is_strict, grammar_node *out,
                           struct api_error *err);

#endif
