/* Bodies of /v1/responses and the conversations they become. */
#include "server/api/responses/responses_body.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/conversation_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *body, *dump;
} taken[] = {
    {"{'input':'hi'}", "user[hi]\n"},
    {"{'model':'m','instructions':'be brief','input':'hi','temperature':0.5,'foo':1}",
     "system[be brief]\n"
     "user[hi]\n"
     "ignored foo\n"},
    {"{'input':[{'role':'developer','content':'a'},{'type':'message','role':'user','content':"
     "[{'type':'input_text','text':'b'},{'type':'input_text','text':'c'}]},"
     "{'role':'assistant','content':[{'type':'output_text','text':'d','annotations':[]},"
     "{'type':'refusal','refusal':'no'}]}]}",
     "developer[a]\n"
     "user[b|c]\n"
     "assistant[d|no]\n"},
    {"{'input':[{'role':'user','content':'w?'},"
     "{'type':'reasoning','id':'rs_1','summary':[{'type':'summary_text','text':'s'}],'content':"
     "[{'type':'reasoning_text','text':'t1'},{'type':'reasoning_text','text':'t2'}]},"
     "{'type':'function_call','id':'fc_1','call_id':'c1','name':'f','arguments':'{}'},"
     "{'type':'function_call','call_id':'c2','name':'g','arguments':'[1]'},"
     "{'type':'function_call_output','call_id':'c1','output':'1'},"
     "{'type':'function_call_output','call_id':'c2','output':[{'type':'input_text','text':'2'}]}]}",
     "user[w?]\n"
     "assistant null (t1\n"
     "t2) f({})#c1 g([1])#c2\n"
     "tool[1] #c1\n"
     "tool[2] #c2\n"},
    {"{'input':[{'role':'assistant','content':'let me'},"
     "{'type':'function_call','call_id':'c','name':'f','arguments':'{}'}]}",
     "assistant[let me] f({})#c\n"},
    {"{'input':[{'role':'ipython','content':'x'}]}", "ipython[x]\n"},
    {"{'input':'x','tools':[{'type':'function','name':'f','description':'d','parameters':{},"
     "'strict':true}],'tool_choice':{'type':'function','name':'f'},'parallel_tool_calls':false}",
     "user[x]\n"
     "function "
     "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\",\"parameters\":{},"
     "\"strict\":true}}\n"
     "choice named, one call\n"},
    {"{'input':'x','tools':[{'type':'function','name':'f'},{'type':'function','name':'g'}],'tool_"
     "choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'function',"
     "'name':'f'}]}}",
     "user[x]\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"f\"}}\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"g\"}}\n"
     "choice auto, not g\n"},
    {"{'input':'x','tool_choice':'auto','tools':[]}", "user[x]\n"},
    {"{'input':'x','truncation':'disabled'}", "user[x]\n"},
    {"{'input':'x','truncation':'auto'}", "user[x]\n"
                                          "ignored truncation\n"},
    {"{'input':'x','tools':[{'type':'function','name':'f'}],'tool_choice':'required','max_output_"
     "tokens':5,'reasoning':{'effort':'low'},"
     "'include':['message.output_text.logprobs'],'top_logprobs':2,'store':true,'metadata':{},"
     "'previous_response_id':null}",
     "user[x]\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"f\"}}\n"
     "choice required\n"
     "effort low\n"
     "logprobs 2\n"
     "max 5\n"
     "ignored store\n"},
    {"{'input':'x','text':{'format':{'type':'json_schema','name':'n','schema':{'type':'object'},"
     "'strict':true}}}",
     "user[x]\n"
     "form\n"},
    {"{'input':'x','text':{'format':{'type':'json_object'}}}", "user[x]\n"
                                                               "form\n"},
    {"{'input':'x','text':{'verbosity':'low','foo':null},'reasoning':{'summary':'auto'},"
     "'store':true}",
     "user[x]\n"
     "ignored text.verbosity,reasoning.summary,store\n"},
    {"{'input':'x','tools':[{'type':'function','name':'f','defer_loading':true},"
     "{'type':'function','name':'g','defer_loading':false}],'text':{'format':{'type':"
     "'json_schema','name':'n','schema':{},'foo':1}}}",
     "user[x]\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"f\"}}\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"g\"}}\n"
     "choice auto\n"
     "form\n"
     "ignored tools[].defer_loading,text.format.foo\n"},
    {"{'input':'x','include':['reasoning.encrypted_content','message.output_text.logprobs',"
     "'message.output_text.logprobs']}",
     "user[x]\n"
     "logprobs 0\n"
     "ignored include.reasoning.encrypted_content\n"},
    {"{'input':[]}", "user[]\n"},
    {"{'input':[{'type':'web_search_call','id':'w'},{'type':'local_shell_call','call_id':'l'},"
     "{'type':'function_call_output','call_id':'l','output':'x'},"
     "{'type':'function_call','namespace':'a','name':'f','arguments':'{}','call_id':'c'},"
     "{'type':'function_call_output','call_id':'c','output':'y'}],"
     "'tools':[{'type':'tool_search'},{'type':'namespace','name':'a','description':'About a.',"
     "'defer_loading':true,'tools':[{'type':'function','name':'f'},{'type':'function','name':'h',"
     "'description':'Does.'}]},{'type':'namespace','name':'b__','description':'About b.','tools':"
     "[{'type':'custom','name':'g','description':'Gets.'}]},{'type':'namespace','name':'e',"
     "'description':'','tools':[]}],"
     "'tool_choice':{'type':'custom','namespace':'b__','name':'g'}}",
     "assistant null a__f({})#c\n"
     "tool[y] #c\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"a__f\",\"description\":\"a: About "
     "a.\"}}\n"
     "function {\"type\":\"function\",\"function\":{\"name\":\"a__h\",\"description\":\"Does.\"}}\n"
     "custom {\"type\":\"function\",\"function\":{\"name\":\"b__g\",\"description\":\"b__: About "
     "b.\\n\\nGets.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":"
     "\"string\"}},\"required\":[\"input\"],\"additionalProperties\":false}}}\n"
     "choice named, not a__f, not a__h\n"
     "ignored tools.tool_search,tools[].defer_loading\n"},
};

static const struct {
    const char *body, *param, *code;
} refused[] = {
    {"{}", "input", "invalid_type"},
    {"{'input':1}", "input", "invalid_type"},
    {"{'input':[1]}", "input[0]", "invalid_type"},
    {"{'input':[{}]}", "input[0].role", "invalid_type"},
    {"{'input':[{'role':'a tool','content':'x'}]}", "input[0].role", "invalid_type"},
    {"{'input':[{'role':'user'}]}", "input[0].content", "invalid_type"},
    {"{'input':[{'role':'user','content':[{'type':'input_image','image_url':'data:'}]}]}",
     "input[0].content[0].type", "unsupported_content"},
    {"{'input':[{'role':'user','content':[{'type':'input_file','file_id':'f'}]}]}",
     "input[0].content[0].type", "unsupported_content"},
    {"{'input':[{'role':'user','content':[{'type':'input_text'}]}]}", "input[0].content[0].text",
     "invalid_type"},
    {"{'input':[{'role':'user','content':'x'},{'type':'item_reference','id':'msg_1'}]}",
     "input[1].type", "unsupported_value"},
    {"{'input':[{'type':'file_search_call'}]}", "input[0].type", "invalid_type"},
    {"{'input':[{'type':'function_call','name':'f','arguments':'{}'}]}", "input[0].call_id",
     "invalid_type"},
    {"{'input':[{'type':'function_call','call_id':'c','name':'','arguments':'{}'}]}",
     "input[0].name", "invalid_type"},
    {"{'input':[{'type':'custom_tool_call','call_id':'c','name':'','input':'x'}]}", "input[0].name",
     "invalid_type"},
    {"{'input':'x','instructions':1}", "instructions", "invalid_type"},
    {"{'input':'x','previous_response_id':'resp_1'}", "previous_response_id", "unsupported_value"},
    {"{'input':'x','conversation':{}}", "conversation", "unsupported_value"},
    {"{'input':'x','background':true}", "background", "unsupported_value"},
    {"{'input':'x','tools':{}}", "tools", "invalid_type"},
    {"{'input':'x','tools':[{'type':'file_search'}]}", "tools[0].type", "invalid_type"},
    {"{'input':'x','tools':[{'type':'web_search'},{'type':'namespace','name':'a','tools':1}]}",
     "tools[1].tools", "invalid_type"},
    {"{'input':'x','tools':[{'type':'namespace','name':'a','description':1,'tools':[]}]}",
     "tools[0].description", "invalid_type"},
    {"{'input':'x','tools':[{'type':'namespace','name':'a','tools':[{'type':'function'}]}]}",
     "tools[0].tools[0].name", "invalid_type"},
    {"{'input':'x','text':{'verbosity':'x'}}", "text.verbosity", "invalid_type"},
    {"{'input':[{'type':'custom_tool_call','call_id':'c','name':'n'}]}", "input[0].input",
     "invalid_type"},
    {"{'input':'x','store':1}", "store", "invalid_type"},
    {"{'input':'x','background':1}", "background", "invalid_type"},
    {"{'input':'x','tool_choice':{'type':'file_search'}}", "tool_choice.type", "invalid_type"},
    {"{'input':'x','text':1}", "text", "invalid_type"},
    {"{'input':'x','reasoning':[]}", "reasoning", "invalid_type"},
    {"{'input':'x','messages':[]}", "messages", "unknown_parameter"},
    {"{'input':'x','n':2}", "n", "unknown_parameter"},
    {"{'input':'x','use_beam_search':true}", "use_beam_search", "unknown_parameter"},
    {"{'input':'x','max_tokens':2}", "max_tokens", "unknown_parameter"},
    {"{'input':'x','prompt_logprobs':2}", "prompt_logprobs", "unknown_parameter"},
    {"{'input':'x','return_token_ids':true}", "return_token_ids", "unknown_parameter"},
    {"{'input':'x','include':'message.output_text.logprobs'}", "include", "invalid_type"},
    {"{'input':'x','include':['message.output_text.logprob']}", "include", "invalid_type"},
    {"{'input':'x','include':[null]}", "include", "invalid_type"},
    {"{'input':'x','stream':true,'stream_options':{'continuous_usage_stats':true}}",
     "stream_options.continuous_usage_stats", "unsupported_value"},
    {"{'input':'x','truncation':'some'}", "truncation", "invalid_type"},
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
    char text[2048];
    size_t length = strlen(single_quoted);
    assert_true(length < sizeof(text));
    for (size_t i = 0; i <= length; i++)
        text[i] = single_quoted[i] == '\'' ? '"' : single_quoted[i];
    cJSON *json = cJSON_Parse(text);
    if (json == NULL)
        fail_msg("no JSON: %s", text);
    return json;
}

/* On a server that keeps nothing. */
static int read(const cJSON *body, struct conversation *out, struct api_error *err) {
    struct responses_conversation continued;
    cJSON *copy = cJSON_Duplicate(body, true);
    int result = responses_conversation_read(&context, copy, &continued, err);
    cJSON_Delete(copy);
    if (result != 0)
        return -1;
    result = responses_body_read(&context, body, &continued, out, err);
    responses_conversation_finish(&continued);
    return result;
}

static void bodies_become_conversations(void **state) {
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct api_error err = {0};
        struct conversation conversation;
        struct byte_buffer dump = {0};
        cJSON *body = parse(taken[i].body);
        if (read(body, &conversation, &err) != 0)
            fail_msg("%s: %s", taken[i].body, err.message);
        conversation_dump(&conversation, &dump);
        assert_string_equal(dump.data, taken[i].dump);
        byte_buffer_finish(&dump);
        conversation_finish(&conversation);
        cJSON_Delete(body);
    }
}

static void what_cannot_be_is_refused_by_its_path(void **state) {
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct api_error err = {0};
        struct conversation conversation;
        cJSON *body = parse(refused[i].body);
        if (read(body, &conversation, &err) == 0)
            fail_msg("accepted %s", refused[i].body);
        if (err.status != 400 || strcmp(err.param, refused[i].param) != 0 ||
            strcmp(err.code, refused[i].code) != 0)
            fail_msg("%s: %d %s %s: %s", refused[i].body, err.status, err.param, err.code,
                     err.message);
        cJSON_Delete(body);
    }
}

static void the_answer_repeats_what_was_asked(void **state) {
    struct byte_buffer out = {0};
    cJSON *body = parse("{'input':'x','instructions':'i','tools':[{'type':'function','name':'f'}],"
                        "'store':true,'metadata':{'k':'v'},'truncation':'auto',"
                        "'text':{'verbosity':'low'}}");
    byte_buffer_append_text(&out, "{\"a\":1");
    responses_body_echo(body, false, 0.5, 1, &out);
    byte_buffer_append(&out, "}", 2);
    cJSON *json = cJSON_Parse(out.data);
    assert_non_null(json);
    assert_string_equal(cJSON_GetObjectItem(json, "instructions")->valuestring, "i");
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(json, "store"))); /* nothing is stored */
    assert_string_equal(cJSON_GetObjectItem(json, "truncation")->valuestring, "disabled");
    assert_string_equal(cJSON_GetObjectItem(json, "tool_choice")->valuestring, "auto");
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "tools")), 1);
    assert_true(cJSON_GetObjectItem(json, "temperature")->valuedouble == 0.5);
    assert_string_equal(
        cJSON_GetObjectItem(cJSON_GetObjectItem(json, "metadata"), "k")->valuestring, "v");
    assert_true(cJSON_IsNull(cJSON_GetObjectItem(json, "previous_response_id")));
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(json, "text"));
    assert_string_equal(text, "{\"format\":{\"type\":\"text\"},\"verbosity\":\"low\"}");
    cJSON_free(text);
    cJSON_Delete(json);
    cJSON_Delete(body);
    byte_buffer_finish(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_become_conversations),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_path),
        cmocka_unit_test(the_answer_repeats_what_was_asked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
