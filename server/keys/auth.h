/* Compares API keys. The thread that replaces them is the one that checks.
 *
 * A key comes here as its SHA-256, as files may hold it too. A plain hash is enough for a random
 * key: nobody who has the hash of 256 random bits can try them all, with or without salt and
 * stretching (which protect memorable passwords, and which no client should have to wait for in
 * each request). It is not enough for a key that somebody thought up.
 *
 * Memory holds only HMAC-SHA-256 digests of these hashes, under a random key of this process, and
 * the digest of a presented key is compared with all of them. The time taken depends only on the
 * presented key: not on which key matched, nor on how much of one matched, nor on the lengths of
 * ours. */
#ifndef QUIRE_SERVER_KEYS_AUTH_H
#define QUIRE_SERVER_KEYS_AUTH_H

#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUTH_HASH_BYTES 32

/* Number of places for keys; usage is counted per place. A key has the place of its tenant: tenant
 * % AUTH_MAX_TENANTS. Once a key is removed, its place may be given to another key, which is then
 * another tenant: what is cached or stored for one is never seen by the other. */
#define AUTH_MAX_TENANTS 4096

struct auth;

/* SHA-256 of a key. */
struct auth_hash {
    unsigned char bytes[AUTH_HASH_BYTES];
};

/* Hashes a key; ERROR_IO when GnuTLS fails. */
int auth_hash_key(const char *key, struct auth_hash *out, struct error *err);
/* Fills out with random bits for a key; returns -1 when none are available. */
int auth_random(unsigned char *out, size_t num_bytes);

/* Begins without keys: every request is allowed then. */
int auth_create(struct auth **out, struct error *err);
/* Replaces all keys by these, some of which may be equal. A key that existed before keeps its
 * tenant. The tenant of a removed key is never used again: if the key comes back, it is a new
 * tenant. is_held: [AUTH_MAX_TENANTS], whether a place must not be given to another key yet; NULL:
 * none. out_tenants: [count], -1: no place is left for the key, which is then not accepted. On
 * failure nothing changes. */
int auth_replace(struct auth *auth, const struct auth_hash *hashes, int count, const bool *is_held,
                 int32_t *out_tenants, struct error *err);
/* Accepts NULL. */
void auth_destroy(struct auth *auth);

bool auth_has_keys(const struct auth *auth);

/* Returns the tenant of the request: a number that belongs only to its key for the life of this
 * process, or 0 if there are no keys; -1: not allowed. authorization: value of the Authorization
 * header, or NULL when there is none. The scheme's name is compared without case, as RFC 9110
 * section 11.1 says. */
int32_t auth_tenant(const struct auth *auth, const char *authorization);
/* Returns the same for a bare key, the value of X-Api-Key; NULL: absent. */
int32_t auth_tenant_of_key(const struct auth *auth, const char *presented);

/* Returns a number below AUTH_MAX_TENANTS for a client without a key: equal ids have equal numbers,
 * and outsiders cannot tell which other ids have the same. */
int32_t auth_share(const struct auth *auth, const void *id, size_t id_bytes);

#endif
