#include "server/api/chat/function_form.h"

#include "server/api/chat/chat_error_names.h"
#include "server/api/chat/chat_translation.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 64
#define CALL_ID_BYTES 16

static bool has_text(const cJSON *object, const char *name, const char *text) {
    const cJSON *item = json_member(object, name);
    return cJSON_IsString(item) && strcmp(item->valuestring, text) == 0;
}

static cJSON *detach(cJSON *object, const char *name) {
    return cJSON_DetachItemFromObjectCaseSensitive(object, name);
}

/* Gives a member a new value, which it takes over. */
static int replace(cJSON *object, const char *name, cJSON *value, struct api_error *err) {
    cJSON_Delete(detach(object, name));
    return chat_translation_add(object, name, value, err);
}

/* Wraps a function, which it takes over, as an entry of tools, of tool_calls, or a choice; NULL
 * with *err. */
static cJSON *wrap(cJSON *function, struct api_error *err) {
    cJSON *made = cJSON_CreateObject();
    if (made == NULL || chat_translation_add_text(made, "type", "function", err) != 0) {
        cJSON_Delete(made);
        cJSON_Delete(function);
        api_error_set_memory(err);
        return NULL;
    }
    if (chat_translation_add(made, "function", function, err) == 0)
        return made;
    cJSON_Delete(made);
    return NULL;
}

static int append_wrapped(cJSON *array, cJSON *function, struct api_error *err) {
    cJSON *made = wrap(function, err);
    return made != NULL && chat_translation_append(array, made, err) != NULL ? 0 : -1;
}

/* --- Fields --- */

/* Fields of the new form say otherwise what these do. */
static int check_alone(const cJSON *body, const char *old, struct api_error *err) {
    static const char *const replacing[] = {"tools", "tool_choice", "parallel_tool_calls"};
    for (size_t i = 0; i < sizeof(replacing) / sizeof(replacing[0]); i++)
        if (json_given_member(body, replacing[i]) != NULL)
            return bad_request(err, "unsupported_value", old,
                               "%s is not allowed with %s: use one form or the other", old,
                               replacing[i]);
    return 0;
}

static int translate_functions(cJSON *body, struct api_error *err) {
    cJSON *functions = detach(body, "functions"), *function;
    int result = 0;
    if (!json_is_given(functions)) {
        cJSON_Delete(functions);
        return 0;
    }
    cJSON *tools = cJSON_CreateArray();
    if (!cJSON_IsArray(functions))
        result = json_refuse(functions, "functions", "an array", err);
    while (result == 0 && tools != NULL && (function = functions->child) != NULL)
        result = append_wrapped(tools, cJSON_DetachItemViaPointer(functions, function), err);
    cJSON_Delete(functions);
    if (result == 0)
        return replace(body, "tools", tools, err);
    cJSON_Delete(tools);
    return -1;
}

static int translate_choice(cJSON *body, struct api_error *err) {
    const cJSON *given = json_given_member(body, "function_call");
    bool is_word =
        has_text(body, "function_call", "none") || has_text(body, "function_call", "auto");
    if (given != NULL && !is_word && !cJSON_IsObject(given))
        return json_refuse(given, "function_call", "\"none\", \"auto\" or an object with a name",
                           err);
    cJSON *choice = detach(body, "function_call");
    if (given != NULL && !is_word && (choice = wrap(choice, err)) == NULL)
        return -1;
    if (given != NULL)
        return replace(body, "tool_choice", choice, err);
    cJSON_Delete(choice);
    return 0;
}

/* --- Messages --- */

struct message_reader {
    char call_id[CALL_ID_BYTES]; /* of the last function_call; empty: there was none */
    int index;                   /* of the message */
    struct api_error *err;
};

static int check_call(const struct message_reader *reader, const cJSON *message,
                      const cJSON *call) {
    char path[PATH_BYTES];
    const cJSON *name = json_given_member(call, "name"),
                *arguments = json_given_member(call, "arguments"),
                *calls = json_given_member(message, "tool_calls");
    snprintf(path, sizeof(path), "messages[%d].function_call", reader->index);
    if (!cJSON_IsObject(call))
        return json_refuse(call, path, "an object with name and arguments", reader->err);
    if (calls != NULL && (!cJSON_IsArray(calls) || calls->child != NULL))
        return bad_request(reader->err, "unsupported_value", path,
                           "%s is not allowed with tool_calls: use one form or the other", path);
    snprintf(path, sizeof(path), "messages[%d].function_call.name", reader->index);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse(name, path, "the name of a function", reader->err);
    snprintf(path, sizeof(path), "messages[%d].function_call.arguments", reader->index);
    if (arguments != NULL && !cJSON_IsString(arguments) && !cJSON_IsObject(arguments))
        return json_refuse(arguments, path, "a string, the text of a JSON object", reader->err);
    return 0;
}

/* Templates may ask for ids; those of Mistral's for nine letters and digits. */
static int translate_call(struct message_reader *reader, cJSON *message) {
    if (json_given_member(message, "function_call") == NULL ||
        !has_text(message, "role", "assistant"))
        return 0;
    if (check_call(reader, message, json_member(message, "function_call")) != 0)
        return -1;
    snprintf(reader->call_id, sizeof(reader->call_id), "call%05d", reader->index);
    cJSON *calls = cJSON_CreateArray();
    if (calls == NULL)
        return api_error_set_memory(reader->err);
    if (append_wrapped(calls, detach(message, "function_call"), reader->err) != 0 ||
        chat_translation_add(calls->child, "id", cJSON_CreateString(reader->call_id),
                             reader->err) != 0) {
        cJSON_Delete(calls);
        return -1;
    }
    return replace(message, "tool_calls", calls, reader->err);
}

/* OpenAI lets the result be null. */
static int translate_result(struct message_reader *reader, cJSON *message) {
    char path[PATH_BYTES];
    const cJSON *name = json_given_member(message, "name");
    if (!has_text(message, "role", "function"))
        return 0;
    snprintf(path, sizeof(path), "messages[%d].name", reader->index);
    if (!cJSON_IsString(name) || name->valuestring[0] == '\0')
        return json_refuse(name, path, "the name of the function that was called", reader->err);
    if (replace(message, "role", cJSON_CreateStringReference("tool"), reader->err) != 0)
        return -1;
    if (cJSON_IsNull(json_member(message, "content")) &&
        replace(message, "content", cJSON_CreateStringReference(""), reader->err) != 0)
        return -1;
    if (reader->call_id[0] == '\0' || json_given_member(message, "tool_call_id") != NULL)
        return 0;
    return replace(message, "tool_call_id", cJSON_CreateString(reader->call_id), reader->err);
}

static int translate_messages(const cJSON *messages, struct api_error *err) {
    struct message_reader reader = {.err = err};
    cJSON *message;
    if (!cJSON_IsArray(messages))
        return 0;
    cJSON_ArrayForEach(message, messages) {
        if (cJSON_IsObject(message) &&
            (translate_call(&reader, message) != 0 || translate_result(&reader, message) != 0))
            return -1;
        reader.index++;
    }
    return 0;
}

int function_form_translate(cJSON *body, bool *out_is_used, struct api_error *err) {
    bool has_functions = json_given_member(body, "functions") != NULL,
         has_choice = json_given_member(body, "function_call") != NULL;
    *out_is_used = has_functions || has_choice;
    if (translate_messages(json_member(body, "messages"), err) != 0)
        return -1;
    if (!*out_is_used)
        return 0;
    if (check_alone(body, has_functions ? "functions" : "function_call", err) != 0 ||
        translate_functions(body, err) != 0 || translate_choice(body, err) != 0)
        return -1;
    return replace(body, "parallel_tool_calls", cJSON_CreateFalse(), err);
}

/* --- Errors of the chat --- */

static const struct chat_error_names error_names = {
    .tool_members = (const struct chat_error_name[]){{".function", ""}, {NULL}},
    .fields =
        (const struct chat_error_name[]){
            {"tools", "functions"},
            {"tool_choice", "function_call"},
            {NULL},
        },
    .words =
        (const struct chat_error_name[]){
            {"tool_choice needs tools", "function_call needs functions"},
            {"not in tools", "not in functions"},
            {NULL},
        },
};

void function_form_rename_error(struct api_error *err) {
    chat_error_rename(err, &error_names);
}

void function_form_rename_ignored(struct byte_buffer *ignored) {
    chat_error_rename_ignored(ignored, &error_names, NULL, NULL);
}
