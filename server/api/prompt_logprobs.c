#include "server/api/prompt_logprobs.h"

#include "server/json/json_write.h"

#include <math.h>

static void write_entry(const struct tokenizer *tokenizer, int32_t token, float logprob,
                        int32_t rank, struct byte_buffer *out) {
    struct text piece = tokenizer_piece(tokenizer, token);
    byte_buffer_printf(out, "\"%d\":{\"logprob\":", (int)token);
    json_write_float(out, logprob);
    byte_buffer_printf(out, ",\"rank\":%d,\"decoded_token\":", (int)rank);
    json_write_string(out, piece.data, piece.length);
    byte_buffer_append(out, "}", 1);
}

static void write_token(const struct tokenizer *tokenizer, const struct token_record *record,
                        const struct top_logprob *top, int32_t num_top, struct byte_buffer *out) {
    byte_buffer_append(out, "{", 1);
    write_entry(tokenizer, record->token, record->logprob, record->rank, out);
    for (int32_t i = 0; i < record->num_top && i < num_top; i++) {
        if (top[i].token == record->token)
            continue;
        byte_buffer_append(out, ",", 1);
        write_entry(tokenizer, top[i].token, top[i].logprob, i + 1, out);
    }
    byte_buffer_append(out, "}", 1);
}

void prompt_logprobs_add(const struct tokenizer *tokenizer, const struct token_event *event,
                         int32_t num_top, struct byte_buffer *entries) {
    for (int32_t i = 0; i < event->num_tokens; i++) {
        const struct token_record *record = &event->tokens[i];
        if (entries->length > 0)
            byte_buffer_append(entries, ",", 1);
        if (isnan(record->logprob))
            byte_buffer_append_text(entries, "null");
        else
            write_token(tokenizer, record, event->top + record->first_top, num_top, entries);
    }
}
