#include "server/api/completions/fim_prompt.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ADDED 16 /* tokens that a tokenizer adds around a text */
#define SUFFIX_SHARE 4

int fim_prompt_check(const struct api_context *context, const char *path, bool is_infill,
                     struct api_error *err) {
    if (tokenizer_fim(context->tokenizer) != NULL)
        return 0;
    return bad_request(err, "unsupported_value", path,
                       "%s %s: this model has no tokens for filling in the middle", path,
                       is_infill ? "cannot be used" : "must be left out or empty");
}

static bool has_stop(const struct sampling_lists *lists, int32_t token) {
    for (int32_t i = 0; i < lists->num_stop_tokens; i++)
        if (lists->stop_tokens[i] == token)
            return true;
    return false;
}

int fim_prompt_add_ends(const struct api_context *context, struct sampling_lists *lists,
                        struct api_error *err) {
    int num_ends, num_given = (int)lists->num_stop_tokens;
    const int32_t *ends = tokenizer_fim_ends(context->tokenizer, &num_ends);
    if (num_given + num_ends > MAX_STOP_TOKENS)
        return bad_request(err, "out_of_range", "stop_token_ids",
                           "stop_token_ids must have at most %d where a gap is filled, not %d",
                           MAX_STOP_TOKENS - num_ends, num_given);
    for (int i = 0; i < num_ends; i++)
        if (!has_stop(lists, ends[i]))
            lists->stop_tokens[lists->num_stop_tokens++] = ends[i];
    return 0;
}

static unsigned without_added(unsigned flags) {
    return flags & ~(unsigned)TOKENIZER_ADD_SPECIAL;
}

int fim_prompt_read_suffix(const struct api_context *context, const char *suffix, const char *path,
                           unsigned flags, const struct prompt_limits *limits,
                           struct prompt_tokens *out, struct api_error *err) {
    const struct prompt_text text = {
        .data = suffix, .length = strlen(suffix), .flags = without_added(flags)};
    struct prompt_limits behind = *limits;
    if (text.length == 0)
        return 0;
    behind.truncation.keeps_start = true;
    return prompt_text_tokens(context, &text, path, &behind, out, err);
}

static int read_item(const struct api_context *context, const struct fim_prompt *prompt,
                     const struct prompt_limits *limits, struct prompt_tokens *out,
                     struct api_error *err) {
    const cJSON *item = prompt->item;
    bool is_empty = cJSON_IsString(item) ? item->valuestring[0] == '\0' : item->child == NULL;
    if (is_empty)
        return 0;
    return prompt_read_tokens(context, item, prompt->path, without_added(prompt->flags), limits,
                              out, err);
}

/* Copies the tokens that the tokenizer puts in front. Returns their number, or -1 when memory is
 * short. */
static int32_t write_added(const struct api_context *context, const struct fim_prompt *prompt,
                           int32_t out[MAX_ADDED]) {
    int before = 0, behind = 0;
    if (!cJSON_IsString(prompt->item) || (prompt->flags & TOKENIZER_ADD_SPECIAL) == 0)
        return 0;
    tokenizer_num_added(context->tokenizer, &before, &behind);
    CHECK(before + behind <= MAX_ADDED);
    if (tokenizer_encode(context->tokenizer, "", 0, TOKENIZER_ADD_SPECIAL, out, MAX_ADDED) < 0)
        return -1;
    return before;
}

/* Divides the room between the two, and cuts what is furthest from the gap. */
static void share(int32_t room, struct prompt_tokens *item, int32_t *num_behind) {
    int32_t behind = room / SUFFIX_SHARE;
    if (item->count + *num_behind <= room)
        return;
    if (behind < room - item->count)
        behind = room - item->count;
    if (behind > *num_behind)
        behind = *num_behind;
    int32_t before = room - behind < item->count ? room - behind : item->count;
    item->is_cut = item->is_cut || before < item->count;
    if (before > 0)
        memmove(item->ids, item->ids + item->count - before, (size_t)before * sizeof(*item->ids));
    item->count = before;
    *num_behind = behind;
}

static void append(struct prompt_tokens *out, const int32_t *ids, int32_t count) {
    if (count > 0)
        memcpy(out->ids + out->count, ids, (size_t)count * sizeof(*ids));
    out->count += count;
}

static int join(const struct api_context *context, const struct fim_prompt *prompt,
                const struct prompt_limits *limits, struct prompt_tokens *item,
                struct prompt_tokens *out, int32_t *out_begin, struct api_error *err) {
    const int32_t *marks = tokenizer_fim(context->tokenizer);
    const struct prompt_tokens *in_front = prompt->in_front, *between = prompt->between;
    int32_t added[MAX_ADDED], num_added = write_added(context, prompt, added);
    int32_t fixed = num_added + NUM_FIM_PARTS + between->count;
    int32_t num_behind = prompt->suffix->count, num_in_front = in_front->count;
    int64_t most = prompt_truncation_limit(context, limits);
    if (num_added < 0)
        return api_error_set_memory(err);
    if (most > 0 && most < fixed)
        return bad_request(err, "out_of_range", "truncate_prompt_tokens",
                           "truncate_prompt_tokens must be at least %d with suffix, not %lld",
                           (int)fixed, (long long)most);
    if (most > 0)
        share((int32_t)most - fixed, item, &num_behind);
    int64_t count = (int64_t)fixed + item->count + num_behind;
    if (most > 0 && num_in_front > most - count)
        num_in_front = (int32_t)(most - count);
    count += num_in_front;
    if (prompt_check_length(context, prompt->path, limits, count, err) != 0)
        return -1;
    *out = (struct prompt_tokens){.ids = calloc((size_t)count, sizeof(*out->ids)),
                                  .is_cut = item->is_cut};
    if (out->ids == NULL)
        return api_error_set_memory(err);
    append(out, added, num_added);
    if (num_in_front > 0)
        append(out, in_front->ids + in_front->count - num_in_front, num_in_front);
    append(out, &marks[FIM_PREFIX], 1);
    *out_begin = out->count;
    append(out, item->ids, item->count);
    append(out, between->ids, between->count);
    append(out, &marks[FIM_SUFFIX], 1);
    append(out, prompt->suffix->ids, num_behind);
    append(out, &marks[FIM_MIDDLE], 1);
    return 0;
}

int fim_prompt_tokens(const struct api_context *context, const struct fim_prompt *prompt,
                      const struct prompt_limits *limits, struct prompt_tokens *out,
                      int32_t *out_begin, int32_t *out_end, struct api_error *err) {
    struct prompt_tokens item = {0};
    int result = read_item(context, prompt, limits, &item, err);
    if (result == 0)
        result = join(context, prompt, limits, &item, out, out_begin, err);
    if (result == 0)
        *out_end = *out_begin + item.count;
    free(item.ids);
    return result;
}
