#include "server/api/messages/messages_error.h"

#include "config/json/json_write.h"

const char *messages_error_type(int status) {
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 408:
        return "timeout_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status >= 500 ? "api_error" : "invalid_request_error";
    }
}

void messages_error_format(const struct api_error *err, const char *request_id,
                           struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "type", "error");
    json_write_key(out, "error");
    json_write_begin_object(out);
    json_write_text_member(out, "type", messages_error_type(err->status));
    json_write_text_member(out, "message", err->message);
    if (err->code != NULL) {
        json_write_key(out, "details");
        json_write_begin_object(out);
        json_write_text_member(out, "error_code", err->code);
        json_write_end_object(out);
    }
    json_write_end_object(out);
    if (request_id != NULL)
        json_write_text_member(out, "request_id", request_id);
    json_write_end_object(out);
}
