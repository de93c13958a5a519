#include "server/api/prompt_field.h"

#include "server/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char allowed_shapes[] =
    "a string, an array of strings, an array of token ids or an array of arrays of token ids";

static int refuse_empty(const char *path, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "empty_prompt", path,
                         "%s is empty: at least one token is needed", path);
}

static int refuse_length(const struct api_context *context, const char *path, const char *about,
                         int64_t num_tokens, int64_t max_tokens, struct api_error *err) {
    char output[48] = "";
    if (max_tokens > 0)
        snprintf(output, sizeof(output), " and max_tokens is %lld", (long long)max_tokens);
    return api_error_set(err, 400, "invalid_request_error", "context_length_exceeded", path,
                         "This model's maximum context length is %d tokens, but %s has %s%lld "
                         "tokens%s",
                         (int)context->max_model_len, path, about, (long long)num_tokens, output);
}

static int check_prompt(const cJSON *item, const char *path, struct api_error *err) {
    if (cJSON_IsString(item))
        return item->valuestring[0] != '\0' ? 0 : refuse_empty(path, err);
    if (cJSON_IsArray(item))
        return item->child != NULL ? 0 : refuse_empty(path, err);
    return json_refuse(item, path, allowed_shapes, err);
}

void prompt_list_path(const struct prompt_list *list, int32_t index, char out[PROMPT_PATH_BYTES]) {
    if (list->is_list)
        snprintf(out, PROMPT_PATH_BYTES, "%s[%d]", list->name, (int)index);
    else
        snprintf(out, PROMPT_PATH_BYTES, "%s", list->name);
}

int prompt_list_read(const struct api_context *context, const cJSON *body, const char *name,
                     struct prompt_list *out, struct api_error *err) {
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, name);
    if (prompt == NULL)
        return api_error_set(err, 400, "invalid_request_error", "missing_required_parameter", name,
                             "%s is missing: it must be %s", name, allowed_shapes);
    if (check_prompt(prompt, name, err) != 0)
        return -1;
    struct prompt_list list = {.name = name, .first = prompt, .num_prompts = 1};
    if (cJSON_IsArray(prompt) && !cJSON_IsNumber(prompt->child)) {
        list = (struct prompt_list){.name = name, .first = prompt->child, .is_list = true};
        const cJSON *item;
        cJSON_ArrayForEach(item, prompt) {
            char path[PROMPT_PATH_BYTES];
            if (list.num_prompts == context->max_prompts)
                return api_error_set(err, 400, "invalid_request_error", "array_above_max_length",
                                     name, "%s has more than %d entries, the most allowed", name,
                                     (int)context->max_prompts);
            prompt_list_path(&list, list.num_prompts, path);
            if (check_prompt(item, path, err) != 0)
                return -1;
            list.num_prompts++;
        }
    }
    *out = list;
    return 0;
}

static size_t longest_piece(const struct tokenizer *tokenizer) {
    size_t longest = 1;
    for (int32_t token = 0; token < tokenizer_vocab_size(tokenizer); token++) {
        size_t length = tokenizer_piece(tokenizer, token).length;
        if (length > longest)
            longest = length;
    }
    return longest;
}

/* Refuses a text so long that it cannot fit whatever its tokens are, without encoding it. */
static int check_bytes(const struct api_context *context, size_t length, const char *path,
                       int32_t limit, int64_t max_tokens, struct api_error *err) {
    if (length / 16 <= (size_t)limit)
        return 0;
    size_t least = length / longest_piece(context->tokenizer);
    if (least <= (size_t)limit)
        return 0;
    return refuse_length(context, path, "at least ", (int64_t)least, max_tokens, err);
}

static int encode(const struct api_context *context, const struct prompt_text *text,
                  const char *path, int32_t limit, int64_t max_tokens, struct prompt_tokens *tokens,
                  struct api_error *err) {
    if (check_bytes(context, text->length, path, limit, max_tokens, err) != 0)
        return -1;
    int64_t count =
        tokenizer_encode_spans(context->tokenizer, text->data, text->length, text->client_spans,
                               text->num_client_spans, text->flags, tokens->ids, (size_t)limit);
    if (count < 0)
        return api_error_encode((int)count, path, err);
    if (count == 0)
        return refuse_empty(path, err);
    if (count > limit)
        return refuse_length(context, path, "", count, max_tokens, err);
    tokens->count = (int32_t)count;
    return 0;
}

static int read_ids(const struct api_context *context, const cJSON *array, const char *path,
                    int32_t limit, int64_t max_tokens, struct prompt_tokens *tokens,
                    struct api_error *err) {
    int32_t vocab_size = tokenizer_vocab_size(context->tokenizer);
    int length = cJSON_GetArraySize(array);
    if (length > limit)
        return refuse_length(context, path, "", length, max_tokens, err);
    const cJSON *item;
    cJSON_ArrayForEach(item, array) {
        char item_path[PROMPT_PATH_BYTES + 16];
        int64_t id;
        snprintf(item_path, sizeof(item_path), "%s[%d]", path, (int)tokens->count);
        if (json_read_int(item, item_path, 0, vocab_size - 1, &id, err) != 0)
            return -1;
        tokens->ids[tokens->count++] = (int32_t)id;
    }
    return 0;
}

/* At most `limit` tokens, to be encoded or read; -1 when memory is short. */
static int create_tokens(const struct api_context *context, int64_t max_tokens, int32_t *out_limit,
                         struct prompt_tokens *out, struct api_error *err) {
    *out_limit = context->max_model_len - (max_tokens != 0 ? 1 : 0);
    *out = (struct prompt_tokens){.ids = calloc((size_t)*out_limit + 1, sizeof(int32_t))};
    if (out->ids != NULL)
        return 0;
    return api_error_set_memory(err);
}

int prompt_text_tokens(const struct api_context *context, const struct prompt_text *text,
                       const char *path, int64_t max_tokens, struct prompt_tokens *out,
                       struct api_error *err) {
    int32_t limit;
    struct prompt_tokens tokens;
    if (create_tokens(context, max_tokens, &limit, &tokens, err) != 0)
        return -1;
    if (encode(context, text, path, limit, max_tokens, &tokens, err) != 0) {
        free(tokens.ids);
        return -1;
    }
    *out = tokens;
    return 0;
}

int prompt_read_tokens(const struct api_context *context, const cJSON *item, const char *path,
                       unsigned flags, int64_t max_tokens, struct prompt_tokens *out,
                       struct api_error *err) {
    int32_t limit;
    struct prompt_tokens tokens;
    if (cJSON_IsString(item)) {
        const struct prompt_text text = {
            .data = item->valuestring, .length = strlen(item->valuestring), .flags = flags};
        return prompt_text_tokens(context, &text, path, max_tokens, out, err);
    }
    if (create_tokens(context, max_tokens, &limit, &tokens, err) != 0)
        return -1;
    if (read_ids(context, item, path, limit, max_tokens, &tokens, err) != 0) {
        free(tokens.ids);
        return -1;
    }
    *out = tokens;
    return 0;
}

unsigned prompt_text_flags(bool add_special, bool parse_special) {
    return (add_special ? (unsigned)TOKENIZER_ADD_SPECIAL : 0) |
           (parse_special ? (unsigned)TOKENIZER_PARSE_SPECIAL : 0);
}

int prompt_list_check_total(const struct api_context *context, const struct prompt_list *list,
                            int64_t num_tokens, struct api_error *err) {
    if (list->num_prompts == 1 || num_tokens <= context->max_prompt_tokens)
        return 0;
    return api_error_set(err, 400, "invalid_request_error", "out_of_range", list->name,
                         "the prompts of one call may have %lld tokens together, and these have "
                         "more; send them in several calls",
                         (long long)context->max_prompt_tokens);
}
