/* The white space between the tokens of a JSON text, as vLLM's clients request it:
 * structured_outputs.whitespace_pattern, or its older guided_whitespace_pattern, a regular
 * expression that what stands between two tokens matches;
 * structured_outputs.disable_any_whitespace, that there is none. Without them one space may follow
 * a comma or colon. */
#ifndef QUIRE_SERVER_API_CONSTRAINT_JSON_WHITESPACE_H
#define QUIRE_SERVER_API_CONSTRAINT_JSON_WHITESPACE_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

#define JSON_WHITESPACE_MAX_PATTERN 256 /* bytes */

/* Reads the fields of a body. *out lives as long as the body; NULL: none of them is given; "": no
 * white space. -1 and *err: 400 naming the field, for a pattern that also matches what JSON has no
 * room for between its tokens, one that is too long, and for two of the fields; 503 when memory is
 * short. */
int json_whitespace_read(const cJSON *body, const char **out, struct api_error *err);

#endif
