/* Checks the model's files against their SHA-256, where one is known (--verify-weights;
 * below). Runs in a thread of its own while the weights load, so that both read a file
 * from the disk but once; the files that are hashed are those that were opened, whatever their
 * names stand for now. */
#ifndef QUIRE_SERVER_COMMAND_VERIFY_H
#define QUIRE_SERVER_COMMAND_VERIFY_H

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
    int num_verified;    /* files that have the SHA-256 that is known */
    char source[280];    /* where the first one's SHA-256 was found */
    const char *unknown; /* the first file of which none is known; NULL: all are */
};

/* Starts the thread. The file outlives it. ERROR_MEMORY when there is no thread to be had. */
int command_verify_start(struct command_verify *verify, const struct tensor_file *file,
                         struct error *err);
/* Waits until all files have been read. ERROR_MODEL names one that has another SHA-256. */
int command_verify_wait(struct command_verify *verify, struct error *err);
/* Describes the result in one line, after command_verify_wait succeeded. */
void command_verify_describe(const struct command_verify *verify, char *out, size_t capacity);
/* Stops early. Accepts a zeroed one. */
void command_verify_finish(struct command_verify *verify);

/* Finds where a file's SHA-256 is written down. Model formats have no field for it (GGUF and
 * safetensors know none for the whole file), but what distributes models writes it beside the file:
 *
 *   FILE.sha256, SHA256SUMS   beside the file, as sha256sum(1) writes them
 *   the file's own name       once links are followed: Hugging Face's cache keeps a large file as
 *                             blobs/HEX, Ollama as blobs/sha256-HEX
 *   .cache/huggingface/download/FILE.metadata   beside the file, which `hf download --local-dir`
 *                             leaves: commit, etag (of a large file its SHA-256), time
 *
 * The first of these that gives one counts. */

#define CHECKSUM_BYTES 32
#define CHECKSUM_HEX_BYTES (2 * CHECKSUM_BYTES + 1)

struct checksum {
    unsigned char digest[CHECKSUM_BYTES];
    char source[280]; /* the file that gives it, for people */
};

/* Returns 1 and *out, 0 where none is known, or -1 (ERROR_MODEL, ERROR_IO, ERROR_MEMORY) when a
 * file that should give it cannot be read or makes no sense. */
int command_verify_checksum_find(const char *path, struct checksum *out, struct error *err);

/* Writes the digest in lower-case hexadecimal. */
void command_verify_checksum_print(const unsigned char digest[static CHECKSUM_BYTES],
                                   char out[static CHECKSUM_HEX_BYTES]);

#endif
