#include "server/api/sampling_fields.h"

#include "server/json/json_field.h"

#include <stdio.h>
#include <string.h>

#define MAX_BIAS 100.0
#define MAX_PATH 64

static int refuse_count(const char *path, int max, struct api_error *err) {
    return api_error_set(err, 400, "invalid_request_error", "array_above_max_length", path,
                         "%s has too many entries: at most %d are allowed", path, max);
}

static int read_stop_string(const cJSON *item, const char *path, struct sampling_lists *lists,
                            struct api_error *err) {
    if (!cJSON_IsString(item))
        return json_refuse(item, path, "a string", err);
    if (lists->num_stop_strings == MAX_STOP_STRINGS)
        return refuse_count("stop", MAX_STOP_STRINGS, err);
    size_t length = strlen(item->valuestring);
    if (length == 0 || length > MAX_STOP_STRING_BYTES)
        return api_error_set(err, 400, "invalid_request_error", "out_of_range", path,
                             "%s has %zu bytes: a stop string of 1 to %d bytes is allowed", path,
                             length, MAX_STOP_STRING_BYTES);
    lists->stop_strings[lists->num_stop_strings++] =
        (struct stop_string){.data = item->valuestring, .length = length};
    return 0;
}

static int read_stop(const cJSON *stop, struct sampling_lists *lists, struct api_error *err) {
    if (stop == NULL || cJSON_IsNull(stop))
        return 0;
    if (cJSON_IsString(stop))
        return read_stop_string(stop, "stop", lists, err);
    if (!cJSON_IsArray(stop))
        return json_refuse(stop, "stop", "a string or an array of strings", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, stop) {
        char path[MAX_PATH];
        snprintf(path, sizeof(path), "stop[%d]", (int)lists->num_stop_strings);
        if (read_stop_string(item, path, lists, err) != 0)
            return -1;
    }
    return 0;
}

static int read_stop_tokens(const cJSON *tokens, int32_t vocab_size, struct sampling_lists *lists,
                            struct api_error *err) {
    if (tokens == NULL || cJSON_IsNull(tokens))
        return 0;
    if (!cJSON_IsArray(tokens))
        return json_refuse(tokens, "stop_token_ids", "an array of token ids", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, tokens) {
        char path[MAX_PATH];
        int64_t token;
        if (lists->num_stop_tokens == MAX_STOP_TOKENS)
            return refuse_count("stop_token_ids", MAX_STOP_TOKENS, err);
        snprintf(path, sizeof(path), "stop_token_ids[%d]", (int)lists->num_stop_tokens);
        if (json_read_int(item, path, 0, vocab_size - 1, &token, err) != 0)
            return -1;
        lists->stop_tokens[lists->num_stop_tokens++] = (int32_t)token;
    }
    return 0;
}

/* A token id as plain decimal digits. Leading zeros are refused, so that distinct keys are distinct
 * tokens. */
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
    if (map == NULL || cJSON_IsNull(map))
        return 0;
    if (!cJSON_IsObject(map))
        return json_refuse(map, "logit_bias", "an object of token ids and numbers", err);
    const cJSON *item;
    cJSON_ArrayForEach(item, map) {
        int32_t token;
        char path[MAX_PATH];
        double bias;
        if (lists->num_biases == MAX_LOGIT_BIASES)
            return refuse_count("logit_bias", MAX_LOGIT_BIASES, err);
        if (!parse_token(item->string, vocab_size, &token))
            return api_error_set(err, 400, "invalid_request_error", "out_of_range", "logit_bias",
                                 "logit_bias has the key \"%.32s\": keys must be token ids from 0 "
                                 "to %d",
                                 item->string, (int)vocab_size - 1);
        snprintf(path, sizeof(path), "logit_bias.%d", (int)token);
        if (json_read_number(item, path, -MAX_BIAS, MAX_BIAS, &bias, err) != 0)
            return -1;
        lists->biases[lists->num_biases++] =
            (struct token_bias){.token = token, .bias = (float)bias};
    }
    return 0;
}

int sampling_lists_read(const cJSON *object, int32_t vocab_size, struct sampling_lists *out,
                        struct api_error *err) {
    out->num_stop_strings = out->num_stop_tokens = out->num_biases = 0;
    if (read_stop(cJSON_GetObjectItemCaseSensitive(object, "stop"), out, err) != 0 ||
        read_stop_tokens(cJSON_GetObjectItemCaseSensitive(object, "stop_token_ids"), vocab_size,
                         out, err) != 0)
        return -1;
    return read_biases(cJSON_GetObjectItemCaseSensitive(object, "logit_bias"), vocab_size, out,
                       err);
}
