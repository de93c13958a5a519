#include "server/api/admin/admin_endpoint.h"

#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

struct level_body {
    const char *level;
};

static const struct json_field level_fields[] = {
    JSON_TEXT(struct level_body, level),
};

void admin_endpoint_write_status(const struct admin_status *status, struct byte_buffer *out) {
    const struct engine_stats *stats = status->stats;
    json_write_begin_object(out);
    json_write_text_member(out, "state", status->state);
    json_write_text_member(out, "version", QUIRE_VERSION);
    json_write_int_member(out, "uptime_seconds", status->uptime_s);
    json_write_text_member(out, "log_level", log_level_name(status->log_level));
    json_write_int_member(out, "connections", status->num_connections);
    json_write_int_member(out, "requests_in_flight", status->num_in_flight);
    json_write_int_member(out, "sequences_running", stats->num_running);
    json_write_int_member(out, "sequences_waiting", stats->num_waiting);
    json_write_int_member(out, "blocks", stats->num_blocks);
    json_write_int_member(out, "blocks_used", stats->num_used_blocks);
    json_write_int_member(out, "blocks_cached", stats->num_cached_blocks);
    json_write_end_object(out);
}

static int read_level(const cJSON *json, enum log_level *out, struct api_error *err) {
    static const char allowed[] = "one of error, warning, info, debug";
    const struct json_table table = JSON_TABLE(level_fields);
    struct level_body body = {0};
    if (!cJSON_IsObject(json))
        return json_refuse(json, "body", "an object", err);
    if (json_fields_read(json, table, &body, err) != 0)
        return -1;
    cJSON *member;
    cJSON_ArrayForEach(member, json) {
        if (!json_fields_know(&table, 1, member->string))
            return json_refuse(member, member->string, "absent", err);
    }
    if (body.level == NULL || !log_level_parse(body.level, out))
        return json_refuse(json_given_member(json, "level"), "level", allowed, err);
    return 0;
}

int admin_endpoint_read_level(const char *body, size_t length, enum log_level *out,
                              struct api_error *err) {
    cJSON *json = json_parse(body, length, err);
    if (json == NULL)
        return -1;
    int status = read_level(json, out, err);
    cJSON_Delete(json);
    return status;
}
