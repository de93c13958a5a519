/* Bodies of /v1/responses and the chats they become. */
#include "server/api/responses/responses_body.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *body, *chat;
} taken[] = {
    {"{'input':'hi'}", "{'messages':[{'role':'user','content':'hi'}]}"},
    {"{'model':'m','instructions':'be brief','input':'hi','temperature':0.5,'foo':1}",
     "{'messages':[{'role':'system','content':'be brief'},{'role':'user','content':'hi'}],"
     "'model':'m','temperature':0.5,'foo':1}"},
    {"{'input':[{'role':'developer','content':'a'},{'type':'message','role':'user','content':"
     "[{'type':'input_text','text':'b'},{'type':'input_text','text':'c'}]},"
     "{'role':'assistant','content':[{'type':'output_text','text':'d','annotations':[]},"
     "{'type':'refusal','refusal':'no'}]}]}",
     "{'messages':[{'role':'developer','content':'a'},{'role':'user','content':"
     "[{'type':'text','text':'b'},{'type':'text','text':'c'}]},{'role':'assistant','content':"
     "[{'type':'text','text':'d'},{'type':'text','text':'no'}]}]}"},
    {"{'input':[{'role':'user','content':'w?'},"
     "{'type':'reasoning','id':'rs_1','summary':[{'type':'summary_text','text':'s'}],'content':"
     "[{'type':'reasoning_text','text':'t1'},{'type':'reasoning_text','text':'t2'}]},"
     "{'type':'function_call','id':'fc_1','call_id':'c1','name':'f','arguments':'{}'},"
     "{'type':'function_call','call_id':'c2','name':'g','arguments':'[1]'},"
     "{'type':'function_call_output','call_id':'c1','output':'1'},"
     "{'type':'function_call_output','call_id':'c2','output':[{'type':'input_text','text':'2'}]}]}",
     "{'messages':[{'role':'user','content':'w?'},"
     "{'role':'assistant','reasoning_content':'t1\\nt2','content':null,'tool_calls':["
     "{'id':'c1','type':'function','function':{'name':'f','arguments':'{}'}},"
     "{'id':'c2','type':'function','function':{'name':'g','arguments':'[1]'}}]},"
     "{'role':'tool','tool_call_id':'c1','content':'1'},"
     "{'role':'tool','tool_call_id':'c2','content':[{'type':'text','text':'2'}]}]}"},
    {"{'input':[{'role':'assistant','content':'let me'},"
     "{'type':'function_call','call_id':'c','name':'f','arguments':'{}'}]}",
     "{'messages':[{'role':'assistant','content':'let me','tool_calls':["
     "{'id':'c','type':'function','function':{'name':'f','arguments':'{}'}}]}]}"},
    {"{'input':[{'role':'ipython','content':'x'}]}",
     "{'messages':[{'role':'ipython','content':'x'}]}"},
    {"{'input':'x','tools':[{'type':'function','name':'f','description':'d','parameters':{},"
     "'strict':true}],'tool_choice':{'type':'function','name':'f'},'parallel_tool_calls':false}",
     "{'messages':[{'role':'user','content':'x'}],'tools':[{'type':'function','function':"
     "{'name':'f','description':'d','parameters':{},'strict':true}}],"
     "'tool_choice':{'type':'function','function':{'name':'f'}},'parallel_tool_calls':false}"},
    {"{'input':'x','tool_choice':{'type':'allowed_tools','mode':'auto','tools':[{'type':'function',"
     "'name':'f'},null]}}",
     "{'messages':[{'role':'user','content':'x'}],'tool_choice':{'type':'allowed_tools',"
     "'allowed_tools':{'mode':'auto','tools':[{'type':'function','function':{'name':'f'}},null]}}"
     "}"},
    {"{'input':'x','tool_choice':'auto','tools':[]}",
     "{'messages':[{'role':'user','content':'x'}],'tools':[]}"},
    {"{'input':'x','truncation':'disabled'}", "{'messages':[{'role':'user','content':'x'}]}"},
    {"{'input':'x','truncation':'auto'}",
     "{'messages':[{'role':'user','content':'x'}],'truncation':'auto'}"},
    {"{'input':'x','tool_choice':'required','max_output_tokens':5,'reasoning':{'effort':'low'},"
     "'include':['message.output_text.logprobs'],'top_logprobs':2,'store':true,'metadata':{},"
     "'previous_response_id':null}",
     "{'messages':[{'role':'user','content':'x'}],'tool_choice':'required','logprobs':true,"
     "'reasoning_effort':'low','max_completion_tokens':5,'store':true,'top_logprobs':2}"},
    {"{'input':'x','text':{'format':{'type':'json_schema','name':'n','schema':{'type':'object'},"
     "'strict':true}}}",
     "{'messages':[{'role':'user','content':'x'}],'response_format':{'type':'json_schema',"
     "'json_schema':{'name':'n','schema':{'type':'object'},'strict':true}}}"},
    {"{'input':'x','text':{'format':{'type':'json_object'}}}",
     "{'messages':[{'role':'user','content':'x'}],'response_format':{'type':'json_object'}}"},
    {"{'input':'x','text':{'verbosity':'low','foo':null},'reasoning':{'summary':'auto'},"
     "'store':true}",
     "{'messages':[{'role':'user','content':'x'}],'text.verbosity':'low','reasoning.summary':"
     "'auto','store':true}"},
    {"{'input':'x','tools':[{'type':'function','name':'f','defer_loading':true},"
     "{'type':'function','name':'g','defer_loading':false}],'text':{'format':{'type':"
     "'json_schema','name':'n','schema':{},'foo':1}}}",
     "{'messages':[{'role':'user','content':'x'}],'tools':[{'type':'function','function':"
     "{'name':'f'}},{'type':'function','function':{'name':'g'}}],'tools[].defer_loading':true,"
     "'response_format':{'type':'json_schema','json_schema':{'name':'n','schema':{}}},"
     "'text.format.foo':1}"},
    {"{'input':'x','include':['reasoning.encrypted_content','message.output_text.logprobs',"
     "'message.output_text.logprobs']}",
     "{'messages':[{'role':'user','content':'x'}],'include.reasoning.encrypted_content':true,"
     "'logprobs':true}"},
    {"{'input':[]}", "{'messages':[{'role':'user','content':''}]}"},
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
     "{'messages':[{'role':'assistant','content':null,'tool_calls':[{'id':'c','type':'function',"
     "'function':{'name':'a__f','arguments':'{}'}}]},{'role':'tool','tool_call_id':'c','content':"
     "'y'}],'tools':[{'type':'function','function':{'name':'a__f','description':'a: About a.'}},"
     "{'type':'function','function':{'name':'a__h','description':'Does.'}},{'type':'custom',"
     "'custom':{'name':'b__g','description':'b__: About b.\\n\\nGets.'}}],"
     "'tools.tool_search':true,'tools[].defer_loading':true,"
     "'tool_choice':{'type':'custom','custom':{'name':'b__g'}}}"},
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
static cJSON *to_chat(cJSON *body, struct api_error *err) {
    const struct api_context context = {0};
    struct responses_conversation conversation;
    if (responses_conversation_read(&context, body, &conversation, err) != 0)
        return NULL;
    cJSON *chat = responses_body_to_chat(body, &conversation, err);
    responses_conversation_finish(&conversation);
    return chat;
}

static void bodies_become_chats(void **state) {
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        struct api_error err = {0};
        cJSON *body = parse(taken[i].body), *expected = parse(taken[i].chat);
        cJSON *chat = to_chat(body, &err);
        if (chat == NULL)
            fail_msg("%s: %s", taken[i].body, err.message);
        char *text = cJSON_PrintUnformatted(chat),
             *expected_text = cJSON_PrintUnformatted(expected);
        assert_string_equal(text, expected_text);
        cJSON_free(text);
        cJSON_free(expected_text);
        cJSON_Delete(chat);
        cJSON_Delete(expected);
        cJSON_Delete(body);
    }
}

static void what_cannot_be_is_refused_by_its_path(void **state) {
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        struct api_error err = {0};
        cJSON *body = parse(refused[i].body);
        if (to_chat(body, &err) != NULL)
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
        cmocka_unit_test(bodies_become_chats),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_path),
        cmocka_unit_test(the_answer_repeats_what_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
