/* Converts JSON to the values that a chat template computes with. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_VALUE_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_VALUE_H

#include "models/chat_template/template_value.h"

#include "models/tokenizer/tokenizer.h"

#include <cjson/cJSON.h>

/* Converts a client's JSON: all its strings and keys count as the client's. Numbers are read like
 * in Python: 1 is an integer, 1.0 and 1e5 are floats. Returns NULL when the arena is full or memory
 * is short. */
struct template_value *chat_value_of(struct template_arena *arena, const cJSON *json);
/* Makes a client's text. Returns NULL as above, and if text is NULL. */
struct template_value *chat_value_text(struct template_arena *arena, const char *text);
/* Sets a key, which counts as the server's. *map becomes NULL as above, and then stays NULL. */
void chat_value_set(struct template_arena *arena, struct template_value **map, const char *key,
                    struct template_value *value);
/* Sets the tokens that a template may name: bos_token, eos_token, and those of
 * tokenizer_named_tokens. */
void chat_value_set_tokens(struct template_arena *arena, struct template_value **map,
                           const struct tokenizer *tokenizer);

#endif
