/* A file of API keys: one in a line, without the blanks around it. Empty lines and those that begin
 * with # are skipped. */
#ifndef QUIRE_SERVER_KEY_FILE_H
#define QUIRE_SERVER_KEY_FILE_H

#include "config/error.h"

#include <stdbool.h>
#include <stddef.h>

#define KEY_FILE_MAX_BYTES ((size_t)1 << 20)
#define KEY_FILE_MAX_KEYS 1024
#define KEY_FILE_MAX_KEY_BYTES 255

struct key_file {
    char *text; /* owned; the keys lie in it */
    size_t text_bytes;
    int num_keys;
    char *keys[KEY_FILE_MAX_KEYS];
    bool
        is_exposed; /* others than owner and group may read it, or others than the owner write it */
};

/* Reads the file. ERROR_CONFIG, with the file and the line but never a key, when it cannot be read,
 * is larger than the bounds above, has no key at all (that would let everybody in), or a key has
 * other characters than visible ASCII ones: no client could send them, or not reliably. */
int key_file_read(const char *path, struct key_file *out, struct error *err);
/* Overwrites and frees the text. Accepts a zeroed one. */
void key_file_finish(struct key_file *file);

#endif
