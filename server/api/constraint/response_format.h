/* Reads the form that a body requests for its output: OpenAI's response_format, which each endpoint
 * has in its own place (body_names.h) (text, json_object, json_schema; structural_tag is vLLM's and
 * SGLang's), vLLM's structured_outputs (json, regex, choice, grammar, structural_tag) and its older
 * guided_json, guided_regex, guided_choice and guided_grammar, SGLang's regex, json_schema and
 * ebnf, llama.cpp's json_schema and grammar; with the white space of json_schema.h. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_RESPONSE_FORMAT_H
#define QUIRE_SERVER_API_CONSTRAINT_RESPONSE_FORMAT_H

#include "engine/grammar/machine/grammar_cache.h"
#include "server/api/call/body_names.h"
#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Adds what may surround the form in the output: `put` makes *out from that and the form. It
 * returns -1 and fills *err as below. */
struct response_frame {
    int (*put)(const void *context, struct grammar_builder *builder, grammar_node form,
               grammar_node *out, struct api_error *err);
    /* Appends everything that `put` depends on. */
    void (*append_key)(const void *context, struct byte_buffer *key);
    const void *context;
};

/* Builds the grammar, or takes it from the cache (NULL: there is none) if everything it depends on
 * is the same. frame NULL: the output is only the form. `ignored` receives the names of schema
 * keywords that are left out of the grammar, which is then not put into the cache; NULL: they are
 * refused. The caller unrefs *out; NULL: any text. On failure returns -1 and fills *err: 400 (param
 * is the path) for a wrong form, one that is not supported, or more than one; 503 when memory is
 * short. */
int response_format_read(const cJSON *body, const struct body_names *names,
                         const struct response_frame *frame, struct grammar_cache *cache,
                         struct byte_buffer *ignored, struct grammar **out, struct api_error *err);

/* Appends a value to the key of a grammar in the cache. */
void response_format_append_key(const cJSON *value, const char *name, struct byte_buffer *key);

/* Appends the names of members that no form has, like json_fields_list_unknown
 * ("structured_outputs.foo"). */
void response_format_list_unknown(const cJSON *body, const struct body_names *names,
                                  struct byte_buffer *out);

#endif
