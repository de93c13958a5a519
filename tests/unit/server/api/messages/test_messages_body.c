/* Bodies of /v1/messages and the conversations they become. */
#include "server/api/messages/messages_body.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/conversation_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HI "'messages':[{'role':'user','content':'hi'}]"
#define TEXT(text) "{'type':'text','text':'" text "'}"
#define MAX ",'max_tokens':9"

static const struct {
    const char *body, *dump;
} taken[] = {
    {"{" HI MAX "}", "user[hi]\n"
                     "max 9\n"},
    {"{'model':'m','system':'be brief'," HI MAX ",'temperature':0.5,'foo':1,'seed':3}",
     "system[be brief]\n"
     "user[hi]\n"
     "max 9\n"
     "ignored foo\n"},
    {"{'system':[" TEXT(
         "a") ",{'type':'text','text':'b','cache_control':{'type':'ephemeral'}}]," HI MAX "}",
     "system[a|b]\n"
     "user[hi]\n"
     "max 9\n"
     "ignored system[].cache_control\n"},
    /* neighbours of one role are one message */
    {"{'messages':[{'role':'user','content':'a'},{'role':'user','content':[" TEXT("b") "]}]" MAX
                                                                                       "}",
     "user[a|b]\n"
     "max 9\n"},
    {"{'messages':[{'role':'user','content':'w?'},{'role':'assistant','content':["
     "{'type':'thinking','thinking':'t1','signature':'s'},{'type':'redacted_thinking','data':'d'},"
     "{'type':'thinking','thinking':'t2','signature':'s'}," TEXT(
         "Look") ","
                 "{'type':'tool_use','id':'c1','name':'f','input':{'a':1}},"
                 "{'type':'tool_use','id':'c2','name':'g','input':{},'caller':{'type':'direct'}}]},"
                 "{'role':'user','content':[{'type':'tool_result','tool_use_id':'c1','content':'1'}"
                 ","
                 "{'type':'tool_result','tool_use_id':'c2','is_error':true,'content':[" TEXT(
                     "no") "]}," TEXT("and?") "]}]" MAX "}",
     "user[w?]\n"
     "assistant[Look] (t1\n"
     "t2) f({\"a\":1})#c1 g({})#c2\n"
     "tool[1] #c1\n"
     "tool[Error:|no] #c2\n"
     "user[and?]\n"
     "max 9\n"
     "ignored messages[].content[].data,messages[].content[].caller\n"},
    {"{'messages':[{'role':'user','content':[]},{'role':'assistant','content':[{'type':'tool_use',"
     "'id':'c','name':'f','input':{}}]},{'role':'user','content':[{'type':'tool_result',"
     "'tool_use_id':'c'}]}]" MAX "}",
     "user[]\n"
     "assistant null f({})#c\n"
     "tool[] #c\n"
     "max 9\n"},
    {"{'messages':[{'role':'user','content':'a'},{'role':'assistant','content':'b'}]" MAX "}",
     "user[a]\n"
     "assistant[b]\n"
     "continues\n"
     "max 9\n"},
    {"{" HI MAX ",'tools':[{'name':'f','description':'d','input_schema':{'type':'object'},'strict':"
     "true,'cache_control':{}},{'type':'custom','name':'g','input_schema':{}}],'tool_choice':"
     "{'type':'tool','name':'f','disable_parallel_tool_use':true},'stop_sequences':['x']}",
     "user[hi]\n"
     "function "
     "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{"
     "\"type\":\"object\"},\"strict\":true}}\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":{}}}\n"
     "choice named, one call, not g\n"
     "max 9\n"
     "stop x\n"
     "ignored tools[].cache_control\n"},
    {"{" HI MAX ",'tool_choice':{'type':'auto'}}", "user[hi]\n"
                                                   "max 9\n"},
    {"{" HI MAX ",'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'any','disable_"
     "parallel_tool_use':false}}",
     "user[hi]\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}\n"
     "choice required\n"
     "max 9\n"},
    {"{" HI MAX ",'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'none'}}",
     "user[hi]\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}\n"
     "choice none\n"
     "max 9\n"},
    {"{" HI MAX ",'thinking':{'type':'enabled','budget_tokens':7}}", "user[hi]\n"
                                                                     "thinking on\n"
                                                                     "budget 7\n"
                                                                     "max 9\n"},
    {"{" HI MAX ",'thinking':{'type':'disabled'},'chat_template_kwargs':{'thinking':1,'a':[2]}}",
     "user[hi]\n"
     "thinking off\n"
     "max 9\n"},
    {"{" HI MAX ",'thinking':{'type':'adaptive','display':'omitted','foo':1}}",
     "user[hi]\n"
     "max 9\n"
     "ignored thinking.foo\n"},
    {"{" HI MAX ",'output_config':{'effort':'low','format':{'type':'json_schema','schema':{'type':"
     "'object'}}}}",
     "user[hi]\n"
     "effort low\n"
     "max 9\n"
     "form\n"},
    {"{" HI MAX ",'output_config':{'format':{'type':'json_schema','name':1,'strict':'x','schema':{"
     "}}}}",
     "user[hi]\n"
     "max 9\n"
     "form\n"
     "ignored output_config.format.name,output_config.format.strict\n"},
    {"{" HI MAX ",'context_management':{'edits':[{'type':'clear_thinking_20251015','keep':'all'},"
     "{'type':'clear_thinking_20251015','keep':{'type':'all'}}]}}",
     "user[hi]\n"
     "max 9\n"},
    {"{" HI MAX ",'metadata':{'user_id':'u'},'service_tier':'auto','container':null}",
     "user[hi]\n"
     "max 9\n"
     "ignored metadata,service_tier\n"},
};

#define CONTENT(blocks) "{'messages':[{'role':'user','content':[" blocks "]}]" MAX "}"
#define SAID(blocks) "{'messages':[{'role':'assistant','content':[" blocks "]}]" MAX "}"

static const struct {
    const char *body, *param, *code;
} refused[] = {
    {"{'max_tokens':9}", "messages", "invalid_type"},
    {"{'messages':[]" MAX "}", "messages", "invalid_type"},
    {"{'messages':[1]" MAX "}", "messages[0]", "invalid_type"},
    {"{" HI "}", "max_tokens", "missing_required_parameter"},
    {"{'messages':[{'role':'tool','content':'a'}]" MAX "}", "messages[0].role", "invalid_type"},
    {"{'messages':[{'role':'user'}]" MAX "}", "messages[0].content", "invalid_type"},
    {CONTENT("1"), "messages[0].content[0]", "invalid_type"},
    {CONTENT("{}"), "messages[0].content[0].type", "invalid_type"},
    {CONTENT("{'type':'text'}"), "messages[0].content[0].text", "invalid_type"},
    {CONTENT(TEXT("a") ",{'type':'image','source':{}}"), "messages[0].content[1].type",
     "unsupported_content"},
    {CONTENT("{'type':'document'}"), "messages[0].content[0].type", "unsupported_content"},
    {CONTENT("{'type':'tool_use','id':'a','name':'b','input':{}}"), "messages[0].content[0].type",
     "unsupported_content"},
    {CONTENT("{'type':'tool_result'}"), "messages[0].content[0].tool_use_id", "invalid_type"},
    {CONTENT("{'type':'tool_result','tool_use_id':'a','content':1}"),
     "messages[0].content[0].content", "invalid_type"},
    {CONTENT("{'type':'tool_result','tool_use_id':'a','is_error':1}"),
     "messages[0].content[0].is_error", "invalid_type"},
    {CONTENT("{'type':'tool_result','tool_use_id':'a','content':[{'type':'image'}]}"),
     "messages[0].content[0].content[0].type", "unsupported_content"},
    {SAID("{'type':'server_tool_use'}"), "messages[0].content[0].type", "unsupported_content"},
    {SAID("{'type':'tool_use','name':'b','input':{}}"), "messages[0].content[0].id",
     "invalid_type"},
    {SAID("{'type':'tool_use','id':'a','name':'','input':{}}"), "messages[0].content[0].name",
     "invalid_type"},
    {SAID("{'type':'tool_use','id':'a','name':'b','input':'{}'}"), "messages[0].content[0].input",
     "invalid_type"},
    {SAID("{'type':'tool_use','id':'a','name':'b','input':{}}"), "messages", "unsupported_value"},
    {SAID("{'type':'thinking','thinking':'a'}"), "messages[0].content[0].signature",
     "invalid_type"},
    {SAID("{'type':'redacted_thinking'}"), "messages[0].content[0].data", "invalid_type"},
    {"{'system':1," HI MAX "}", "system", "invalid_type"},
    {"{'system':[{'type':'image'}]," HI MAX "}", "system[0].type", "unsupported_content"},
    {"{" HI MAX ",'stop_sequences':'x'}", "stop_sequences", "invalid_type"},
    {"{" HI MAX ",'tools':{}}", "tools", "invalid_type"},
    {"{" HI MAX ",'tools':[{'type':'web_search_20250305','name':'web_search'}]}", "tools[0].type",
     "unsupported_value"},
    {"{" HI MAX ",'tools':[{'name':'f'}]}", "tools[0].input_schema", "invalid_type"},
    {"{" HI MAX ",'tool_choice':'auto'}", "tool_choice", "invalid_type"},
    {"{" HI MAX ",'tool_choice':{'type':'function'}}", "tool_choice.type", "invalid_type"},
    {"{" HI MAX ",'tool_choice':{'type':'auto','disable_parallel_tool_use':1}}",
     "tool_choice.disable_parallel_tool_use", "invalid_type"},
    {"{" HI MAX ",'thinking':true}", "thinking", "invalid_type"},
    {"{" HI MAX ",'thinking':{'type':'on'}}", "thinking.type", "invalid_type"},
    {"{" HI MAX ",'thinking':{'type':'enabled'}}", "thinking.budget_tokens", "invalid_type"},
    {"{" HI MAX ",'thinking':{'type':'enabled','budget_tokens':0}}", "thinking.budget_tokens",
     "out_of_range"},
    {"{" HI MAX ",'thinking':{'type':'adaptive','display':'x'}}", "thinking.display",
     "invalid_type"},
    {"{" HI MAX ",'output_config':1}", "output_config", "invalid_type"},
    {"{" HI MAX ",'output_config':{'effort':'huge'}}", "output_config.effort", "invalid_type"},
    {"{" HI MAX ",'output_config':{'format':{'type':'text'}}}", "output_config.format.type",
     "invalid_type"},
    {"{" HI MAX ",'metadata':1}", "metadata", "invalid_type"},
    {"{" HI MAX ",'context_management':{'edits':[{'type':'clear_thinking_20251015'}]}}",
     "context_management", "unsupported_value"},
    {"{" HI MAX ",'context_management':{'edits':[{'type':'clear_tool_uses_20250919'}]}}",
     "context_management", "unsupported_value"},
    {"{" HI MAX ",'thread':{'type':'create'}}", "thread", "thread_unsupported_request"},
    {"{" HI MAX ",'metadata':{'user_id':1}}", "metadata.user_id", "invalid_type"},
    {"{" HI MAX ",'stop':'x'}", "stop", "unknown_parameter"},
    {"{" HI MAX ",'n':2}", "n", "unknown_parameter"},
};

/* What is found by readers that all APIs share has this body's names too. */
static const struct {
    const char *body, *param, *word;
} named[] = {
    {"{" HI MAX ",'stop_sequences':['']}", "stop_sequences[0]", "stop_sequences[0] has 0 bytes"},
    {"{" HI MAX ",'tools':[{'name':'a b','input_schema':{}}]}", "tools[0].name",
     "tools[0].name must be"},
    {"{" HI MAX ",'tools':[{'name':'f','input_schema':{'type':'array'}}],'tool_choice':{'type':"
     "'any'}}",
     "tools[0].input_schema.type", "tools[0].input_schema.type must be"},
    {"{" HI MAX ",'tools':[{'name':'f','input_schema':{'type':'object','properties':{'function':{"
     "'type':'x'}}}}],'tool_choice':{'type':'any'}}",
     "tools[0].input_schema.properties.function", "properties.function: type must be"},
    {"{" HI MAX ",'tools':[{'name':'f','input_schema':{}}],'tool_choice':{'type':'tool','name':"
     "'g'}}",
     "tool_choice.name", "tool_choice.name is \"g\""},
    {"{" HI MAX ",'output_config':{'format':{'type':'json_schema'}}}",
     "output_config.format.schema", "output_config.format.schema must be"},
    {"{" HI MAX ",'output_format':{'type':'json_schema'}}", "output_format",
     "use output_config.format"},
    {"{" HI ",'max_tokens':0}", "max_tokens", "max_tokens must be at least 1"},
    {"{" HI MAX ",'mcp_servers':[1]}", "mcp_servers", "mcp_servers is not supported"},
};

static struct api_context context;

static int setup(void **state) {
    chat_fixture_init(&context, 256);
    return 0;
}

static int teardown(void **state) {
    chat_fixture_finish(&context);
    return 0;
}

static cJSON *parse(const char *single_quoted) {
    char text[4096];
    size_t length = strlen(single_quoted);
    assert_true(length < sizeof(text));
    for (size_t i = 0; i <= length; i++)
        text[i] = single_quoted[i] == '\'' ? '"' : single_quoted[i];
    cJSON *json = cJSON_Parse(text);
    if (json == NULL)
        fail_msg("no JSON: %s", text);
    return json;
}

static void expect_dump(const char *single_quoted, const char *expected, bool counts_only) {
    struct api_error err = {0};
    struct conversation conversation;
    struct byte_buffer dump = {0};
    cJSON *body = parse(single_quoted);
    if (messages_body_read(&context, body, counts_only, &conversation, &err) != 0)
        fail_msg("%s: %s", single_quoted, err.message);
    conversation_dump(&conversation, &dump);
    assert_string_equal(dump.data, expected);
    byte_buffer_finish(&dump);
    conversation_finish(&conversation);
    cJSON_Delete(body);
}

static void bodies_become_conversations(void **state) {
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        expect_dump(taken[i].body, taken[i].dump, false);
    expect_dump("{" HI "}", "user[hi]\n", true);
}

/* A model that is not known to reason gets no budget; who sent one finds it named as ignored. */
static void a_budget_without_reasoning_is_ignored(void **state) {
    struct api_context plain = context;
    plain.chat = NULL;
    struct api_error err = {0};
    struct conversation conversation;
    cJSON *body = parse("{" HI MAX ",'thinking':{'type':'enabled','budget_tokens':7}}");
    assert_int_equal(messages_body_read(&plain, body, false, &conversation, &err), 0);
    assert_int_equal(conversation.thinking_token_budget, -1);
    assert_int_equal(conversation.ignored.length, strlen("thinking.budget_tokens"));
    conversation_finish(&conversation);
    cJSON_Delete(body);
}

static void expect_refusals(const char *single_quoted, const char *param, const char *code,
                            const char *word) {
    struct api_error err = {0};
    struct conversation conversation;
    cJSON *body = parse(single_quoted);
    if (messages_body_read(&context, body, false, &conversation, &err) == 0)
        fail_msg("accepted %s", single_quoted);
    if (err.status != 400 || strcmp(err.param, param) != 0 ||
        (code != NULL && strcmp(err.code, code) != 0) || strstr(err.message, word) == NULL)
        fail_msg("%s: %d %s %s: %s", single_quoted, err.status, err.param, err.code, err.message);
    cJSON_Delete(body);
}

static void what_cannot_be_is_refused_by_its_path(void **state) {
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
        expect_refusals(refused[i].body, refused[i].param, refused[i].code, "");
}

static void errors_have_this_bodys_names(void **state) {
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        expect_refusals(named[i].body, named[i].param, NULL, named[i].word);
}

/* The answer names as many as its header holds. */
static void many_unknown_members_are_cut(void **state) {
    struct byte_buffer text = {0};
    struct api_error err = {0};
    struct conversation conversation;
    byte_buffer_append_text(&text, "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",");
    for (int i = 0; i < 2000; i++)
        byte_buffer_printf(&text, "\"x%d\":1,", i);
    byte_buffer_append_text(&text, "\"content\":\"hi\"}]}");
    cJSON *body = cJSON_ParseWithLength(text.data, text.length);
    assert_non_null(body);
    assert_int_equal(messages_body_read(&context, body, false, &conversation, &err), 0);
    const struct byte_buffer *ignored = &conversation.ignored;
    assert_true(ignored->length > 900 && ignored->length <= 1024 + 3);
    assert_memory_equal(ignored->data + ignored->length - 3, "...", 3);
    conversation_finish(&conversation);
    cJSON_Delete(body);
    byte_buffer_finish(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_conversations),
        cmocka_unit_test(a_budget_without_reasoning_is_ignored),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_path),
        cmocka_unit_test(errors_have_this_bodys_names),
        cmocka_unit_test(many_unknown_members_are_cut),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
