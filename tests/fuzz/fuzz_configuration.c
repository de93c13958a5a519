/* Any bytes as a file of options (--config), of one model and of several, as the words of a command
 * line, one in a line, and as a file of API keys. What is refused is said in printable lines, of a
 * command line in few; keys that are taken have names and hashes of their own and no value beyond
 * its bounds. */
#include "config/model_options.h"
#include "config/options.h"
#include "server/keys/key_file.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void require_line(const struct error *err) {
    size_t length = strlen(err->message);
    require(err->code == ERROR_CONFIG || err->code == ERROR_MEMORY);
    require(length > 0 && strcspn(err->message, "\n\r\t\x1b") == length);
}

static void try_options(char *path) {
    char name[] = "serve", flag[] = "--config";
    char *const argv[] = {name, flag, path};
    char *const environment[] = {NULL};
    struct options options = {0};
    struct error err = {0};
    if (options_load(3, argv, environment, &options, &err) != 0)
        require_line(&err);
    else
        require(options.model != NULL);
    options_finish(&options);
}

/* Names are as the file's reader allows, and none is that of two models. */
static void require_models(const struct model_list *list) {
    require(list->count >= 1 && list->count <= MODEL_OPTIONS_MAX);
    for (size_t i = 0; i < list->count; i++) {
        const struct model_options *model = &list->models[i];
        require(model->options.model != NULL && model->options.served_model_names.count <= 64);
        for (size_t k = 0; k < i; k++)
            require(model->name[0] == '\0' || strcmp(model->name, list->models[k].name) != 0);
    }
}

static void try_models(char *path) {
    char name[] = "serve", flag[] = "--config";
    char *const argv[] = {name, flag, path};
    char *const environment[] = {NULL};
    struct model_list list = {0};
    struct error err = {0};
    if (model_options_load(3, argv, environment, &list, &err) != 0 ||
        model_options_complete(&list, &err) != 0)
        require_line(&err);
    else
        require_models(&list);
    model_options_finish(&list);
}

#define MAX_WORDS 64

static void take_line(void *context, const char *line) {
    int *num_lines = context;
    *num_lines += 1;
    require(line[0] != '\0' && strcspn(line, "\n\r\t\x1b") == strlen(line));
}

static void try_command_line(const uint8_t *data, size_t bytes) {
    char *words[MAX_WORDS], *text = calloc(bytes + 1, 1);
    struct error first = {.code = ERROR_CONFIG, .message = "first"};
    int count = 0, num_lines = 0;
    require(text != NULL);
    memcpy(text, data, bytes);
    for (char *rest = text; rest != NULL && count < MAX_WORDS;)
        words[count++] = strsep(&rest, "\n");
    options_list_mistakes(count, words, &first, take_line, &num_lines);
    require(num_lines >= 1 && num_lines <= 34);
    options_hide_secrets(count, words);
    free(text);
}

static void require_entry(const struct key_entry *entry) {
    require(entry->weight >= 1 && entry->weight <= 1000 && entry->requests_per_minute >= 0 &&
            entry->tokens_per_minute >= 0 && entry->max_concurrency >= 0 &&
            entry->min_priority <= entry->max_priority && entry->num_models <= KEY_MAX_MODELS);
}

static void try_keys(const char *path) {
    struct key_file file = {0};
    struct error err = {0};
    if (key_file_read(path, &file, &err) != 0)
        require_line(&err);
    else
        require(file.num_keys >= 1 && file.num_keys <= KEY_FILE_MAX_KEYS);
    for (int i = 0; i < file.num_keys; i++) {
        require_entry(&file.keys[i]);
        for (int k = 0; k < i && i < 64 && file.keys[i].name[0] != '\0'; k++)
            require(strcmp(file.keys[i].name, file.keys[k].name) != 0);
    }
    key_file_finish(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char path[32];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    try_options(path);
    try_models(path);
    try_command_line(data, bytes);
    try_keys(path);
    close(fd);
    return 0;
}
