/* From the parts of a body to the prompt's text and tokens. */
#include "server/api/conversation/chat_prompt.h"

#include "server/api/chat/chat_body.h"
#include "server/api/conversation/chat_model.h"

#include "tests/unit/server/api/chat_fixture.h"
#include "tests/unit/server/api/fake_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct prompt_limits no_limits = {.max_tokens = -1};

static struct api_context context;

static int setup(void **state) {
    chat_fixture_init(&context, 64);
    return 0;
}

static int teardown(void **state) {
    chat_fixture_finish(&context);
    return 0;
}

static int read(const char *body, struct conversation *out, struct api_error *err) {
    return chat_body_parse(&context, body, strlen(body), out, err);
}

static void render(const char *body, struct chat_rendering *out) {
    struct conversation conversation;
    struct api_error err = {0};
    if (read(body, &conversation, &err) != 0 ||
        chat_prompt_render(&context, &conversation, out, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    conversation_finish(&conversation);
}

static void expect(const char *body, const char *text, bool in_reasoning) {
    struct chat_rendering rendering;
    render(body, &rendering);
    assert_int_equal(rendering.text.length, strlen(text));
    assert_memory_equal(rendering.text.data, text, strlen(text));
    assert_int_equal(rendering.begins_in_reasoning, in_reasoning);
    chat_prompt_finish(&rendering);
}

/* Makes the prompt of a body that was read, and drops the conversation. */
static int create_of(struct conversation *conversation, struct chat_prompt *out,
                     struct api_error *err) {
    int result = chat_prompt_create(&context, conversation, &no_limits, out, err);
    conversation_finish(conversation);
    return result;
}

static void expect_error(const char *body, const char *param, const char *code) {
    struct conversation conversation;
    struct chat_prompt prompt;
    struct api_error err = {0};
    if (read(body, &conversation, &err) == 0 && create_of(&conversation, &prompt, &err) == 0)
        fail_msg("accepted %s", body);
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, param);
    assert_string_equal(err.code, code);
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

static void messages_are_rendered(void **state) {
    expect("{\"messages\":[" USER("hi") "]}", "<s>user:hi</s><s>assistant:", false);
    expect("{\"messages\":[" USER("hi") "," ASSISTANT("yo") "],\"add_generation_prompt\":false}",
           "<s>user:hi</s><s>assistant:yo</s>", false);
    expect("{\"messages\":[" USER("hi") "],\"tools\":[" TOOL(
               "f") "],\"documents\":[{\"text\":\"x\"}]}",
           "[TOOLS]<s>user:hi</s><s>assistant:", false);
}

static void forbidden_tools_are_not_shown(void **state) {
    expect("{\"messages\":[" USER("hi") "],\"tools\":[" TOOL("f") "]}",
           "[TOOLS]<s>user:hi</s><s>assistant:", false);
    expect("{\"messages\":[" USER("hi") "],\"tools\":[" TOOL("f") "],\"tool_choice\":\"none\"}",
           "<s>user:hi</s><s>assistant:", false);
}

static void kwargs_are_variables(void **state) {
    expect("{\"messages\":[" USER("hi") "],\"chat_template_kwargs\":{\"thinking\":false,\"x\":[]}}",
           "[thinking=False]<s>user:hi</s><s>assistant:", false);
    expect("{\"messages\":[" USER("hi") "],\"chat_template_kwargs\":{\"thinking\":true}}",
           "[thinking=True]<s>user:hi</s><s>assistant:<think>", true);
}

static void reserved_kwargs_are_refused(void **state) {
    static const char *const names[] = {"messages",  "tools",    "add_generation_prompt",
                                        "bos_token", "tokenize", "chat_template"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char body[256];
        snprintf(body, sizeof(body),
                 "{\"messages\":[" USER("hi") "],\"chat_template_kwargs\":{\"%s\":1}}", names[i]);
        expect_error(body, "chat_template_kwargs", "unsupported_value");
    }
    expect_error("{\"messages\":[" USER("hi") "],\"chat_template_kwargs\":[]}",
                 "chat_template_kwargs", "invalid_type");
    expect_error("{\"messages\":[" USER("hi") "],\"documents\":[1]}", "documents", "invalid_type");
}

static void the_final_message_is_continued(void **state) {
    expect("{\"messages\":[" USER("hi") "," ASSISTANT("I am ") "],\"continue_final_message\":true}",
           "<s>user:hi</s><s>assistant:I am ", false);
    expect("{\"messages\":[" ASSISTANT("<think>so") "],\"continue_final_message\":true}",
           "<s>assistant:<think>so", true);
    expect("{\"messages\":[" ASSISTANT("<think>so</think>x") "],\"continue_final_message\":true}",
           "<s>assistant:<think>so</think>x", false);
}

/* The form of the answer may not let it think where the template has closed that already. */
static void the_prompt_may_have_reasoned(void **state) {
    static const struct {
        const char *body;
        bool has_reasoned;
    } cases[] = {
        {"{\"messages\":[" USER("hi") "]}", true},
        {"{\"messages\":[" USER("hi") "],\"chat_template_kwargs\":{\"thinking\":true}}", false},
        {"{\"messages\":[" USER("</think>") "],\"chat_template_kwargs\":{\"thinking\":true}}",
         false},
        {"{\"messages\":[" ASSISTANT("<think>so</think>x") "],\"continue_final_message\":true}",
         true},
        {"{\"messages\":[" ASSISTANT("<think>so") "],\"continue_final_message\":true}", false},
    };
    const struct chat_model_config config = {
        .chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}</think>!"
                         "{% if not thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}",
        .tool_call_parser = "none",
        .reasoning_parser = "think"};
    const struct chat_model *kept = context.chat;
    struct chat_model *model;
    struct error why = {0};
    assert_int_equal(chat_model_create(NULL, &config, &model, &why), 0);
    context.chat = model;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chat_rendering rendering;
        render(cases[i].body, &rendering);
        if (rendering.has_reasoned != cases[i].has_reasoned)
            fail_msg("%s", cases[i].body);
        chat_prompt_finish(&rendering);
    }
    chat_model_destroy(model);
    context.chat = kept;
}

static void a_users_think_opens_nothing(void **state) {
    expect("{\"messages\":[" USER("<think>") "]}", "<s>user:<think></s><s>assistant:", false);
}

static void continuing_excludes_a_generation_prompt(void **state) {
    expect_error("{\"messages\":[" USER("hi") "],\"continue_final_message\":true,"
                                              "\"add_generation_prompt\":true}",
                 "continue_final_message", "unsupported_value");
    expect_error("{\"messages\":[],\"continue_final_message\":1}", "continue_final_message",
                 "invalid_type");
    expect_error("{\"messages\":[],\"add_generation_prompt\":\"yes\"}", "add_generation_prompt",
                 "invalid_type");
}

static void what_the_template_refuses_is_the_clients_fault(void **state) {
    struct conversation conversation;
    struct chat_prompt prompt;
    struct api_error err = {0};
    assert_int_equal(read("{\"messages\":[" USER("refuse me") "]}", &conversation, &err), 0);
    assert_int_equal(create_of(&conversation, &prompt, &err), -1);
    assert_int_equal(err.status, 400);
    assert_non_null(strstr(err.message, "no such words"));
}

static void without_a_template_chats_are_refused(void **state) {
    const struct chat_model_config broken = {
        .chat_template = "{% if %}", .tool_call_parser = "auto", .reasoning_parser = "auto"};
    const struct chat_model_config none = {.tool_call_parser = "auto", .reasoning_parser = "none"};
    const struct chat_model_config *const configs[] = {&broken, &none};
    for (int i = 0; i < 2; i++) {
        struct error err = {0};
        struct chat_model *model;
        const struct chat_model *kept = context.chat;
        assert_int_equal(chat_model_create(NULL, configs[i], &model, &err), 0);
        assert_null(model->chat_template);
        context.chat = model;
        expect_error("{\"messages\":[" USER("hi") "]}", "", "no_chat_template");
        context.chat = kept;
        chat_model_destroy(model);
    }
}

static void unknown_parsers_are_refused(void **state) {
    struct chat_model *model;
    struct error err = {0};
    const struct chat_model_config tools = {.tool_call_parser = "pig", .reasoning_parser = "auto"};
    const struct chat_model_config thoughts = {.tool_call_parser = "auto",
                                               .reasoning_parser = "latin"};
    assert_int_equal(chat_model_create(NULL, &tools, &model, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
    assert_int_equal(chat_model_create(NULL, &thoughts, &model, &err), -1);
    assert_int_equal(err.code, ERROR_CONFIG);
}

static void a_template_without_tools_gets_them_described(void **state) {
    static const char *const sources[] = {"{{ messages[0].content }}", "{{ tools }}"};
    static const char *const parsers[] = {"auto", "hermes", "none", "mistral"};
    for (int i = 0; i < 8; i++) {
        const struct chat_model_config config = {.chat_template = sources[i / 4],
                                                 .tool_call_parser = parsers[i % 4],
                                                 .reasoning_parser = "auto"};
        struct chat_model *model;
        struct error err = {0};
        assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
        assert_int_equal(model->writes_tools, i < 2);
        if (i < 2)
            assert_int_equal(model->tools, TOOL_CALL_FORMAT_HERMES);
        chat_model_destroy(model);
    }
    const struct chat_model *kept = context.chat;
    const struct chat_model_config config = {
        .chat_template = sources[0], .tool_call_parser = "auto", .reasoning_parser = "auto"};
    struct chat_model *model;
    struct error err = {0};
    assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
    context.chat = model;
    expect(
        "{\"messages\":[" USER("hi") "],\"tools\":[" TOOL("f") "," TOOL("g") "]}",
        "# Tools\n\nYou can call these functions. Each line is the JSON description of one:\n" TOOL(
            "f") "\n" TOOL("g") "\n\nTo call a function, answer with its name and its "
                                "arguments in this form:\n<tool_call>\n{\"name\": \"NAME\", "
                                "\"arguments\": {...}}\n"
                                "</tool_call>\n\nhi",
        false);
    context.chat = kept;
    chat_model_destroy(model);
}

static void a_template_has_the_tokens_that_files_name(void **state) {
    const struct chat_model *kept = context.chat;
    const struct chat_model_config config = {
        .chat_template = "{{ bos_token + eos_token + unk_token + additional_special_tokens[3] }}"
                         "{{ additional_special_tokens | length }}{{ pad_token is defined }}",
        .tool_call_parser = "auto",
        .reasoning_parser = "auto"};
    struct chat_model *model;
    struct error err = {0};
    assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
    context.chat = model;
    expect("{\"messages\":[" USER("hi") "]}", "<s></s>?}4False", false);
    context.chat = kept;
    chat_model_destroy(model);
}

static void a_template_with_unknown_names_is_none(void **state) {
    const struct chat_model_config config = {
        .chat_template = "{{ messages }}\n{% if tools %}{{ tools | groupby('name') }}{% endif %}",
        .tool_call_parser = "auto",
        .reasoning_parser = "auto"};
    struct chat_model *model;
    struct error err = {0};
    assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
    assert_null(model->chat_template);
    assert_string_equal(model->problem,
                        "the chat template cannot be used: line 2: unknown filter 'groupby'");
    chat_model_destroy(model);
}

/* Ids of the first prompt of the body. */
static struct chat_prompt create(const char *body) {
    struct conversation conversation;
    struct chat_prompt prompt;
    struct api_error err = {0};
    if (read(body, &conversation, &err) != 0 || create_of(&conversation, &prompt, &err) != 0)
        fail_msg("%s: %s", body, err.message);
    return prompt;
}

static void a_client_writes_no_control_tokens(void **state) {
    static const int32_t expected[] = {FAKE_BOS, 'u', 's', 'e', 'r', ':', '<', 's', '>', FAKE_EOS};
    struct chat_prompt prompt = create("{\"messages\":[" USER("<s>") "]}");
    assert_true(prompt.tokens.count > 10);
    assert_memory_equal(prompt.tokens.ids, expected, sizeof(expected));
    free(prompt.tokens.ids);
}

static void a_long_chat_exceeds_the_context(void **state) {
    struct api_error err = {0};
    struct conversation conversation;
    struct chat_prompt prompt;
    char body[256], content[65];
    /* "<s>user:" and "</s>", "<s>assistant:" take 18 tokens; one more is left for the answer */
    memset(content, 'x', 46);
    content[45] = '\0';
    snprintf(body, sizeof(body), "{\"messages\":[" USER("%s") "]}", content);
    prompt = create(body);
    assert_int_equal(prompt.tokens.count, 63);
    free(prompt.tokens.ids);
    content[45] = 'x';
    content[46] = '\0';
    snprintf(body, sizeof(body), "{\"messages\":[" USER("%s") "]}", content);
    assert_int_equal(read(body, &conversation, &err), 0);
    assert_int_equal(create_of(&conversation, &prompt, &err), -1);
    assert_string_equal(err.code, "context_length_exceeded");
    assert_non_null(strstr(err.message, "64"));
}

static void a_model_knows_how_its_template_takes_messages(void **state) {
#define EACH "{% for m in messages %}"
#define CALLS_OF "{% for c in m.tool_calls or [] %}"
    static const struct {
        const char *source;
        struct chat_message_form form;
    } cases[] = {
        {EACH "{{ m.role ~ m.content }}{% endfor %}",
         {.writes_calls = true, .writes_results = true}},
        {EACH "{% if m.role == 'developer' %}!{% endif %}{{ m.content }}{% endfor %}",
         {.has_developer = true, .writes_calls = true, .writes_results = true}},
        {EACH "{% if m.role == 'developer' %}{{ raise_exception('no') }}{% endif %}{{ m.content }}"
              "{% endfor %}",
         {.writes_calls = true, .writes_results = true}},
        {EACH "{{ m.content or '' }}" CALLS_OF "{{ c.function | tojson }}{% endfor %}{% endfor %}"
              "{# tools #}",
         {.has_null_content = true}},
        /* "content is not none" is in "reasoning_content is not none" */
        {EACH "{% if m.reasoning_content is not none %}{{ m.content + '' }}{% endif %}" CALLS_OF
              "{{ c.function | tojson }}{% endfor %}{% endfor %}",
         {0}},
        {EACH "{{ m.content }}" CALLS_OF "{{ c.function | tojson }}{% endfor %}{% endfor %}", {0}},
        {EACH "{{ m.content or '' }}" CALLS_OF "{{ c.function.name + c.function.arguments }}"
              "{% endfor %}{% endfor %}",
         {.has_null_content = true, .takes_text_arguments = true}},
        {EACH "{{ m.content or '' }}" CALLS_OF "{{ c.function }}{% endfor %}{% endfor %}",
         {.has_null_content = true, .takes_text_arguments = true}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct chat_model_config config = {.chat_template = cases[i].source,
                                                 .tool_call_parser = "auto",
                                                 .reasoning_parser = "auto"};
        struct chat_model *model;
        struct error err = {0};
        assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
        const struct chat_message_form *found = &model->form, *form = &cases[i].form;
        if (found->has_developer != form->has_developer ||
            found->has_null_content != form->has_null_content ||
            found->takes_text_arguments != form->takes_text_arguments ||
            found->writes_calls != form->writes_calls ||
            found->writes_results != form->writes_results)
            fail_msg("%s", cases[i].source);
        chat_model_destroy(model);
    }
#undef EACH
#undef CALLS_OF
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_rendered),
        cmocka_unit_test(forbidden_tools_are_not_shown),
        cmocka_unit_test(kwargs_are_variables),
        cmocka_unit_test(reserved_kwargs_are_refused),
        cmocka_unit_test(the_final_message_is_continued),
        cmocka_unit_test(a_users_think_opens_nothing),
        cmocka_unit_test(the_prompt_may_have_reasoned),
        cmocka_unit_test(continuing_excludes_a_generation_prompt),
        cmocka_unit_test(what_the_template_refuses_is_the_clients_fault),
        cmocka_unit_test(without_a_template_chats_are_refused),
        cmocka_unit_test(unknown_parsers_are_refused),
        cmocka_unit_test(a_template_without_tools_gets_them_described),
        cmocka_unit_test(a_template_has_the_tokens_that_files_name),
        cmocka_unit_test(a_template_with_unknown_names_is_none),
        cmocka_unit_test(a_client_writes_no_control_tokens),
        cmocka_unit_test(a_long_chat_exceeds_the_context),
        cmocka_unit_test(a_model_knows_how_its_template_takes_messages),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
