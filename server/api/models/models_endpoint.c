#include "server/api/endpoints.h"

#include "server/api/chat/chat_model.h"
#include "server/api/api_context.h"
#include "server/json/json_write.h"

#include <stdio.h>

static void write_model(const struct api_context *context, const char *name,
                        struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "id", name);
    json_write_text_member(out, "object", "model");
    json_write_int_member(out, "created", context->created);
    json_write_text_member(out, "owned_by", "quire");
    json_write_text_member(out, "root", context->model_names[0]);
    json_write_raw_member(out, "parent", "null");
    json_write_int_member(out, "max_model_len", context->limits->max_model_len);
    json_write_raw_member(out, "permission", "[]");
    json_write_end_object(out);
}

void models_endpoint_list(const struct api_context *context, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "object", "list");
    json_write_key(out, "data");
    json_write_begin_array(out);
    for (int i = 0; i < context->num_model_names; i++)
        write_model(context, context->model_names[i], out);
    json_write_end_array(out);
    json_write_end_object(out);
}

int models_endpoint_get(const struct api_context *context, const char *id, struct byte_buffer *out,
                        struct api_error *err) {
    if (api_context_check_model(context, id, err) != 0)
        return -1;
    write_model(context, id, out);
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

void models_endpoint_tokenizer_info(const struct api_context *context, struct byte_buffer *out) {
    const struct tokenizer *tokenizer = context->tokenizer;
    const struct chat_model *chat = context->chat;
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
    json_write_text_member(out, "chat_template", chat != NULL ? chat->source : NULL);
    write_added(tokenizer, out);
    json_write_end_object(out);
}
