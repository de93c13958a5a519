#include "server/api/call/endpoints.h"

#include "server/api/conversation/chat_model.h"
#include "server/api/call/api_context.h"
#include "server/api/call/served_adapters.h"
#include "server/api/completions/llama_format.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <time.h>

/* Writes null for a model that was not loaded yet. */
static void write_length(const char *name, const struct api_context *context,
                         struct byte_buffer *out) {
    if (context->limits != NULL)
        json_write_int_member(out, name, context->limits->max_model_len);
    else
        json_write_raw_member(out, name, "null");
}

/* An adapter's parent is the model. */
static void write_model(const struct api_context *context, const char *name, bool is_adapter,
                        struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "id", name);
    json_write_text_member(out, "object", "model");
    json_write_int_member(out, "created", context->created);
    json_write_text_member(out, "owned_by", "quire");
    json_write_text_member(out, "root", is_adapter ? name : context->model_names[0]);
    json_write_text_member(out, "parent", is_adapter ? context->model_names[0] : NULL);
    write_length("max_model_len", context, out);
    json_write_raw_member(out, "permission", "[]");
    if (context->status != NULL) {
        json_write_key(out, "status");
        json_write_begin_object(out);
        json_write_text_member(out, "value", context->status);
        json_write_end_object(out);
    }
    json_write_end_object(out);
}

/* Writes the members of Anthropic's ModelInfo. */
static void write_anthropic(const struct api_context *context, const char *name, bool is_adapter,
                            struct byte_buffer *out) {
    char created[32];
    struct tm tm;
    const time_t seconds = (time_t)context->created;
    gmtime_r(&seconds, &tm);
    strftime(created, sizeof(created), "%Y-%m-%dT%H:%M:%SZ", &tm);
    json_write_begin_object(out);
    json_write_text_member(out, "type", "model");
    json_write_text_member(out, "id", name);
    json_write_text_member(out, "display_name", name);
    json_write_text_member(out, "created_at", created);
    write_length("max_input_tokens", context, out);
    write_length("max_tokens", context, out);
    json_write_end_object(out);
}

typedef void write_entry(const struct api_context *context, const char *name, bool is_adapter,
                         struct byte_buffer *out);

#define MAX_NAME_BYTES 256

/* The names of the first and the last one that were written; "": none. */
struct range {
    char first[MAX_NAME_BYTES], last[MAX_NAME_BYTES];
};

static void extend(struct range *range, const char *name) {
    if (range->first[0] == '\0')
        snprintf(range->first, sizeof(range->first), "%s", name);
    snprintf(range->last, sizeof(range->last), "%s", name);
}

static void write_adapters(const struct api_context *context, write_entry *write,
                           struct range *range, struct byte_buffer *out) {
    struct adapter *adapters[LORA_MAX_SLOTS];
    int count = context->adapters != NULL ? served_adapters_list(context->adapters, adapters) : 0;
    for (int i = 0; i < count; i++) {
        if (api_context_allows(context, adapters[i]->name)) {
            write(context, adapters[i]->name, true, out);
            extend(range, adapters[i]->name);
        }
        adapter_unref(adapters[i]);
    }
}

void models_endpoint_list(const struct api_context *const *contexts, int count, bool is_anthropic,
                          struct byte_buffer *out) {
    write_entry *write = is_anthropic ? write_anthropic : write_model;
    struct range range = {"", ""};
    json_write_begin_object(out);
    if (!is_anthropic)
        json_write_text_member(out, "object", "list");
    json_write_key(out, "data");
    json_write_begin_array(out);
    for (int m = 0; m < count; m++) {
        for (int i = 0; i < contexts[m]->num_model_names; i++) {
            write(contexts[m], contexts[m]->model_names[i], false, out);
            extend(&range, contexts[m]->model_names[i]);
        }
        write_adapters(contexts[m], write, &range, out);
    }
    json_write_end_array(out);
    if (is_anthropic) {
        json_write_raw_member(out, "has_more", "false");
        json_write_text_member(out, "first_id", range.first[0] != '\0' ? range.first : NULL);
        json_write_text_member(out, "last_id", range.last[0] != '\0' ? range.last : NULL);
    }
    json_write_end_object(out);
}

int models_endpoint_get(const struct api_context *context, const char *id, bool is_anthropic,
                        struct byte_buffer *out, struct api_error *err) {
    struct adapter *adapter = NULL;
    if (api_context_check_model(context, id, err) != 0)
        return -1;
    if (context->adapters != NULL && api_context_allows(context, id))
        adapter = served_adapters_find(context->adapters, id);
    (is_anthropic ? write_anthropic : write_model)(context, id, adapter != NULL, out);
    adapter_unref(adapter);
    return 0;
}

static void write_token(const struct tokenizer *tokenizer, const char *name, int32_t token,
                        struct byte_buffer *out) {
    json_write_key(out, name);
    if (token < 0) {
        json_write_null(out);
        return;
    }
    struct text piece = tokenizer_piece(tokenizer, token);
    json_write_string(out, piece.data, piece.length);
}

/* Writes the control tokens by id. */
static void write_added(const struct tokenizer *tokenizer, struct byte_buffer *out) {
    json_write_key(out, "added_tokens_decoder");
    json_write_begin_object(out);
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        struct text piece = tokenizer_piece(tokenizer, token);
        if (!tokenizer_is_special(tokenizer, token) || piece.length == 0)
            continue;
        char id[16];
        snprintf(id, sizeof(id), "%d", (int)token);
        json_write_key(out, id);
        json_write_begin_object(out);
        json_write_key(out, "content");
        json_write_string(out, piece.data, piece.length);
        json_write_raw_member(out, "special", "true");
        json_write_end_object(out);
    }
    json_write_end_object(out);
}

static void write_template(const struct api_context *context, struct byte_buffer *out) {
    json_write_text_member(out, "chat_template",
                           context->chat != NULL ? context->chat->source : NULL);
}

void models_endpoint_props(const struct api_context *context, bool is_asleep,
                           struct byte_buffer *out) {
    const struct tokenizer *tokenizer = context->tokenizer;
    int num_eos = 0;
    const int32_t *eos = tokenizer_eos_tokens(tokenizer, &num_eos);
    json_write_begin_object(out);
    json_write_key(out, "default_generation_settings");
    json_write_begin_object(out);
    json_write_int_member(out, "n_ctx", context->limits->max_model_len);
    json_write_key(out, "params");
    json_write_begin_object(out);
    json_write_int_member(out, "n_predict", -1);
    json_write_int_member(out, "seed", -1);
    llama_format_settings(&context->sampling, out);
    json_write_end_object(out);
    json_write_end_object(out);
    json_write_int_member(out, "total_slots", context->limits->max_num_seqs);
    json_write_text_member(out, "model_alias", context->model_names[0]);
    json_write_text_member(out, "model_path", context->model_names[0]);
    write_template(context, out);
    write_token(tokenizer, "bos_token", tokenizer_bos(tokenizer), out);
    write_token(tokenizer, "eos_token", num_eos > 0 ? eos[0] : -1, out);
    json_write_raw_member(out, "modalities", "{\"vision\":false,\"audio\":false}");
    json_write_text_member(out, "build_info", "quire " QUIRE_VERSION);
    json_write_key(out, "is_sleeping");
    json_write_bool(out, is_asleep);
    json_write_end_object(out);
}

void models_endpoint_tokenizer_info(const struct api_context *context, struct byte_buffer *out) {
    const struct tokenizer *tokenizer = context->tokenizer;
    int num_eos = 0, before = 0, behind = 0;
    const int32_t *eos = tokenizer_eos_tokens(tokenizer, &num_eos);
    tokenizer_num_added(tokenizer, &before, &behind);
    json_write_begin_object(out);
    json_write_text_member(out, "tokenizer_class", "PreTrainedTokenizerFast");
    json_write_int_member(out, "model_max_length", context->limits->max_model_len);
    write_token(tokenizer, "bos_token", tokenizer_bos(tokenizer), out);
    write_token(tokenizer, "eos_token", num_eos > 0 ? eos[0] : -1, out);
    json_write_raw_member(out, "add_bos_token", before > 0 ? "true" : "false");
    json_write_raw_member(out, "add_eos_token", behind > 0 ? "true" : "false");
    write_template(context, out);
    write_added(tokenizer, out);
    json_write_end_object(out);
}
