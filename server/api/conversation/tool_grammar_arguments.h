/* Forced arguments of the formats that write them one by one (server/output/tool_members.h). */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_ARGUMENTS_H
#define QUIRE_SERVER_API_CONVERSATION_TOOL_GRAMMAR_ARGUMENTS_H

#include "engine/grammar/machine/grammar.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* How a format writes an argument. */
struct argument_form {
    const char *key_begin, *key_end; /* around the name, in front of the value */
    const char *feed;        /* in front of value_end, where the value is none of the text's */
    const char *value_end;   /* a marker of free_text.h, and no text of a string */
    const char *behind;      /* the argument */
    const char *separator;   /* between two arguments */
    bool is_python;          /* values are literals of Python: strings have quotes */
    const char *not_in_keys; /* bytes that the name of an argument cannot have */
};

/* Makes the arguments of a function, whose parameters are a JSON schema of an object: the
 * properties in their order, those that are not required optional. -1 and *err: a 400 for what the
 * schema has that this form cannot force, or 503. */
int tool_grammar_arguments(const struct argument_form *form, struct grammar_builder *builder,
                           const cJSON *schema, const char *path, bool is_strict, grammar_node *out,
                           struct api_error *err);

#endif
