#include "server/api/conversation/tools.h"

#include "config/base/array.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"
#include "server/output/tool_call.h"

#include <string.h>

static int check_name(const cJSON *name, const struct json_path *path, struct api_error *err) {
    if (cJSON_IsString(name) &&
        tool_call_name_is_valid(name->valuestring, strlen(name->valuestring)))
        return 0;
    return json_refuse_at(name, path, "1 to 128 of the characters a-z, A-Z, 0-9, _, -, ., : and /",
                          err);
}

static struct tool *find(const struct conversation *conversation, const char *name) {
    for (int i = 0; i < conversation->num_tools; i++)
        if (strcmp(conversation->tools[i].name, name) == 0)
            return &conversation->tools[i];
    return NULL;
}

/* --- Common to both kinds --- */

static const cJSON *name_of(const struct tool_source *source) {
    return source->name != NULL ? source->name : json_given_member(source->object, "name");
}

static const cJSON *description_of(const struct tool_source *source) {
    return source->description != NULL ? source->description
                                       : json_given_member(source->object, "description");
}

static int check_texts(const struct tool_source *source, struct api_error *err) {
    const cJSON *description = description_of(source);
    if (!cJSON_IsObject(source->object))
        return json_refuse_at(source->object, source->path, "an object", err);
    if (check_name(name_of(source), JSON_MEMBER_PATH(source->path, "name"), err) != 0)
        return -1;
    if (description != NULL && !cJSON_IsString(description))
        return json_refuse_at(description, JSON_MEMBER_PATH(source->path, "description"),
                              "a string", err);
    return 0;
}

static const char *own_path(struct conversation *conversation, const struct json_path *path,
                            struct api_error *err) {
    char text[JSON_PATH_BYTES];
    struct byte_buffer copy = {0};
    json_path_text(path, text);
    byte_buffer_append_text(&copy, text);
    return conversation_own_text(conversation, &copy, err);
}

static int add(struct conversation *conversation, const struct tool *tool,
               const struct tool_source *source, struct api_error *err) {
    const char *field = conversation->names->tools;
    if (find(conversation, tool->name) != NULL)
        return bad_request_at(err, "duplicate_name", JSON_MEMBER_PATH(source->path, "name"),
                              " is \"%s\" as another tool's: names must be distinct", tool->name);
    if (conversation->num_tools == CONVERSATION_MAX_TOOLS)
        return bad_request(err, "array_above_max_length", field,
                           "%s has too many entries: at most %d are allowed", field,
                           CONVERSATION_MAX_TOOLS);
    if (!array_reserve(&conversation->tools, &conversation->tools_capacity,
                       (size_t)conversation->num_tools + 1, sizeof(*conversation->tools)))
        return api_error_set_memory(err);
    conversation->tools[conversation->num_tools] = *tool;
    conversation->tools[conversation->num_tools++].is_allowed = true;
    return 0;
}

/* --- Functions --- */

/* Adds a member that is still owned by the body. */
static bool refer(cJSON *object, const char *name, const cJSON *item) {
    cJSON *made = NULL;
    if (item == NULL)
        return true;
    if (cJSON_IsString(item))
        made = cJSON_CreateStringReference(item->valuestring);
    else if (cJSON_IsObject(item))
        made = cJSON_CreateObjectReference(item->child);
    else
        made = cJSON_CreateBool(cJSON_IsTrue(item));
    if (made != NULL && cJSON_AddItemToObject(object, name, made))
        return true;
    cJSON_Delete(made);
    return false;
}

/* Returns what the model sees of a function whose members are valid; NULL when memory is short. */
static cJSON *make_shown(const struct tool_source *source) {
    const cJSON *object = source->object;
    cJSON *shown = cJSON_CreateObject();
    bool is_made = shown != NULL && cJSON_AddStringToObject(shown, "type", "function") != NULL;
    cJSON *function = is_made ? cJSON_AddObjectToObject(shown, "function") : NULL;
    if (function != NULL && refer(function, "name", name_of(source)) &&
        refer(function, "description", description_of(source)) &&
        refer(function, "parameters", json_given_member(object, source->schema_name)) &&
        refer(function, "strict", json_given_member(object, "strict")))
        return shown;
    cJSON_Delete(shown);
    return NULL;
}

int tools_add_function(struct conversation *conversation, const struct tool_source *source,
                       struct api_error *err) {
    const struct json_path *schema_path = JSON_MEMBER_PATH(source->path, source->schema_name);
    if (check_texts(source, err) != 0)
        return -1;
    const cJSON *parameters = json_given_member(source->object, source->schema_name),
                *strict = json_given_member(source->object, "strict");
    if (parameters != NULL && !cJSON_IsObject(parameters))
        return json_refuse_at(parameters, schema_path, "an object, a JSON schema", err);
    if (strict != NULL && !cJSON_IsBool(strict))
        return json_refuse_at(strict, JSON_MEMBER_PATH(source->path, "strict"), "true or false",
                              err);
    const cJSON *shown = source->shown != NULL
                             ? source->shown
                             : conversation_own(conversation, make_shown(source), err);
    const char *path = own_path(conversation, schema_path, err);
    if (shown == NULL || path == NULL)
        return -1;
    const struct tool tool = {
        .kind = TOOL_FUNCTION,
        .name = name_of(source)->valuestring,
        .shown = shown,
        .parameters = parameters,
        .is_strict = cJSON_IsTrue(strict),
        .schema_path = path,
    };
    return add(conversation, &tool, source, err);
}

/* --- Custom tools --- */

/* What the input must match; both NULL: any text. Borrowed from the body's tree. */
struct input_grammar {
    const char *regex, *lark;
};

static int read_grammar(const cJSON *grammar, const struct json_path *path,
                        struct input_grammar *out, struct api_error *err) {
    const cJSON *syntax = json_given_member(grammar, "syntax"),
                *definition = json_given_member(grammar, "definition");
    if (!cJSON_IsObject(grammar))
        return json_refuse_at(grammar, path, "an object with syntax and definition", err);
    if (!json_is_text(syntax, "regex") && !json_is_text(syntax, "lark"))
        return json_refuse_at(syntax, JSON_MEMBER_PATH(path, "syntax"), "\"regex\" or \"lark\"",
                              err);
    if (!cJSON_IsString(definition))
        return json_refuse_at(definition, JSON_MEMBER_PATH(path, "definition"),
                              "a string, the regular expression or grammar", err);
    *(json_is_text(syntax, "regex") ? &out->regex : &out->lark) = definition->valuestring;
    return 0;
}

static int read_format(const struct tool_source *source, const struct json_path *path,
                       const struct json_path *grammar_path, struct input_grammar *out,
                       struct api_error *err) {
    const cJSON *format = json_given_member(source->object, "format"),
                *type = json_given_member(format, "type");
    *out = (struct input_grammar){0};
    if (format == NULL)
        return 0;
    if (!cJSON_IsObject(format))
        return json_refuse_at(format, path, "an object", err);
    if (json_is_text(type, "text"))
        return 0;
    if (!json_is_text(type, "grammar"))
        return json_refuse_at(type, JSON_MEMBER_PATH(path, "type"), "\"text\" or \"grammar\"", err);
    const cJSON *grammar = source->has_flat_grammar ? format : json_given_member(format, "grammar");
    return read_grammar(grammar, grammar_path, out, err);
}

/* Writes the pattern. The whole input must match it, so anchors around the definition change
 * nothing. */
static void write_pattern(const char *regex, struct byte_buffer *out) {
    struct byte_buffer pattern = {0};
    regex += regex[0] == '^';
    size_t length = strlen(regex), num_backslashes = 0;
    bool has_end = length > 0 && regex[length - 1] == '$';
    while (has_end && num_backslashes + 1 < length && regex[length - 2 - num_backslashes] == '\\')
        num_backslashes++;
    length -= has_end && num_backslashes % 2 == 0;
    byte_buffer_append_text(&pattern, "^(?:");
    byte_buffer_append(&pattern, regex, length);
    byte_buffer_append_text(&pattern, ")$");
    json_write_string_member(out, "pattern", &pattern);
    out->failed = out->failed || pattern.failed;
    byte_buffer_finish(&pattern);
}

static void write_parameters(const struct input_grammar *grammar, struct byte_buffer *out) {
    json_write_key(out, "parameters");
    json_write_begin_object(out);
    json_write_text_member(out, "type", "object");
    json_write_key(out, "properties");
    json_write_begin_object(out);
    json_write_key(out, "input");
    json_write_begin_object(out);
    json_write_text_member(out, "type", "string");
    if (grammar->regex != NULL)
        write_pattern(grammar->regex, out);
    json_write_end_object(out);
    json_write_end_object(out);
    json_write_raw_member(out, "required", "[\"input\"]");
    json_write_raw_member(out, "additionalProperties", "false");
    json_write_end_object(out);
}

/* Makes the function that represents a custom tool. A schema can express a regular expression; only
 * the grammar itself can express a grammar. Returns NULL when memory is short. */
static cJSON *make_input_function(const struct tool_source *source,
                                  const struct input_grammar *grammar) {
    struct byte_buffer json = {0};
    const cJSON *description = description_of(source);
    json_write_begin_object(&json);
    json_write_text_member(&json, "type", "function");
    json_write_key(&json, "function");
    json_write_begin_object(&json);
    json_write_text_member(&json, "name", name_of(source)->valuestring);
    if (description != NULL)
        json_write_text_member(&json, "description", description->valuestring);
    write_parameters(grammar, &json);
    if (grammar->regex != NULL || grammar->lark != NULL)
        json_write_raw_member(&json, "strict", "true");
    if (grammar->lark != NULL)
        json_write_text_member(&json, "input_grammar", grammar->lark);
    json_write_end_object(&json);
    json_write_end_object(&json);
    byte_buffer_append(&json, "", 1);
    cJSON *made = json.failed ? NULL : cJSON_Parse(json.data);
    byte_buffer_finish(&json);
    return made;
}

int tools_add_custom(struct conversation *conversation, const struct tool_source *source,
                     struct api_error *err) {
    const struct json_path *format_path = JSON_MEMBER_PATH(source->path, "format");
    const struct json_path *grammar_path =
        source->has_flat_grammar ? format_path : JSON_MEMBER_PATH(format_path, "grammar");
    struct input_grammar grammar;
    if (check_texts(source, err) != 0 ||
        read_format(source, format_path, grammar_path, &grammar, err) != 0)
        return -1;
    const cJSON *shown = conversation_own(conversation, make_input_function(source, &grammar), err);
    const char *path = own_path(conversation, JSON_MEMBER_PATH(grammar_path, "definition"), err);
    if (shown == NULL || path == NULL)
        return -1;
    const struct tool tool = {
        .kind = TOOL_CUSTOM,
        .name = name_of(source)->valuestring,
        .shown = shown,
        .parameters = json_member(json_member(shown, "function"), "parameters"),
        .is_strict = grammar.regex != NULL || grammar.lark != NULL,
        .lark = grammar.lark,
        .schema_path = path,
    };
    return add(conversation, &tool, source, err);
}

/* --- The choice --- */

void tools_set_default(struct conversation *conversation) {
    conversation->tool_choice = conversation->num_tools > 0 ? TOOL_CHOICE_AUTO : TOOL_CHOICE_NONE;
}

int tools_set_choice(struct conversation *conversation, enum tool_choice choice,
                     struct api_error *err) {
    const struct conversation_names *names = conversation->names;
    if (choice != TOOL_CHOICE_NONE && conversation->num_tools == 0)
        return bad_request(err, "missing_required_parameter", names->tools,
                           "%s needs %s, and there are none", names->tool_choice, names->tools);
    conversation->tool_choice = choice;
    return 0;
}

static struct tool *find_named(struct conversation *conversation, const cJSON *name,
                               const struct json_path *path, bool is_custom,
                               struct api_error *err) {
    const char *field = conversation->names->tools;
    if (is_custom && !cJSON_IsString(name)) {
        json_refuse_at(name, path, "the name of a custom tool", err);
        return NULL;
    }
    if (!is_custom && check_name(name, path, err) != 0)
        return NULL;
    struct tool *tool = find(conversation, name->valuestring);
    if (tool != NULL && (!is_custom || tool->kind == TOOL_CUSTOM))
        return tool;
    if (is_custom)
        bad_request_at(err, "unknown_tool", path,
                       " is \"%.128s\", which is not a custom tool in %s", name->valuestring,
                       field);
    else
        bad_request_at(err, "unknown_tool", path, " is \"%s\", which is not in %s",
                       name->valuestring, field);
    return NULL;
}

static void forbid_all(struct conversation *conversation) {
    for (int i = 0; i < conversation->num_tools; i++)
        conversation->tools[i].is_allowed = false;
}

int tools_choose(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                 bool is_custom, struct api_error *err) {
    struct tool *tool = find_named(conversation, name, path, is_custom, err);
    if (tool == NULL)
        return -1;
    forbid_all(conversation);
    tool->is_allowed = true;
    conversation->tool_choice = TOOL_CHOICE_NAMED;
    return 0;
}

int tools_allow(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                bool is_custom, struct api_error *err) {
    struct tool *tool = find_named(conversation, name, path, is_custom, err);
    if (tool == NULL)
        return -1;
    if (!conversation->has_allowed_tools)
        forbid_all(conversation);
    conversation->has_allowed_tools = true;
    tool->is_allowed = true;
    return 0;
}

int tools_read_parallel(const cJSON *body, struct conversation *out, struct api_error *err) {
    const cJSON *parallel = json_given_member(body, "parallel_tool_calls");
    out->allows_parallel = !cJSON_IsFalse(parallel);
    return parallel == NULL || cJSON_IsBool(parallel)
               ? 0
               : json_refuse(parallel, "parallel_tool_calls", "true or false", err);
}
