/* What a response is made from, as it is kept (response_store.h): the items of the response that it
 * continues, then those of its own input. */
#ifndef QUIRE_SERVER_API_RESPONSES_RESPONSES_CONVERSATION_H
#define QUIRE_SERVER_API_RESPONSES_RESPONSES_CONVERSATION_H

#include "server/api/call/api_context.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

struct stored_items;

struct responses_conversation {
    bool is_kept, is_background; /* `store` and `background`; false without a store */
    struct response_store *store;
    struct stored_items
        *items;      /* of the response that it continues, held in the store; NULL: none */
    cJSON *previous; /* the same as an array */
};

/* Reads store, background and previous_response_id of a body, and replaces the references in its
 * input (item_reference) by the items. On failure returns -1 and sets *err, with nothing to free: a
 * 400, or a 404 for an item that is not kept any more. */
int responses_conversation_read(const struct api_context *context, cJSON *body,
                                struct responses_conversation *out, struct api_error *err);
void responses_conversation_finish(struct responses_conversation *conversation);

/* Appends the items of a body's input, which has been read by responses_input_read. Each gets an
 * id, its own or a new one, and the content of a message becomes parts. If random bytes or memory
 * are not available, items->failed is set. */
void responses_conversation_add_input(const cJSON *input, struct byte_buffer *items);

#endif
