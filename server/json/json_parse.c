#include "server/json/json_parse.h"

#include "config/base/json_scan.h"
#include "server/json/json_integer.h"

static cJSON *fail_memory(struct api_error *err) {
    api_error_set_memory(err);
    return NULL;
}

static int check_fields(const cJSON *json, struct api_error *err) {
    int num_fields = cJSON_IsObject(json) ? cJSON_GetArraySize(json) : 0;
    if (num_fields <= JSON_PARSE_MAX_FIELDS)
        return 0;
    return api_error_set(err, 400, "invalid_request_error", "too_many_fields", NULL,
                         "The body has %d fields: at most %d are allowed", num_fields,
                         JSON_PARSE_MAX_FIELDS);
}

cJSON *json_parse(const char *data, size_t length, struct api_error *err) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, JSON_PARSE_MAX_NODES};
    struct error why;
    if (json_scan(data, length, &limits, &why) != 0) {
        if (why.code == ERROR_MEMORY)
            return fail_memory(err);
        api_error_set(err, 400, "invalid_request_error", "invalid_json", NULL,
                      "The body is not valid JSON: %s", why.message);
        return NULL;
    }
    cJSON *json = cJSON_ParseWithLengthOpts(data, length, NULL, false);
    bool is_kept = json != NULL && json_integer_keep(json, data, length) == 0;
    if (is_kept && check_fields(json, err) == 0)
        return json;
    cJSON_Delete(json);
    return is_kept ? NULL : fail_memory(err);
}
