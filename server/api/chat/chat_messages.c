/* Each reader takes an item and the path that names it in messages, and returns -1 with *err for
 * what is refused. A value that the arena could not take is NULL, and so is all that is made of it:
 * that is checked once per message. */
#include "server/api/chat/chat_messages.h"

#include "config/base/byte_buffer.h"
#include "server/api/chat/chat_calls.h"
#include "server/api/chat/chat_turns.h"
#include "server/api/chat/chat_value.h"
#include "server/api/chat/message_members.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define MAX_ROLE_BYTES 64

struct reader {
    struct template_arena *arena;
    const struct chat_message_form *form;
    const char *tool_text; /* not placed yet; NULL: nothing to place */
    struct api_error *err;
};

int chat_messages_fail_arena(const struct template_arena *arena, struct api_error *err) {
    if (template_arena_is_full(arena))
        return bad_request(err, "out_of_range", "messages",
                           "messages and tools together are too large for the chat template");
    return api_error_set_memory(err);
}

static bool is_one_of(const char *text, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return true;
    return false;
}

static const char *const system_roles[] = {"system", "developer"};

#define IS_ONE_OF(text, names) is_one_of(text, names, sizeof(names) / sizeof((names)[0]))

/* --- Content --- */

static int refuse_content(const struct reader *reader, const char *path, const char *type) {
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.type", path);
    return bad_request(reader->err, "unsupported_content", at,
                       "%s is \"%.40s\": this server takes text only", at, type);
}

/* Reads the text of one part; NULL with *err. */
static const char *part_text(const struct reader *reader, const cJSON *part, const char *path) {
    static const char *const text_types[] = {"text", "input_text", "output_text"};
    char at[PATH_BYTES];
    if (cJSON_IsString(part))
        return part->valuestring;
    if (!cJSON_IsObject(part)) {
        json_refuse(part, path, "an object with type and text", reader->err);
        return NULL;
    }
    const cJSON *type = json_given_member(part, "type");
    snprintf(at, sizeof(at), "%.40s.type", path);
    if (!cJSON_IsString(type)) {
        json_refuse(type, at, "\"text\"", reader->err);
        return NULL;
    }
    bool is_refusal = strcmp(type->valuestring, "refusal") == 0;
    if (!is_refusal && !IS_ONE_OF(type->valuestring, text_types)) {
        refuse_content(reader, path, type->valuestring);
        return NULL;
    }
    const char *name = is_refusal ? "refusal" : "text";
    const cJSON *text = json_given_member(part, name);
    snprintf(at, sizeof(at), "%.40s.%s", path, name);
    if (!cJSON_IsString(text)) {
        json_refuse(text, at, "a string", reader->err);
        return NULL;
    }
    return text->valuestring;
}

static int join_parts(const struct reader *reader, const cJSON *parts, const char *path,
                      struct byte_buffer *out) {
    int index = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, parts) {
        char at[PATH_BYTES];
        snprintf(at, sizeof(at), "%.40s[%d]", path, index);
        const char *text = part_text(reader, part, at);
        if (text == NULL)
            return -1;
        if (index++ > 0)
            byte_buffer_append(out, "\n", 1);
        byte_buffer_append_text(out, text);
    }
    return 0;
}

static int join_content(const struct reader *reader, const cJSON *content, const char *path,
                        struct byte_buffer *out) {
    if (cJSON_IsArray(content))
        return join_parts(reader, content, path, out);
    if (!cJSON_IsString(content))
        return json_refuse(content, path, "a string or an array of text parts", reader->err);
    byte_buffer_append_text(out, content->valuestring);
    return 0;
}

/* A message as the template sees it, beside its text. */
struct turn {
    const char *role;                        /* as the template gets it */
    const char *suffix;                      /* of the last one; else empty */
    bool is_assistant, has_calls;            /* its content may be null */
    const cJSON *calls;                      /* to be written as text; NULL: none */
    bool is_result;                          /* of a tool, as a user's text */
    const char *tools_before, *tools_behind; /* the tools' description, or NULL */
};

static int write_content(const struct reader *reader, const cJSON *content, const char *path,
                         const struct turn *turn, struct byte_buffer *out) {
    bool is_left_out = content == NULL && turn->calls != NULL;
    if (turn->tools_before != NULL) {
        byte_buffer_append_text(out, turn->tools_before);
        byte_buffer_append_text(out, "\n\n");
    }
    byte_buffer_append_text(out, turn->is_result ? "<tool_response>\n" : "");
    if (!is_left_out && join_content(reader, content, path, out) != 0)
        return -1;
    chat_calls_write(turn->calls, out);
    byte_buffer_append_text(out, turn->is_result ? "\n</tool_response>" : "");
    if (turn->tools_behind != NULL) {
        byte_buffer_append_text(out, "\n\n");
        byte_buffer_append_text(out, turn->tools_behind);
    }
    byte_buffer_append_text(out, turn->suffix);
    return out->failed ? chat_messages_fail_arena(reader->arena, reader->err) : 0;
}

/* Returns what an assistant says that says nothing. */
static const char *empty_text(const struct reader *reader, const struct turn *turn) {
    bool is_said = turn->is_assistant && !turn->has_calls && reader->form->takes_no_empty_turn;
    return is_said ? " " : "";
}

static int set_content(const struct reader *reader, const cJSON *message, const char *path,
                       const struct turn *turn, struct template_value **map) {
    const cJSON *content = json_given_member(message, "content");
    struct template_arena *arena = reader->arena;
    const cJSON *refusal = json_given_member(message, "refusal");
    if (content == NULL && turn->is_assistant && cJSON_IsString(refusal))
        content = refusal; /* what was said instead */
    bool is_null = content == NULL && turn->is_assistant && turn->calls == NULL;
    if (is_null && turn->suffix[0] == '\0') {
        bool stays_null = turn->has_calls && reader->form->has_null_content;
        chat_value_set(arena, map, "content",
                       stays_null ? template_none(arena)
                                  : chat_value_text(arena, empty_text(reader, turn)));
        return 0;
    }
    char at[PATH_BYTES];
    struct byte_buffer text = {0};
    snprintf(at, sizeof(at), "%.40s.content", path);
    int result = write_content(reader, content, at, turn, &text);
    if (result == 0 && text.length == 0)
        chat_value_set(arena, map, "content", chat_value_text(arena, empty_text(reader, turn)));
    else if (result == 0)
        chat_value_set(arena, map, "content",
                       template_string(arena, text.data, text.length, TEMPLATE_ORIGIN_CLIENT));
    byte_buffer_finish(&text);
    return result;
}

/* --- Messages --- */

/* Reads a member that is a string where it is there. */
static int set_text(const struct reader *reader, const cJSON *message, const char *path,
                    const char *name, const char *key, struct template_value **map) {
    const cJSON *text = json_given_member(message, name);
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.%s", path, name);
    if (text == NULL)
        return 0;
    if (!cJSON_IsString(text))
        return json_refuse(text, at, "a string", reader->err);
    chat_value_set(reader->arena, map, key, chat_value_text(reader->arena, text->valuestring));
    return 0;
}

/* Templates call it reasoning_content or, gpt-oss's, thinking: Transformers fills both. Answers,
 * which come back as messages, have it as reasoning too. */
static int set_reasoning(const struct reader *reader, const cJSON *message, const char *path,
                         struct template_value **map) {
    const char *name =
        json_given_member(message, "reasoning") != NULL ? "reasoning" : "reasoning_content";
    if (set_text(reader, message, path, name, "reasoning_content", map) != 0 ||
        set_text(reader, message, path, name, "thinking", map) != 0)
        return -1;
    return set_text(reader, message, path, name, "reasoning", map);
}

/* Sets what only an assistant has. */
static int set_assistant(const struct reader *reader, const cJSON *message, const char *path,
                         const struct turn *turn, struct template_value **map) {
    struct template_value *calls = NULL;
    char at[PATH_BYTES];
    snprintf(at, sizeof(at), "%.40s.tool_calls", path);
    if (set_reasoning(reader, message, path, map) != 0 ||
        chat_calls_read(json_given_member(message, "tool_calls"), at, reader->form, reader->arena,
                        &calls, reader->err) != 0)
        return -1;
    if (turn->has_calls && turn->calls == NULL)
        chat_value_set(reader->arena, map, "tool_calls", calls);
    return 0;
}

const char *chat_messages_role(const cJSON *message, const char *path, struct api_error *err) {
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    const cJSON *role = json_given_member(message, "role");
    char at[PATH_BYTES];
    size_t length = cJSON_IsString(role) ? strspn(role->valuestring, allowed) : 0;
    if (length > 0 && length <= MAX_ROLE_BYTES && role->valuestring[length] == '\0')
        return role->valuestring;
    snprintf(at, sizeof(at), "%.40s.role", path);
    json_refuse(role, at,
                "system, developer, user, assistant, tool or another role of the model's chat "
                "template: 1 to 64 of the characters a-z, A-Z, 0-9, _ and -",
                err);
    return NULL;
}

/* Takes a role that is not OpenAI's as the client's word: no control token of a template that
 * writes roles as such. */
static struct template_value *role_value(const struct reader *reader, const char *role) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    return template_string(reader->arena, role, strlen(role),
                           IS_ONE_OF(role, roles) ? TEMPLATE_ORIGIN_SERVER
                                                  : TEMPLATE_ORIGIN_CLIENT);
}

/* Puts the tools' description into the first message if it is the system's, else into the first of
 * a user. */
static void place_tools(struct reader *reader, bool is_first, struct turn *turn) {
    const char *text = reader->tool_text;
    if (text == NULL)
        return;
    if (is_first && IS_ONE_OF(turn->role, system_roles))
        turn->tools_behind = text;
    else if (strcmp(turn->role, "user") == 0)
        turn->tools_before = text;
    else
        return;
    reader->tool_text = NULL;
}

static void make_turn(struct reader *reader, const cJSON *message, const char *role, bool is_first,
                      struct turn *out) {
    const struct chat_message_form *form = reader->form;
    const cJSON *calls = json_given_member(message, "tool_calls");
    bool is_tool = strcmp(role, "tool") == 0, is_developer = strcmp(role, "developer") == 0;
    *out =
        (struct turn){.role = role, .suffix = "", .is_assistant = strcmp(role, "assistant") == 0};
    if (is_developer && !form->has_developer)
        out->role = "system";
    if (message->next == NULL && form->final_suffix != NULL)
        out->suffix = form->final_suffix;
    place_tools(reader, is_first, out);
    out->has_calls = out->is_assistant && calls != NULL && calls->child != NULL;
    if (out->has_calls && form->writes_calls)
        out->calls = calls;
    out->is_result = is_tool && form->writes_results;
    if (out->is_result)
        out->role = "user";
}

/* Sets the members beside role and content. */
static int set_rest(const struct reader *reader, const cJSON *message, const char *path,
                    const char *role, const struct turn *turn, struct template_value **map) {
    if (set_text(reader, message, path, "name", "name", map) != 0)
        return -1;
    if (turn->is_assistant)
        return set_assistant(reader, message, path, turn, map);
    if (strcmp(role, "user") == 0 || IS_ONE_OF(role, system_roles))
        return 0;
    return set_text(reader, message, path, "tool_call_id", "tool_call_id", map);
}

static enum chat_turn_kind kind_of(const char *role) {
    if (IS_ONE_OF(role, system_roles))
        return CHAT_TURN_SYSTEM;
    if (strcmp(role, "assistant") == 0)
        return CHAT_TURN_ASSISTANT;
    if (strcmp(role, "user") == 0)
        return CHAT_TURN_USER;
    return strcmp(role, "tool") == 0 ? CHAT_TURN_RESULT : CHAT_TURN_OTHER;
}

static int read_message(struct reader *reader, const cJSON *message, const char *path,
                        bool is_first, struct chat_turns *turns) {
    struct turn turn;
    if (!cJSON_IsObject(message))
        return json_refuse(message, path, "an object with role and content", reader->err);
    const char *role = chat_messages_role(message, path, reader->err);
    if (role == NULL || message_members_check(message, path, reader->err) != 0)
        return -1;
    make_turn(reader, message, role, is_first, &turn);
    struct template_value *map = template_map(reader->arena);
    chat_value_set(reader->arena, &map, "role", role_value(reader, turn.role));
    /* tool calls are checked before they are written as text */
    if ((turn.calls != NULL && set_rest(reader, message, path, role, &turn, &map) != 0) ||
        set_content(reader, message, path, &turn, &map) != 0 ||
        (turn.calls == NULL && set_rest(reader, message, path, role, &turn, &map) != 0))
        return -1;
    chat_turns_add(turns, kind_of(role), map);
    return map != NULL ? 0 : chat_messages_fail_arena(reader->arena, reader->err);
}

static int read_messages(struct reader *reader, const cJSON *messages, struct chat_turns *turns) {
    struct api_error *err = reader->err;
    if (!cJSON_IsArray(messages) || messages->child == NULL)
        return json_refuse(messages, "messages", "an array of one message or more", err);
    int index = 0;
    const cJSON *message;
    cJSON_ArrayForEach(message, messages) {
        if (index == CHAT_MESSAGES_MAX)
            return bad_request(err, "array_above_max_length", "messages",
                               "messages has too many entries: at most %d are allowed",
                               CHAT_MESSAGES_MAX);
        char path[PATH_BYTES];
        snprintf(path, sizeof(path), "messages[%d]", index);
        if (read_message(reader, message, path, index++ == 0, turns) != 0)
            return -1;
    }
    return 0;
}

int chat_messages_read(const cJSON *messages, const struct chat_message_form *form,
                       struct template_arena *arena, struct template_value **out,
                       struct api_error *err) {
    struct reader reader = {.arena = arena, .form = form, .tool_text = form->tool_text, .err = err};
    struct chat_turns turns;
    chat_turns_init(&turns, arena, form);
    int result = read_messages(&reader, messages, &turns);
    *out = result == 0 ? chat_turns_end(&turns) : NULL;
    chat_turns_finish(&turns);
    return result == 0 && *out == NULL ? chat_messages_fail_arena(arena, err) : result;
}
