#include "server/keys/api_keys.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "server/api/call/served_adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Keys --- */

struct api_keys {
    struct auth *auth;
    int num_fixed, num_listed;
    struct auth_hash *fixed; /* [num_fixed] */
    int64_t num_seen;        /* keys since the start */
    struct api_key *by_place[AUTH_MAX_TENANTS];
};

static int hash_fixed(struct api_keys *keys, char *const *texts, int count, struct error *err) {
    keys->fixed = calloc((size_t)count + 1, sizeof(*keys->fixed));
    if (keys->fixed == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", count);
    keys->num_fixed = count;
    for (int i = 0; i < count; i++) {
        if (texts[i][0] == '\0')
            return error_set(err, ERROR_CONFIG, "api-key: key %d is empty", i + 1);
        if (auth_hash_key(texts[i], &keys->fixed[i], err) != 0)
            return -1;
    }
    return 0;
}

int api_keys_create(char *const *texts, int count, struct api_keys **out, struct error *err) {
    struct api_keys *keys = calloc(1, sizeof(*keys));
    struct key_file none = {0};
    if (keys == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", count);
    if (auth_create(&keys->auth, err) != 0 || hash_fixed(keys, texts, count, err) != 0 ||
        api_keys_replace(keys, &none, err) != 0) {
        api_keys_destroy(keys);
        return -1;
    }
    *out = keys;
    return 0;
}

static struct api_key *key_of(const struct api_keys *keys, int32_t tenant) {
    return keys->by_place[tenant % AUTH_MAX_TENANTS];
}

/* Takes the entry over. */
static void list_key(struct api_keys *keys, struct api_key *key, struct key_entry *entry) {
    int64_t now_ms = clock_now_ms();
    keys->num_listed += !key->is_listed;
    key_entry_finish(&key->entry);
    key->entry = *entry;
    *entry = (struct key_entry){0};
    if (key->entry.name[0] == '\0') /* a name that no file can give a key */
        snprintf(key->entry.name, sizeof(key->entry.name), "#%lld", (long long)key->number);
    key->is_listed = true;
    rate_limit_set(&key->requests, key->entry.requests_per_minute, now_ms);
    rate_limit_set(&key->tokens, key->entry.tokens_per_minute, now_ms);
}

/* Makes room for as many keys as may be added, so that nothing fails once they are in place. Tells
 * which places are held by what still uses their keys. */
static int reserve(struct api_keys *keys, int count, bool *is_held) {
    for (int32_t i = 0; i < AUTH_MAX_TENANTS; i++) {
        if (keys->by_place[i] == NULL && count-- > 0) {
            keys->by_place[i] = calloc(1, sizeof(*keys->by_place[i]));
            if (keys->by_place[i] == NULL)
                return -1;
        }
        is_held[i] = keys->by_place[i] == NULL || keys->by_place[i]->num_users > 0;
    }
    return 0;
}

/* Makes what stands in the places of new tenants theirs. */
static void admit(struct api_keys *keys, const int32_t *tenants, int count) {
    for (int i = 0; i < count; i++) {
        struct api_key *key = tenants[i] >= 0 ? key_of(keys, tenants[i]) : NULL;
        if (key == NULL || (key->number > 0 && key->tenant == tenants[i]))
            continue;
        key_entry_finish(&key->entry);
        *key = (struct api_key){.tenant = tenants[i], .number = ++keys->num_seen};
    }
}

/* Lists all keys; for one of --api-key that is also in the file, the file's entry applies. Returns
 * the number of keys without a place. */
static int list_all(struct api_keys *keys, struct key_file *file, const int32_t *tenants) {
    int num_left = 0;
    for (int32_t i = 0; i < AUTH_MAX_TENANTS; i++)
        if (keys->by_place[i] != NULL)
            keys->by_place[i]->is_listed = false;
    keys->num_listed = 0;
    for (int i = 0; i < file->num_keys; i++) {
        int32_t tenant = tenants[keys->num_fixed + i];
        if (tenant >= 0)
            list_key(keys, key_of(keys, tenant), &file->keys[i]);
        num_left += tenant < 0;
    }
    for (int i = 0; i < keys->num_fixed; i++) {
        struct key_entry entry;
        key_entry_init(&entry);
        entry.hash = keys->fixed[i];
        CHECK(tenants[i] >= 0); /* they have the first places, and keep them */
        if (!key_of(keys, tenants[i])->is_listed)
            list_key(keys, key_of(keys, tenants[i]), &entry);
    }
    return num_left;
}

int api_keys_replace(struct api_keys *keys, struct key_file *file, struct error *err) {
    int count = keys->num_fixed + file->num_keys;
    struct auth_hash *hashes = calloc((size_t)count + 1, sizeof(*hashes));
    int32_t *tenants = calloc((size_t)count + 1, sizeof(*tenants));
    bool is_held[AUTH_MAX_TENANTS];
    int status = -1;
    if (hashes == NULL || tenants == NULL || reserve(keys, count, is_held) != 0) {
        error_set(err, ERROR_MEMORY, "no memory for %d API keys", count);
    } else {
        for (int i = 0; i < count; i++)
            hashes[i] = i < keys->num_fixed ? keys->fixed[i] : file->keys[i - keys->num_fixed].hash;
        status = auth_replace(keys->auth, hashes, count, is_held, tenants, err);
        if (status == 0) {
            admit(keys, tenants, count);
            status = list_all(keys, file, tenants);
        }
    }
    free(hashes);
    free(tenants);
    return status;
}

void api_keys_destroy(struct api_keys *keys) {
    if (keys == NULL)
        return;
    for (int32_t i = 0; i < AUTH_MAX_TENANTS; i++) {
        if (keys->by_place[i] == NULL)
            continue;
        CHECK(keys->by_place[i]->num_users == 0);
        key_entry_finish(&keys->by_place[i]->entry);
        free(keys->by_place[i]);
    }
    auth_destroy(keys->auth);
    free(keys->fixed);
    free(keys);
}

const struct auth *api_keys_auth(const struct api_keys *keys) {
    return keys->auth;
}

bool api_keys_are_needed(const struct api_keys *keys) {
    return auth_has_keys(keys->auth);
}

struct api_key *api_keys_find(const struct api_keys *keys, const char *authorization,
                              const char *x_api_key) {
    int32_t tenant = authorization != NULL ? auth_tenant(keys->auth, authorization)
                                           : auth_tenant_of_key(keys->auth, x_api_key);
    return tenant >= 0 ? key_of(keys, tenant) : NULL;
}

void api_key_use(struct api_key *key) {
    if (key != NULL)
        key->num_users++;
}

void api_key_leave(struct api_key *key) {
    if (key != NULL)
        key->num_users--;
}

int32_t api_key_place(const struct api_key *key) {
    return key->tenant % AUTH_MAX_TENANTS;
}

const struct api_key *api_keys_next(const struct api_keys *keys, int32_t tenant) {
    for (int32_t i = tenant < 0 ? 0 : tenant % AUTH_MAX_TENANTS + 1; i < AUTH_MAX_TENANTS; i++)
        if (keys->by_place[i] != NULL && keys->by_place[i]->is_listed)
            return keys->by_place[i];
    return NULL;
}

bool api_keys_is_admin(const struct api_keys *keys, const struct api_key *key) {
    bool has_entry = key->entry.given != 0;
    return key->entry.is_admin || (!has_entry && keys->num_listed == 1);
}

int api_keys_count(const struct api_keys *keys) {
    return keys->num_listed;
}

/* --- Models --- */

static bool allows(const struct api_key *key, const char *name) {
    for (int i = 0; i < key->entry.num_models; i++)
        if (strcmp(key->entry.models[i], name) == 0)
            return true;
    return key->entry.num_models == 0;
}

const struct api_context *key_models_context(const struct api_key *key,
                                             const struct api_context *context,
                                             struct key_models *models) {
    if (key == NULL)
        return context;
    models->context = *context;
    models->context.tenant = key->tenant;
    if (key->entry.num_models == 0)
        return &models->context;
    models->context.allowed_names = key->entry.models;
    models->context.num_allowed_names = key->entry.num_models;
    models->context.model_names = models->names;
    models->context.num_model_names = 0;
    models->names[0] = NULL;
    models->context.takes_any_model = false;
    for (int i = 0; i < context->num_model_names && i < OPTIONS_MAX_LIST; i++)
        if (allows(key, context->model_names[i]))
            models->names[models->context.num_model_names++] = context->model_names[i];
    return &models->context;
}

int key_models_keep(struct key_models *models) {
    char *const *names = models->context.allowed_names;
    const size_t count = (size_t)models->context.num_allowed_names;
    size_t bytes = count * sizeof(*names);
    if (names == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        bytes += strlen(names[i]) + 1;
    models->kept = malloc(bytes);
    if (models->kept == NULL)
        return -1;
    char *to = (char *)(models->kept + count);
    for (size_t i = 0; i < count; i++) {
        models->kept[i] = to;
        to = stpcpy(to, names[i]) + 1;
    }
    models->context.allowed_names = models->kept;
    return 0;
}

void key_models_finish(struct key_models *models) {
    free(models->kept);
    models->kept = NULL;
}

static bool is_adapter(const struct api_context *context, const char *name) {
    struct adapter *adapter =
        context->adapters != NULL ? served_adapters_find(context->adapters, name) : NULL;
    adapter_unref(adapter);
    return adapter != NULL;
}

bool key_models_any(const struct api_key *key, const struct api_context *context) {
    for (int i = 0; key != NULL && i < context->num_model_names; i++)
        if (allows(key, context->model_names[i]))
            return true;
    for (int i = 0; key != NULL && i < key->entry.num_models; i++)
        if (is_adapter(context, key->entry.models[i]))
            return true;
    return key == NULL;
}

/* --- Limits --- */

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
                             "%lld requests of this API key are in flight, its limit; "
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
