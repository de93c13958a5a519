/* The form that a body requests for its output: OpenAI's response_format (text, json_object,
 * json_schema), vLLM's structured_outputs (json, regex, choice) and its older guided_json,
 * guided_regex and guided_choice, SGLang's regex and json_schema (llama.cpp's too). */
#ifndef QUIRE_SERVER_API_CONSTRAINT_RESPONSE_FORMAT_H
#define QUIRE_SERVER_API_CONSTRAINT_RESPONSE_FORMAT_H

#include "engine/grammar/grammar.h"
#include "server/api/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

#define RESPONSE_FORMAT_MAX_CHOICES 5000

/* Adds what may stand around the form in the output: *out is that with the form in it. -1 and *err
 * as below. */
struct response_frame {
    int (*put)(const void *context, struct grammar_builder *builder, grammar_node form,
               grammar_node *out, struct api_error *err);
    const void *context;
};

/* Builds the grammar. frame NULL: the output is nothing but the form. The caller unrefs *out; NULL:
 * any text. -1 and *err: 400 (param the path) for a wrong form, one that is not supported, and more
 * than one; 503 when memory is short. */
int response_format_read(const cJSON *body, const struct response_frame *frame,
                         struct grammar **out, struct api_error *err);

/* Appends the names of members that no form has, as json_fields_list_unknown does
 * ("structured_outputs.foo"). */
void response_format_list_unknown(const cJSON *body, struct byte_buffer *names);

/* Checks one format: {"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "schema":
 * ..., "strict": ...}, with these two inside of "json_schema" where `nested` (chat and completions;
 * not in responses). `path` names it in messages. */
int response_format_read_one(const cJSON *format, bool nested, const char *path,
                             const struct response_frame *frame, struct grammar **out,
                             struct api_error *err);

#endif
