/* POST /slots/{id}?action=save, restore or erase, in llama.cpp's format: a slot's conversation is
 * saved by name, loaded from there, or dropped; with a filename, erase drops what was saved. To
 * save or restore is a request of no tokens, which computes what is not there any more. */
#include "server/api/call/endpoints.h"

#include "config/base/clock.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"
#include "engine/kv/kv_store.h"
#include "server/api/call/api_call_type.h"
#include "server/api/call/conversation_slots.h"

#include <stdlib.h>
#include <string.h>

enum slot_action { SLOT_SAVE, SLOT_RESTORE, SLOT_ERASE };

struct slots_body {
    const char *filename, *model;
    int32_t slot;
    enum slot_action action;
    struct byte_buffer ignored;
};

struct slots_api_call {
    struct api_call base; /* first: see api_call_type.h */
    enum slot_action action;
    int32_t slot;
    int32_t block_size;
    size_t block_bytes;
    int64_t begin_ns;
    char filename[KV_SAVED_MAX_NAME_BYTES + 1];
};

static const struct json_field fields[] = {
    JSON_TEXT(struct slots_body, filename),
    JSON_TEXT(struct slots_body, model),
};

/* --- From a body to a request --- */

static int read_action(const struct api_context *context, struct slots_body *body,
                       struct api_error *err) {
    static const char *const actions[] = {"save", "restore", "erase"};
    const char *given = context->action;
    for (int i = 0; given != NULL && i < 3; i++)
        if (strcmp(given, actions[i]) == 0) {
            body->action = (enum slot_action)i;
            return 0;
        }
    return bad_request(err, "unsupported_value", "action",
                       "action must be save, restore or erase, not %.40s",
                       given != NULL ? given : "absent");
}

static int read_slot(const struct api_context *context, struct slots_body *body,
                     struct api_error *err) {
    char *end;
    long slot = strtol(context->path_argument, &end, 10);
    int32_t num_slots = conversation_slots_count(context->slots);
    bool is_number = context->path_argument[0] >= '0' && context->path_argument[0] <= '9';
    if (!is_number || *end != '\0' || slot >= num_slots)
        return bad_request(err, "out_of_range", "id_slot",
                           "the slot is \"%.20s\": 0 to %d are allowed (--max-num-seqs)",
                           context->path_argument, (int)num_slots - 1);
    body->slot = (int32_t)slot;
    return 0;
}

static int check_filename(const struct slots_body *body, struct api_error *err) {
    if (body->filename == NULL && body->action == SLOT_ERASE)
        return 0;
    if (body->filename == NULL)
        return bad_request(err, "missing_required_parameter", "filename", "filename is missing");
    if (kv_saved_is_name(body->filename))
        return 0;
    return bad_request(err, "out_of_range", "filename",
                       "filename is \"%.40s\": 1 to %d characters of A-Z a-z 0-9 . _ - are "
                       "allowed, the first of them a letter or digit",
                       body->filename, KV_SAVED_MAX_NAME_BYTES);
}

static int read_body(const struct api_context *context, const cJSON *json, struct slots_body *body,
                     struct api_error *err) {
    const struct json_table table = JSON_TABLE(fields);
    if (context->slots == NULL)
        return api_error_set(err, 501, "invalid_request_error", "not_supported", NULL,
                             "slots are neither saved nor restored here: start the server with "
                             "--kv-store");
    if (!cJSON_IsObject(json))
        return json_refuse(json, "body", "an object", err);
    if (read_action(context, body, err) != 0 || read_slot(context, body, err) != 0 ||
        json_fields_read(json, table, body, err) != 0 || check_filename(body, err) != 0)
        return -1;
    json_fields_list_unknown(json, &table, 1, NULL, "", &body->ignored);
    return 0;
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct slots_api_call *call = (struct slots_api_call *)base;
    struct slots_body *body = parsed;
    api_call_set_ignored_params(base, &body->ignored);
    call->action = body->action;
    call->slot = body->slot;
    call->block_size = context->limits->block_size;
    call->block_bytes = conversation_slots_block_bytes(context->slots) *
                        (size_t)serving_limits_groups(context->limits);
    call->begin_ns = clock_now_ns();
    memcpy(call->filename, body->filename, strlen(body->filename) + 1);
    if (api_call_set_size(base, 1, 1, err) != 0)
        return -1;
    return (body->action == SLOT_SAVE ? conversation_slots_save : conversation_slots_restore)(
        context->slots, context, body->slot, body->filename, &base->prompts[0].request, err);
}

static void finish(struct api_call *base) {
}

static size_t held_bytes(const struct api_call *base) {
    return 0;
}

/* --- The answer --- */

static int add(struct api_call *base, int32_t index, const struct token_event *event) {
    return 0;
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    const struct slots_api_call *call = (const struct slots_api_call *)base;
    bool saves = call->action == SLOT_SAVE;
    int32_t num_tokens = base->prompts[0].request->num_prompt_tokens;
    int32_t num_blocks =
        (saves ? num_tokens : base->prompts[0].num_cached_tokens) / call->block_size;
    json_write_begin_object(out);
    json_write_int_member(out, "id_slot", call->slot);
    json_write_text_member(out, "filename", call->filename);
    json_write_int_member(out, saves ? "n_saved" : "n_restored", num_tokens);
    json_write_int_member(out, saves ? "n_written" : "n_read",
                          (int64_t)num_blocks * (int64_t)call->block_bytes);
    json_write_key(out, "timings");
    json_write_begin_object(out);
    json_write_key(out, saves ? "save_ms" : "restore_ms");
    json_write_float(out, (float)(clock_now_ns() - call->begin_ns) / CLOCK_NS_PER_MS);
    json_write_end_object(out);
    json_write_end_object(out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct slots_api_call),
    .id_prefix = "slot-",
    .fill = fill,
    .add = add,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

/* Reads the body's tree, which the caller frees. */
static cJSON *parse(const struct api_context *context, const char *text, size_t length,
                    struct slots_body *body, struct api_error *err) {
    bool is_empty = length == 0;
    cJSON *json = json_parse(is_empty ? "{}" : text, is_empty ? 2 : length, err);
    *body = (struct slots_body){0};
    if (json == NULL || read_body(context, json, body, err) == 0)
        return json;
    cJSON_Delete(json);
    return NULL;
}

int slots_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                         struct api_call **out, struct api_error *err) {
    struct slots_body body;
    cJSON *json = parse(context, text, length, &body, err);
    if (json == NULL)
        return -1;
    int status = api_call_create(&operations, context, &body, out, err);
    byte_buffer_finish(&body.ignored);
    cJSON_Delete(json);
    return status;
}

static int erase(const struct api_context *context, const struct slots_body *body,
                 struct byte_buffer *out, struct api_error *err) {
    if (body->filename != NULL &&
        conversation_slots_erase(context->slots, body->filename, err) != 0)
        return -1;
    json_write_begin_object(out);
    json_write_int_member(out, "id_slot", body->slot);
    if (body->filename != NULL)
        json_write_text_member(out, "filename", body->filename);
    else
        json_write_int_member(out, "n_erased",
                              conversation_slots_clear(context->slots, body->slot));
    json_write_end_object(out);
    return 0;
}

int slots_endpoint_erase(const struct api_context *context, const char *text, size_t length,
                         struct byte_buffer *out, struct byte_buffer *ignored,
                         struct api_error *err) {
    struct slots_body body;
    if (context->action == NULL || strcmp(context->action, "erase") != 0)
        return API_TRANSFORM_PARSES;
    cJSON *json = parse(context, text, length, &body, err);
    if (json == NULL)
        return -1;
    int status = erase(context, &body, out, err);
    *ignored = body.ignored;
    cJSON_Delete(json);
    return status;
}
