#include "server/program/command_verify.h"

#include "config/base/check.h"
#include "models/files/input_file.h"
#include "server/program/command_checksum.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES ((size_t)1 << 20)

static int hash_chunks(struct command_verify *verify, const struct input_file *file,
                       gnutls_hash_hd_t hash, void *chunk) {
    for (uint64_t done = 0; done < file->bytes && !verify->is_cancelled;) {
        uint64_t left = file->bytes - done;
        size_t bytes = left < CHUNK_BYTES ? (size_t)left : CHUNK_BYTES;
        if (input_file_read(file, done, bytes, chunk, NULL, &verify->err) != 0)
            return -1;
        if (gnutls_hash(hash, chunk, bytes) != 0)
            return error_set(&verify->err, ERROR_IO, "%.400s: GnuTLS cannot hash it", file->path);
        done += bytes;
    }
    return 0;
}

static int hash_file(struct command_verify *verify, const struct input_file *file,
                     unsigned char out[static CHECKSUM_BYTES]) {
    gnutls_hash_hd_t hash;
    void *chunk = malloc(CHUNK_BYTES);
    if (chunk == NULL || gnutls_hash_init(&hash, GNUTLS_DIG_SHA256) != 0) {
        free(chunk);
        return error_set(&verify->err, ERROR_MEMORY, "%.400s: no memory to hash it", file->path);
    }
    int status = hash_chunks(verify, file, hash, chunk);
    gnutls_hash_deinit(hash, out);
    free(chunk);
    return status;
}

static int verify_file(struct command_verify *verify, const struct input_file *file) {
    struct checksum wanted;
    unsigned char digest[CHECKSUM_BYTES];
    char is[CHECKSUM_HEX_BYTES], should_be[CHECKSUM_HEX_BYTES];
    int found = command_checksum_find(file->path, &wanted, &verify->err);
    if (found < 0)
        return -1;
    if (found == 0) {
        if (verify->unknown == NULL)
            verify->unknown = file->path;
        return 0;
    }
    if (hash_file(verify, file, digest) != 0)
        return -1;
    if (memcmp(digest, wanted.digest, CHECKSUM_BYTES) != 0 && !verify->is_cancelled) {
        command_checksum_print(digest, is);
        command_checksum_print(wanted.digest, should_be);
        return error_set(&verify->err, ERROR_MODEL,
                         "%.230s: is damaged or another file: its SHA-256 is %.16s... and not "
                         "%.16s... as by %.150s",
                         file->path, is, should_be, wanted.source);
    }
    if (verify->num_verified++ == 0)
        memcpy(verify->source, wanted.source, sizeof(verify->source));
    return 0;
}

static void *run(void *context) {
    struct command_verify *verify = context;
    int num_files = tensor_file_num_parts(verify->file);
    for (int i = 0; i < num_files && verify->status == 0 && !verify->is_cancelled; i++)
        verify->status = verify_file(verify, tensor_file_part(verify->file, i));
    return NULL;
}

int command_verify_start(struct command_verify *verify, const struct tensor_file *file,
                         struct error *err) {
    *verify = (struct command_verify){.file = file};
    int failure = pthread_create(&verify->thread, NULL, run, verify);
    if (failure != 0)
        return error_set(err, ERROR_MEMORY, "no thread to verify the weights: %s",
                         strerror(failure));
    verify->is_running = true;
    return 0;
}

static void join(struct command_verify *verify) {
    if (verify->is_running)
        CHECK(pthread_join(verify->thread, NULL) == 0);
    verify->is_running = false;
}

int command_verify_wait(struct command_verify *verify, struct error *err) {
    join(verify);
    if (verify->status != 0)
        *err = verify->err;
    return verify->status;
}

void command_verify_describe(const struct command_verify *verify, char *out, size_t capacity) {
    int num_files = tensor_file_num_parts(verify->file);
    if (verify->num_verified == num_files)
        snprintf(out, capacity, "%d of %d files have the SHA-256 that is known, by %s", num_files,
                 num_files, verify->source);
    else
        snprintf(out, capacity,
                 "%d of %d files have the SHA-256 that is known; of %s and %d more none is known",
                 verify->num_verified, num_files, verify->unknown,
                 num_files - verify->num_verified - 1);
}

void command_verify_finish(struct command_verify *verify) {
    verify->is_cancelled = true;
    join(verify);
}
