/* Checks the model's files against their SHA-256, if known (--verify-weights; below). Runs on
 * another thread while the weights load, so that a file is read from disk only once. It hashes the
 * opened files, even if their names now refer to others. */
#ifndef QUIRE_SERVER_PROGRAM_COMMAND_VERIFY_H
#define QUIRE_SERVER_PROGRAM_COMMAND_VERIFY_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct command_verify {
    const struct tensor_file *file;
    pthread_t thread;
    bool is_running;
    atomic_bool is_cancelled;
    int status;
    struct error err;
    int num_verified;    /* files with the known SHA-256 */
    char source[280];    /* where the SHA-256 of the first one was found */
    const char *unknown; /* the first file without a known SHA-256; NULL: all have one */
};

/* Starts the thread. The file outlives it. Fails with ERROR_MEMORY when no thread can be
 * created. */
int command_verify_start(struct command_verify *verify, const struct tensor_file *file,
                         struct error *err);
/* Waits until all files have been read. ERROR_MODEL names a file with a different SHA-256. */
int command_verify_wait(struct command_verify *verify, struct error *err);
/* Describes the result in one line, after command_verify_wait succeeded. */
void command_verify_describe(const struct command_verify *verify, char *out, size_t capacity);
/* Stops early. Accepts a zeroed one. */
void command_verify_finish(struct command_verify *verify);

/* Finds the recorded SHA-256 of a file. Model formats have no field for it (GGUF and safetensors
 * have none for the whole file), but tools that distribute models write it next to the file:
 *
 *   FILE.sha256, SHA256SUMS next to the file, as written by sha256sum(1) the file's own name once
 *   links are followed: Hugging Face's cache keeps a large file as
 *                             blobs/HEX, Ollama as blobs/sha256-HEX
 *   .cache/huggingface/download/FILE.metadata next to the file, written by `hf download
 *   --local-dir`: commit, etag (of a large file its SHA-256), time
 *
 * The first one found counts. */

#define CHECKSUM_BYTES 32
#define CHECKSUM_HEX_BYTES (2 * CHECKSUM_BYTES + 1)

struct checksum {
    unsigned char digest[CHECKSUM_BYTES];
    char source[280]; /* the file that contains it, for messages */
};

/* Returns 1 with *out, 0 if none is known, or -1 (ERROR_MODEL, ERROR_IO, ERROR_MEMORY) when a file
 * that should contain it cannot be read or is invalid. */
int command_verify_checksum_find(const char *path, struct checksum *out, struct error *err);

/* Writes the digest in lower-case hexadecimal. */
void command_verify_checksum_print(const unsigned char digest[static CHECKSUM_BYTES],
                                   char out[static CHECKSUM_HEX_BYTES]);

#endif
