#include "server/keys/key_limits.h"

#include <stdio.h>

static void describe_wait(int64_t ms, char out[32]) {
    long long minutes = ms / 60000, rest_ms = ms % 60000;
    if (ms < 1000)
        snprintf(out, 32, "%lldms", (long long)ms);
    else if (minutes > 0)
        snprintf(out, 32, "%lldm%.3gs", minutes, (double)rest_ms / 1e3);
    else
        snprintf(out, 32, "%.3gs", (double)rest_ms / 1e3);
}

/* `type` in OpenAI's words: "requests", "tokens". */
static int refuse_rate(const struct rate_limit *limit, const char *type, int64_t amount,
                       int64_t now_ms, struct api_error *err, int64_t *out_retry_ms) {
    char wait[32];
    int64_t wait_ms = rate_limit_wait_ms(limit, amount, now_ms);
    if (wait_ms == 0)
        return 0;
    *out_retry_ms = wait_ms;
    if (wait_ms < 0)
        return api_error_set(err, 429, type, "rate_limit_exceeded", NULL,
                             "the request may take %lld %s: this API key may use %lld per minute, "
                             "so that trying again does not help",
                             (long long)amount, type, (long long)limit->per_minute);
    describe_wait(wait_ms, wait);
    return api_error_set(err, 429, type, "rate_limit_exceeded", NULL,
                         "this API key may use %lld %s per minute, and %lld are left; try again in "
                         "%s",
                         (long long)limit->per_minute, type,
                         (long long)rate_limit_remaining(limit, now_ms), wait);
}

int key_limits_check(const struct api_key *key, int64_t now_ms, struct api_error *err,
                     int64_t *out_retry_ms) {
    int64_t most = key->entry.max_concurrency;
    *out_retry_ms = 0;
    if (most > 0 && key->stats.num_running >= most)
        return api_error_set(err, 429, "requests", "rate_limit_exceeded", NULL,
                             "%lld requests of this API key are in flight, as many as it may have; "
                             "try again when one has ended",
                             (long long)most);
    if (refuse_rate(&key->requests, "requests", 1, now_ms, err, out_retry_ms) != 0)
        return -1;
    return refuse_rate(&key->tokens, "tokens", 1, now_ms, err, out_retry_ms);
}

void key_limits_begin(struct api_key *key, int64_t now_ms) {
    rate_limit_take(&key->requests, 1, now_ms);
    key->stats.num_running++;
}

int key_limits_check_tokens(const struct api_key *key, int64_t num_tokens, int64_t now_ms,
                            struct api_error *err, int64_t *out_retry_ms) {
    *out_retry_ms = 0;
    return refuse_rate(&key->tokens, "tokens", num_tokens, now_ms, err, out_retry_ms);
}

int64_t key_limits_share(const struct api_key *key, int64_t num_tokens, int64_t now_ms) {
    int64_t left = rate_limit_remaining(&key->tokens, now_ms) - num_tokens;
    if (key->tokens.per_minute == 0)
        return INT64_MAX;
    return left > 0 ? left / 2 : 0;
}

void key_limits_take_prompt(struct api_key *key, int64_t num_tokens, int64_t num_reserved,
                            int64_t now_ms) {
    rate_limit_take(&key->tokens, num_tokens + num_reserved, now_ms);
    key->stats.prompt_tokens += (uint64_t)num_tokens;
}

void key_limits_take_output(struct api_key *key, int64_t num_tokens, int64_t *reserved,
                            int64_t now_ms) {
    int64_t of_reserved = num_tokens < *reserved ? num_tokens : *reserved;
    *reserved -= of_reserved;
    rate_limit_take(&key->tokens, num_tokens - of_reserved, now_ms);
    key->stats.generation_tokens += (uint64_t)num_tokens;
}

void key_limits_give_back(struct api_key *key, int64_t num_tokens, int64_t now_ms) {
    rate_limit_give(&key->tokens, num_tokens, now_ms);
}

void key_limits_end(struct api_key *key) {
    key->stats.num_running--;
}

int32_t key_limits_priority(const struct api_key *key, int32_t priority) {
    if (priority < key->entry.min_priority)
        return (int32_t)key->entry.min_priority;
    if (priority > key->entry.max_priority)
        return (int32_t)key->entry.max_priority;
    return priority;
}

static int write_fields(const struct rate_limit *limit, const char *const names[3], int64_t now_ms,
                        struct key_limit_field *out) {
    if (limit->per_minute == 0)
        return 0;
    for (int i = 0; i < 3; i++)
        out[i].name = names[i];
    snprintf(out[0].value, sizeof(out[0].value), "%lld", (long long)limit->per_minute);
    snprintf(out[1].value, sizeof(out[1].value), "%lld",
             (long long)rate_limit_remaining(limit, now_ms));
    describe_wait(rate_limit_reset_ms(limit, now_ms), out[2].value);
    return 3;
}

int key_limits_fields(const struct api_key *key, int64_t now_ms,
                      struct key_limit_field out[KEY_LIMIT_MAX_FIELDS]) {
    static const char *const requests[3] = {"x-ratelimit-limit-requests",
                                            "x-ratelimit-remaining-requests",
                                            "x-ratelimit-reset-requests"};
    static const char *const tokens[3] = {
        "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"};
    int count = write_fields(&key->requests, requests, now_ms, out);
    return count + write_fields(&key->tokens, tokens, now_ms, out + count);
}
