/* /v1/messages/count_tokens. */
#include "server/api/call/endpoints.h"

#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/messages/messages_body.h"
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
    json_write_int_member(out, "input_tokens", num_tokens);
    json_write_end_object(out);
    return 0;
}

int messages_count_tokens(const struct api_context *context, const char *text, size_t length,
                          struct byte_buffer *out, struct byte_buffer *ignored,
                          struct api_error *err) {
    struct conversation conversation;
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    int result = messages_body_read(context, json, true, &conversation, err);
    if (result == 0) {
        result = count(context, &conversation, out, ignored, err);
        conversation_finish(&conversation);
    }
    cJSON_Delete(json);
    return result;
}
