/* What Ollama's API says about models: /api/tags, /api/ps and /api/show. Of their files
 * it says nothing. */
#include "server/api/call/endpoints.h"

#include "config/json/json_parse.h"
#include "config/json/json_write.h"
#include "server/api/completions/fim_prompt.h"
#include "server/api/conversation/chat_model.h"
#include "server/api/fields/unknown_fields.h"
#include "server/api/ollama/ollama_body.h"
#include "server/api/ollama/ollama_format.h"

#include <stdio.h>
#include <string.h>

#define FAR_FUTURE 253402300799 /* the end of the year 9999: it is never unloaded */

/* Ollama's names have a tag. */
static void write_name(const char *member, const char *name, struct byte_buffer *out) {
    struct byte_buffer text = {0};
    byte_buffer_printf(&text, "%s%s", name, strchr(name, ':') == NULL ? ":latest" : "");
    json_write_string_member(out, member, &text);
    out->failed |= text.failed;
    byte_buffer_finish(&text);
}

/* Writes 64 digits, as many as Ollama's programs expect. They stand for the name, not for the
 * model's bytes. */
static void write_digest(const char *name, struct byte_buffer *out) {
    unsigned char bytes[32] = {0};
    char digits[2 * sizeof(bytes) + 1];
    size_t length = strlen(name);
    for (size_t i = 0; i < length || i < sizeof(bytes); i++)
        bytes[i % sizeof(bytes)] =
            (unsigned char)(31 * bytes[i % sizeof(bytes)] + (unsigned char)name[i % length]);
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(digits + 2 * i, 3, "%02x", bytes[i]);
    json_write_text_member(out, "digest", digits);
}

static void write_details(const struct api_context *context, struct byte_buffer *out) {
    json_write_key(out, "details");
    json_write_begin_object(out);
    json_write_text_member(out, "parent_model", "");
    json_write_text_member(out, "format", "");
    json_write_text_member(out, "family", "");
    json_write_raw_member(out, "families", "[]");
    json_write_text_member(out, "parameter_size", "");
    json_write_text_member(out, "quantization_level", "");
    if (context->limits != NULL) {
        json_write_int_member(out, "context_length", context->limits->max_model_len);
        json_write_int_member(out, "embedding_length", context->limits->hidden_size);
    }
    json_write_end_object(out);
}

static void write_names(const struct api_context *context, bool are_loaded,
                        struct byte_buffer *out) {
    for (int i = 0; i < context->num_model_names; i++) {
        const char *name = context->model_names[i];
        json_write_begin_object(out);
        write_name("name", name, out);
        write_name("model", name, out);
        json_write_int_member(out, "size", 0);
        write_digest(name, out);
        write_details(context, out);
        if (are_loaded) {
            ollama_format_time("expires_at", FAR_FUTURE, 0, out);
            json_write_int_member(out, "size_vram", 0);
            json_write_int_member(out, "context_length", context->limits->max_model_len);
        } else {
            ollama_format_time("modified_at", context->created, 0, out);
        }
        json_write_end_object(out);
    }
}

void ollama_models_list(const struct api_context *const *contexts, int count, bool are_loaded,
                        struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_key(out, "models");
    json_write_begin_array(out);
    for (int i = 0; i < count; i++) {
        const char *status = contexts[i]->status;
        if (!are_loaded || status == NULL || strcmp(status, "loaded") == 0)
            write_names(contexts[i], are_loaded, out);
    }
    json_write_end_array(out);
    json_write_end_object(out);
}

/* "embedding" would say that the model is for nothing else. */
static void write_capabilities(const struct api_context *context, struct byte_buffer *out) {
    const struct chat_model *chat = context->chat;
    bool generates = !context->refuses_generation;
    struct api_error err;
    const struct {
        const char *name;
        bool is_there;
    } capabilities[] = {
        {"completion", generates},
        {"tools", generates && chat != NULL && chat->chat_template != NULL},
        {"insert", generates && fim_prompt_check(context, "suffix", false, &err) == 0},
        {"thinking", generates && chat != NULL && chat->reasoning != REASONING_FORMAT_NONE},
        {"embedding", !generates},
    };
    json_write_key(out, "capabilities");
    json_write_begin_array(out);
    for (size_t i = 0; i < sizeof(capabilities) / sizeof(capabilities[0]); i++)
        if (capabilities[i].is_there)
            json_write_text(out, capabilities[i].name);
    json_write_end_array(out);
}

/* Programs look for the context's length under the name of the architecture. */
static void write_info(const struct api_context *context, struct byte_buffer *out) {
    json_write_key(out, "model_info");
    json_write_begin_object(out);
    json_write_text_member(out, "general.architecture", "quire");
    json_write_int_member(out, "quire.context_length", context->limits->max_model_len);
    json_write_int_member(out, "quire.embedding_length", context->limits->hidden_size);
    json_write_int_member(out, "quire.vocab_size", context->limits->vocab_size);
    json_write_end_object(out);
}

static void write_model(const struct api_context *context, struct byte_buffer *out) {
    const struct chat_model *chat = context->chat;
    const char *source = chat != NULL ? chat->source : NULL;
    json_write_begin_object(out);
    json_write_text_member(out, "modelfile", "");
    json_write_text_member(out, "parameters", "");
    json_write_text_member(out, "template", source != NULL ? source : "");
    write_details(context, out);
    write_info(context, out);
    write_capabilities(context, out);
    ollama_format_time("modified_at", context->created, 0, out);
    json_write_end_object(out);
}

/* `name` is the older name of `model`. */
int ollama_models_show(const struct api_context *context, const char *text, size_t length,
                       struct byte_buffer *out, struct byte_buffer *ignored,
                       struct api_error *err) {
    static const struct json_field fields[] = {JSON_OTHER(model), JSON_OTHER(name),
                                               JSON_OTHER(verbose)};
    const struct json_table table = JSON_TABLE(fields);
    cJSON *json = json_parse(text, length, err);
    if (json == NULL)
        return -1;
    const char *name =
        json_given_member(json, "model") == NULL && json_given_member(json, "name") != NULL
            ? "name"
            : "model";
    int result = ollama_body_take_model(context, json, name, err);
    if (result == 0)
        result = unknown_fields_read(json, &table, 1, ignored, err);
    if (result == 0)
        result = unknown_fields_check(context, ignored, err);
    if (result == 0)
        write_model(context, out);
    cJSON_Delete(json);
    return result;
}
