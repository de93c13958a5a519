#include "server/api/fields/sampling_lists.h"

#include "server/api/fields/prompt_field.h"
#include "server/api/call/api_call_type.h"
#include "config/json/json_field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BIAS 100.0
#define MAX_PATH 64

static int refuse_count(const char *path, int max, struct api_error *err) {
    return bad_request(err, "array_above_max_length", path,
                       "%s has too many entries: at most %d are allowed", path, max);
}

static int read_stop_string(const cJSON *item, const char *field, const char *path,
                            struct sampling_lists *lists, struct api_error *err) {
    if (!cJSON_IsString(item))
        return json_refuse(item, path, "a string", err);
    if (lists->num_stop_strings == MAX_STOP_STRINGS)
        return refuse_count(field, MAX_STOP_STRINGS, err);
    size_t length = strlen(item->valuestring);
    if (length == 0 || length > MAX_STOP_STRING_BYTES)
        return bad_request(err, "out_of_range", path,
                           "%s has %zu bytes: a stop string of 1 to %d bytes is allowed", path,
                           length, MAX_STOP_STRING_BYTES);
    lists->stop_strings[lists->num_stop_strings++] =
        (struct stop_string){.data = item->valuestring, .length = length};
    return 0;
}

static int read_stop(const cJSON *stop, struct sampling_lists *lists, struct api_error *err) {
    if (stop == NULL)
        return 0;
    if (cJSON_IsString(stop))
        return read_stop_string(stop, stop->string, stop->string, lists, err);
    if (!cJSON_IsArray(stop))
        return json_refuse(stop, stop->string, "a string or an array of strings", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, stop) {
        char path[MAX_PATH];
        snprintf(path, sizeof(path), "%.40s[%d]", stop->string, (int)lists->num_stop_strings);
        if (read_stop_string(item, stop->string, path, lists, err) != 0)
            return -1;
    }
    return 0;
}

static int read_breakers(const cJSON *breakers, struct sampling_lists *lists,
                         struct api_error *err) {
    static const struct stop_string defaults[] = {{"\n", 1}, {":", 1}, {"\"", 1}, {"*", 1}};
    if (breakers == NULL) {
        lists->num_dry_breakers = sizeof(defaults) / sizeof(defaults[0]);
        memcpy(lists->dry_breakers, defaults, sizeof(defaults));
        return 0;
    }
    if (!cJSON_IsArray(breakers))
        return json_refuse(breakers, breakers->string, "an array of strings", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, breakers) {
        char path[MAX_PATH];
        if (lists->num_dry_breakers == MAX_DRY_BREAKERS)
            return refuse_count(breakers->string, MAX_DRY_BREAKERS, err);
        snprintf(path, sizeof(path), "%.40s[%d]", breakers->string, (int)lists->num_dry_breakers);
        if (!cJSON_IsString(item))
            return json_refuse(item, path, "a string", err);
        size_t length = strlen(item->valuestring);
        if (length == 0 || length > MAX_DRY_BREAKER_BYTES)
            return bad_request(err, "out_of_range", path,
                               "%s has %zu bytes: a breaker of 1 to %d bytes is allowed", path,
                               length, MAX_DRY_BREAKER_BYTES);
        lists->dry_breakers[lists->num_dry_breakers++] =
            (struct stop_string){.data = item->valuestring, .length = length};
    }
    return 0;
}

static int read_stop_tokens(const cJSON *tokens, int32_t vocab_size, struct sampling_lists *lists,
                            struct api_error *err) {
    if (tokens == NULL)
        return 0;
    if (!cJSON_IsArray(tokens))
        return json_refuse(tokens, tokens->string, "an array of token ids", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, tokens) {
        char path[MAX_PATH];
        int64_t token;
        if (lists->num_stop_tokens == MAX_STOP_TOKENS)
            return refuse_count(tokens->string, MAX_STOP_TOKENS, err);
        snprintf(path, sizeof(path), "%.40s[%d]", tokens->string, (int)lists->num_stop_tokens);
        if (json_read_int(item, path, 0, vocab_size - 1, &token, err) != 0)
            return -1;
        lists->stop_tokens[lists->num_stop_tokens++] = (int32_t)token;
    }
    return 0;
}

/* Parses a token id of plain decimal digits. Leading zeros are refused, so that distinct keys are
 * distinct tokens. */
static bool parse_token(const char *text, int32_t vocab_size, int32_t *out) {
    int64_t value = 0;
    size_t length = strlen(text);
    if (length == 0 || length > 10 || (text[0] == '0' && length > 1))
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        value = value * 10 + (text[i] - '0');
    }
    if (value >= vocab_size)
        return false;
    *out = (int32_t)value;
    return true;
}

static int read_biases(const cJSON *map, int32_t vocab_size, struct sampling_lists *lists,
                       struct api_error *err) {
    if (map == NULL)
        return 0;
    if (!cJSON_IsObject(map))
        return json_refuse(map, map->string, "an object of token ids and numbers", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, map) {
        int32_t token;
        char path[MAX_PATH];
        double bias;
        if (lists->num_biases == MAX_LOGIT_BIASES)
            return refuse_count(map->string, MAX_LOGIT_BIASES, err);
        if (!parse_token(item->string, vocab_size, &token))
            return bad_request(err, "out_of_range", map->string,
                               "%s has the key \"%.32s\": keys must be token ids from 0 to %d",
                               map->string, item->string, (int)vocab_size - 1);
        snprintf(path, sizeof(path), "%.40s.%d", map->string, (int)token);
        if (json_read_number(item, path, -MAX_BIAS, MAX_BIAS, &bias, err) != 0)
            return -1;
        lists->biases[lists->num_biases++] =
            (struct token_bias){.token = token, .bias = (float)bias};
    }
    return 0;
}

static int read_allowed(const cJSON *tokens, int32_t vocab_size, struct sampling_lists *lists,
                        struct api_error *err) {
    if (tokens == NULL)
        return 0;
    if (!cJSON_IsArray(tokens) || tokens->child == NULL)
        return json_refuse(tokens, tokens->string, "an array of one or more token ids", err);
    int count = cJSON_GetArraySize(tokens);
    if (count > vocab_size)
        return refuse_count(tokens->string, vocab_size, err);
    lists->allowed_tokens = calloc((size_t)count, sizeof(*lists->allowed_tokens));
    if (lists->allowed_tokens == NULL)
        return api_error_set_memory(err);
    const cJSON *item;
    cJSON_ArrayForEach(item, tokens) {
        char path[MAX_PATH];
        int64_t token;
        snprintf(path, sizeof(path), "%.40s[%d]", tokens->string, (int)lists->num_allowed_tokens);
        if (json_read_int(item, path, 0, vocab_size - 1, &token, err) != 0)
            return -1;
        lists->allowed_tokens[lists->num_allowed_tokens++] = (int32_t)token;
    }
    return 0;
}

static int read_logprob_tokens(const cJSON *tokens, int32_t vocab_size,
                               struct sampling_lists *lists, struct api_error *err) {
    if (tokens == NULL)
        return 0;
    if (!cJSON_IsArray(tokens))
        return json_refuse(tokens, tokens->string, "an array of token ids", err);
    int index = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, tokens) {
        char path[MAX_PATH];
        int64_t token;
        if (index == MAX_LOGPROB_TOKENS)
            return refuse_count(tokens->string, MAX_LOGPROB_TOKENS, err);
        snprintf(path, sizeof(path), "%.40s[%d]", tokens->string, index++);
        if (json_read_int(item, path, 0, vocab_size - 1, &token, err) != 0)
            return -1;
        int32_t same = 0;
        while (same < lists->num_logprob_tokens && lists->logprob_tokens[same] != token)
            same++;
        if (same == lists->num_logprob_tokens)
            lists->logprob_tokens[lists->num_logprob_tokens++] = (int32_t)token;
    }
    return 0;
}

/* Encodes the word and adds its run. */
static int add_bad_run(const struct tokenizer *tokenizer, const char *word, const char *path,
                       struct sampling_lists *lists, struct api_error *err) {
    int32_t *tokens = lists->bad_tokens + lists->num_bad_runs * MAX_BAD_RUN_TOKENS;
    int64_t count = tokenizer_encode(tokenizer, word, strlen(word), 0, tokens, MAX_BAD_RUN_TOKENS);
    if (count < 0)
        return prompt_field_refuse((int)count, path, err);
    if (count == 0 || count > MAX_BAD_RUN_TOKENS)
        return bad_request(err, "out_of_range", path,
                           "%s is %lld tokens: a word of 1 to %d tokens is allowed", path,
                           (long long)count, MAX_BAD_RUN_TOKENS);
    lists->bad_runs[lists->num_bad_runs++] =
        (struct token_run){.tokens = tokens, .count = (int32_t)count};
    return 0;
}

static int read_bad_word(const cJSON *item, const struct tokenizer *tokenizer, const char *path,
                         struct sampling_lists *lists, struct api_error *err) {
    if (!cJSON_IsString(item))
        return json_refuse(item, path, "a string", err);
    size_t length = strlen(item->valuestring);
    if (length == 0 || length > MAX_BAD_WORD_BYTES)
        return bad_request(err, "out_of_range", path,
                           "%s has %zu bytes: a word of 1 to %d bytes is allowed", path, length,
                           MAX_BAD_WORD_BYTES);
    char behind_space[MAX_BAD_WORD_BYTES + 2];
    snprintf(behind_space, sizeof(behind_space), " %s", item->valuestring);
    if (add_bad_run(tokenizer, item->valuestring, path, lists, err) != 0)
        return -1;
    return add_bad_run(tokenizer, behind_space, path, lists, err);
}

static int read_bad_words(const cJSON *words, const struct tokenizer *tokenizer,
                          struct sampling_lists *lists, struct api_error *err) {
    if (words == NULL)
        return 0;
    if (!cJSON_IsArray(words))
        return json_refuse(words, words->string, "an array of strings", err);
    lists->bad_tokens = calloc(MAX_BAD_RUNS * MAX_BAD_RUN_TOKENS, sizeof(*lists->bad_tokens));
    if (lists->bad_tokens == NULL)
        return api_error_set_memory(err);
    int index = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, words) {
        char path[MAX_PATH];
        if (index == MAX_BAD_WORDS)
            return refuse_count(words->string, MAX_BAD_WORDS, err);
        snprintf(path, sizeof(path), "%.40s[%d]", words->string, index++);
        if (read_bad_word(item, tokenizer, path, lists, err) != 0)
            return -1;
    }
    return 0;
}

int sampling_lists_read(const cJSON *object, const struct body_names *names,
                        const struct tokenizer *tokenizer, struct sampling_lists *out,
                        struct api_error *err) {
    int32_t vocab_size = tokenizer_vocab_size(tokenizer);
    const cJSON *breakers = body_names_given(names, object, "dry_sequence_breakers"),
                *stop_tokens = body_names_given(names, object, "stop_token_ids"),
                *logit_bias = body_names_given(names, object, "logit_bias"),
                *allowed = body_names_given(names, object, "allowed_token_ids"),
                *logprobs = body_names_given(names, object, "logprob_token_ids");
    if (read_stop(body_names_given(names, object, "stop"), out, err) == 0 &&
        read_breakers(breakers, out, err) == 0 &&
        read_stop_tokens(stop_tokens, vocab_size, out, err) == 0 &&
        read_biases(logit_bias, vocab_size, out, err) == 0 &&
        read_allowed(allowed, vocab_size, out, err) == 0 &&
        read_logprob_tokens(logprobs, vocab_size, out, err) == 0 &&
        read_bad_words(body_names_given(names, object, "bad_words"), tokenizer, out, err) == 0)
        return 0;
    sampling_lists_finish(out);
    return -1;
}

void sampling_lists_finish(struct sampling_lists *lists) {
    free(lists->allowed_tokens);
    free(lists->bad_tokens);
    *lists = (struct sampling_lists){0};
}
