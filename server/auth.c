/* Digests instead of keys: two digests have one length and say nothing of the keys, so a plain
 * constant-time comparison of equal sizes is all that is needed. The random HMAC key keeps anyone
 * from steering the digests' bytes. The matching key's tenant is selected with masks: no branch and
 * no address depends on it. */
#include "server/auth.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGEST_BYTES 32

struct key {
    unsigned char digest[DIGEST_BYTES];
    int tenant;
};

struct auth {
    unsigned char secret[DIGEST_BYTES];
    int num_keys, num_fixed; /* the fixed ones come first */
    int num_tenants;         /* ever given out */
    struct key *keys;        /* [num_keys] */
};

static int digest(const struct auth *auth, const char *key, unsigned char out[DIGEST_BYTES]) {
    return gnutls_hmac_fast(GNUTLS_MAC_SHA256, auth->secret, sizeof(auth->secret), key, strlen(key),
                            out);
}

static int find_tenant(const unsigned char digest[DIGEST_BYTES], const struct key *keys,
                       int num_keys) {
    for (int i = 0; i < num_keys; i++)
        if (gnutls_memcmp(digest, keys[i].digest, DIGEST_BYTES) == 0)
            return keys[i].tenant;
    return -1;
}

/* Writes the digests of texts to out, whose tenants are not known yet. */
static int digest_keys(const struct auth *auth, char *const *texts, int count, struct key *out,
                       struct error *err) {
    for (int i = 0; i < count; i++) {
        if (texts[i][0] == '\0')
            return error_set(err, ERROR_CONFIG, "api-key: key %d is empty", i + 1);
        int rc = digest(auth, texts[i], out[i].digest);
        if (rc != 0)
            return error_set(err, ERROR_IO, "api-key: GnuTLS failed: %s", gnutls_strerror(rc));
    }
    return 0;
}

/* Keeps the first num_fixed keys and takes those of texts. An old key keeps its tenant,
 * and no tenant is ever given to another key: what is cached for it must not be seen by others. */
static int replace_keys(struct auth *auth, int num_fixed, char *const *texts, int count,
                        struct error *err) {
    int total = num_fixed + count, num_tenants = auth->num_tenants;
    struct key *keys = calloc((size_t)total + 1, sizeof(*keys));
    if (!keys)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", total);
    for (int i = 0; i < num_fixed; i++)
        keys[i] = auth->keys[i];
    if (digest_keys(auth, texts, count, keys + num_fixed, err) != 0) {
        free(keys);
        return -1;
    }
    for (int i = num_fixed; i < total; i++) {
        int tenant = find_tenant(keys[i].digest, auth->keys, auth->num_keys);
        if (tenant < 0)
            tenant = find_tenant(keys[i].digest, keys, i); /* given twice */
        keys[i].tenant = tenant >= 0 ? tenant : num_tenants++;
    }
    if (num_tenants > AUTH_MAX_TENANTS) {
        free(keys);
        return error_set(
            err, ERROR_CONFIG,
            "api-key: more than %d different keys since the start; a restart makes room",
            AUTH_MAX_TENANTS);
    }
    free(auth->keys);
    auth->keys = keys;
    auth->num_keys = total;
    auth->num_tenants = num_tenants;
    return 0;
}

int auth_create(char *const *keys, int num_keys, struct auth **out, struct error *err) {
    struct auth *auth = calloc(1, sizeof(*auth));
    if (!auth)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", num_keys);
    int rc = gnutls_rnd(GNUTLS_RND_KEY, auth->secret, sizeof(auth->secret));
    int status = rc == 0
                     ? replace_keys(auth, 0, keys, num_keys, err)
                     : error_set(err, ERROR_IO, "api-key: GnuTLS failed: %s", gnutls_strerror(rc));
    if (status != 0) {
        auth_destroy(auth);
        return -1;
    }
    auth->num_fixed = num_keys;
    *out = auth;
    return 0;
}

int auth_replace(struct auth *auth, char *const *keys, int num_keys, struct error *err) {
    return replace_keys(auth, auth->num_fixed, keys, num_keys, err);
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

int auth_tenant(const struct auth *auth, const char *authorization) {
    if (auth->num_keys == 0)
        return 0;
    const char *token = bearer_token(authorization);
    unsigned char presented[DIGEST_BYTES];
    if (!token || digest(auth, token, presented) != 0)
        return -1;
    int tenant = -1;
    for (int i = 0; i < auth->num_keys; i++) {
        const struct key *key = &auth->keys[i];
        int mask = -(gnutls_memcmp(presented, key->digest, DIGEST_BYTES) == 0);
        tenant = (key->tenant & mask) | (tenant & ~mask);
    }
    return tenant;
}
