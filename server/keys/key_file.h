/* A file of API keys, in one of two forms.
 *
 * Plain: one key per line; blanks around it are ignored. Empty lines and those that begin with #
 * are skipped. Such keys have no names and no limits.
 *
 * YAML: the first line that is neither empty nor a comment begins with the word `keys:` or `---`. A
 * list of maps with the fields of key_entry.h follows, each with the hash of its key:
 *
 *     keys:
 *       - name: team-a
 *         hash: sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
 *         weight: 9
 *         requests-per-minute: 600 */
#ifndef QUIRE_SERVER_KEYS_KEY_FILE_H
#define QUIRE_SERVER_KEYS_KEY_FILE_H

#include "config/base/error.h"
#include "server/keys/key_entry.h"

#include <stdbool.h>

#define KEY_FILE_MAX_BYTES ((size_t)1 << 20)
#define KEY_FILE_MAX_KEYS 1024
#define KEY_FILE_MAX_KEY_BYTES 255

struct key_file {
    int num_keys;
    struct key_entry *keys; /* owned: [num_keys] */
    bool
        is_exposed; /* others than owner and group may read it, or others than the owner write it */
};

/* Reads the file, and leaves nothing of its text in memory. Fails with ERROR_CONFIG, naming the
 * file and the line but never a key, when it cannot be read, is larger than the bounds above,
 * contains no key at all (that would let everybody in), or when a plain key contains anything
 * except visible ASCII characters, which clients cannot send reliably. In YAML also for an unknown
 * field, an invalid value, and a duplicate name, hash or field. */
int key_file_read(const char *path, struct key_file *out, struct error *err);
/* Does the same with the text of a file, which has a NUL after its length and is overwritten. path
 * is for messages. */
int key_file_parse(const char *path, char *text, size_t length, struct key_file *out,
                   struct error *err);
/* Accepts a zeroed one. */
void key_file_finish(struct key_file *file);

#endif
