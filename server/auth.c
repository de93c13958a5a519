/* Digests instead of keys: two digests have one length and say nothing of the keys, so a plain
 * constant-time comparison of equal sizes is all that is needed. The random HMAC key keeps anyone
 * from steering the digests' bytes. The matching key's index is selected with masks: no branch and
 * no address depends on it. */
#include "server/auth.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DIGEST_BYTES 32

struct auth {
    unsigned char secret[DIGEST_BYTES];
    int num_keys;
    unsigned char digests[][DIGEST_BYTES]; /* [num_keys] */
};

static int digest(const struct auth *auth, const char *key, unsigned char out[DIGEST_BYTES]) {
    return gnutls_hmac_fast(GNUTLS_MAC_SHA256, auth->secret, sizeof(auth->secret), key, strlen(key),
                            out);
}

int auth_create(char *const *keys, int num_keys, struct auth **out, struct error *err) {
    struct auth *auth = calloc(1, sizeof(*auth) + (size_t)num_keys * DIGEST_BYTES);
    if (!auth)
        return error_set(err, ERROR_MEMORY, "no memory for %d API keys", num_keys);
    auth->num_keys = num_keys;
    int rc = gnutls_rnd(GNUTLS_RND_KEY, auth->secret, sizeof(auth->secret));
    for (int i = 0; i < num_keys && rc == 0; i++) {
        if (keys[i][0] == '\0') {
            auth_destroy(auth);
            return error_set(err, ERROR_CONFIG, "api-key: key %d is empty", i + 1);
        }
        rc = digest(auth, keys[i], auth->digests[i]);
    }
    if (rc != 0) {
        auth_destroy(auth);
        return error_set(err, ERROR_IO, "api-key: GnuTLS failed: %s", gnutls_strerror(rc));
    }
    *out = auth;
    return 0;
}

void auth_destroy(struct auth *auth) {
    if (!auth)
        return;
    gnutls_memset(auth->secret, 0, sizeof(auth->secret));
    free(auth);
}

/* The token after "Bearer", or NULL. */
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
        int mask = -(gnutls_memcmp(presented, auth->digests[i], DIGEST_BYTES) == 0);
        tenant = (i & mask) | (tenant & ~mask);
    }
    return tenant;
}
