#include "server/api/conversation/chat_turns.h"

#include "server/api/conversation/chat_value.h"

#include <stdio.h>
#include <string.h>

#define SHORT_ID_CHARS 9

void chat_turns_init(struct chat_turns *turns, struct template_arena *arena,
                     const struct chat_message_form *form) {
    *turns = (struct chat_turns){.arena = arena, .form = form, .messages = template_list(arena)};
}

void chat_turns_finish(struct chat_turns *turns) {
    byte_buffer_finish(&turns->system.content);
    byte_buffer_finish(&turns->result.content);
}

static void append(struct chat_turns *turns, struct template_value *message) {
    turns->messages = template_list_append(turns->arena, turns->messages, message);
}

static void set(struct chat_turns *turns, struct template_value *map, const char *key,
                struct template_value *value) {
    chat_value_set(turns->arena, &map, key, value);
    turns->failed = turns->failed || map == NULL;
}

/* --- Joined messages --- */

static void add_content(struct byte_buffer *out, const struct template_value *message) {
    struct text text = template_string_text(template_map_get(message, "content"));
    if (text.data != NULL)
        byte_buffer_append(out, text.data, text.length);
}

static void join(struct chat_turns_open *open, const char *separator,
                 const struct template_value *message) {
    if (open->content.length == 0)
        add_content(&open->content, open->message);
    byte_buffer_append_text(&open->content, separator);
    add_content(&open->content, message);
}

static void close(struct chat_turns *turns, struct chat_turns_open *open) {
    struct byte_buffer *content = &open->content;
    if (content->length > 0)
        set(turns, open->message, "content",
            template_string(turns->arena, content->data, content->length, TEMPLATE_ORIGIN_CLIENT));
    turns->failed = turns->failed || content->failed;
    byte_buffer_clear(content);
    open->message = NULL;
}

/* --- Ids --- */

static bool is_short_id(struct text id) {
    for (size_t i = 0; i < id.length; i++) {
        char c = id.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')))
            return false;
    }
    return id.length == SHORT_ID_CHARS;
}

/* Makes a short id, which is always the same for the same id. */
static struct template_value *short_id(struct template_arena *arena, struct text id) {
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char made[SHORT_ID_CHARS + 1] = {0};
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
    for (size_t i = 0; i < id.length; i++)
        hash = (hash ^ (unsigned char)id.data[i]) * 0x100000001b3;
    for (int i = 0; i < SHORT_ID_CHARS; i++, hash /= 36)
        made[i] = digits[hash % 36];
    return chat_value_text(arena, made);
}

/* Makes the id that the template takes from a given one, or, if none was given, from the call's
 * number. */
static struct template_value *make_id(const struct chat_turns *turns, struct template_value *given,
                                      int number) {
    struct text id = template_string_text(given);
    char made[32];
    if (!turns->form->takes_short_ids || (id.data != NULL && is_short_id(id)))
        return given;
    int length = snprintf(made, sizeof(made), "call%d", number);
    return short_id(turns->arena, id.data != NULL ? id : (struct text){made, (size_t)length});
}

/* --- Calls and results --- */

static bool is_same_text(const struct template_value *a, const struct template_value *b) {
    struct text x = template_string_text(a), y = template_string_text(b);
    return x.data != NULL && y.data != NULL && x.length == y.length &&
           memcmp(x.data, y.data, x.length) == 0;
}

static bool is_answered(const struct chat_turns *turns, int index) {
    return (turns->answered[index / 64] >> index % 64 & 1) != 0;
}

/* Returns the index of the call that the result answers: the first one without a result, and with
 * the result's id if it has one (several calls may share an id); -1 if there is none. */
static int find_call(const struct chat_turns *turns, const struct template_value *result) {
    const struct template_value *id = template_map_get(result, "tool_call_id");
    int found = -1;
    for (int i = 0; i < turns->num_calls; i++) {
        if (id != NULL && !is_same_text(id, template_list_item(turns->given_ids, (size_t)i)))
            continue;
        if (!is_answered(turns, i))
            return i;
        found = id != NULL ? i : found;
    }
    return found;
}

static void begin_calls(struct chat_turns *turns, struct template_value *calls) {
    struct template_arena *arena = turns->arena;
    turns->num_calls_before += turns->num_calls;
    turns->calls = template_list(arena); /* the message's own list may be replaced */
    turns->given_ids = template_list(arena);
    turns->num_calls = (int)template_list_length(calls);
    turns->answered[0] = turns->answered[1] = 0;
    for (int i = 0; i < turns->num_calls; i++) {
        struct template_value *call = template_list_item(calls, (size_t)i);
        struct template_value *given = template_map_get(call, "id");
        turns->given_ids = template_list_append(arena, turns->given_ids,
                                                given != NULL ? given : template_none(arena));
        struct template_value *id = make_id(turns, given, turns->num_calls_before + i);
        if (id != given)
            set(turns, call, "id", id);
        turns->calls = template_list_append(arena, turns->calls, call);
    }
    turns->failed = turns->failed || turns->calls == NULL || turns->given_ids == NULL;
}

/* Sets the id of a result to that of its call. */
static void set_result_id(struct chat_turns *turns, struct template_value *result, int index) {
    struct template_value *call =
        index >= 0 ? template_list_item(turns->calls, (size_t)index) : NULL;
    struct template_value *given = template_map_get(result, "tool_call_id");
    struct template_value *id = (turns->form->takes_short_ids || given == NULL) && call != NULL
                                    ? template_map_get(call, "id")
                                    : make_id(turns, given, -1);
    if (id != given)
        set(turns, result, "tool_call_id", id);
}

/* --- Calls of a turn, one by one --- */

/* Makes a message that has only calls. */
static struct template_value *message_of(struct chat_turns *turns, struct template_value *calls) {
    struct template_arena *arena = turns->arena;
    struct template_value *message = template_map(arena);
    chat_value_set(
        arena, &message, "role",
        template_string(arena, "assistant", strlen("assistant"), TEMPLATE_ORIGIN_SERVER));
    chat_value_set(arena, &message, "content",
                   turns->form->has_null_content ? template_none(arena)
                                                 : chat_value_text(arena, ""));
    chat_value_set(arena, &message, "tool_calls", calls);
    return message;
}

static struct template_value *call_alone(struct chat_turns *turns, int index) {
    struct template_arena *arena = turns->arena;
    struct template_value *message = turns->split;
    struct template_value *list = template_list_append(
        arena, template_list(arena), template_list_item(turns->calls, (size_t)index));
    if (turns->has_split_begun)
        return message_of(turns, list);
    turns->has_split_begun = true;
    chat_value_set(arena, &message, "tool_calls", list);
    return message;
}

/* Adds the text of a message that has both, and returns a message with its calls. */
static struct template_value *split_words(struct chat_turns *turns,
                                          struct template_value *message) {
    static const char *const names[] = {"role",      "content",           "name",
                                        "reasoning", "reasoning_content", "thinking"};
    struct template_value *words = template_map(turns->arena);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct template_value *member = template_map_get(message, names[i]);
        if (member != NULL)
            chat_value_set(turns->arena, &words, names[i], member);
    }
    append(turns, words);
    return message_of(turns, template_map_get(message, "tool_calls"));
}

static void add_split(struct chat_turns *turns, int index) {
    uint64_t bit = UINT64_C(1) << index % 64, *left = &turns->split_left[index / 64];
    if ((*left & bit) == 0)
        return;
    *left &= ~bit;
    append(turns, call_alone(turns, index));
}

/* Adds the calls that have no result. */
static void end_split(struct chat_turns *turns) {
    for (int i = 0; turns->split != NULL && i < turns->num_calls; i++)
        add_split(turns, i);
    turns->split = NULL;
}

static void begin_split(struct chat_turns *turns, struct template_value *message) {
    turns->split = message;
    turns->has_split_begun = false;
    turns->split_left[0] = turns->split_left[1] = UINT64_MAX;
}

/* --- Messages --- */

static void add_result(struct chat_turns *turns, struct template_value *message) {
    int index = find_call(turns, message);
    if (index >= 0)
        turns->answered[index / 64] |= UINT64_C(1) << index % 64;
    if (turns->split != NULL && index >= 0)
        add_split(turns, index);
    set_result_id(turns, message, index);
    if (turns->form->joins_results && turns->result.message != NULL) {
        join(&turns->result, "\n", message);
        return;
    }
    close(turns, &turns->result);
    append(turns, message);
    turns->result.message = message;
}

static void add_system(struct chat_turns *turns, struct template_value *message) {
    if (turns->system.message != NULL)
        join(&turns->system, "\n\n", message);
    else
        turns->system.message = message;
}

static void add_assistant(struct chat_turns *turns, struct template_value *message) {
    struct template_value *calls = template_map_get(message, "tool_calls");
    if (calls != NULL)
        begin_calls(turns, calls);
    struct text words = template_string_text(template_map_get(message, "content"));
    if (calls != NULL && words.data != NULL && words.length > 0 && turns->form->splits_words)
        message = split_words(turns, message);
    if (calls != NULL && turns->num_calls > 1 && turns->form->takes_one_call)
        begin_split(turns, message);
    else
        append(turns, message);
}

void chat_turns_add(struct chat_turns *turns, enum chat_turn_kind kind,
                    struct template_value *message) {
    turns->failed = turns->failed || message == NULL;
    if (turns->failed)
        return;
    if (kind == CHAT_TURN_RESULT) {
        add_result(turns, message);
        return;
    }
    if (kind == CHAT_TURN_SYSTEM && turns->form->joins_systems) {
        add_system(turns, message);
        return;
    }
    end_split(turns);
    if (kind == CHAT_TURN_USER && turns->form->joins_users && turns->result.message != NULL) {
        join(&turns->result, "\n\n", message);
        return;
    }
    close(turns, &turns->result);
    if (kind == CHAT_TURN_ASSISTANT)
        add_assistant(turns, message);
    else
        append(turns, message);
}

/* Replaces a content that is a text by a list of one part. */
static void make_parts(struct chat_turns *turns, struct template_value *message) {
    struct template_arena *arena = turns->arena;
    struct template_value *content = template_map_get(message, "content"), *part = NULL;
    if (template_string_text(content).data == NULL)
        return;
    part = template_map(arena);
    chat_value_set(arena, &part, "type",
                   template_string(arena, "text", strlen("text"), TEMPLATE_ORIGIN_SERVER));
    chat_value_set(arena, &part, "text", content);
    set(turns, message, "content", template_list_append(arena, template_list(arena), part));
}

/* Puts the system's message before the others. */
static struct template_value *all_messages(struct chat_turns *turns,
                                           struct template_value *system) {
    struct template_value *list = turns->messages;
    if (system == NULL)
        return list;
    list = template_list_append(turns->arena, template_list(turns->arena), system);
    for (size_t i = 0; i < template_list_length(turns->messages); i++)
        list = template_list_append(turns->arena, list, template_list_item(turns->messages, i));
    return list;
}

struct template_value *chat_turns_end(struct chat_turns *turns) {
    struct template_value *system = turns->system.message;
    end_split(turns);
    close(turns, &turns->result);
    close(turns, &turns->system);
    if (turns->messages == NULL || turns->failed)
        return NULL;
    struct template_value *messages = all_messages(turns, system);
    for (size_t i = 0; turns->form->takes_parts && i < template_list_length(messages); i++)
        make_parts(turns, template_list_item(messages, i));
    return turns->failed ? NULL : messages;
}
