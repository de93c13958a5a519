#include "engine/kv/kv_store_cipher.h"

#include <errno.h>
#include <fcntl.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct kv_store_cipher {
    gnutls_aead_cipher_hd_t handle; /* NULL: checksums */
    struct block_key_secret secret;
};

/* --- Keys --- */

static int digit_of(unsigned char digit) {
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    digit |= 'a' - 'A';
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

static bool parse_digits(const unsigned char *text, struct kv_store_key *out) {
    for (int i = 0; i < KV_STORE_KEY_BYTES; i++) {
        int high = digit_of(text[2 * i]), low = digit_of(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        out->bytes[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

static bool parse_key(const unsigned char *text, size_t bytes, struct kv_store_key *out) {
    if (bytes == KV_STORE_KEY_BYTES) {
        memcpy(out->bytes, text, bytes);
        return true;
    }
    if (bytes > 0 && text[bytes - 1] == '\n')
        bytes--;
    if (bytes > 0 && text[bytes - 1] == '\r')
        bytes--;
    return bytes == 2 * KV_STORE_KEY_BYTES && parse_digits(text, out);
}

int kv_store_key_read(const char *path, struct kv_store_key *out, struct error *err) {
    unsigned char text[2 * KV_STORE_KEY_BYTES + 3]; /* CR, LF, and one more that is too many */
    struct kv_store_key key;
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        int status =
            error_set(err, ERROR_CONFIG, "kv-store: key file %.300s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return status;
    }
    ssize_t bytes = read(fd, text, sizeof(text));
    close(fd);
    if ((info.st_mode & 077) != 0)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: key file %.300s has mode %04o, others may read or change it; "
                         "it must be 0600 or 0400",
                         path, (unsigned)info.st_mode & 07777);
    bool is_key = bytes >= 0 && parse_key(text, (size_t)bytes, &key);
    explicit_bzero(text, sizeof(text));
    if (!is_key)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: key file %.300s must have 32 bytes or 64 hexadecimal digits",
                         path);
    *out = key;
    explicit_bzero(&key, sizeof(key));
    return 0;
}

int kv_store_key_derive(const struct kv_store_key *key, const struct block_key_secret *secret,
                        struct kv_store_key *out, struct error *err) {
    static const char purpose[] = "quire kv-store blocks";
    unsigned char middle[32];
    const gnutls_datum_t input = {(unsigned char *)key->bytes, sizeof(key->bytes)};
    const gnutls_datum_t salt = {(unsigned char *)secret->bytes, sizeof(secret->bytes)};
    const gnutls_datum_t extracted = {middle, sizeof(middle)};
    const gnutls_datum_t info = {(unsigned char *)purpose, sizeof(purpose) - 1};
    int status = gnutls_hkdf_extract(GNUTLS_MAC_SHA256, &input, &salt, middle);
    if (status == 0)
        status = gnutls_hkdf_expand(GNUTLS_MAC_SHA256, &extracted, &info, out->bytes,
                                    sizeof(out->bytes));
    explicit_bzero(middle, sizeof(middle));
    if (status != 0)
        return error_set(err, ERROR_IO, "kv-store: cannot derive a key: %s",
                         gnutls_strerror(status));
    return 0;
}

/* --- Life --- */

int kv_store_cipher_create(const struct kv_store_key *key, const struct block_key_secret *secret,
                           struct kv_store_cipher **out, struct error *err) {
    struct kv_store_cipher *cipher = calloc(1, sizeof(*cipher));
    if (cipher == NULL)
        return error_set(err, ERROR_MEMORY, "kv-store: no memory for a cipher");
    if (secret != NULL)
        cipher->secret = *secret;
    if (key != NULL) {
        const gnutls_datum_t data = {(unsigned char *)key->bytes, sizeof(key->bytes)};
        int status = gnutls_aead_cipher_init(&cipher->handle, GNUTLS_CIPHER_AES_256_GCM, &data);
        if (status != 0) {
            free(cipher);
            return error_set(err, ERROR_IO, "kv-store: AES-256-GCM: %s", gnutls_strerror(status));
        }
    }
    *out = cipher;
    return 0;
}

void kv_store_cipher_destroy(struct kv_store_cipher *cipher) {
    if (cipher == NULL)
        return;
    if (cipher->handle != NULL)
        gnutls_aead_cipher_deinit(cipher->handle);
    explicit_bzero(cipher, sizeof(*cipher));
    free(cipher);
}

/* --- Sealing --- */

static XXH128_hash_t hash_bytes(const struct kv_store_cipher *cipher, const void *data,
                                size_t bytes) {
    return XXH3_128bits_withSecret(data, bytes, cipher->secret.bytes, sizeof(cipher->secret.bytes));
}

static XXH128_hash_t checksum(const struct kv_store_cipher *cipher, const void *about,
                              size_t about_bytes, const void *data, size_t bytes) {
    const XXH128_hash_t both[2] = {hash_bytes(cipher, about, about_bytes),
                                   hash_bytes(cipher, data, bytes)};
    return hash_bytes(cipher, both, sizeof(both));
}

int kv_store_cipher_seal(struct kv_store_cipher *cipher, const void *about, size_t about_bytes,
                         void *data, size_t bytes, struct kv_store_seal *out) {
    memset(out, 0, sizeof(*out));
    if (cipher->handle == NULL) {
        XXH128_hash_t sum = checksum(cipher, about, about_bytes, data, bytes);
        memcpy(out->tag, &sum, sizeof(out->tag));
        return 0;
    }
    const giovec_t authenticated = {(void *)about, about_bytes}, encrypted = {data, bytes};
    size_t tag_bytes = sizeof(out->tag);
    if (getrandom(out->nonce, sizeof(out->nonce), 0) != (ssize_t)sizeof(out->nonce))
        return -1;
    int status =
        gnutls_aead_cipher_encryptv2(cipher->handle, out->nonce, sizeof(out->nonce), &authenticated,
                                     about_bytes > 0, &encrypted, bytes > 0, out->tag, &tag_bytes);
    return status == 0 && tag_bytes == sizeof(out->tag) ? 0 : -1;
}

bool kv_store_cipher_open(struct kv_store_cipher *cipher, const void *about, size_t about_bytes,
                          void *data, size_t bytes, const struct kv_store_seal *seal) {
    if (cipher->handle == NULL) {
        XXH128_hash_t sum = checksum(cipher, about, about_bytes, data, bytes);
        return memcmp(seal->tag, &sum, sizeof(seal->tag)) == 0;
    }
    const giovec_t authenticated = {(void *)about, about_bytes}, encrypted = {data, bytes};
    return gnutls_aead_cipher_decryptv2(cipher->handle, (void *)seal->nonce, sizeof(seal->nonce),
                                        &authenticated, about_bytes > 0, &encrypted, bytes > 0,
                                        (void *)seal->tag, sizeof(seal->tag)) == 0;
}
