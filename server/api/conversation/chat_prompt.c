#include "server/api/conversation/chat_prompt.h"

#include "server/api/conversation/template_messages.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/conversation/chat_value.h"
#include "config/json/json_field.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_KWARGS 64
#define MAX_DOCUMENTS 1024

/* The mark by which Transformers finds the end of the final message, whatever the template puts
 * after it. The space at its end shows whether the template trims contents. */
#define CONTINUE_MARK "CONTINUE_FINAL_MESSAGE_TAG"

/* --- Variables --- */

static int set_documents(struct template_arena *arena, const cJSON *documents,
                         struct template_value **map, struct api_error *err) {
    if (!json_is_given(documents)) {
        chat_value_set(arena, map, "documents", template_none(arena));
        return 0;
    }
    if (!cJSON_IsArray(documents) || cJSON_GetArraySize(documents) > MAX_DOCUMENTS)
        return json_refuse(documents, "documents", "an array of at most 1024 objects", err);
    const cJSON *document;
    cJSON_ArrayForEach(document, documents) {
        if (!cJSON_IsObject(document))
            return json_refuse(document, "documents", "an array of objects", err);
    }
    chat_value_set(arena, map, "documents", chat_value_of(arena, documents));
    return 0;
}

/* Returns whether the server sets this variable itself, or takes it from elsewhere. The last ones
 * are arguments of Transformers, which templates are not meant to see. */
static bool is_reserved(const char *name) {
    static const char *const names[] = {
        "messages",
        "tools",
        "add_generation_prompt",
        "continue_final_message",
        "bos_token",
        "eos_token",
        "chat_template",
        "tokenize",
        "documents",
        "add_special_tokens",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

static int set_kwargs(struct template_arena *arena, const cJSON *kwargs,
                      struct template_value **map, struct api_error *err) {
    static const char field[] = "chat_template_kwargs";
    if (!json_is_given(kwargs))
        return 0;
    if (!cJSON_IsObject(kwargs) || cJSON_GetArraySize(kwargs) > MAX_KWARGS)
        return json_refuse(kwargs, field, "an object with at most 64 members", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, kwargs) {
        if (is_reserved(item->string))
            return bad_request(err, "unsupported_value", field,
                               "%s must not have \"%s\": that is not a variable of templates, or "
                               "a separate field",
                               field, item->string);
        chat_value_set(arena, map, item->string, chat_value_of(arena, item));
    }
    return 0;
}

/* Describes the tools for a template that does not know tools. */
static void describe_tools(const struct conversation *conversation, struct byte_buffer *out) {
    byte_buffer_append_text(out, "# Tools\n\nYou can call these functions. Each line is the JSON "
                                 "description of one:");
    for (int i = 0; i < conversation->num_tools; i++) {
        byte_buffer_append(out, "\n", 1);
        json_write_tree(out, conversation->tools[i].shown);
    }
    byte_buffer_append_text(out, "\n\nTo call a function, answer with its name and its arguments "
                                 "in this form:\n<tool_call>\n{\"name\": \"NAME\", "
                                 "\"arguments\": {...}}\n</tool_call>");
    byte_buffer_append(out, "", 1);
}

/* Returns whether the model is shown the tools; it is not if calls are forbidden. */
static bool shows_tools(const struct conversation *conversation) {
    return conversation->num_tools > 0 && conversation->tool_choice != TOOL_CHOICE_NONE;
}

static bool is_tool_chat(const struct chat_model *model, const struct conversation *conversation) {
    return shows_tools(conversation) && model->tool_template != NULL;
}

static int make_messages(const struct chat_model *model, const struct conversation *conversation,
                         struct template_arena *arena, struct template_value **out,
                         struct api_error *err) {
    const char *field = conversation->names->messages;
    struct byte_buffer tools = {0};
    if (model->writes_tools && shows_tools(conversation))
        describe_tools(conversation, &tools);
    struct chat_message_form form =
        is_tool_chat(model, conversation) ? model->tool_form : model->form;
    form.final_suffix = conversation->continue_final_message ? CONTINUE_MARK " " : NULL;
    form.tool_text = tools.data;
    int result = tools.failed
                     ? template_messages_fail_arena(arena, field, err)
                     : template_messages_make(conversation->messages, conversation->num_messages,
                                              field, &form, arena, out, err);
    byte_buffer_finish(&tools);
    return result;
}

static struct template_value *tools_value(const struct chat_model *model,
                                          const struct conversation *conversation,
                                          struct template_arena *arena) {
    if (!shows_tools(conversation))
        return model->form.takes_empty_tools ? template_list(arena) : template_none(arena);
    struct template_value *list = template_list(arena);
    for (int i = 0; i < conversation->num_tools; i++)
        list =
            template_list_append(arena, list, chat_value_of(arena, conversation->tools[i].shown));
    return list;
}

/* Sets the variables that tell the templates of models that think on demand whether to do so,
 * unless the request sets them itself: Qwen 3's and GLM's, and DeepSeek's and Granite's. */
static void set_thinking(struct template_arena *arena, const struct conversation *conversation,
                         struct template_value **map) {
    static const char *const names[] = {"enable_thinking", "thinking"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (conversation->thinking != THINKING_AS_IS &&
            json_member(conversation->template_kwargs, names[i]) == NULL)
            chat_value_set(arena, map, names[i],
                           template_bool(arena, conversation->thinking == THINKING_ON));
}

static int make_variables(const struct chat_model *model, const struct conversation *conversation,
                          struct template_arena *arena, struct template_value **out,
                          struct api_error *err) {
    struct template_value *messages = NULL, *map = template_map(arena);
    if (make_messages(model, conversation, arena, &messages, err) != 0)
        return -1;
    chat_value_set(arena, &map, "messages", messages);
    chat_value_set(arena, &map, "tools", tools_value(model, conversation, arena));
    chat_value_set(arena, &map, "add_generation_prompt",
                   template_bool(arena, conversation->add_generation_prompt));
    chat_value_set_tokens(arena, &map, model->tokenizer);
    if (conversation->reasoning_effort != NULL)
        chat_value_set(arena, &map, "reasoning_effort",
                       chat_value_text(arena, conversation->reasoning_effort));
    if (set_documents(arena, conversation->documents, &map, err) != 0 ||
        set_kwargs(arena, conversation->template_kwargs, &map, err) != 0)
        return -1;
    set_thinking(arena, conversation, &map);
    *out = map;
    return map != NULL ? 0
                       : template_messages_fail_arena(arena, conversation->names->messages, err);
}

/* --- Text --- */

/* Returns where the last `word` in text begins; text.length if there is none. */
static size_t find_last(struct text text, const char *word) {
    size_t length = strlen(word);
    for (size_t at = text.length; at >= length; at--)
        if (memcmp(text.data + at - length, word, length) == 0)
            return at - length;
    return text.length;
}

static bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Cuts the text where the final message's content ends. */
static int cut_final(struct chat_text *text, const char *field, struct api_error *err) {
    struct text all = {.data = text->data, .length = text->length};
    size_t at = find_last(all, CONTINUE_MARK);
    if (at == text->length)
        return bad_request(err, "unsupported_value", field,
                           "the model's chat template leaves the content of the final message "
                           "out, so it cannot be continued");
    size_t behind = at + strlen(CONTINUE_MARK);
    bool is_trimmed = behind == text->length || text->data[behind] != ' ';
    while (is_trimmed && at > 0 && is_space(text->data[at - 1]))
        at--;
    text->length = at;
    return 0;
}

/* Counts the client's spans in the part of the text that is left. */
static size_t count_spans(const struct chat_text *text) {
    size_t count = 0;
    while (count < text->num_client_spans && text->client_spans[count].begin < text->length)
        count++;
    return count;
}

static bool is_blank(struct text text) {
    size_t i = 0;
    while (i < text.length && is_space(text.data[i]))
        i++;
    return i == text.length;
}

/* Reads the state of the reasoning from the prompt's end, which the model continues. */
static void find_reasoning(const struct chat_text *text, bool continues,
                           enum reasoning_format format, struct chat_rendering *out) {
    if (format == REASONING_FORMAT_HARMONY) { /* only a final message can be continued */
        out->has_reasoned = continues;
        return;
    }
    const struct reasoning_markers *markers = reasoning_format_markers(format);
    if (markers == NULL)
        return;
    size_t count = count_spans(text), from = 0;
    if (count > 0) {
        const struct text_span *last = &text->client_spans[count - 1];
        from = continues || last->end > text->length ? last->begin : last->end;
    }
    struct text tail = {.data = text->data + from, .length = text->length - from};
    size_t open = find_last(tail, markers->begin), closed = find_last(tail, markers->end);
    bool is_closed = closed < tail.length && (open == tail.length || open < closed);
    out->begins_in_reasoning = open < tail.length && !is_closed;
    if (is_closed) {
        size_t behind = closed + strlen(markers->end);
        struct text rest = {.data = tail.data + behind, .length = tail.length - behind};
        out->has_reasoned = continues || is_blank(rest);
    }
}

static int refuse_template(const struct conversation *conversation,
                           const struct template_arena *arena, const struct error *why,
                           struct api_error *err) {
    if (why->code == ERROR_MEMORY && !template_arena_is_full(arena))
        return template_messages_fail_arena(arena, conversation->names->messages, err);
    if (conversation->chat_template != NULL)
        return bad_request(err, "chat_template_error", "chat_template",
                           "chat_template cannot be used: %.300s", why->message);
    return bad_request(err, "chat_template_error", conversation->names->messages,
                       "the model's chat template refuses the messages: %.300s", why->message);
}

static int render_text(const struct chat_model *model, const struct conversation *conversation,
                       struct template_arena *arena, struct chat_text *out, struct api_error *err) {
    struct template_value *variables = NULL;
    struct error why = {0};
    if (make_variables(model, conversation, arena, &variables, err) != 0)
        return -1;
    if (chat_template_render(is_tool_chat(model, conversation) ? model->tool_template
                                                               : model->chat_template,
                             arena, variables, time(NULL), out, &why) != 0)
        return refuse_template(conversation, arena, &why, err);
    return conversation->continue_final_message
               ? cut_final(out, conversation->names->continue_final, err)
               : 0;
}

static int render(const struct chat_model *model, const struct conversation *conversation,
                  struct chat_rendering *out, struct api_error *err) {
    struct template_arena *arena = template_arena_create(CHAT_PROMPT_ARENA_BYTES);
    struct chat_text text = {0};
    if (arena == NULL)
        return api_error_set_memory(err);
    if (render_text(model, conversation, arena, &text, err) != 0) {
        template_arena_destroy(arena);
        return -1;
    }
    unsigned flags = TOKENIZER_PARSE_SPECIAL;
    *out = (struct chat_rendering){
        .arena = arena,
        .text = {.data = text.data,
                 .length = text.length,
                 .client_spans = text.client_spans,
                 .num_client_spans = count_spans(&text),
                 .flags = conversation->add_special_tokens ? flags | TOKENIZER_ADD_SPECIAL : flags},
    };
    find_reasoning(&text, conversation->continue_final_message, model->reasoning, out);
    return 0;
}

/* Renders with the request's own template, which is parsed only for this request and then freed. */
static int render_with_template(const struct chat_model *model,
                                const struct conversation *conversation, struct chat_rendering *out,
                                struct api_error *err) {
    struct chat_model own;
    struct error why = {0};
    if (chat_model_with_template(model, conversation->chat_template, &own, &why) != 0)
        return why.code == ERROR_MEMORY
                   ? api_error_set_memory(err)
                   : bad_request(err, "chat_template_error", "chat_template",
                                 "chat_template cannot be used: %.300s", why.message);
    int status = render(&own, conversation, out, err);
    chat_template_destroy(own.chat_template);
    return status;
}

int chat_prompt_render(const struct api_context *context, const struct conversation *conversation,
                       struct chat_rendering *out, struct api_error *err) {
    const struct chat_model *model = context->chat;
    if (model != NULL && conversation->chat_template != NULL)
        return render_with_template(model, conversation, out, err);
    if (model == NULL || model->chat_template == NULL)
        return bad_request(err, "no_chat_template", NULL,
                           "%s: give the server one with --chat-template",
                           model != NULL ? model->problem : "the model has no chat template");
    return render(model, conversation, out, err);
}

void chat_prompt_finish(struct chat_rendering *rendering) {
    template_arena_destroy(rendering->arena);
    rendering->arena = NULL;
}

int chat_prompt_count(const struct api_context *context, const struct conversation *conversation,
                      int64_t *out, struct api_error *err) {
    struct chat_rendering rendering;
    int32_t *tokens = NULL;
    size_t count = 0;
    if (chat_prompt_render(context, conversation, &rendering, err) != 0)
        return -1;
    int result =
        prompt_text_encode(context->tokenizer, &rendering.text, NULL, &tokens, &count, err);
    chat_prompt_finish(&rendering);
    free(tokens);
    *out = (int64_t)count;
    return result;
}

int chat_prompt_create(const struct api_context *context, const struct conversation *conversation,
                       const struct prompt_limits *limits, struct chat_prompt *out,
                       struct api_error *err) {
    struct chat_rendering rendering;
    struct chat_prompt prompt = {0};
    if (chat_prompt_render(context, conversation, &rendering, err) != 0)
        return -1;
    int result = prompt_text_tokens(context, &rendering.text, conversation->names->messages, limits,
                                    &prompt.tokens, err);
    prompt.begins_in_reasoning = rendering.begins_in_reasoning;
    prompt.has_reasoned = rendering.has_reasoned;
    chat_prompt_finish(&rendering);
    if (result == 0)
        *out = prompt;
    return result;
}
