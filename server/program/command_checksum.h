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
#ifndef QUIRE_SERVER_COMMAND_CHECKSUM_H
#define QUIRE_SERVER_COMMAND_CHECKSUM_H

#include "config/base/error.h"

#define CHECKSUM_BYTES 32
#define CHECKSUM_HEX_BYTES (2 * CHECKSUM_BYTES + 1)

struct checksum {
    unsigned char digest[CHECKSUM_BYTES];
    char source[280]; /* the file that gives it, for people */
};

/* Returns 1 and *out, 0 where none is known, or -1 (ERROR_MODEL, ERROR_IO, ERROR_MEMORY) when a
 * file that should give it cannot be read or makes no sense. */
int command_checksum_find(const char *path, struct checksum *out, struct error *err);

/* Writes the digest in lower-case hexadecimal. */
void command_checksum_print(const unsigned char digest[static CHECKSUM_BYTES],
                            char out[static CHECKSUM_HEX_BYTES]);

#endif
