#include "server/api/call/endpoints.h"

#include "server/api/chat/chat_body.h"
#include "server/api/conversation/chat_prompt.h"
#include "server/api/call/api_context.h"
#include "server/api/fields/prompt_field.h"
#include "server/api/fields/unknown_fields.h"
#include "config/json/json_field.h"
#include "config/json/json_parse.h"
#include "config/json/json_write.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A long token can stand for a hundred bytes, so the text of a small body needs a separate bound;
 * the answer contains it twice. */
#define MAX_DETOKENIZED_BYTES (8 << 20)

/* vLLM's fields, then those of llama.cpp for its own form {"content": ...}. */
struct tokenize_body {
    const char *model;
    const char *prompt;
    const cJSON *messages; /* NULL: not a chat */
    const char *reasoning_effort;
    bool add_special_tokens, return_token_strs;
    const char *content;
    bool add_special, parse_special, with_pieces;
    bool skip_special_tokens; /* /detokenize's, and SGLang's; false unless it is given */
};

/* Fields of a chat whose prompt is requested. */
#define CHAT_FIELDS                                                                                \
    JSON_OTHER(messages), JSON_OTHER(tools), JSON_OTHER(tool_choice), JSON_OTHER(functions),       \
        JSON_OTHER(function_call), JSON_TEXT(struct tokenize_body, reasoning_effort),              \
        JSON_OTHER(add_generation_prompt), JSON_OTHER(continue_final_message),                     \
        JSON_OTHER(chat_template_kwargs), JSON_OTHER(chat_template)

static const struct json_field tokenize_fields[] = {
    JSON_TEXT(struct tokenize_body, model),
    JSON_TEXT(struct tokenize_body, prompt),
    CHAT_FIELDS,
    JSON_BOOL(struct tokenize_body, add_special_tokens),
    JSON_BOOL(struct tokenize_body, return_token_strs),
    JSON_TEXT(struct tokenize_body, content),
    JSON_BOOL(struct tokenize_body, add_special),
    JSON_BOOL(struct tokenize_body, parse_special),
    JSON_BOOL(struct tokenize_body, with_pieces),
};

static const struct json_field detokenize_fields[] = {
    JSON_TEXT(struct tokenize_body, model),
    JSON_OTHER(tokens),
    JSON_BOOL(struct tokenize_body, skip_special_tokens),
};

struct json_table tokenize_endpoint_table(void) {
    return JSON_TABLE(tokenize_fields);
}

static int read_fields(const struct api_context *context, const cJSON *json,
                       struct json_table table, struct tokenize_body *body,
                       struct byte_buffer *ignored, struct api_error *err) {
    if (json_fields_read(json, table, body, err) != 0 ||
        (body->model != NULL && api_context_check_model(context, body->model, err) != 0))
        return -1;
    if (unknown_fields_read(json, &table, 1, ignored, err) != 0)
        return -1;
    return unknown_fields_check(context, ignored, err);
}

static void write_ids(const int32_t *tokens, size_t count, struct byte_buffer *out) {
    json_write_begin_array(out);
    for (size_t i = 0; i < count; i++)
        json_write_int(out, tokens[i]);
    json_write_end_array(out);
}

static void write_token_strings(const struct tokenizer *tokenizer, const int32_t *tokens,
                                size_t count, struct byte_buffer *out) {
    json_write_begin_array(out);
    for (size_t i = 0; i < count; i++) {
        struct text piece = tokenizer_raw_piece(tokenizer, tokens[i]);
        json_write_string(out, piece.data, piece.length);
    }
    json_write_end_array(out);
}

static void write_pieces(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count,
                         struct byte_buffer *out) {
    json_write_begin_array(out);
    for (size_t i = 0; i < count; i++) {
        struct text piece = tokenizer_piece(tokenizer, tokens[i]);
        json_write_begin_object(out);
        json_write_int_member(out, "id", tokens[i]);
        json_write_key(out, "piece");
        json_write_string(out, piece.data, piece.length);
        json_write_end_object(out);
    }
    json_write_end_array(out);
}

/* Writes llama.cpp's form for its own fields, otherwise vLLM's. */
static void write_tokenized(const struct api_context *context, const struct tokenize_body *body,
                            const int32_t *tokens, size_t count, struct byte_buffer *out) {
    bool is_vllm = body->prompt != NULL || body->messages != NULL;
    json_write_begin_object(out);
    if (is_vllm) {
        json_write_int_member(out, "count", (int64_t)count);
        json_write_int_member(out, "max_model_len", context->limits->max_model_len);
    }
    json_write_key(out, "tokens");
    if (!is_vllm && body->with_pieces)
        write_pieces(context->tokenizer, tokens, count, out);
    else
        write_ids(tokens, count, out);
    if (is_vllm) {
        json_write_key(out, "token_strs");
        if (body->return_token_strs)
            write_token_strings(context->tokenizer, tokens, count, out);
        else
            json_write_null(out);
    }
    json_write_end_object(out);
}

static int tokenize_text(const struct api_context *context, const struct tokenize_body *body,
                         const struct prompt_text *text, struct byte_buffer *out,
                         struct api_error *err) {
    int32_t *tokens = NULL;
    size_t count = 0;
    if (prompt_text_encode(context->tokenizer, text, NULL, &tokens, &count, err) != 0)
        return -1;
    write_tokenized(context, body, tokens, count, out);
    free(tokens);
    return 0;
}

/* Renders the prompt that a chat of these messages gives the model. */
static int render_chat(const struct api_context *context, const cJSON *json,
                       const struct tokenize_body *body, struct chat_rendering *out,
                       struct api_error *err) {
    struct conversation conversation;
    if (chat_body_read_prompt(context, json, &conversation, err) != 0)
        return -1;
    conversation.reasoning_effort = body->reasoning_effort;
    conversation.add_special_tokens = body->add_special_tokens;
    int result = chat_prompt_render(context, &conversation, out, err);
    conversation_finish(&conversation);
    return result;
}

static int tokenize_chat(const struct api_context *context, cJSON *json,
                         const struct tokenize_body *body, struct byte_buffer *out,
                         struct api_error *err) {
    struct chat_rendering rendering;
    if (render_chat(context, json, body, &rendering, err) != 0)
        return -1;
    int result = tokenize_text(context, body, &rendering.text, out, err);
    chat_prompt_finish(&rendering);
    return result;
}

/* The input to tokenize, and the fields that have a meaning together with it. Other fields are
 * refused, because they would be ignored. */
enum tokenize_form { FORM_PROMPT = 1, FORM_MESSAGES = 2, FORM_CONTENT = 4 };

static int check_form(const cJSON *json, enum tokenize_form form, struct api_error *err) {
    static const struct {
        const char *name;
        int forms;
    } fields[] = {
        {"prompt", FORM_PROMPT},
        {"content", FORM_CONTENT},
        {"add_special_tokens", FORM_PROMPT | FORM_MESSAGES},
        {"return_token_strs", FORM_PROMPT | FORM_MESSAGES},
        {"parse_special", FORM_PROMPT | FORM_CONTENT},
        {"add_special", FORM_CONTENT},
        {"with_pieces", FORM_CONTENT},
        {"tools", FORM_MESSAGES},
        {"tool_choice", FORM_MESSAGES},
        {"functions", FORM_MESSAGES},
        {"function_call", FORM_MESSAGES},
        {"add_generation_prompt", FORM_MESSAGES},
        {"continue_final_message", FORM_MESSAGES},
        {"chat_template_kwargs", FORM_MESSAGES},
        {"chat_template", FORM_MESSAGES},
        {"reasoning_effort", FORM_MESSAGES},
    };
    const char *subject = form == FORM_PROMPT     ? "prompt"
                          : form == FORM_MESSAGES ? "messages"
                                                  : "content";
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (json_given_member(json, fields[i].name) == NULL || (fields[i].forms & (int)form) != 0)
            continue;
        return bad_request(err, "unsupported_value", fields[i].name, "%s is not allowed with %s",
                           fields[i].name, subject);
    }
    return 0;
}

static int tokenize_parsed(const struct api_context *context, cJSON *json, struct byte_buffer *out,
                           struct byte_buffer *ignored, struct api_error *err) {
    const cJSON *messages = cJSON_GetObjectItemCaseSensitive(json, "messages");
    bool is_chat = messages != NULL && !cJSON_IsNull(messages);
    struct tokenize_body body = {.messages = is_chat ? messages : NULL,
                                 .add_special_tokens = !is_chat,
                                 .parse_special = true};
    if (read_fields(context, json, JSON_TABLE(tokenize_fields), &body, ignored, err) != 0)
        return -1;
    enum tokenize_form form = is_chat               ? FORM_MESSAGES
                              : body.prompt != NULL ? FORM_PROMPT
                                                    : FORM_CONTENT;
    if ((is_chat || body.prompt != NULL || body.content != NULL) &&
        check_form(json, form, err) != 0)
        return -1;
    if (is_chat)
        return tokenize_chat(context, json, &body, out, err);
    struct prompt_text text = {.data = body.prompt != NULL ? body.prompt : body.content};
    if (text.data == NULL)
        return bad_request(err, "missing_required_parameter", "prompt",
                           "prompt is missing: it must be a string");
    text.length = strlen(text.data);
    text.flags = prompt_text_flags(body.prompt != NULL ? body.add_special_tokens : body.add_special,
                                   body.parse_special);
    return tokenize_text(context, &body, &text, out, err);
}

static const struct json_field apply_fields[] = {
    JSON_TEXT(struct tokenize_body, model),
    CHAT_FIELDS,
};

static int apply_parsed(const struct api_context *context, cJSON *json, struct byte_buffer *out,
                        struct byte_buffer *ignored, struct api_error *err) {
    struct tokenize_body body = {
        .messages = cJSON_GetObjectItemCaseSensitive(json, "messages"),
    };
    struct chat_rendering rendering;
    if (read_fields(context, json, JSON_TABLE(apply_fields), &body, ignored, err) != 0 ||
        render_chat(context, json, &body, &rendering, err) != 0)
        return -1;
    json_write_begin_object(out);
    json_write_key(out, "prompt");
    json_write_string(out, rendering.text.data, rendering.text.length);
    json_write_end_object(out);
    chat_prompt_finish(&rendering);
    return 0;
}

static int decode(const struct tokenizer *tokenizer, const int32_t *tokens, size_t count,
                  bool skip_special, struct byte_buffer *text, struct api_error *err) {
    size_t length = tokenizer_decode(tokenizer, tokens, count, skip_special, NULL, 0);
    if (length > MAX_DETOKENIZED_BYTES)
        return bad_request(err, "out_of_range", "tokens",
                           "tokens stand for more than %d bytes of text, the most allowed",
                           MAX_DETOKENIZED_BYTES);
    char *bytes = malloc(length + 1);
    if (bytes == NULL)
        return api_error_set_memory(err);
    tokenizer_decode(tokenizer, tokens, count, skip_special, bytes, length);
    byte_buffer_append(text, bytes, length);
    free(bytes);
    return text->failed ? api_error_set_memory(err) : 0;
}

/* Decodes the ids in the body. */
static int decode_body(const struct api_context *context, const cJSON *json,
                       struct byte_buffer *text, struct byte_buffer *ignored,
                       struct api_error *err) {
    struct tokenize_body body = {0};
    if (read_fields(context, json, JSON_TABLE(detokenize_fields), &body, ignored, err) != 0)
        return -1;
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "tokens"), *item;
    if (!cJSON_IsArray(array))
        return json_refuse(array, "tokens", "an array of token ids", err);
    size_t capacity = 1, count = 0;
    cJSON_ArrayForEach(item, array) capacity++;
    int32_t *tokens = calloc(capacity, sizeof(*tokens));
    if (tokens == NULL)
        return api_error_set_memory(err);
    int status = 0;
    cJSON_ArrayForEach(item, array) {
        char path[32];
        int64_t token;
        snprintf(path, sizeof(path), "tokens[%zu]", count);
        status =
            json_read_int(item, path, 0, tokenizer_vocab_size(context->tokenizer) - 1, &token, err);
        if (status != 0)
            break;
        tokens[count++] = (int32_t)token;
    }
    if (status == 0)
        status = decode(context->tokenizer, tokens, count, body.skip_special_tokens, text, err);
    free(tokens);
    return status;
}

static int detokenize_parsed(const struct api_context *context, cJSON *json,
                             struct byte_buffer *out, struct byte_buffer *ignored,
                             struct api_error *err) {
    struct byte_buffer text = {0};
    int result = decode_body(context, json, &text, ignored, err);
    if (result == 0) {
        json_write_begin_object(out);
        json_write_string_member(out, "prompt", &text); /* vLLM's name, and llama.cpp's */
        json_write_string_member(out, "content", &text);
        json_write_end_object(out);
    }
    byte_buffer_finish(&text);
    return result;
}

/* Makes an endpoint's answer from its body, which it may change. */
typedef int transform_parsed(const struct api_context *context, cJSON *json,
                             struct byte_buffer *out, struct byte_buffer *ignored,
                             struct api_error *err);

static int transform(transform_parsed *parsed, const struct api_context *context, const char *body,
                     size_t length, struct byte_buffer *out, struct byte_buffer *ignored,
                     struct api_error *err) {
    cJSON *json = json_parse(body, length, err);
    if (json == NULL)
        return -1;
    int result = parsed(context, json, out, ignored, err);
    cJSON_Delete(json);
    return result;
}

int tokenize_endpoint_encode(const struct api_context *context, const char *body, size_t length,
                             struct byte_buffer *out, struct byte_buffer *ignored,
                             struct api_error *err) {
    return transform(tokenize_parsed, context, body, length, out, ignored, err);
}

int tokenize_endpoint_apply_template(const struct api_context *context, const char *body,
                                     size_t length, struct byte_buffer *out,
                                     struct byte_buffer *ignored, struct api_error *err) {
    return transform(apply_parsed, context, body, length, out, ignored, err);
}

int tokenize_endpoint_decode(const struct api_context *context, const char *body, size_t length,
                             struct byte_buffer *out, struct byte_buffer *ignored,
                             struct api_error *err) {
    return transform(detokenize_parsed, context, body, length, out, ignored, err);
}
