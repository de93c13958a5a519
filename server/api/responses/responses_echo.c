#include "server/api/responses/responses_echo.h"

#include "server/json/json_field.h"
#include "server/json/json_write.h"

static void echo_value(const cJSON *item, const char *otherwise, struct byte_buffer *out) {
    if (json_is_given(item))
        json_write_tree(out, item);
    else
        byte_buffer_append_text(out, otherwise);
}

static void echo(const cJSON *item, const char *name, const char *otherwise,
                 struct byte_buffer *out) {
    byte_buffer_printf(out, ",\"%s\":", name);
    echo_value(item, otherwise, out);
}

static void echo_text(const cJSON *text, struct byte_buffer *out) {
    const cJSON *verbosity = json_member(text, "verbosity");
    byte_buffer_append_text(out, ",\"text\":{\"format\":");
    echo_value(json_member(text, "format"), "{\"type\":\"text\"}", out);
    if (json_is_given(verbosity))
        echo(verbosity, "verbosity", "null", out);
    byte_buffer_append(out, "}", 1);
}

void responses_echo_write(const cJSON *body, double temperature, double top_p,
                          struct byte_buffer *out) {
    echo(json_member(body, "instructions"), "instructions", "null", out);
    echo(json_member(body, "max_output_tokens"), "max_output_tokens", "null", out);
    echo(json_member(body, "metadata"), "metadata", "{}", out);
    echo(json_member(body, "parallel_tool_calls"), "parallel_tool_calls", "true", out);
    echo(json_member(body, "tool_choice"), "tool_choice", "\"auto\"", out);
    echo(json_member(body, "tools"), "tools", "[]", out);
    echo_text(json_member(body, "text"), out);
    echo(json_member(body, "reasoning"), "reasoning", "{\"effort\":null,\"summary\":null}", out);
    echo(json_member(body, "top_logprobs"), "top_logprobs", "0", out);
    echo(json_member(body, "user"), "user", "null", out);
    byte_buffer_append_text(out, ",\"temperature\":");
    json_write_float(out, (float)temperature);
    byte_buffer_append_text(out, ",\"top_p\":");
    json_write_float(out, (float)top_p);
    byte_buffer_append_text(out, ",\"background\":false,\"previous_response_id\":null,"
                                 "\"store\":false,\"truncation\":\"disabled\"");
}
