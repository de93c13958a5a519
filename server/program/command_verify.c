#include "server/program/command_verify.h"

#include "config/base/check.h"
#include "models/files/input_file.h"

#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <unistd.h>

#define MAX_LIST_BYTES ((size_t)1 << 20)

void command_verify_checksum_print(const unsigned char digest[static CHECKSUM_BYTES],
                                   char out[static CHECKSUM_HEX_BYTES]) {
    for (size_t i = 0; i < CHECKSUM_BYTES; i++)
        sprintf(out + 2 * i, "%02x", digest[i]);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads the digits at the beginning of text, which no further one follows. */
static bool read_digest(const char *text, unsigned char out[CHECKSUM_BYTES]) {
    for (size_t i = 0; i < CHECKSUM_BYTES; i++) {
        int high = hex_value(text[2 * i]);
        int low = high >= 0 ? hex_value(text[2 * i + 1]) : -1;
        if (low < 0)
            return false;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return hex_value(text[2 * CHECKSUM_BYTES]) < 0;
}

/* Reads "DIGITS  NAME", or "DIGITS *NAME" of a binary file; NAME may begin with "./". */
static bool line_names(const char *line, const char *name, unsigned char out[CHECKSUM_BYTES]) {
    if (!read_digest(line, out))
        return false;
    const char *rest = line + CHECKSUM_HEX_BYTES - 1;
    if (rest[0] != ' ' || (rest[1] != ' ' && rest[1] != '*'))
        return false;
    rest += 2;
    if (strncmp(rest, "./", 2) == 0)
        rest += 2;
    return strcmp(rest, name) == 0;
}

/* Returns the lines of text one after the other, without their ends; text is cut up. */
static char *next_line(char **text) {
    char *line = *text;
    if (*line == '\0')
        return NULL;
    size_t length = strcspn(line, "\n");
    *text = line + length + (line[length] == '\n');
    line[length] = '\0';
    if (length > 0 && line[length - 1] == '\r')
        line[length - 1] = '\0';
    return line;
}

typedef int checksum_reader(char *text, const char *name, unsigned char out[CHECKSUM_BYTES]);

/* Returns -1 where it makes no sense. */
static int read_own_list(char *text, const char *name, unsigned char out[CHECKSUM_BYTES]) {
    return read_digest(text, out) ? 1 : -1;
}

static int read_shared_list(char *text, const char *name, unsigned char out[CHECKSUM_BYTES]) {
    for (char *line; (line = next_line(&text)) != NULL;)
        if (line_names(line, name, out))
            return 1;
    return 0;
}

/* The etag of a small file is a git hash, of 40 digits. */
static int read_download_record(char *text, const char *name, unsigned char out[CHECKSUM_BYTES]) {
    char *commit = next_line(&text), *etag = next_line(&text);
    return commit != NULL && etag != NULL && read_digest(etag, out);
}

static int try_file(const char *path, const char *name, checksum_reader *read, struct checksum *out,
                    struct error *err) {
    size_t length;
    if (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    char *text = input_file_read_all(path, MAX_LIST_BYTES, &length, err);
    if (text == NULL)
        return -1;
    int found = read(text, name, out->digest);
    free(text);
    snprintf(out->source, sizeof(out->source), "%.270s", path);
    if (found < 0)
        return error_set(err, ERROR_MODEL, "%.400s: does not begin with a SHA-256", path);
    return found;
}

static int try_name(const char *path, struct checksum *out) {
    static const char prefix[] = "sha256-";
    char real[PATH_MAX];
    if (realpath(path, real) == NULL)
        return 0;
    const char *name = strrchr(real, '/') + 1;
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    if (strlen(name) != CHECKSUM_HEX_BYTES - 1 || !read_digest(name, out->digest))
        return 0;
    snprintf(out->source, sizeof(out->source), "the name of the file it links to");
    return 1;
}

int command_verify_checksum_find(const char *path, struct checksum *out, struct error *err) {
    static const struct {
        const char *format; /* of folder, with its slash, and name */
        checksum_reader *read;
    } lists[] = {
        {"%.*s%s.sha256", read_own_list},
        {"%.*sSHA256SUMS", read_shared_list},
        {"%.*s.cache/huggingface/download/%s.metadata", read_download_record},
    };
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    int folder_length = (int)(name - path), found = 0;
    char list[PATH_MAX + 64];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]) && found == 0; i++) {
        snprintf(list, sizeof(list), lists[i].format, folder_length, path, name);
        found = try_file(list, name, lists[i].read, out, err);
    }
    return found != 0 ? found : try_name(path, out);
}

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
    int found = command_verify_checksum_find(file->path, &wanted, &verify->err);
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
        command_verify_checksum_print(digest, is);
        command_verify_checksum_print(wanted.digest, should_be);
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
