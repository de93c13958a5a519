/* The bodies of vLLM's /v1/load_lora_adapter and /v1/unload_lora_adapter. */
#include "server/api/call/endpoints.h"

#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"
#include "server/api/call/api_context.h"
#include "server/api/call/served_adapters.h"

#include <string.h>

struct adapter_body {
    const char *lora_name, *lora_path;
    int64_t lora_int_id; /* vLLM's own number: read and not used */
    bool load_inplace;
};

static const struct json_field fields[] = {
    JSON_TEXT(struct adapter_body, lora_name),
    JSON_TEXT(struct adapter_body, lora_path),
    JSON_INT64(struct adapter_body, lora_int_id),
    JSON_BOOL(struct adapter_body, load_inplace),
};

static int refuse_missing(const char *field, struct api_error *err) {
    return bad_request(err, "missing_required_parameter", field, "%s is missing", field);
}

static int read_body(const cJSON *json, bool has_path, struct adapter_body *out,
                     struct api_error *err) {
    const struct json_table table = JSON_TABLE(fields);
    if (!cJSON_IsObject(json))
        return json_refuse(json, "body", "an object", err);
    if (json_fields_read(json, table, out, err) != 0)
        return -1;
    cJSON *member;
    cJSON_ArrayForEach(member, json) {
        if (!json_fields_know(&table, 1, member->string))
            return json_refuse(member, member->string, "absent", err);
    }
    if (out->lora_name == NULL)
        return refuse_missing("lora_name", err);
    if (strlen(out->lora_name) == 0 || strlen(out->lora_name) > MAX_ADAPTER_NAME_BYTES)
        return bad_request(err, "out_of_range", "lora_name",
                           "lora_name has %zu bytes: a text of 1 to %d bytes is allowed",
                           strlen(out->lora_name), MAX_ADAPTER_NAME_BYTES);
    return has_path && out->lora_path == NULL ? refuse_missing("lora_path", err) : 0;
}

static int act(const struct api_context *context, const struct adapter_body *body, bool loads,
               struct api_error *err) {
    const struct adapter_actions *actions = context->adapter_actions;
    if (actions == NULL)
        return bad_request(err, "unsupported_value", NULL,
                           "this server has no room for adapters: start it with --max-loras");
    return loads ? actions->load(actions->context, body->lora_name, body->lora_path,
                                 body->load_inplace, err)
                 : actions->unload(actions->context, body->lora_name, err);
}

static int answer(const struct api_context *context, const char *body, size_t length, bool loads,
                  struct byte_buffer *out, struct api_error *err) {
    struct adapter_body read = {0};
    cJSON *json = json_parse(body, length, err);
    if (json == NULL)
        return -1;
    int status = read_body(json, loads, &read, err);
    if (status == 0)
        status = act(context, &read, loads, err);
    if (status == 0)
        byte_buffer_printf(out, "Success: LoRA adapter '%s' %s successfully.", read.lora_name,
                           loads ? "added" : "removed");
    cJSON_Delete(json);
    return status;
}

int adapter_endpoint_load(const struct api_context *context, const char *body, size_t length,
                          struct byte_buffer *out, struct byte_buffer *ignored,
                          struct api_error *err) {
    return answer(context, body, length, true, out, err);
}

int adapter_endpoint_unload(const struct api_context *context, const char *body, size_t length,
                            struct byte_buffer *out, struct byte_buffer *ignored,
                            struct api_error *err) {
    return answer(context, body, length, false, out, err);
}
