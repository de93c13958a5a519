#include "tests/unit/server/api/conversation_fixture.h"

#include "config/base/check.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "server/api/chat/chat_body.h"

#include <string.h>

int conversation_fixture_read(const char *body, struct conversation *out, struct api_error *err) {
    static const struct conversation_names names = {CHAT_BODY_NAMES, .tools = "tools",
                                                    .tool_choice = "tool_choice"};
    struct conversation conversation = {.names = &names, .allows_parallel = true};
    conversation.body = conversation_own(&conversation, json_parse(body, strlen(body), err), err);
    CHECK(conversation.body != NULL);
    const cJSON *messages = json_member(conversation.body, "messages");
    if (chat_tools_read(conversation.body, &conversation, err) != 0 ||
        (messages != NULL && chat_messages_read(messages, &conversation, err) != 0)) {
        conversation_finish(&conversation);
        return -1;
    }
    *out = conversation;
    return 0;
}
