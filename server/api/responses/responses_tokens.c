/* /v1/responses/input_tokens. */
#include "server/api/call/endpoints.h"

#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/responses/responses_body.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

static int count(const struct api_context *context, struct conversation *conversation,
                 struct byte_buffer *out, struct byte_buffer *ignored, struct api_error *err) {
    int64_t num_tokens = 0;
    if (chat_prompt_count(context, conversation, &num_tokens, err) != 0)
        return -1;
    *ignored = conversation->ignored;
    conversation->ignored = (struct byte_buffer){0};
    json_write_begin_object(out);
    json_write_text_member(out, "object", "response.input_tokens");
    json_write_int_member(out, "input_tokens", num_tokens);
    json_write_end_object(out);
    return 0;
}

int responses_input_tokens(const struct api_context *context, const char *text, size_t length,
                           struct byte_buffer *out, struct byte_buffer *ignored,
                           struct api_error *err) {
    struct conversation conversation;
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    struct responses_conversation continued = {0};
    int result = responses_conversation_read(context, json, &continued, err);
    if (result == 0)
        result = responses_body_read(context, json, &continued, &conversation, err);
    if (result == 0) {
        result = count(context, &conversation, out, ignored, err);
        conversation_finish(&conversation);
    }
    responses_conversation_finish(&continued);
    cJSON_Delete(json);
    return result;
}
