#include "server/api/call/logprob_list.h"

#include "config/base/utf8.h"
#include "server/api/call/logprob_format.h"
#include "config/json/json_write.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool same_piece(struct text a, struct text b) {
    return a.length == b.length && memcmp(a.data, b.data, a.length) == 0;
}

static void write_piece(struct byte_buffer *out, struct text piece) {
    if (utf8_valid_prefix(piece.data, piece.length) == piece.length) {
        json_write_string(out, piece.data, piece.length);
        return;
    }
    json_write_begin_string(out);
    byte_buffer_append_text(out, "bytes:");
    for (size_t i = 0; i < piece.length; i++)
        byte_buffer_printf(out, "\\\\x%02x", (unsigned char)piece.data[i]);
    json_write_end_string(out);
}

/* Counts the characters that begin in the piece: every byte except for the continuation bytes. The
 * sum is right even if pieces cut a character. */
static int64_t count_characters(struct text piece) {
    int64_t count = 0;
    for (size_t i = 0; i < piece.length; i++)
        count += !utf8_continues(piece.data[i]);
    return count;
}

static void write_token(const struct logprob_list *list, const struct tokenizer *tokenizer,
                        int32_t token, struct byte_buffer *out) {
    if (list->shows_ids) {
        json_write_begin_string(out);
        byte_buffer_printf(out, "token_id:%d", (int)token);
        json_write_end_string(out);
    } else {
        write_piece(out, logprob_format_piece(tokenizer, token));
    }
}

/* The tokens of an object so far, all of which are shown differently. */
struct shown_set {
    const struct tokenizer *tokenizer;
    bool shows_ids;
    int32_t *slots;   /* [num_slots]; -1: empty */
    size_t num_slots; /* a power of two, at least twice as many as there are tokens */
};

static int shown_set_init(struct shown_set *set, int32_t count) {
    set->num_slots = 8;
    while (set->num_slots < 2 * (size_t)count)
        set->num_slots *= 2;
    set->slots = malloc(set->num_slots * sizeof(*set->slots));
    if (set->slots == NULL)
        return -1;
    memset(set->slots, 0xff, set->num_slots * sizeof(*set->slots));
    return 0;
}

/* Hashes what is shown: FNV-1a (Fowler, Noll, Vo). */
static uint64_t hash_shown(const struct shown_set *set, int32_t token) {
    struct text shown = set->shows_ids ? (struct text){(const char *)&token, sizeof(token)}
                                       : logprob_format_piece(set->tokenizer, token);
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < shown.length; i++)
        hash = (hash ^ (unsigned char)shown.data[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Adds a token, and returns whether it was new. */
static bool shown_set_add(struct shown_set *set, int32_t token) {
    size_t at = hash_shown(set, token) & (set->num_slots - 1);
    for (; set->slots[at] >= 0; at = (at + 1) & (set->num_slots - 1)) {
        int32_t other = set->slots[at];
        if (other == token ||
            (!set->shows_ids && same_piece(logprob_format_piece(set->tokenizer, other),
                                           logprob_format_piece(set->tokenizer, token))))
            return false;
    }
    set->slots[at] = token;
    return true;
}

/* Writes `top` and the token itself, each display form once. */
static void write_top(struct logprob_list *list, const struct tokenizer *tokenizer,
                      const struct token_record *record, const struct top_logprob *top) {
    struct byte_buffer *out = &list->top_logprobs;
    struct shown_set shown = {.tokenizer = tokenizer, .shows_ids = list->shows_ids};
    if (shown_set_init(&shown, record->num_top + 1) != 0) {
        out->failed = true;
        return;
    }
    json_write_begin_object(out);
    for (int32_t i = 0; i <= record->num_top; i++) {
        int32_t place = list->begins_with_own ? i - 1 : i; /* the token itself: outside top */
        bool is_own = place < 0 || place == record->num_top;
        int32_t token = is_own ? record->token : top[place].token;
        if (!shown_set_add(&shown, token))
            continue;
        write_token(list, tokenizer, token, out);
        json_write_end_key(out);
        json_write_float(out, is_own ? record->logprob : top[place].logprob);
    }
    json_write_end_object(out);
    free(shown.slots);
}

void logprob_list_add(struct logprob_list *list, const struct tokenizer *tokenizer,
                      const struct token_record *record, const struct top_logprob *top,
                      bool in_text) {
    struct text piece = logprob_format_piece(tokenizer, record->token);
    json_write_int(&list->text_offset, list->offset);
    write_token(list, tokenizer, record->token, &list->tokens);
    if (isnan(record->logprob)) {
        json_write_null(&list->token_logprobs);
        json_write_null(&list->top_logprobs);
    } else {
        json_write_float(&list->token_logprobs, record->logprob);
        write_top(list, tokenizer, record, top);
    }
    if (in_text)
        list->offset += count_characters(piece);
}

void logprob_list_append(struct logprob_list *list, const struct logprob_list *other) {
    json_write_items(&list->text_offset, &other->text_offset);
    json_write_items(&list->token_logprobs, &other->token_logprobs);
    json_write_items(&list->tokens, &other->tokens);
    json_write_items(&list->top_logprobs, &other->top_logprobs);
    list->offset = other->offset;
}

void logprob_list_format(const struct logprob_list *list, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_array_member(out, "text_offset", &list->text_offset);
    json_write_array_member(out, "token_logprobs", &list->token_logprobs);
    json_write_array_member(out, "tokens", &list->tokens);
    json_write_array_member(out, "top_logprobs", &list->top_logprobs);
    json_write_end_object(out);
}

bool logprob_list_is_empty(const struct logprob_list *list) {
    return list->tokens.length == 0;
}

bool logprob_list_has_failed(const struct logprob_list *list) {
    return list->text_offset.failed || list->token_logprobs.failed || list->tokens.failed ||
           list->top_logprobs.failed;
}

size_t logprob_list_bytes(const struct logprob_list *list) {
    return list->text_offset.capacity + list->token_logprobs.capacity + list->tokens.capacity +
           list->top_logprobs.capacity;
}

void logprob_list_clear(struct logprob_list *list) {
    byte_buffer_clear(&list->text_offset);
    byte_buffer_clear(&list->token_logprobs);
    byte_buffer_clear(&list->tokens);
    byte_buffer_clear(&list->top_logprobs);
}

void logprob_list_finish(struct logprob_list *list) {
    byte_buffer_finish(&list->text_offset);
    byte_buffer_finish(&list->token_logprobs);
    byte_buffer_finish(&list->tokens);
    byte_buffer_finish(&list->top_logprobs);
}
