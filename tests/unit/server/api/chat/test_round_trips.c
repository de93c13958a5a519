/* What the server has answered, sent back: every published chat template of tests/golden, whose
 * folder is the argument, with conversations of many shapes, on chat completions, responses and
 * messages. Each assistant's turn is what this server writes when the model says TEXT; the request
 * of the next turn has it as it was written, and must render with all that was said.
 *
 *     test_round_trips FOLDER [TEMPLATE SHAPE API]     prints one rendering */
#include "tests/golden/chat_case.h"
#include "tests/unit/server/api/chat_fixture.h"

#include "server/api/chat/chat_format.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/messages/messages_body.h"
#include "server/api/messages/messages_output.h"
#include "server/api/chat/chat_body.h"
#include "server/api/responses/responses_body.h"
#include "server/api/responses/responses_output.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX_STEPS 12
#define MAX_CALLS 16

/* --- Conversations --- */

#define CALL(value)                                                                                \
    "<tool_call>{\"name\":\"look\",\"arguments\":{\"at\":\"" value "\"}}</tool_call>"
#define ARGUMENTS(object) "<tool_call>{\"name\":\"look\",\"arguments\":" object "}</tool_call>"

/* Steps: s system, d developer, u user, a what the model says, r the result of the next call, R of
 * the one after it. Words that end in a digit must be in the prompt. */
static const struct shape {
    const char *name;
    bool has_tools;
    const char *steps[MAX_STEPS];
} shapes[] = {
    {"one question", false, {"u ask1"}},
    {"one answer", false, {"u ask1", "a say1", "u ask2"}},
    {"a system's rule", false, {"s rule1", "u ask1", "a say1", "u ask2"}},
    {"a developer's rule", false, {"d rule1", "u ask1", "a say1", "u ask2"}},
    {"two rules", false, {"s rule1", "d rule2", "u ask1"}},
    {"a rule on the way", false, {"s rule1", "u ask1", "a say1", "s rule2", "u ask2"}},
    {"reasoning", false, {"u ask1", "a <think>thought</think>say1", "u ask2"}},
    {"reasoning alone", false, {"u ask1", "a <think>thought</think>", "u ask2"}},
    {"an empty answer", false, {"u ask1", "a ", "u ask2"}},
    {"a call", true, {"u ask1", "a " CALL("at1"), "r got1"}},
    {"a call, then a question", true, {"u ask1", "a " CALL("at1"), "r got1", "u ask2"}},
    {"a call, then an answer", true, {"u ask1", "a " CALL("at1"), "r got1", "a say1", "u ask2"}},
    {"a call without tools",
     false,
     {"s rule1", "u ask1", "a " CALL("at1"), "r got1", "a say1", "u ask2"}},
    {"words and a call", true, {"s rule1", "u ask1", "a say " CALL("at1"), "r got1"}},
    {"reasoning and a call", true, {"u ask1", "a <think>thought</think>" CALL("at1"), "r got1"}},
    {"reasoning, words and a call",
     true,
     {"d rule1", "u ask1", "a <think>thought</think>say " CALL("at1"), "r got1", "u ask2"}},
    {"two calls", true, {"u ask1", "a " CALL("at1") CALL("at2"), "r got1", "r got2"}},
    {"two calls, answered in reverse",
     true,
     {"u ask1", "a " CALL("at1") CALL("at2"), "R got2", "r got1", "u ask2"}},
    {"a call after a call",
     true,
     {"u ask1", "a " CALL("at1"), "r got1", "a " CALL("at2"), "r got2", "a say1", "u ask2"}},
    {"two calls after two",
     true,
     {"s rule1", "u ask1", "a " CALL("at1") CALL("at2"), "r got1", "r got2",
      "a " CALL("at3") CALL("at4"), "r got3", "r got4", "u ask2"}},
    {"no arguments, no result", true, {"u ask1", "a " ARGUMENTS("{}"), "r ", "u ask2"}},
    {"arguments no text holds",
     true,
     {"u ask1", "a " ARGUMENTS("{\"at\":\"at1\\u0000\\ud83d\"}"), "r got1\\u0000end2"}},
    {"arguments cut off", true, {"u ask1", "a " ARGUMENTS("{\"at\":\"cut"), "r got1", "u ask2"}},
    {"a key twice", true, {"u ask1", "a " ARGUMENTS("{\"at\":\"x\",\"at\":\"y\"}"), "r got1"}},
    {"many kinds of values",
     true,
     {"u ask1",
      "a " ARGUMENTS("{\"n\":[1.0,-0.0,1e5,12345678901234567890,0.1],\"o\":{\"at\":null,"
                     "\"q\":\"\\\"'\\n\"},\"b\":true}"),
      "r got1", "u ask2"}},
};

#define NUM_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

#define TOOL(parameters)                                                                           \
    "\"name\":\"look\",\"description\":\"Looks.\",\"" parameters                                   \
    "\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":\"string\",\"description\":\"What."  \
    "\"}}}"

/* A conversation as it grows in the words of an API. */
struct talk {
    struct byte_buffer items;   /* of the messages or of the input */
    struct byte_buffer results; /* messages: blocks of the user's turn that is not ended yet */
    struct byte_buffer system;  /* messages: the first rule */
    char ids[MAX_CALLS][64];    /* of calls that have no result yet */
    int num_ids;
};

struct api {
    const char *name, *list, *max_tokens, *tools; /* tools: a list of one, as JSON */
    const char *result[4]; /* a result's first member with its value, its id and its text */
    bool has_blocks;       /* results and a user's texts are blocks of one message */
    void (*answer)(struct talk *talk, const char *text);
    int (*read)(const struct api_context *context, const cJSON *json, struct conversation *out,
                struct api_error *err);
};

/* --- What the model says, as the server answers it --- */

/* Forced calls come in pieces, so that one of them may be cut. */

static const struct output_parser_config parser_config = {
    .tools = TOOL_CALL_FORMAT_HERMES, .reasoning = REASONING_FORMAT_THINK, .is_forced = true};

static void keep_id(struct talk *talk, const cJSON *id) {
    if (cJSON_IsString(id))
        snprintf(talk->ids[talk->num_ids++], sizeof(talk->ids[0]), "%s", id->valuestring);
}

static cJSON *parse(const struct byte_buffer *text) {
    struct api_error err;
    cJSON *json = json_parse(text->data, text->length, &err);
    if (json == NULL)
        fail_msg("not read again: %s in %.*s", err.message, (int)text->length, text->data);
    return json;
}

static void chat_answer(struct talk *talk, const char *text) {
    static const struct api_call_finish finish = {.reason = FINISH_STOP};
    const struct chat_choice_config config = {.parser = parser_config, .allows_parallel = true};
    const struct token_event event = {
        .text = text, .text_bytes = (int32_t)strlen(text), .finish = FINISH_STOP};
    struct chat_choice choice = {0};
    struct byte_buffer json = {0};
    chat_choice_init(&choice, &config);
    assert_int_equal(chat_choice_add(&choice, &event), 0);
    chat_format_choice(
        &(struct chat_choice_view){.choice = &choice, .finish = &finish, .may_reason = true},
        &json);
    cJSON *tree = parse(&json);
    const cJSON *message = json_member(tree, "message"), *call;
    cJSON_ArrayForEach(call, json_member(message, "tool_calls"))
        keep_id(talk, json_member(call, "id"));
    json_write_tree(&talk->items, message);
    cJSON_Delete(tree);
    byte_buffer_finish(&json);
    chat_choice_finish(&choice);
}

/* Wraps a list as an object, which is what can be parsed. */
static cJSON *parse_list(struct byte_buffer *list) {
    struct byte_buffer json = {0};
    json_write_begin_object(&json);
    json_write_key(&json, "list");
    json_write_items(&json, list);
    json_write_end_object(&json);
    cJSON *tree = parse(&json);
    byte_buffer_finish(&json);
    byte_buffer_finish(list);
    return tree;
}

static void responses_answer(struct talk *talk, const char *text) {
    struct output_parser *parser = output_parser_create(&parser_config);
    struct responses_output output = {0};
    struct output_part part;
    struct byte_buffer list = {0};
    assert_int_equal(output_parser_push(parser, text, strlen(text), OUTPUT_ENDS), 0);
    while (output_parser_next(parser, &part))
        assert_int_equal(responses_output_add(&output, &part, NULL, NULL), 0);
    assert_int_equal(responses_output_close(&output, false, NULL), 0);
    responses_output_format(&output, false, &list);
    cJSON *tree = parse_list(&list);
    const cJSON *item;
    cJSON_ArrayForEach(item, json_member(tree, "list")) {
        keep_id(talk, json_member(item, "call_id"));
        json_write_tree(&talk->items, item);
    }
    cJSON_Delete(tree);
    responses_output_finish(&output);
    output_parser_destroy(parser);
}

/* A user's turn on messages is one message of results and texts. */
static void end_user(struct talk *talk) {
    if (talk->results.length == 0)
        return;
    json_write_begin_object(&talk->items);
    json_write_text_member(&talk->items, "role", "user");
    json_write_array_member(&talk->items, "content", &talk->results);
    json_write_end_object(&talk->items);
    byte_buffer_clear(&talk->results);
}

static void messages_answer(struct talk *talk, const char *text) {
    struct output_parser *parser = output_parser_create(&parser_config);
    struct messages_output output = {0};
    struct output_part part;
    struct byte_buffer list = {0};
    end_user(talk);
    assert_int_equal(output_parser_push(parser, text, strlen(text), OUTPUT_ENDS), 0);
    while (output_parser_next(parser, &part))
        assert_int_equal(messages_output_add(&output, &part, NULL), 0);
    messages_output_close(&output, NULL);
    messages_output_format(&output, &list);
    cJSON *tree = parse_list(&list);
    const cJSON *block;
    cJSON_ArrayForEach(block, json_member(tree, "list")) keep_id(talk, json_member(block, "id"));
    json_write_begin_object(&talk->items);
    json_write_text_member(&talk->items, "role", "assistant");
    json_write_key(&talk->items, "content");
    json_write_tree(&talk->items, json_member(tree, "list"));
    json_write_end_object(&talk->items);
    cJSON_Delete(tree);
    messages_output_finish(&output);
    output_parser_destroy(parser);
}

/* --- What is said to it --- */

/* The text of a step, with its escapes as JSON has them. */
static void write_text_member(struct byte_buffer *out, const char *name, const char *text) {
    json_write_key(out, name);
    byte_buffer_printf(out, "\"%s\"", text);
}

static void message_say(struct talk *talk, const char *role, const char *text) {
    json_write_begin_object(&talk->items);
    json_write_text_member(&talk->items, "role", role);
    write_text_member(&talk->items, "content", text);
    json_write_end_object(&talk->items);
}

static void say(const struct api *api, struct talk *talk, const char *role, const char *text) {
    if (!api->has_blocks) {
        message_say(talk, role, text);
    } else if (strcmp(role, "user") == 0) {
        json_write_begin_object(&talk->results);
        json_write_text_member(&talk->results, "type", "text");
        write_text_member(&talk->results, "text", text);
        json_write_end_object(&talk->results);
    } else if (talk->items.length + talk->results.length + talk->system.length == 0) {
        byte_buffer_append(&talk->system, text, strlen(text) + 1);
    } else {
        end_user(talk);
        message_say(talk, "system", text);
    }
}

static void give(const struct api *api, struct talk *talk, const char *id, const char *text) {
    struct byte_buffer *out = api->has_blocks ? &talk->results : &talk->items;
    json_write_begin_object(out);
    json_write_text_member(out, api->result[0], api->result[1]);
    json_write_text_member(out, api->result[2], id);
    write_text_member(out, api->result[3], text);
    json_write_end_object(out);
}

/* --- Requests --- */

static cJSON *make_body(const struct api *api, struct talk *talk, bool has_tools) {
    struct byte_buffer text = {0};
    end_user(talk);
    json_write_begin_object(&text);
    json_write_text_member(&text, "model", "m");
    json_write_int_member(&text, api->max_tokens, 5);
    if (talk->system.length > 0)
        write_text_member(&text, "system", talk->system.data);
    json_write_array_member(&text, api->list, &talk->items);
    if (has_tools)
        json_write_raw_member(&text, "tools", api->tools);
    json_write_end_object(&text);
    cJSON *json = parse(&text);
    byte_buffer_finish(&text);
    return json;
}

static int chat_read(const struct api_context *context, const cJSON *json, struct conversation *out,
                     struct api_error *err) {
    struct byte_buffer text = {0};
    json_write_tree(&text, json);
    int status = chat_body_parse(context, text.data, text.length, out, err);
    byte_buffer_finish(&text);
    return status;
}

static int responses_read(const struct api_context *context, const cJSON *json,
                          struct conversation *out, struct api_error *err) {
    static const struct responses_conversation nothing;
    return responses_body_read(context, json, &nothing, out, err);
}

static int messages_read(const struct api_context *context, const cJSON *json,
                         struct conversation *out, struct api_error *err) {
    return messages_body_read(context, json, false, out, err);
}

static int render(const struct api_context *context, const struct api *api, struct talk *talk,
                  bool has_tools, struct chat_rendering *out, struct api_error *err) {
    cJSON *json = make_body(api, talk, has_tools);
    struct conversation body;
    int status = api->read(context, json, &body, err);
    if (status == 0) {
        status = chat_prompt_render(context, &body, out, err);
        conversation_finish(&body);
    }
    cJSON_Delete(json);
    return status;
}

static const struct api apis[] = {
    {"chat",
     "messages",
     "max_tokens",
     "[{\"type\":\"function\",\"function\":{" TOOL("parameters") "}}]",
     {"role", "tool", "tool_call_id", "content"},
     false,
     chat_answer,
     chat_read},
    {"responses",
     "input",
     "max_output_tokens",
     "[{\"type\":\"function\"," TOOL("parameters") "}]",
     {"type", "function_call_output", "call_id", "output"},
     false,
     responses_answer,
     responses_read},
    {"messages",
     "messages",
     "max_tokens",
     "[{" TOOL("input_schema") "}]",
     {"type", "tool_result", "tool_use_id", "content"},
     true,
     messages_answer,
     messages_read},
};

/* --- One conversation --- */

static void take_step(const struct api *api, struct talk *talk, const char *step) {
    const char *text = step + 2;
    if (step[0] == 'a') {
        api->answer(talk, text);
    } else if (step[0] == 'r' || step[0] == 'R') {
        int at = step[0] == 'R';
        assert_true(at < talk->num_ids);
        give(api, talk, talk->ids[at], text);
        memmove(talk->ids[at], talk->ids[at + 1],
                sizeof(talk->ids[0]) * (size_t)(MAX_CALLS - at - 1));
        talk->num_ids--;
    } else {
        say(api, talk, step[0] == 's' ? "system" : step[0] == 'd' ? "developer" : "user", text);
    }
}

static int run(const struct api_context *context, const struct api *api, const struct shape *shape,
               struct chat_rendering *out, struct api_error *err) {
    struct talk talk = {0};
    for (int i = 0; i < MAX_STEPS && shape->steps[i] != NULL; i++)
        take_step(api, &talk, shape->steps[i]);
    int status = render(context, api, &talk, shape->has_tools, out, err);
    byte_buffer_finish(&talk.items);
    byte_buffer_finish(&talk.results);
    byte_buffer_finish(&talk.system);
    return status;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

/* Finds a word of a step that ends in a digit and is not in the text. */
static bool find_missing(const char *step, struct text text, char out[16]) {
    for (const char *c = step; *c != '\0';) {
        size_t length = strspn(c, "abcdefghijklmnopqrstuvwxyz");
        if (length < 2 || c[length] < '1' || c[length] > '9' || is_word(c[length + 1]) ||
            length > 8) {
            c += length > 0 ? length : 1;
            continue;
        }
        snprintf(out, 16, "%.*s", (int)length + 1, c);
        if (memmem(text.data, text.length, out, length + 1) == NULL)
            return true;
        c += length + 1;
    }
    return false;
}

static bool is_incomplete(const struct shape *shape, struct text text, char out[16]) {
    for (int i = 0; i < MAX_STEPS && shape->steps[i] != NULL; i++)
        if (find_missing(shape->steps[i], text, out))
            return true;
    return false;
}

/* --- All of them --- */

static const char *folder;
static struct api_context context;

static struct chat_model *make_model(const char *name) {
    size_t length;
    char file[64];
    snprintf(file, sizeof(file), "%s.jinja", name);
    char *source = chat_case_read(folder, file, &length);
    const struct chat_model_config config = {
        .chat_template = source, .tool_call_parser = "auto", .reasoning_parser = "auto"};
    struct chat_model *model = NULL;
    struct error err = {0};
    assert_int_equal(chat_model_create(NULL, &config, &model, &err), 0);
    free(source);
    return model;
}

/* What Transformers' own rendering refuses or leaves out, too: `why` is in the message, or the word
 * that is missing, `count` times. */
static struct excuse {
    const char *name, *why;
    int count, seen;
} excuses[] = {
    /* No system role. */
    {"gemma", "System role not supported", 24},
    {"gemma-2", "System role not supported", 24},
    {"granite-20b", "Unexpected combination of role and message content", 24},
    {"mistral-7b-v0.2-old", "Conversation roles must alternate", 24},
    /* A variable that only the model's own package sets. */
    {"firefunction-v2", "'functions' is undefined", 75},
    /* The system's words are not written, or only with a user's last ones. */
    {"falcon", "rule1 is left out", 24},
    {"glm-4-tools", "rule1 is left out", 24},
    {"orion", "rule1 is left out", 24},
    {"phi-3-medium", "rule1 is left out", 24},
    {"phi-3-mini", "rule1 is left out", 24},
    {"yandexgpt-5-lite", "rule1 is left out", 24},
    {"mistral-large-2407", "rule1 is left out", 9},
    {"mistral-nemo", "rule1 is left out", 9},
    {"mistral-tools", "rule1 is left out", 9},
    {"mistral-v2v3", "rule1 is left out", 9},
    /* Calls are written only where there are tools. */
    {"hunyuan-a13b", "at1 is left out", 3},
};

#define NUM_EXCUSES (sizeof(excuses) / sizeof(excuses[0]))

static int num_templates, num_renderings, num_failures;

static void report(const char *name, const struct api *api, const struct shape *shape,
                   const char *why) {
    for (size_t i = 0; i < NUM_EXCUSES; i++) {
        if (strcmp(excuses[i].name, name) != 0 || strstr(why, excuses[i].why) == NULL)
            continue;
        excuses[i].seen++;
        return;
    }
    num_failures++;
    fprintf(stderr, "# %s, %s, %s: %s\n", name, shape->name, api->name, why);
}

static void check(const char *name, const struct api *api, const struct shape *shape) {
    struct chat_rendering rendering;
    struct api_error err = {0};
    char word[16], why[64];
    num_renderings++;
    if (run(&context, api, shape, &rendering, &err) != 0) {
        report(name, api, shape, err.message);
        return;
    }
    struct text text = {rendering.text.data, rendering.text.length};
    if (is_incomplete(shape, text, word)) {
        snprintf(why, sizeof(why), "%s is left out", word);
        report(name, api, shape, why);
    }
    chat_prompt_finish(&rendering);
}

static void check_template(const char *name) {
    struct chat_model *model = make_model(name);
    assert_non_null(model->chat_template);
    context.chat = model;
    num_templates++;
    for (int api = 0; api < 3; api++)
        for (int shape = 0; shape < NUM_SHAPES; shape++)
            check(name, &apis[api], &shapes[shape]);
    chat_model_destroy(model);
}

static void what_was_answered_is_read_again(void **state) {
    struct dirent **files = NULL;
    int count = scandir(folder, &files, NULL, alphasort);
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char *end = strstr(files[i]->d_name, ".jinja");
        if (end != NULL) {
            *end = '\0';
            check_template(files[i]->d_name);
        }
        free(files[i]);
    }
    free(files);
    print_message("# %d templates, %d renderings, %d failures\n", num_templates, num_renderings,
                  num_failures);
    for (size_t i = 0; i < NUM_EXCUSES; i++)
        if (excuses[i].seen != excuses[i].count)
            fail_msg("%s: %s, %d times, not %d", excuses[i].name, excuses[i].why, excuses[i].seen,
                     excuses[i].count);
    assert_int_equal(num_failures, 0);
    assert_int_equal(num_renderings, num_templates * NUM_SHAPES * 3);
    assert_true(num_templates > 100);
}

/* --- The form of each template --- */

static void describe(const struct chat_message_form *form, char out[256]) {
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {
        {form->has_developer, "developer"},
        {form->has_null_content, "null"},
        {form->takes_text_arguments, "text"},
        {form->takes_short_ids, "short-ids"},
        {form->takes_parts, "parts"},
        {form->takes_no_empty_turn, "no-empty"},
        {form->takes_empty_tools, "empty-tools"},
        {form->splits_words, "splits"},
        {form->takes_one_call, "one-call"},
        {form->joins_results, "joins-results"},
        {form->joins_users, "joins-users"},
        {form->joins_systems, "joins-systems"},
        {form->writes_calls, "writes-calls"},
        {form->writes_results, "writes-results"},
    };
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (flags[i].is_set)
            snprintf(out + strlen(out), 256 - strlen(out), "%s%s", out[0] != '\0' ? " " : "",
                     flags[i].name);
}

static void the_form_is_found_by_rendering(void **state) {
    static const char *const cases[][2] = {
        {"smollm2", "writes-calls writes-results"},
        {"gemma-3", "joins-results joins-users joins-systems writes-calls writes-results"},
        {"qwen2.5", "null"},
        {"qwen3", ""},
        {"qwen3.5", "null joins-systems"},
        {"llama-3.1", "null one-call"},
        {"mistral-nemo", "null short-ids joins-users joins-systems"},
        {"mistral-tools", "null short-ids joins-users joins-systems"},
        {"mistral-3-tools", "null short-ids joins-systems"},
        {"ministral-3", "no-empty joins-users joins-systems"},
        {"deepseek-v3", "null text"},
        {"deepseek-r1-distill-llama", "null text splits joins-systems"},
        {"functionary-3.2", "null text"},
        {"gpt-oss", "developer splits one-call joins-systems"},
        {"phi-4-mini", "null text splits joins-systems"},
        {"lfm2", "writes-calls"},
        {"idefics-3", "parts writes-calls writes-results"},
        {"hermes-2-pro", "null empty-tools"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct chat_model *model = make_model(cases[i][0]);
        char found[256];
        describe(&model->form, found);
        if (strcmp(found, cases[i][1]) != 0)
            fail_msg("%s: \"%s\", not \"%s\"", cases[i][0], found, cases[i][1]);
        chat_model_destroy(model);
    }
}

static int show(char **names) {
    struct chat_model *model = make_model(names[0]);
    context.chat = model;
    struct chat_rendering rendering;
    struct api_error err = {0};
    char form[256];
    describe(&model->form, form);
    printf("form: %s\n", form);
    for (int shape = 0; shape < NUM_SHAPES; shape++) {
        const struct api *api = &apis[atoi(names[2])];
        if (strcmp(shapes[shape].name, names[1]) != 0)
            continue;
        if (run(&context, api, &shapes[shape], &rendering, &err) != 0) {
            printf("%s\n", err.message);
            continue;
        }
        printf("%.*s\n", (int)rendering.text.length, rendering.text.data);
        chat_prompt_finish(&rendering);
    }
    chat_model_destroy(model);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_was_answered_is_read_again),
                                       cmocka_unit_test(the_form_is_found_by_rendering)};
    if (argc != 2 && argc != 5)
        return fprintf(stderr, "usage: %s FOLDER [TEMPLATE SHAPE API]\n", argv[0]), 2;
    folder = argv[1];
    chat_fixture_init(&context, 1000);
    const struct chat_model *own = context.chat;
    int status = argc == 5 ? show(argv + 2) : cmocka_run_group_tests(tests, NULL, NULL);
    context.chat = own;
    chat_fixture_finish(&context);
    return status;
}
