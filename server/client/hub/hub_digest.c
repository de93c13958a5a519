#include "server/client/hub/hub_digest.h"

#include "config/base/check.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHA256_DIGITS 64
#define SHA1_DIGITS 40
#define MAX_DIGEST_BYTES 32

int hub_digest_begin(struct hub_digest *digest, const char *expected, int64_t bytes,
                     struct error *err) {
    char prefix[32];
    size_t length = strlen(expected);
    hub_digest_finish(digest);
    digest->expected = expected;
    if (length == 0)
        return 0;
    CHECK(length == SHA256_DIGITS || length == SHA1_DIGITS);
    digest->algorithm = length == SHA256_DIGITS ? GNUTLS_DIG_SHA256 : GNUTLS_DIG_SHA1;
    gnutls_hash_hd_t handle;
    if (gnutls_hash_init(&handle, (gnutls_digest_algorithm_t)digest->algorithm) != 0)
        return error_set(err, ERROR_MEMORY, "GnuTLS cannot hash a download");
    digest->handle = handle;
    if (length == SHA1_DIGITS)
        hub_digest_add(digest, prefix,
                       (size_t)snprintf(prefix, sizeof(prefix), "blob %" PRId64, bytes) + 1);
    return 0;
}

void hub_digest_add(struct hub_digest *digest, const void *data, size_t length) {
    if (digest->handle != NULL)
        CHECK(gnutls_hash(digest->handle, data, length) == 0);
}

bool hub_digest_matches(struct hub_digest *digest) {
    unsigned char bytes[MAX_DIGEST_BYTES];
    char digits[2 * MAX_DIGEST_BYTES + 1];
    if (digest->handle == NULL)
        return digest->expected[0] == '\0';
    gnutls_hash_output(digest->handle, bytes);
    for (size_t i = 0; i < strlen(digest->expected) / 2; i++)
        sprintf(digits + 2 * i, "%02x", bytes[i]);
    bool matches = strcmp(digits, digest->expected) == 0;
    hub_digest_finish(digest);
    return matches;
}

void hub_digest_finish(struct hub_digest *digest) {
    if (digest->handle != NULL)
        gnutls_hash_deinit(digest->handle, NULL);
    digest->handle = NULL;
}
