#include "server/api/call/kv_transfer.h"

#include "config/json/json_write.h"

#include <stdio.h>
#include <string.h>

#define NAME "kv_transfer_params"
#define MAX_TEXT_BYTES 256
#define MAX_PORT 65535

/* remote_block_ids is a list, or a list for each group of layers; here it says nothing. */
struct members {
    bool do_remote_decode, do_remote_prefill;
    const char *remote_engine_id, *remote_request_id, *remote_host;
    int64_t remote_port, remote_num_tokens, tp_size;
};

#define MEMBER struct members

static const struct json_field fields[] = {
    JSON_BOOL(MEMBER, do_remote_decode),
    JSON_BOOL(MEMBER, do_remote_prefill),
    JSON_TEXT(MEMBER, remote_engine_id),
    JSON_TEXT(MEMBER, remote_request_id),
    JSON_TEXT(MEMBER, remote_host),
    JSON_INT(MEMBER, remote_port, 0, MAX_PORT),
    JSON_INT(MEMBER, remote_num_tokens, 0, INT32_MAX),
    JSON_INT(MEMBER, tp_size, 1, INT32_MAX),
    JSON_OTHER(remote_block_ids),
};

static int refuse(struct api_error *err, const char *member, const char *message) {
    return bad_request(err, "unsupported_value", member, "%s %s", member, message);
}

static int check_texts(const struct members *members, struct api_error *err) {
    const struct {
        const char *name, *text;
    } texts[] = {{NAME ".remote_engine_id", members->remote_engine_id},
                 {NAME ".remote_request_id", members->remote_request_id},
                 {NAME ".remote_host", members->remote_host}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (texts[i].text != NULL && strlen(texts[i].text) > MAX_TEXT_BYTES)
            return bad_request(err, "out_of_range", texts[i].name,
                               "%s has %zu bytes: at most %d are allowed", texts[i].name,
                               strlen(texts[i].text), MAX_TEXT_BYTES);
    return 0;
}

static int read_members(const cJSON *json, struct members *out, struct api_error *err) {
    const cJSON *ids = json_given_member(json, "remote_block_ids");
    if (json_fields_read(json, JSON_TABLE(fields), out, err) != 0) {
        char name[sizeof(err->param)];
        snprintf(name, sizeof(name), "%s", err->param);
        snprintf(err->param, sizeof(err->param), NAME ".%.32s", name);
        return -1;
    }
    if (ids != NULL && !cJSON_IsArray(ids))
        return json_refuse(ids, NAME ".remote_block_ids", "a list or null", err);
    if (out->do_remote_decode && out->do_remote_prefill)
        return refuse(err, NAME ".do_remote_prefill",
                      "must not be true with do_remote_decode: true");
    return check_texts(out, err);
}

static int check_role(enum kv_role role, const struct members *members, struct api_error *err) {
    if (members->do_remote_decode && (role & KV_ROLE_PREFILL) == 0)
        return refuse(err, NAME ".do_remote_decode",
                      "must not be true: this server decodes (--kv-role)");
    if (members->do_remote_prefill && (role & KV_ROLE_DECODE) == 0)
        return refuse(err, NAME ".do_remote_prefill",
                      "must not be true: this server prefills (--kv-role)");
    return 0;
}

/* What another store has is not in this one. */
static int32_t num_handed_over(const struct api_context *context, const struct members *members) {
    const char *store = members->remote_engine_id;
    if (!members->do_remote_prefill ||
        (store != NULL && strcmp(store, context->kv_store_name) != 0))
        return 0;
    return (int32_t)members->remote_num_tokens;
}

static bool is_empty(const cJSON *item) {
    return item == NULL || (cJSON_IsString(item) && item->valuestring[0] == '\0') ||
           ((cJSON_IsArray(item) || cJSON_IsObject(item)) && item->child == NULL);
}

int kv_transfer_refuse(const cJSON *json, struct api_error *err) {
    if (is_empty(json_given_member(json, NAME)))
        return 0;
    return bad_request(err, "unsupported_parameter", NAME,
                       NAME " is not supported: leave it out or leave it empty");
}

int kv_transfer_read(const struct api_context *context, const cJSON *json, struct kv_transfer *out,
                     struct api_error *err) {
    const cJSON *params = json_given_member(json, NAME);
    struct members members = {.remote_num_tokens = INT32_MAX};
    *out = (struct kv_transfer){0};
    if (context->kv_role == KV_ROLE_NONE)
        return kv_transfer_refuse(json, err);
    if (is_empty(params))
        return 0;
    if (!cJSON_IsObject(params))
        return json_refuse(params, NAME, "an object", err);
    if (read_members(params, &members, err) != 0 ||
        check_role(context->kv_role, &members, err) != 0)
        return -1;
    *out = (struct kv_transfer){.is_given = true,
                                .hands_over = members.do_remote_decode,
                                .num_handed_over = num_handed_over(context, &members)};
    return 0;
}

void kv_transfer_list_unknown(const cJSON *json, struct byte_buffer *out) {
    const struct json_table tables[] = {JSON_TABLE(fields)};
    json_fields_list_unknown(json_given_member(json, NAME), tables, 1, NULL, NAME ".", out);
}

void kv_transfer_set(const struct kv_transfer *transfer, struct request *request) {
    request->hands_over = transfer->hands_over;
    request->num_handed_over = transfer->num_handed_over;
}

void kv_transfer_format(const char *store_name, int32_t num_stored_tokens,
                        struct byte_buffer *out) {
    json_write_key(out, NAME);
    json_write_begin_object(out);
    json_write_raw_member(out, "do_remote_prefill", "true");
    json_write_raw_member(out, "do_remote_decode", "false");
    json_write_text_member(out, "remote_engine_id", store_name);
    json_write_raw_member(out, "remote_block_ids", "null");
    json_write_raw_member(out, "remote_host", "null");
    json_write_raw_member(out, "remote_port", "null");
    json_write_int_member(out, "remote_num_tokens", num_stored_tokens);
    json_write_end_object(out);
}
