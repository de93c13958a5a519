#include "server/client/hub/hub_reference.h"

#include "config/base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_PART_BYTES 255 /* NAME_MAX of Linux' file systems */

static const char form[] = "ORG/NAME[@REVISION][:FILE or quantisation]";

bool hub_reference_is_hex(const char *text, size_t num_digits) {
    return strlen(text) == num_digits && strspn(text, "0123456789abcdef") == num_digits;
}

bool hub_reference_is_commit(const char *text) {
    return hub_reference_is_hex(text, HUB_COMMIT_BYTES - 1);
}

/* --- Addresses of pages and files --- */

/* Returns the length of the beginning that both have, if start is all of it; else 0. */
static size_t match(const char *text, const char *start) {
    size_t length = strlen(start);
    return length > 0 && strncasecmp(text, start, length) == 0 ? length : 0;
}

/* Returns how many bytes at the beginning name a hub; 0: it is written without one. */
static size_t host_length(const char *text) {
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    const char *endpoint = getenv("HF_ENDPOINT");
    size_t scheme = match(text, "https://"), length = 0;
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]) && length == 0; i++)
        length = match(text + scheme, hosts[i]);
    if (length > 0)
        return scheme + length;
    length = endpoint != NULL ? match(text, endpoint) : 0;
    while (length > 0 && text[length - 1] == '/')
        length--;
    return length > 0 && text[length] == '/' ? length + 1 : 0;
}

bool hub_reference_is_address(const char *text) {
    return host_length(text) > 0 || match(text, "https://") > 0 || match(text, "http://") > 0;
}

/* Returns the place after the count-th slash, or NULL. */
static const char *after_slashes(const char *text, int count) {
    for (; text != NULL && count > 0; count--)
        text = (text = strchr(text, '/')) != NULL ? text + 1 : NULL;
    return text;
}

/* Writes what an address names as ORG/NAME[@REVISION][:FILE]; without a kind of page that is known
 * the text stays as it is. Returns false if it does not fit. */
static bool rewrite_address(const char *text, char *out, size_t capacity) {
    size_t length = strcspn(text, "?#");
    while (length > 0 && text[length - 1] == '/')
        length--;
    if (length >= capacity)
        return false;
    snprintf(out, capacity, "%.*s", (int)length, text);
    char *kind = (char *)after_slashes(out, 2), *revision = (char *)after_slashes(out, 3);
    if (kind == NULL || revision == NULL)
        return true;
    bool is_file = match(kind, "resolve/") > 0 || match(kind, "blob/") > 0;
    if (!is_file && match(kind, "tree/") == 0)
        return true;
    size_t revision_length = strcspn(revision, "/");
    const char *file = revision[revision_length] == '/' ? revision + revision_length + 1 : NULL;
    kind[-1] = '@';
    memmove(kind, revision, revision_length);
    if (is_file && file != NULL) {
        kind[revision_length] = ':';
        memmove(kind + revision_length + 1, file, strlen(file) + 1);
    } else {
        kind[revision_length] = '\0';
    }
    return true;
}

/* --- Names --- */

bool hub_reference_is_path(const char *text) {
    struct text all = {text, strlen(text)};
    if (hub_reference_is_address(text))
        return false;
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

static int parse_name(const char *text, struct hub_reference *out, struct error *err) {
    struct hub_reference reference = {.revision = "main"};
    size_t head = strcspn(text, ":"), repository = strcspn(text, "@:");
    if (!copy(text, repository, reference.repository, sizeof(reference.repository)) ||
        !is_repository(reference.repository))
        return refuse(text, "is neither a file or folder here nor the name of a model", err);
    if (text[repository] == '@' && (!copy(text + repository + 1, head - repository - 1,
                                          reference.revision, sizeof(reference.revision)) ||
                                    !is_revision(reference.revision)))
        return refuse(text, "what follows @ is not a branch, tag or commit", err);
    if (text[head] == ':' && (!copy(text + head + 1, strlen(text + head + 1), reference.choice,
                                    sizeof(reference.choice)) ||
                              !hub_reference_is_file_name(reference.choice)))
        return refuse(text, "what follows : is neither a file nor a quantisation", err);
    *out = reference;
    return 0;
}

int hub_reference_parse(const char *text, struct hub_reference *out, struct error *err) {
    char name[HUB_REPOSITORY_BYTES + HUB_REVISION_BYTES + HUB_FILE_NAME_BYTES];
    size_t host = host_length(text);
    if (host == 0 && hub_reference_is_address(text))
        return error_set(err, ERROR_CONFIG,
                         "model '%.200s': is not an address of the hub; HF_ENDPOINT names another "
                         "hub than https://huggingface.co",
                         text);
    if (host > 0 && !rewrite_address(text + host, name, sizeof(name)))
        return refuse(text, "the address is too long", err);
    return parse_name(host > 0 ? name : text, out, err);
}
