/* Any bytes as a file of API keys. Whatever is taken keeps to the bounds of key_entry.h; whatever
 * is refused leaves nothing behind, and the message is one line of printable characters. */
#include "server/keys/key_file.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void check_entry(const struct key_entry *entry) {
    require(strlen(entry->name) < KEY_NAME_BYTES);
    require(entry->weight >= 1 && entry->weight <= 1000);
    require(entry->requests_per_minute >= 0 && entry->tokens_per_minute >= 0);
    require(entry->min_priority <= entry->max_priority);
    require(entry->min_priority >= INT32_MIN && entry->max_priority <= INT32_MAX);
    require(entry->num_models >= 0 && entry->num_models <= KEY_MAX_MODELS);
    for (int i = 0; i < entry->num_models; i++)
        require(strlen(entry->models[i]) >= 1 && strlen(entry->models[i]) <= KEY_MAX_MODEL_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct key_file file = {0};
    struct error err = {0};
    char *text = malloc(bytes + 1);
    require(text != NULL && bytes <= KEY_FILE_MAX_BYTES);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (key_file_parse("keys", text, bytes, &file, &err) == 0) {
        require(file.num_keys >= 1 && file.num_keys <= KEY_FILE_MAX_KEYS);
        for (int i = 0; i < file.num_keys; i++)
            check_entry(&file.keys[i]);
        key_file_finish(&file);
    } else {
        require(file.keys == NULL && err.code == ERROR_CONFIG);
        for (const char *c = err.message; *c != '\0'; c++)
            require(isprint((unsigned char)*c));
    }
    for (size_t i = 0; i < bytes; i++)
        require(text[i] == '\0'); /* no key stays in memory */
    free(text);
    return 0;
}
