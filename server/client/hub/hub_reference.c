#include "server/client/hub/hub_reference.h"

#include "config/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MAX_PART_BYTES 255 /* NAME_MAX of Linux' file systems */

static const char form[] = "ORG/NAME[@REVISION][:FILE or quantisation]";

bool hub_reference_is_hex(const char *text, size_t num_digits) {
    return strlen(text) == num_digits && strspn(text, "0123456789abcdef") == num_digits;
}

bool hub_reference_is_commit(const char *text) {
    return hub_reference_is_hex(text, HUB_COMMIT_BYTES - 1);
}

bool hub_reference_is_path(const char *text) {
    struct text all = {text, strlen(text)};
    return text[0] == '/' || text[0] == '.' || text[0] == '~' || text_ends_with(all, "/") ||
           (text_ends_with(all, ".gguf") && strchr(text, ':') == NULL);
}

/* Checks the parts between slashes. */
static bool has_plain_parts(const char *name) {
    for (const char *part = name;;) {
        size_t length = strcspn(part, "/");
        bool is_dots = (length == 1 || length == 2) && strncmp(part, "..", length) == 0;
        if (length == 0 || length > MAX_PART_BYTES || is_dots)
            return false;
        if (part[length] == '\0')
            return true;
        part += length + 1;
    }
}

bool hub_reference_is_file_name(const char *name) {
    for (const char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    return strlen(name) < HUB_FILE_NAME_BYTES && has_plain_parts(name);
}

static bool is_word(const char *begin, size_t length, const char *also) {
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)begin[i]) && strchr(also, begin[i]) == NULL)
            return false;
    return length > 0;
}

/* The rules of huggingface_hub, utils/_validators.py, for either half of ORG/NAME. */
static bool is_half(const char *begin, size_t length) {
    return is_word(begin, length, "-_.") && strchr("-.", begin[0]) == NULL &&
           strchr("-.", begin[length - 1]) == NULL;
}

static bool is_repository(const char *text) {
    const char *slash = strchr(text, '/');
    struct text all = {text, strlen(text)};
    return slash != NULL && is_half(text, (size_t)(slash - text)) &&
           is_half(slash + 1, strlen(slash + 1)) && strstr(text, "--") == NULL &&
           strstr(text, "..") == NULL && !text_ends_with(all, ".git");
}

static bool is_revision(const char *text) {
    return is_word(text, strlen(text), "-_./+") && has_plain_parts(text);
}

static int refuse(const char *text, const char *what, struct error *err) {
    return error_set(err, ERROR_CONFIG, "model '%.200s': %s; a model of the hub is written %s",
                     text, what, form);
}

/* Copies a part that fits. */
static bool copy(const char *begin, size_t length, char *out, size_t capacity) {
    if (length >= capacity)
        return false;
    memcpy(out, begin, length);
    out[length] = '\0';
    return true;
}

int hub_reference_parse(const char *text, struct hub_reference *out, struct error *err) {
    struct hub_reference reference = {.revision = "main"};
    size_t head = strcspn(text, ":"), repository = strcspn(text, "@:");
    if (!copy(text, repository, reference.repository, sizeof(reference.repository)) ||
        !is_repository(reference.repository))
        return refuse(text, "is no file or folder here and no name of a model", err);
    if (text[repository] == '@' && (!copy(text + repository + 1, head - repository - 1,
                                          reference.revision, sizeof(reference.revision)) ||
                                    !is_revision(reference.revision)))
        return refuse(text, "what follows @ is no branch, tag or commit", err);
    if (text[head] == ':' && (!copy(text + head + 1, strlen(text + head + 1), reference.choice,
                                    sizeof(reference.choice)) ||
                              !hub_reference_is_file_name(reference.choice)))
        return refuse(text, "what follows : is no file and no quantisation", err);
    *out = reference;
    return 0;
}
