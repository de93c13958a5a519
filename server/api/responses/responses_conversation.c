#include "server/api/responses/responses_conversation.h"

#include "config/base/random_id.h"
#include "server/api/responses/response_store.h"
#include "server/api/responses/responses_body.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <string.h>

#define MAX_REFERRED_RESPONSES 8 /* that contain the items to which one input refers */

/* --- What the body continues --- */

static int read_bool(const cJSON *body, const char *name, bool *out, struct api_error *err) {
    const cJSON *item = json_given_member(body, name);
    if (item != NULL && !cJSON_IsBool(item))
        return json_refuse(item, name, "true or false", err);
    if (item != NULL)
        *out = cJSON_IsTrue(item);
    return 0;
}

static int refuse(struct api_error *err, const char *param, const char *message) {
    return bad_request(err, "unsupported_value", param, "%s", message);
}

static int check_background(const struct api_context *context, bool is_kept,
                            struct api_error *err) {
    if (context->responses == NULL)
        return refuse(err, "background",
                      "background must be false: nothing is stored to be fetched (the server's "
                      "option response-store-bytes)");
    if (!is_kept)
        return refuse(err, "background",
                      "background must be false with store: false, as there would be nothing to be "
                      "fetched");
    return 0;
}

/* Makes an array of the lines. */
static cJSON *parse_items(const struct byte_buffer *lines, struct api_error *err) {
    struct byte_buffer text = {0};
    byte_buffer_append_text(&text, "{\"items\":[");
    byte_buffer_append(&text, lines->data, lines->length);
    for (size_t i = 0; i < text.length; i++)
        if (text.data[i] == '\n')
            text.data[i] = ',';
    if (text.length > 0)
        text.data[text.length - 1] = ' '; /* the end of the last line */
    byte_buffer_append_text(&text, "]}");
    cJSON *tree = NULL, *items = NULL;
    if (text.failed)
        api_error_set_memory(err);
    else
        tree = json_parse(text.data, text.length, err);
    if (tree != NULL)
        items = cJSON_DetachItemFromObjectCaseSensitive(tree, "items");
    cJSON_Delete(tree);
    byte_buffer_finish(&text);
    return items;
}

static int read_previous(const struct api_context *context, const cJSON *body,
                         struct responses_conversation *out, struct api_error *err) {
    const char *name = "previous_response_id";
    const cJSON *item = json_given_member(body, name);
    if (item == NULL)
        return 0;
    if (context->responses == NULL)
        return refuse(err, name,
                      "previous_response_id is not supported: this server stores nothing between "
                      "requests (its option response-store-bytes); send the whole input");
    if (!cJSON_IsString(item))
        return json_refuse(item, name, "the id of a response", err);
    const struct text id = {item->valuestring, strlen(item->valuestring)};
    struct byte_buffer lines = {0};
    out->store = context->responses;
    out->items = response_store_hold_items(out->store, context->tenant, id, &lines);
    if (out->items == NULL)
        return bad_request(err, "previous_response_not_found", name,
                           "Previous response with id '%.100s' not found.", id.data);
    if (lines.failed)
        api_error_set_memory(err);
    else
        out->previous = parse_items(&lines, err);
    byte_buffer_finish(&lines);
    return out->previous != NULL ? 0 : -1;
}

/* --- Items to which the input refers --- */

static bool is_reference(const cJSON *item) {
    const cJSON *type = json_member(item, "type");
    return cJSON_IsString(type) && strcmp(type->valuestring, "item_reference") == 0;
}

static bool has_id(const cJSON *item, const char *id) {
    const cJSON *given = json_member(item, "id");
    return cJSON_IsString(given) && strcmp(given->valuestring, id) == 0;
}

/* Returns the last reference of the input and its index; NULL: there is none. */
static cJSON *last_reference(const cJSON *input, int *index) {
    cJSON *item, *found = NULL;
    int place = 0;
    cJSON_ArrayForEach(item, input) {
        if (is_reference(item)) {
            found = item;
            *index = place;
        }
        place++;
    }
    return found;
}

/* Moves those items to which the input refers into the input. */
static void take_items(cJSON *input, cJSON *items) {
    for (cJSON *item = input->child, *next; item != NULL; item = next) {
        const cJSON *id = json_member(item, "id");
        next = item->next;
        if (!is_reference(item) || !cJSON_IsString(id))
            continue;
        cJSON *kept = items->child;
        while (kept != NULL && !has_id(kept, id->valuestring))
            kept = kept->next;
        if (kept != NULL)
            cJSON_ReplaceItemViaPointer(input, item, cJSON_DetachItemViaPointer(items, kept));
    }
}

static int refuse_reference(const cJSON *reference, int index, bool has_store,
                            struct api_error *err) {
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    char path[48];
    const cJSON *id = json_member(reference, "id");
    snprintf(path, sizeof(path), "input[%d].type", index);
    if (!has_store)
        return bad_request(err, "unsupported_value", path,
                           "%s is \"item_reference\": this server stores nothing between "
                           "requests (its option response-store-bytes); send the item itself",
                           path);
    snprintf(path, sizeof(path), "input[%d].id", index);
    if (!cJSON_IsString(id) || id->valuestring[0] == '\0' ||
        id->valuestring[strspn(id->valuestring, allowed)] != '\0')
        return json_refuse(id, path, "the id of an item", err);
    return 0;
}

/* An item to which a conversation refers is usually in its last response, with everything before
 * it. */
static int resolve_references(const struct api_context *context, cJSON *input,
                              struct api_error *err) {
    int index = 0, num_rounds = 0;
    cJSON *reference;
    if (responses_input_check_size(input, err) != 0)
        return -1;
    while ((reference = last_reference(input, &index)) != NULL) {
        struct byte_buffer lines = {0};
        if (refuse_reference(reference, index, context->responses != NULL, err) != 0)
            return -1;
        const char *id = json_member(reference, "id")->valuestring;
        const struct text text = {id, strlen(id)};
        if (num_rounds++ == MAX_REFERRED_RESPONSES)
            return bad_request(err, "out_of_range", "input",
                               "input refers to items of more than %d responses, the most "
                               "allowed: send some of them whole",
                               MAX_REFERRED_RESPONSES);
        if (!response_store_find_item(context->responses, context->tenant, text, &lines)) {
            byte_buffer_finish(&lines);
            return api_error_set(err, 404, "invalid_request_error", "item_not_found", "input",
                                 "Item with id '%.100s' not found.", id);
        }
        cJSON *items = parse_items(&lines, err);
        byte_buffer_finish(&lines);
        if (items == NULL)
            return -1;
        take_items(input, items);
        cJSON_Delete(items);
    }
    return 0;
}

int responses_conversation_read(const struct api_context *context, cJSON *body,
                                struct responses_conversation *out, struct api_error *err) {
    struct responses_conversation conversation = {.is_kept = true};
    if (read_bool(body, "store", &conversation.is_kept, err) != 0 ||
        read_bool(body, "background", &conversation.is_background, err) != 0 ||
        (conversation.is_background && check_background(context, conversation.is_kept, err) != 0))
        return -1;
    conversation.is_kept = conversation.is_kept && context->responses != NULL;
    cJSON *input = cJSON_GetObjectItemCaseSensitive(body, "input");
    if (cJSON_IsArray(input) && resolve_references(context, input, err) != 0)
        return -1;
    if (read_previous(context, body, &conversation, err) != 0) {
        responses_conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}

void responses_conversation_finish(struct responses_conversation *conversation) {
    cJSON_Delete(conversation->previous);
    response_store_release_items(conversation->store, conversation->items);
    *conversation = (struct responses_conversation){0};
}

/* --- The input's items --- */

static const char *id_prefix(const char *type) {
    static const char *const prefixes[][2] = {
        {"message", "msg_"},
        {"function_call", "fc_"},
        {"function_call_output", "fco_"},
        {"custom_tool_call", "ctc_"},
        {"custom_tool_call_output", "ctco_"},
        {"reasoning", "rs_"},
    };
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strcmp(type, prefixes[i][0]) == 0)
            return prefixes[i][1];
    return "item_";
}

/* Begins an item with its id and type, which come first. */
static void begin_item(const cJSON *id, const char *type, struct byte_buffer *items) {
    char made[64];
    json_write_begin_object(items);
    if (cJSON_IsString(id))
        json_write_text_member(items, "id", id->valuestring);
    else if (random_id(id_prefix(type), RANDOM_ID_MAX_DIGITS, made, sizeof(made)) == 0)
        json_write_text_member(items, "id", made);
    else
        items->failed = true;
    json_write_text_member(items, "type", type);
}

static void write_content(const char *role, const cJSON *content, struct byte_buffer *items) {
    json_write_key(items, "content");
    if (!cJSON_IsString(content)) {
        json_write_tree(items, content);
        return;
    }
    bool is_output = strcmp(role, "assistant") == 0;
    json_write_begin_array(items);
    json_write_begin_object(items);
    json_write_text_member(items, "type", is_output ? "output_text" : "input_text");
    if (is_output)
        json_write_raw_member(items, "annotations", "[]");
    json_write_text_member(items, "text", content->valuestring);
    json_write_end_object(items);
    json_write_end_array(items);
}

static void end_item(struct byte_buffer *items) {
    json_write_end_object(items);
    byte_buffer_append(items, "\n", 1);
}

static void add_message(const cJSON *id, const char *role, const cJSON *content,
                        struct byte_buffer *items) {
    begin_item(id, "message", items);
    json_write_text_member(items, "role", role);
    json_write_text_member(items, "status", "completed");
    write_content(role, content, items);
    end_item(items);
}

/* Adds an item of any other type, with its members. */
static void add_item(const cJSON *item, const char *type, struct byte_buffer *items) {
    const cJSON *member;
    begin_item(json_member(item, "id"), type, items);
    if (json_given_member(item, "status") == NULL)
        json_write_text_member(items, "status", "completed");
    cJSON_ArrayForEach(member, item) {
        if (strcmp(member->string, "id") == 0 || strcmp(member->string, "type") == 0 ||
            !json_is_given(member))
            continue;
        json_write_key(items, member->string);
        json_write_tree(items, member);
    }
    end_item(items);
}

void responses_conversation_add_input(const cJSON *input, struct byte_buffer *items) {
    const cJSON *item;
    if (cJSON_IsString(input)) {
        add_message(NULL, "user", input, items);
        return;
    }
    cJSON_ArrayForEach(item, input) {
        const cJSON *type = json_given_member(item, "type");
        const cJSON *role = json_member(item, "role");
        bool is_message = type == NULL || strcmp(type->valuestring, "message") == 0;
        if (is_message && cJSON_IsString(role))
            add_message(json_member(item, "id"), role->valuestring, json_member(item, "content"),
                        items);
        else
            add_item(item, is_message ? "message" : type->valuestring, items);
    }
}
