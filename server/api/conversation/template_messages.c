/* A value that the arena could not take is NULL, and so is everything made from it: this is checked
 * once per message. */
#include "server/api/conversation/template_messages.h"

#include "config/base/byte_buffer.h"
#include "config/json/json_parse.h"
#include "config/json/json_path.h"
#include "config/json/json_write.h"
#include "server/api/conversation/chat_turns.h"
#include "server/api/conversation/chat_value.h"

#include <string.h>

struct maker {
    struct template_arena *arena;
    const struct chat_message_form *form;
    const char *tool_text; /* not placed yet; NULL: nothing to place */
    const char *field;
    struct api_error *err;
};

int template_messages_fail_arena(const struct template_arena *arena, const char *field,
                                 struct api_error *err) {
    if (template_arena_is_full(arena))
        return bad_request(err, "out_of_range", field,
                           "%s and tools together are too large for the chat template", field);
    return api_error_set_memory(err);
}

static bool is_system(const struct message *message) {
    return message->role == MESSAGE_SYSTEM || message->role == MESSAGE_DEVELOPER;
}

/* --- Arguments of calls --- */

/* Reads the arguments as an object; NULL with why->status 400 if they are not one. */
static cJSON *parse_arguments(const char *text, struct api_error *why) {
    if (text[strspn(text, " \t\r\n")] == '\0' || strcmp(text, "null") == 0)
        return json_parse("{}", 2, why);
    cJSON *json = json_parse(text, strlen(text), why);
    return json != NULL || why->status != 400 ? json : json_parse_cut(text, strlen(text), why);
}

static void write_input(struct byte_buffer *out, const char *text) {
    byte_buffer_append_text(out, "{\"input\": "); /* with the space that models write */
    json_write_text(out, text);
    byte_buffer_append_text(out, "}");
}

/* Writes arguments that were given as text: unchanged if the text is whole. */
static void write_text_arguments(const char *text, struct byte_buffer *out) {
    struct api_error why;
    cJSON *json = json_parse(text, strlen(text), &why);
    if (json != NULL)
        byte_buffer_append_text(out, text);
    else if ((json = parse_arguments(text, &why)) != NULL)
        json_write_tree_as_sent(out, json);
    else if (why.status == 400)
        write_input(out, text);
    else
        out->failed = true;
    cJSON_Delete(json);
}

static void write_arguments(const struct message_call *call, struct byte_buffer *out) {
    if (call->is_custom)
        write_input(out, call->text);
    else if (call->text != NULL)
        write_text_arguments(call->text, out);
    else if (call->object != NULL)
        json_write_tree_as_sent(out, call->object);
    else
        byte_buffer_append_text(out, "{}");
}

static struct template_value *text_of_arguments(const struct maker *maker,
                                                const struct message_call *call) {
    struct byte_buffer text = {0};
    write_arguments(call, &text);
    struct template_value *value =
        text.failed ? NULL
                    : template_string(maker->arena, text.data, text.length, TEMPLATE_ORIGIN_CLIENT);
    byte_buffer_finish(&text);
    return value;
}

static struct template_value *arguments_value(const struct maker *maker,
                                              const struct message_call *call) {
    struct api_error why = {0};
    if (maker->form->takes_text_arguments)
        return text_of_arguments(maker, call);
    if (call->text == NULL)
        return call->object != NULL ? chat_value_of(maker->arena, call->object)
                                    : template_map(maker->arena);
    cJSON *json = call->is_custom ? NULL : parse_arguments(call->text, &why);
    if (json == NULL && !call->is_custom && why.status != 400)
        return NULL;
    struct template_value *value =
        json != NULL ? chat_value_of(maker->arena, json) : template_map(maker->arena);
    if (json == NULL)
        chat_value_set(maker->arena, &value, "input", chat_value_text(maker->arena, call->text));
    cJSON_Delete(json);
    return value;
}

static struct template_value *call_value(const struct maker *maker,
                                         const struct message_call *call) {
    struct template_arena *arena = maker->arena;
    struct template_value *function = template_map(arena), *map = template_map(arena);
    chat_value_set(arena, &function, "name", chat_value_text(arena, call->name));
    chat_value_set(arena, &function, "arguments", arguments_value(maker, call));
    if (call->id != NULL)
        chat_value_set(arena, &map, "id", chat_value_text(arena, call->id));
    chat_value_set(arena, &map, "type",
                   template_string(arena, "function", strlen("function"), TEMPLATE_ORIGIN_SERVER));
    chat_value_set(arena, &map, "function", function);
    return map;
}

static struct template_value *calls_value(const struct maker *maker,
                                          const struct message *message) {
    struct template_value *list = template_list(maker->arena);
    for (int i = 0; i < message->num_calls; i++)
        list = template_list_append(maker->arena, list, call_value(maker, &message->calls[i]));
    return list;
}

/* Writes the calls as text, like Qwen's templates. */
static void write_calls(const struct message *message, struct byte_buffer *out) {
    for (int i = 0; i < message->num_calls; i++) {
        byte_buffer_append_text(out, out->length > 0 ? "\n" : "");
        byte_buffer_append_text(out, "<tool_call>\n{\"name\": ");
        json_write_text(out, message->calls[i].name);
        byte_buffer_append_text(out, ", \"arguments\": ");
        write_arguments(&message->calls[i], out);
        byte_buffer_append_text(out, "}\n</tool_call>");
    }
}

/* --- Content --- */

/* How the template sees a message, in addition to its text. */
struct turn {
    const char *suffix;                     /* of the last message; otherwise empty */
    bool has_written_calls;                 /* calls are written as text */
    bool is_result;                         /* of a tool, written as a user's text */
    const char *tools_before, *tools_after; /* the tools' description, or NULL */
};

static void join_parts(const struct message *message, struct byte_buffer *out) {
    for (int i = 0; i < message->num_parts; i++) {
        byte_buffer_append_text(out, i > 0 ? "\n" : "");
        byte_buffer_append_text(out, message->parts[i]);
    }
}

static void write_content(const struct message *message, const struct turn *turn,
                          struct byte_buffer *out) {
    if (turn->tools_before != NULL) {
        byte_buffer_append_text(out, turn->tools_before);
        byte_buffer_append_text(out, "\n\n");
    }
    byte_buffer_append_text(out, turn->is_result ? "<tool_response>\n" : "");
    join_parts(message, out);
    if (turn->has_written_calls)
        write_calls(message, out);
    byte_buffer_append_text(out, turn->is_result ? "\n</tool_response>" : "");
    if (turn->tools_after != NULL) {
        byte_buffer_append_text(out, "\n\n");
        byte_buffer_append_text(out, turn->tools_after);
    }
    byte_buffer_append_text(out, turn->suffix);
}

/* Returns the text of a message without content. */
static const char *empty_text(const struct maker *maker, const struct message *message) {
    bool is_said = message->role == MESSAGE_ASSISTANT && message->num_calls == 0 &&
                   maker->form->takes_no_empty_turn;
    return is_said ? " " : "";
}

static struct template_value *null_content(const struct maker *maker,
                                           const struct message *message) {
    return message->num_calls > 0 && maker->form->has_null_content
               ? template_none(maker->arena)
               : chat_value_text(maker->arena, empty_text(maker, message));
}

static int set_content(const struct maker *maker, const struct message *message, int index,
                       const struct turn *turn, struct template_value **map) {
    struct template_arena *arena = maker->arena;
    struct byte_buffer text = {0};
    bool is_null = !message->has_content && !turn->has_written_calls;
    if (is_null && turn->suffix[0] != '\0')
        return json_refuse_at(
            NULL,
            JSON_MEMBER_PATH(JSON_ITEM_PATH(JSON_MEMBER_PATH(NULL, maker->field), index),
                             "content"),
            "a string or an array of text parts", maker->err);
    if (is_null) {
        chat_value_set(arena, map, "content", null_content(maker, message));
        return 0;
    }
    write_content(message, turn, &text);
    bool has_failed = text.failed;
    if (text.length == 0)
        chat_value_set(arena, map, "content", chat_value_text(arena, empty_text(maker, message)));
    else if (!has_failed)
        chat_value_set(arena, map, "content",
                       template_string(arena, text.data, text.length, TEMPLATE_ORIGIN_CLIENT));
    byte_buffer_finish(&text);
    return has_failed ? template_messages_fail_arena(arena, maker->field, maker->err) : 0;
}

/* --- Messages --- */

static void set_text(const struct maker *maker, const char *key, const char *text,
                     struct template_value **map) {
    if (text != NULL)
        chat_value_set(maker->arena, map, key, chat_value_text(maker->arena, text));
}

/* Sets the members other than role and content. Templates call reasoning reasoning_content or, in
 * gpt-oss, thinking: Transformers fills both. */
static void set_rest(const struct maker *maker, const struct message *message,
                     const struct turn *turn, struct template_value **map) {
    set_text(maker, "name", message->name, map);
    set_text(maker, "reasoning_content", message->reasoning, map);
    set_text(maker, "thinking", message->reasoning, map);
    set_text(maker, "reasoning", message->reasoning, map);
    if (message->num_calls > 0 && !turn->has_written_calls)
        chat_value_set(maker->arena, map, "tool_calls", calls_value(maker, message));
    set_text(maker, "tool_call_id", message->tool_call_id, map);
}

/* Puts the description of the tools into the first message if it is the system's, otherwise into
 * the first message of a user. */
static void place_tools(struct maker *maker, const struct message *message, bool is_first,
                        struct turn *turn) {
    const char *text = maker->tool_text;
    if (text == NULL)
        return;
    if (is_first && is_system(message))
        turn->tools_after = text;
    else if (message->role == MESSAGE_USER)
        turn->tools_before = text;
    else
        return;
    maker->tool_text = NULL;
}

/* Returns a message's role. A role that is not OpenAI's counts as the client's text, so it cannot
 * become a control token in a template that writes roles as control tokens. */
static struct template_value *role_value(const struct maker *maker, const struct message *message,
                                         const struct turn *turn) {
    const char *role = message->role_name;
    if (message->role == MESSAGE_DEVELOPER && !maker->form->has_developer)
        role = "system";
    if (turn->is_result)
        role = "user";
    return template_string(maker->arena, role, strlen(role),
                           message->role == MESSAGE_OTHER ? TEMPLATE_ORIGIN_CLIENT
                                                          : TEMPLATE_ORIGIN_SERVER);
}

static enum chat_turn_kind kind_of(const struct message *message) {
    static const enum chat_turn_kind kinds[] = {
        [MESSAGE_SYSTEM] = CHAT_TURN_SYSTEM,       [MESSAGE_DEVELOPER] = CHAT_TURN_SYSTEM,
        [MESSAGE_USER] = CHAT_TURN_USER,           [MESSAGE_TOOL] = CHAT_TURN_RESULT,
        [MESSAGE_ASSISTANT] = CHAT_TURN_ASSISTANT, [MESSAGE_OTHER] = CHAT_TURN_OTHER,
    };
    return kinds[message->role];
}

static int make_message(struct maker *maker, const struct message *message, int index, bool is_last,
                        struct chat_turns *turns) {
    const struct chat_message_form *form = maker->form;
    struct turn turn = {
        .suffix = is_last && form->final_suffix != NULL ? form->final_suffix : "",
        .has_written_calls = message->num_calls > 0 && form->writes_calls,
        .is_result = message->role == MESSAGE_TOOL && form->writes_results,
    };
    place_tools(maker, message, index == 0, &turn);
    struct template_value *map = template_map(maker->arena);
    chat_value_set(maker->arena, &map, "role", role_value(maker, message, &turn));
    if (set_content(maker, message, index, &turn, &map) != 0)
        return -1;
    set_rest(maker, message, &turn, &map);
    chat_turns_add(turns, kind_of(message), map);
    return map != NULL ? 0 : template_messages_fail_arena(maker->arena, maker->field, maker->err);
}

int template_messages_make(const struct message *messages, int num_messages, const char *field,
                           const struct chat_message_form *form, struct template_arena *arena,
                           struct template_value **out, struct api_error *err) {
    struct maker maker = {arena, form, form->tool_text, field, err};
    struct chat_turns turns;
    int result = 0;
    chat_turns_init(&turns, arena, form);
    for (int i = 0; i < num_messages && result == 0; i++)
        result = make_message(&maker, &messages[i], i, i == num_messages - 1, &turns);
    *out = result == 0 ? chat_turns_end(&turns) : NULL;
    chat_turns_finish(&turns);
    return result == 0 && *out == NULL ? template_messages_fail_arena(arena, field, err) : result;
}
