/* What a response is made from: the items of the one it continues, then those of its own input, as
 * they are kept (response_store.h). */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_CONVERSATION_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_CONVERSATION_H

#include "server/api/call/api_context.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

struct stored_items;

struct responses_conversation {
    bool is_kept, is_background; /* `store` and `background`, with a store; else false */
    struct response_store *store;
    struct stored_items
        *items;      /* of what it continues, held in the store; NULL: it continues nothing */
    cJSON *previous; /* the same as an array */
};

/* Reads store, background and previous_response_id of a body, and puts the items that its input
 * refers to (item_reference) in their places. On failure -1 and *err, nothing to free: a 400, or a
 * 404 for an item that is not kept any more. */
int responses_conversation_read(const struct api_context *context, cJSON *body,
                                struct responses_conversation *out, struct api_error *err);
void responses_conversation_finish(struct responses_conversation *conversation);

/* Appends the items of a body's input, which has been read as a chat's (responses_input_read): each
 * with an id, its own or a new one, and a message's content as parts. Without random bytes or
 * memory items->failed is set. */
void responses_conversation_add_input(const cJSON *input, struct byte_buffer *items);

#endif
