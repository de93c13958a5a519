#include "server/api/conversation/chat_form.h"

#include "server/api/conversation/template_messages.h"
#include "server/api/conversation/chat_value.h"

#include <cjson/cJSON.h>
#include <string.h>

#define ARENA_BYTES ((size_t)8 << 20)

#define ONE_TEXT(text) .parts = (const char *[]){text}, .num_parts = 1, .has_content = true
#define SYSTEM(text)                                                                               \
    { .role = MESSAGE_SYSTEM, .role_name = "system", ONE_TEXT(text) }
#define DEVELOPER(text)                                                                            \
    { .role = MESSAGE_DEVELOPER, .role_name = "developer", ONE_TEXT(text) }
#define USER(text)                                                                                 \
    { .role = MESSAGE_USER, .role_name = "user", ONE_TEXT(text) }
#define ASSISTANT .role = MESSAGE_ASSISTANT, .role_name = "assistant"
#define SAYS(text)                                                                                 \
    { ASSISTANT, ONE_TEXT(text) }
#define CALLS(...)                                                                                 \
    ASSISTANT,                                                                                     \
        .calls = (struct message_call[]){__VA_ARGS__},                                             \
        .num_calls = sizeof((struct message_call[]){__VA_ARGS__}) / sizeof(struct message_call)
#define CALL(call_id, value)                                                                       \
    { .id = "call_" call_id, .name = "probe_tool", .text = "{\"probe_key\":\"" value "\"}" }
#define RESULT(id, text)                                                                           \
    { .role = MESSAGE_TOOL, .role_name = "tool", .tool_call_id = "call_" id, ONE_TEXT(text) }

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"probe_tool\",\"description\":\"Probes.\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"probe_key\":{\"type\":\"string\","
    "\"description\":\"What.\"}},\"required\":[\"probe_key\"]}}}]";

#define MAX_MESSAGES 6

/* A small conversation: its messages, up to one without a role, and the words that the rendered
 * text must contain. */
struct exchange {
    struct message messages[MAX_MESSAGES + 1];
    const char *words[5];
};

static const struct exchange
    simple = {{USER("ask1")}, {"ask1"}},
    empty_turn = {{USER("ask1"), SAYS(""), USER("ask2")}, {"ask1", "ask2"}},
    words_and_call = {{USER("ask1"),
                       {CALLS(CALL("0a1b2c3d4e", "value1")), ONE_TEXT("answer1"),
                        .reasoning = "thought1"},
                       RESULT("0a1b2c3d4e", "result1")},
                      {"value1", "result1"}},
    developer = {{DEVELOPER("rule1"), USER("ask1")}, {"rule1", "ask1"}},
    system_first = {{SYSTEM("rule1"), USER("ask1")}, {"rule1", "ask1"}},
    systems = {{SYSTEM("rule1"), SYSTEM("rule2"), USER("ask1"), SAYS("answer1"), SYSTEM("rule3"),
                USER("ask2")},
               {"rule1", "rule2", "rule3", "ask2"}},
    one_call = {{USER("ask1"),
                 {CALLS(CALL("0a1b2c3d4e", "value1"))},
                 RESULT("0a1b2c3d4e", "result1")},
                {"probe_tool", "value1", "result1"}},
    brief_id = {{USER("ask1"), {CALLS(CALL("1", "value1"))}, RESULT("1", "result1")},
                {"value1", "result1"}},
    two_calls = {{USER("ask1"),
                  {CALLS(CALL("0a1b2c3d4e", "value1"), CALL("5f6a7b8c9d", "value2"))},
                  RESULT("0a1b2c3d4e", "result1"),
                  RESULT("5f6a7b8c9d", "result2")},
                 {"value1", "value2", "result1", "result2"}},
    next_ask = {{USER("ask1"),
                 {CALLS(CALL("0a1b2c3d4e", "value1"))},
                 RESULT("0a1b2c3d4e", "result1"),
                 USER("ask2")},
                {"value1", "result1", "ask2"}};

struct probe {
    const struct chat_template *chat_template;
    const struct tokenizer *tokenizer;
    bool has_tools; /* whether exchanges are rendered with tools */
};

static bool render(const struct probe *probe, const struct exchange *exchange,
                   const struct chat_message_form *form, struct template_arena *arena,
                   struct text *out) {
    struct template_value *list = NULL, *map = template_map(arena);
    struct api_error refused;
    struct error why = {0};
    struct chat_text text = {0};
    cJSON *functions = cJSON_Parse(probe->has_tools ? tools : "[]");
    int num_messages = 0;
    while (exchange->messages[num_messages].role_name != NULL)
        num_messages++;
    bool is_made = template_messages_make(exchange->messages, num_messages, "messages", form, arena,
                                          &list, &refused) == 0;
    chat_value_set(arena, &map, "messages", list);
    chat_value_set(arena, &map, "tools",
                   probe->has_tools || form->takes_empty_tools ? chat_value_of(arena, functions)
                                                               : template_none(arena));
    cJSON_Delete(functions);
    chat_value_set(arena, &map, "add_generation_prompt", template_bool(arena, true));
    chat_value_set_tokens(arena, &map, probe->tokenizer);
    if (!is_made || map == NULL ||
        chat_template_render(probe->chat_template, arena, map, 0, &text, &why) != 0)
        return false;
    *out = (struct text){.data = text.data, .length = text.length};
    return true;
}

static int count(struct text text, const char *word) {
    size_t length = strlen(word);
    int found = 0;
    for (size_t i = 0; i + length <= text.length; i++)
        found += memcmp(text.data + i, word, length) == 0;
    return found;
}

/* Returns whether the text contains the whole exchange, and no map in the form that only Python
 * writes. */
static bool is_whole(const struct exchange *exchange, struct text text) {
    for (int i = 0; i < 5 && exchange->words[i] != NULL; i++)
        if (count(text, exchange->words[i]) == 0)
            return false;
    return count(text, "{'probe_key'") == 0;
}

/* Returns whether the template takes an exchange in this form. *num_nulls: how often "None" and
 * "null" are in the text. */
static bool takes_with(const struct probe *probe, const struct exchange *exchange,
                       const struct chat_message_form *form, int *num_nulls) {
    struct template_arena *arena = template_arena_create(ARENA_BYTES);
    struct text text;
    bool is_taken =
        arena != NULL && render(probe, exchange, form, arena, &text) && is_whole(exchange, text);
    *num_nulls = is_taken ? count(text, "None") + count(text, "null") : 0;
    template_arena_destroy(arena);
    return is_taken;
}

static bool takes(const struct probe *probe, const struct exchange *exchange,
                  const struct chat_message_form *form) {
    int num_nulls;
    return takes_with(probe, exchange, form, &num_nulls);
}

/* Chooses null content if the template does not write it. */
static bool find_content(const struct probe *probe, struct chat_message_form *form) {
    int num_nulls, num_others;
    form->has_null_content = false;
    bool takes_empty = takes_with(probe, &one_call, form, &num_others);
    form->has_null_content = true;
    bool takes_null = takes_with(probe, &one_call, form, &num_nulls);
    form->has_null_content = takes_null && (!takes_empty || num_nulls <= num_others);
    return takes_null || takes_empty;
}

/* Tries the forms of a call, starting with the one that changes least. */
static bool find_call(const struct probe *probe, struct chat_message_form *form) {
    for (int tried = 0; tried < 4; tried++) {
        form->takes_text_arguments = tried % 2 != 0;
        form->takes_short_ids = tried >= 2;
        if (find_content(probe, form))
            return true;
    }
    return false;
}

/* Tries the flags one by one, then all of them. */
static void find_flags(const struct probe *probe, const struct exchange *exchange,
                       struct chat_message_form *form, bool *const *flags, int count) {
    if (takes(probe, exchange, form))
        return;
    for (int tried = 0; tried <= count; tried++) {
        for (int i = 0; i < count; i++)
            *flags[i] = i == tried || tried == count;
        if (takes(probe, exchange, form))
            return;
    }
    for (int i = 0; i < count; i++)
        *flags[i] = false;
}

static void find_calls(const struct probe *probe, struct chat_message_form *form) {
    struct chat_message_form plain = *form;
    if (!form->writes_calls && !find_call(probe, form)) {
        *form = plain;
        form->writes_calls = true;
        form->writes_results = !takes(probe, &one_call, form);
    }
    if (form->writes_calls && !takes(probe, &one_call, form)) {
        *form = plain;
        return;
    }
    find_flags(probe, &brief_id, form, (bool *[]){&form->takes_short_ids}, 1);
    find_flags(probe, &two_calls, form, (bool *[]){&form->takes_one_call, &form->joins_results}, 2);
    find_flags(probe, &words_and_call, form, (bool *[]){&form->splits_words}, 1);
    find_flags(probe, &next_ask, form, (bool *[]){&form->joins_users}, 1);
}

void chat_form_probe(const struct chat_template *chat_template, const char *source,
                     const struct tokenizer *tokenizer, bool writes_tools,
                     struct chat_message_form *out) {
    struct probe probe = {.chat_template = chat_template, .tokenizer = tokenizer};
    struct chat_message_form form = {.writes_calls = writes_tools, .writes_results = writes_tools};
    find_flags(&probe, &simple, &form, (bool *[]){&form.takes_parts, &form.takes_empty_tools}, 2);
    *out = form;
    if (!takes(&probe, &simple, &form))
        return;
    find_flags(&probe, &empty_turn, &form, (bool *[]){&form.takes_no_empty_turn}, 1);
    form.has_developer = true;
    form.has_developer = strstr(source, "developer") != NULL && takes(&probe, &developer, &form);
    if (takes(&probe, &system_first, &form))
        find_flags(&probe, &systems, &form, (bool *[]){&form.joins_systems}, 1);
    probe.has_tools = !writes_tools;
    find_calls(&probe, &form);
    *out = form;
}
