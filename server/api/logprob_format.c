#include "server/api/logprob_format.h"

#include "server/json/json_write.h"

#include <math.h>

static struct text piece_of(const struct tokenizer *tokenizer, int32_t token) {
    if (token < 0 || token >= tokenizer_vocab_size(tokenizer))
        return (struct text){.data = ""};
    return tokenizer_piece(tokenizer, token);
}

/* {"token":...,"logprob":...,"bytes":[...] */
static void begin_token(const struct tokenizer *tokenizer, int32_t token, float logprob,
                        bool shows_ids, struct byte_buffer *out) {
    struct text piece = piece_of(tokenizer, token);
    byte_buffer_append_text(out, "{\"token\":");
    if (shows_ids)
        byte_buffer_printf(out, "\"token_id:%d\"", (int)token);
    else
        json_write_string(out, piece.data, piece.length);
    byte_buffer_append_text(out, ",\"logprob\":");
    json_write_float(out, logprob);
    byte_buffer_append_text(out, ",\"bytes\":[");
    for (size_t i = 0; i < piece.length; i++)
        byte_buffer_printf(out, "%s%d", i > 0 ? "," : "", (unsigned char)piece.data[i]);
    byte_buffer_append(out, "]", 1);
}

static void add_top(const struct tokenizer *tokenizer, const struct top_logprob *top, bool is_first,
                    bool shows_ids, struct byte_buffer *entries) {
    if (!is_first)
        byte_buffer_append(entries, ",", 1);
    begin_token(tokenizer, top->token, top->logprob, shows_ids, entries);
    byte_buffer_append(entries, "}", 1);
}

static void add_tops(const struct tokenizer *tokenizer, const struct token_record *record,
                     const struct top_logprob *top, int32_t num_top, bool shows_ids,
                     struct byte_buffer *entries) {
    const struct top_logprob own = {record->token, record->logprob};
    bool lists_own = num_top == LOGPROBS_LISTED;
    if (lists_own)
        add_top(tokenizer, &own, true, shows_ids, entries);
    for (int32_t k = 0; k < record->num_top && (lists_own || k < num_top); k++)
        if (!lists_own || top[k].token != own.token)
            add_top(tokenizer, &top[k], !lists_own && k == 0, shows_ids, entries);
}

void logprob_format_chat(const struct tokenizer *tokenizer, const struct token_event *event,
                         int32_t num_top, bool shows_ids, struct byte_buffer *entries) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        if (entries->length > 0)
            byte_buffer_append(entries, ",", 1);
        begin_token(tokenizer, record->token, record->logprob, shows_ids, entries);
        byte_buffer_append_text(entries, ",\"top_logprobs\":[");
        add_tops(tokenizer, record, event->top + record->first_top, num_top, shows_ids, entries);
        byte_buffer_append_text(entries, "]}");
    }
}

static void write_prompt_entry(const struct tokenizer *tokenizer, int32_t token, float logprob,
                               int32_t rank, struct byte_buffer *out) {
    struct text piece = tokenizer_piece(tokenizer, token);
    byte_buffer_printf(out, "\"%d\":{\"logprob\":", (int)token);
    json_write_float(out, logprob);
    byte_buffer_printf(out, ",\"rank\":%d,\"decoded_token\":", (int)rank);
    json_write_string(out, piece.data, piece.length);
    byte_buffer_append(out, "}", 1);
}

static void write_prompt_token(const struct tokenizer *tokenizer, const struct token_record *record,
                               const struct top_logprob *top, int32_t num_top,
                               struct byte_buffer *out) {
    byte_buffer_append(out, "{", 1);
    write_prompt_entry(tokenizer, record->token, record->logprob, record->rank, out);
    for (int32_t i = 0; i < record->num_top && i < num_top; i++) {
        if (top[i].token == record->token)
            continue;
        byte_buffer_append(out, ",", 1);
        write_prompt_entry(tokenizer, top[i].token, top[i].logprob, i + 1, out);
    }
    byte_buffer_append(out, "}", 1);
}

void logprob_format_prompt(const struct tokenizer *tokenizer, const struct token_event *event,
                           int32_t num_top, struct byte_buffer *entries) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        if (entries->length > 0)
            byte_buffer_append(entries, ",", 1);
        if (isnan(record->logprob))
            byte_buffer_append_text(entries, "null");
        else
            write_prompt_token(tokenizer, record, event->top + record->first_top, num_top, entries);
    }
}
