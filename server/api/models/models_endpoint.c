#include "server/api/endpoints.h"

#include "server/api/chat/chat_model.h"
#include "server/api/api_context.h"
#include "server/json/json_write.h"

static void write_model(const struct api_context *context, const char *name,
                        struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"id\":");
    json_write_text(out, name);
    byte_buffer_append_text(out, ",\"object\":\"model\",\"created\":");
    json_write_int(out, context->created);
    byte_buffer_append_text(out, ",\"owned_by\":\"quire\",\"root\":");
    json_write_text(out, context->model_names[0]);
    byte_buffer_append_text(out, ",\"parent\":null,\"max_model_len\":");
    json_write_int(out, context->max_model_len);
    byte_buffer_append_text(out, ",\"permission\":[]}");
}

void models_endpoint_list(const struct api_context *context, struct byte_buffer *out) {
    byte_buffer_append_text(out, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < context->num_model_names; i++) {
        if (i > 0)
            byte_buffer_append(out, ",", 1);
        write_model(context, context->model_names[i], out);
    }
    byte_buffer_append_text(out, "]}");
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
    byte_buffer_printf(out, ",\"%s\":", name);
    if (token < 0) {
        byte_buffer_append_text(out, "null");
        return;
    }
    struct text piece = tokenizer_piece(tokenizer, token);
    json_write_string(out, piece.data, piece.length);
}

static void write_flag(const char *name, bool value, struct byte_buffer *out) {
    byte_buffer_printf(out, ",\"%s\":%s", name, value ? "true" : "false");
}

/* Writes the control tokens by id. */
static void write_added(const struct tokenizer *tokenizer, struct byte_buffer *out) {
    const char *comma = "";
    byte_buffer_append_text(out, ",\"added_tokens_decoder\":{");
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        struct text piece = tokenizer_piece(tokenizer, token);
        if (!tokenizer_is_special(tokenizer, token) || piece.length == 0)
            continue;
        byte_buffer_printf(out, "%s\"%d\":{\"content\":", comma, (int)token);
        json_write_string(out, piece.data, piece.length);
        byte_buffer_append_text(out, ",\"special\":true}");
        comma = ",";
    }
    byte_buffer_append(out, "}", 1);
}

void models_endpoint_tokenizer_info(const struct api_context *context, struct byte_buffer *out) {
    const struct tokenizer *tokenizer = context->tokenizer;
    const struct chat_model *chat = context->chat;
    int num_eos = 0, before = 0, behind = 0;
    const int32_t *eos = tokenizer_eos_tokens(tokenizer, &num_eos);
    tokenizer_num_added(tokenizer, &before, &behind);
    byte_buffer_printf(out,
                       "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"model_max_length\":%d",
                       (int)context->max_model_len);
    write_token(tokenizer, "bos_token", tokenizer_bos(tokenizer), out);
    write_token(tokenizer, "eos_token", num_eos > 0 ? eos[0] : -1, out);
    write_flag("add_bos_token", before > 0, out);
    write_flag("add_eos_token", behind > 0, out);
    byte_buffer_append_text(out, ",\"chat_template\":");
    json_write_text(out, chat != NULL ? chat->source : NULL);
    write_added(tokenizer, out);
    byte_buffer_append(out, "}", 1);
}
