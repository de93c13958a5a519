/* Digests of equal sizes say nothing of the keys, so a plain constant-time comparison is all that
 * is needed. The random HMAC key keeps anyone from steering the digests' bytes. The matching key's
 * tenant is selected with masks: no branch and no address depends on it. */
#include "server/keys/auth.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGEST_BYTES 32

struct key {
    unsigned char digest[DIGEST_BYTES];
    int32_t tenant;
};

struct auth {
    unsigned char secret[DIGEST_BYTES];
    int num_keys;
    struct key *keys;                       /* [num_keys] */
    int32_t last_place;                     /* that was given out */
    int32_t next_tenants[AUTH_MAX_TENANTS]; /* who gets a place next; negative: nobody any more */
};

int auth_random(unsigned char *out, size_t num_bytes) {
    return gnutls_rnd(GNUTLS_RND_KEY, out, num_bytes) == 0 ? 0 : -1;
}

static int refuse_library(int rc, struct error *err) {
    return error_set(err, ERROR_IO, "api-key: GnuTLS failed: %s", gnutls_strerror(rc));
}

int auth_hash_key(const char *key, struct auth_hash *out, struct error *err) {
    int rc = gnutls_hash_fast(GNUTLS_DIG_SHA256, key, strlen(key), out->bytes);
    return rc == 0 ? 0 : refuse_library(rc, err);
}

static int digest(const struct auth *auth, const void *data, size_t num_bytes,
                  unsigned char out[DIGEST_BYTES]) {
    return gnutls_hmac_fast(GNUTLS_MAC_SHA256, auth->secret, sizeof(auth->secret), data, num_bytes,
                            out);
}

static int32_t find_tenant(const unsigned char digest[DIGEST_BYTES], const struct key *keys,
                           int num_keys) {
    for (int i = 0; i < num_keys; i++)
        if (gnutls_memcmp(digest, keys[i].digest, DIGEST_BYTES) == 0)
            return keys[i].tenant;
    return -1;
}

int auth_create(struct auth **out, struct error *err) {
    struct auth *auth = calloc(1, sizeof(*auth));
    if (!auth)
        return error_set(err, ERROR_MEMORY, "no memory for API keys");
    int rc = gnutls_rnd(GNUTLS_RND_KEY, auth->secret, sizeof(auth->secret));
    if (rc != 0) {
        auth_destroy(auth);
        return refuse_library(rc, err);
    }
    auth->last_place = AUTH_MAX_TENANTS - 1;
    for (int32_t i = 0; i < AUTH_MAX_TENANTS; i++)
        auth->next_tenants[i] = i;
    *out = auth;
    return 0;
}

/* Takes the place that was given out longest ago of those that are free; -1: none is. */
static int32_t take_tenant(struct auth *auth, bool *is_taken) {
    for (int32_t i = 1; i <= AUTH_MAX_TENANTS; i++) {
        int32_t place = (auth->last_place + i) % AUTH_MAX_TENANTS, tenant;
        tenant = auth->next_tenants[place];
        if (is_taken[place] || tenant < 0)
            continue;
        is_taken[place] = true;
        auth->last_place = place;
        auth->next_tenants[place] =
            tenant <= INT32_MAX - AUTH_MAX_TENANTS ? tenant + AUTH_MAX_TENANTS : -1;
        return tenant;
    }
    return -1;
}

/* Gives each key its tenant. An old one keeps it, and none is ever given to another key: what is
 * cached for it must not be seen by others. */
static void assign_tenants(struct auth *auth, const bool *is_held, struct key *keys, int count) {
    bool is_taken[AUTH_MAX_TENANTS] = {false};
    if (is_held != NULL)
        memcpy(is_taken, is_held, sizeof(is_taken));
    for (int i = 0; i < count; i++) {
        keys[i].tenant = find_tenant(keys[i].digest, auth->keys, auth->num_keys);
        if (keys[i].tenant >= 0)
            is_taken[keys[i].tenant % AUTH_MAX_TENANTS] = true;
    }
    for (int i = 0; i < count; i++) {
        if (keys[i].tenant < 0)
            keys[i].tenant = find_tenant(keys[i].digest, keys, i); /* given twice */
        if (keys[i].tenant < 0)
            keys[i].tenant = take_tenant(auth, is_taken);
    }
}

int auth_replace(struct auth *auth, const struct auth_hash *hashes, int count, const bool *is_held,
                 int32_t *out_tenants, struct error *err) {
    struct key *keys = calloc((size_t)count + 1, sizeof(*keys));
    if (!keys)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", count);
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++)
        rc = digest(auth, hashes[i].bytes, AUTH_HASH_BYTES, keys[i].digest);
    if (rc != 0) {
        free(keys);
        return refuse_library(rc, err);
    }
    assign_tenants(auth, is_held, keys, count);
    for (int i = 0; i < count; i++)
        out_tenants[i] = keys[i].tenant;
    free(auth->keys);
    auth->keys = keys;
    auth->num_keys = count;
    return 0;
}

void auth_destroy(struct auth *auth) {
    if (!auth)
        return;
    gnutls_memset(auth->secret, 0, sizeof(auth->secret));
    free(auth->keys);
    free(auth);
}

bool auth_has_keys(const struct auth *auth) {
    return auth->num_keys > 0;
}

/* Returns the token after "Bearer", or NULL. */
static const char *bearer_token(const char *authorization) {
    static const char scheme[] = "bearer";
    size_t length = sizeof(scheme) - 1;
    if (!authorization || strncasecmp(authorization, scheme, length) != 0)
        return NULL;
    const char *token = authorization + length;
    if (*token != ' ')
        return NULL;
    return token + strspn(token, " ");
}

int32_t auth_tenant(const struct auth *auth, const char *authorization) {
    return auth_tenant_of_key(auth, bearer_token(authorization));
}

int32_t auth_tenant_of_key(const struct auth *auth, const char *presented) {
    if (auth->num_keys == 0)
        return 0;
    struct auth_hash hash;
    struct error err;
    unsigned char presented_digest[DIGEST_BYTES];
    if (!presented || auth_hash_key(presented, &hash, &err) != 0 ||
        digest(auth, hash.bytes, sizeof(hash.bytes), presented_digest) != 0)
        return -1;
    int32_t tenant = -1;
    for (int i = 0; i < auth->num_keys; i++) {
        const struct key *key = &auth->keys[i];
        int32_t mask = -(gnutls_memcmp(presented_digest, key->digest, DIGEST_BYTES) == 0);
        tenant = (key->tenant & mask) | (tenant & ~mask);
    }
    return tenant;
}

int32_t auth_share(const struct auth *auth, const void *id, size_t id_bytes) {
    unsigned char bytes[DIGEST_BYTES];
    uint32_t number = 0;
    if (digest(auth, id, id_bytes, bytes) == 0)
        memcpy(&number, bytes, sizeof(number));
    return (int32_t)(number % AUTH_MAX_TENANTS);
}
