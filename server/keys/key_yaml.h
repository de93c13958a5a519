/* The YAML form of a file of API keys (key_file.h). */
#ifndef QUIRE_SERVER_KEYS_KEY_YAML_H
#define QUIRE_SERVER_KEYS_KEY_YAML_H

#include "server/keys/key_file.h"

/* Adds the keys of the text to file->keys, which has room for KEY_FILE_MAX_KEYS. ERROR_CONFIG as
 * key_file_read; what was added before an error stays the caller's. */
int key_yaml_read(const char *path, const char *text, size_t length, struct key_file *file,
                  struct error *err);

#endif
