#include "server/api/call/logprob_format.h"

#include "config/json/json_write.h"

#include <math.h>
#include <stdio.h>

struct text logprob_format_piece(const struct tokenizer *tokenizer, int32_t token) {
    if (token < 0 || token >= tokenizer_vocab_size(tokenizer))
        return (struct text){.data = ""};
    return tokenizer_piece(tokenizer, token);
}

/* Writes an object's "token", "logprob" and "bytes". */
static void write_token(const struct tokenizer *tokenizer, int32_t token, float logprob,
                        enum logprob_names names, struct byte_buffer *out) {
    struct text piece = logprob_format_piece(tokenizer, token);
    if (names == LOGPROB_NAMES_AND_IDS)
        json_write_int_member(out, "id", token);
    json_write_key(out, "token");
    if (names == LOGPROB_IDS_AS_NAMES) {
        json_write_begin_string(out);
        byte_buffer_printf(out, "token_id:%d", (int)token);
        json_write_end_string(out);
    } else {
        json_write_string(out, piece.data, piece.length);
    }
    json_write_key(out, "logprob");
    json_write_float(out, logprob);
    json_write_key(out, "bytes");
    json_write_begin_array(out);
    for (size_t i = 0; i < piece.length; i++)
        json_write_int(out, (unsigned char)piece.data[i]);
    json_write_end_array(out);
}

static void write_top(const struct tokenizer *tokenizer, const struct top_logprob *top,
                      enum logprob_names names, struct byte_buffer *out) {
    json_write_begin_object(out);
    write_token(tokenizer, top->token, top->logprob, names, out);
    json_write_end_object(out);
}

static void write_tops(const struct tokenizer *tokenizer, const struct token_record *record,
                       const struct top_logprob *top, int32_t num_top, enum logprob_names names,
                       struct byte_buffer *out) {
    const struct top_logprob own = {record->token, record->logprob};
    bool lists_own = num_top == LOGPROBS_LISTED;
    json_write_key(out, "top_logprobs");
    json_write_begin_array(out);
    if (lists_own)
        write_top(tokenizer, &own, names, out);
    for (int32_t k = 0; k < record->num_top && (lists_own || k < num_top); k++)
        if (!lists_own || top[k].token != own.token)
            write_top(tokenizer, &top[k], names, out);
    json_write_end_array(out);
}

void logprob_format_chat(const struct tokenizer *tokenizer, const struct token_event *event,
                         int32_t num_top, enum logprob_names names, struct byte_buffer *items) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        json_write_begin_object(items);
        write_token(tokenizer, record->token, record->logprob, names, items);
        write_tops(tokenizer, record, event->top + record->first_top, num_top, names, items);
        json_write_end_object(items);
    }
}

static void write_prompt_entry(const struct tokenizer *tokenizer, int32_t token, float logprob,
                               int32_t rank, struct byte_buffer *out) {
    struct text piece = logprob_format_piece(tokenizer, token);
    char key[16];
    snprintf(key, sizeof(key), "%d", (int)token);
    json_write_key(out, key);
    json_write_begin_object(out);
    json_write_key(out, "logprob");
    json_write_float(out, logprob);
    json_write_int_member(out, "rank", rank);
    json_write_key(out, "decoded_token");
    json_write_string(out, piece.data, piece.length);
    json_write_end_object(out);
}

static void write_prompt_token(const struct tokenizer *tokenizer, const struct token_record *record,
                               const struct top_logprob *top, int32_t num_top,
                               struct byte_buffer *out) {
    json_write_begin_object(out);
    write_prompt_entry(tokenizer, record->token, record->logprob, record->rank, out);
    for (int32_t i = 0; i < record->num_top && i < num_top; i++)
        if (top[i].token != record->token)
            write_prompt_entry(tokenizer, top[i].token, top[i].logprob, i + 1, out);
    json_write_end_object(out);
}

void logprob_format_prompt(const struct tokenizer *tokenizer, const struct token_event *event,
                           int32_t num_top, struct byte_buffer *items) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        if (isnan(record->logprob))
            json_write_null(items);
        else
            write_prompt_token(tokenizer, record, event->top + record->first_top, num_top, items);
    }
}
