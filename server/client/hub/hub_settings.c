#include "server/client/hub/hub_settings.h"

#include "config/base/byte_buffer.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define DEFAULT_ENDPOINT "https://huggingface.co"
#define DEFAULT_TIMEOUT_S 10
#define MAX_TIMEOUT_S 86400

/* Returns the first of the variables that is set to something; NULL: none. */
static const char *find_variable(const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        if (value != NULL && value[0] != '\0')
            return value;
    }
    return NULL;
}

#define FIND_VARIABLE(...)                                                                         \
    find_variable((const char *const[]){__VA_ARGS__},                                              \
                  (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

static bool is_true(const char *value) {
    static const char *const words[] = {"1", "ON", "YES", "TRUE"};
    for (size_t i = 0; value != NULL && i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(value, words[i]) == 0)
            return true;
    return false;
}

/* --- Paths --- */

static const char *home(void) {
    const char *path = FIND_VARIABLE("HOME");
    const struct passwd *user = path == NULL ? getpwuid(getuid()) : NULL;
    if (user != NULL)
        path = user->pw_dir;
    return path != NULL ? path : "/";
}

/* Appends the value of the variable at text, which begins after a '$'; returns the number of
 * characters of its name. A '$' before no name, or before one that is not set, stays, as in
 * Python's os.path.expandvars. */
static size_t append_variable(const char *text, struct byte_buffer *out) {
    char name[128];
    bool is_braced = text[0] == '{';
    const char *begin = text + is_braced;
    size_t length = 0;
    while (isalnum((unsigned char)begin[length]) || begin[length] == '_')
        length++;
    if (length == 0 || length >= sizeof(name) || (is_braced && begin[length] != '}')) {
        byte_buffer_append_text(out, "$");
        return 0;
    }
    snprintf(name, sizeof(name), "%.*s", (int)length, begin);
    const char *value = getenv(name);
    size_t taken = length + (is_braced ? 2 : 0);
    if (value == NULL) {
        byte_buffer_append_text(out, "$");
        byte_buffer_append(out, text, taken);
    } else {
        byte_buffer_append_text(out, value);
    }
    return taken;
}

static int expand(const char *variable, const char *path, char out[static PATH_MAX],
                  struct error *err) {
    struct byte_buffer text = {.max_length = PATH_MAX};
    if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
        byte_buffer_append_text(&text, home());
        path++;
    }
    while (*path != '\0') {
        size_t plain = strcspn(path, "$");
        byte_buffer_append(&text, path, plain);
        path += plain;
        if (*path == '$')
            path += 1 + append_variable(path + 1, &text);
    }
    byte_buffer_append(&text, "", 1);
    bool fits = !text.failed;
    if (fits)
        memcpy(out, text.data, text.length);
    byte_buffer_finish(&text);
    return fits ? 0
                : error_set(err, ERROR_CONFIG, "%s: names a path of more than %d bytes", variable,
                            PATH_MAX - 1);
}

static int join(const char *folder, const char *name, char out[static PATH_MAX],
                struct error *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX)
        return error_set(err, ERROR_CONFIG, "HF_HOME: names a path of more than %d bytes",
                         PATH_MAX - 1);
    return 0;
}

static int read_home(char out[static PATH_MAX], struct error *err) {
    const char *given = FIND_VARIABLE("HF_HOME"), *caches = FIND_VARIABLE("XDG_CACHE_HOME");
    char folder[PATH_MAX];
    if (given != NULL)
        return expand("HF_HOME", given, out, err);
    if (expand("XDG_CACHE_HOME", caches != NULL ? caches : "~/.cache", folder, err) != 0)
        return -1;
    return join(folder, "huggingface", out, err);
}

/* --- The token --- */

/* Copies what is between white space. Returns -1 where something could not stand in a header. */
static int take_token(const char *source, const char *text, size_t length, char *out,
                      struct error *err) {
    while (length > 0 && isspace((unsigned char)text[0])) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1]))
        length--;
    bool is_plain = length < HUB_TOKEN_BYTES;
    for (size_t i = 0; i < length && is_plain; i++)
        is_plain = text[i] > ' ' && text[i] < 0x7f;
    if (!is_plain)
        return error_set(err, ERROR_CONFIG,
                         "%.300s: is not a token: at most %d letters, digits and signs", source,
                         HUB_TOKEN_BYTES - 1);
    memcpy(out, text, length);
    out[length] = '\0';
    return 0;
}

static int read_token_file(const char *hf_home, char *out, struct error *err) {
    const char *given = FIND_VARIABLE("HF_TOKEN_PATH");
    char path[PATH_MAX], text[2 * HUB_TOKEN_BYTES];
    if ((given != NULL ? expand("HF_TOKEN_PATH", given, path, err)
                       : join(hf_home, "token", path, err)) != 0)
        return -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof(text));
    int failure = errno;
    if (fd >= 0)
        close(fd);
    if (count < 0)
        return error_set(err, ERROR_IO, "%.300s: the token cannot be read: %s", path,
                         strerror(failure));
    int status = take_token(path, text, (size_t)count, out, err);
    explicit_bzero(text, sizeof(text));
    return status;
}

static int read_token(const char *hf_home, char *out, struct error *err) {
    const char *given = FIND_VARIABLE("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN");
    if (is_true(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")))
        return 0;
    return given != NULL ? take_token("HF_TOKEN", given, strlen(given), out, err)
                         : read_token_file(hf_home, out, err);
}

/* --- The rest --- */

static int read_endpoint(char *out, struct error *err) {
    const char *given = FIND_VARIABLE("HF_ENDPOINT");
    const char *url = given != NULL ? given : DEFAULT_ENDPOINT;
    size_t length = strlen(url);
    while (length > 0 && url[length - 1] == '/')
        length--;
    bool is_http = strncasecmp(url, "http://", 7) == 0 || strncasecmp(url, "https://", 8) == 0;
    for (size_t i = 0; i < length && is_http; i++)
        is_http = url[i] > ' ' && url[i] < 0x7f && strchr("?#@", url[i]) == NULL;
    if (!is_http || length >= HUB_ENDPOINT_BYTES)
        return error_set(err, ERROR_CONFIG,
                         "HF_ENDPOINT: is not a valid hub URL: https://HOST[:PORT][/PATH] or the "
                         "same with http is allowed");
    snprintf(out, HUB_ENDPOINT_BYTES, "%.*s", (int)length, url);
    return 0;
}

static int read_seconds(const char *name, long *out, struct error *err) {
    const char *given = FIND_VARIABLE(name);
    char *end;
    *out = DEFAULT_TIMEOUT_S;
    if (given == NULL)
        return 0;
    *out = strtol(given, &end, 10);
    if (*end != '\0' || *out < 0 || *out > MAX_TIMEOUT_S)
        return error_set(err, ERROR_CONFIG, "%s %.40s: a number of seconds from 1 to %d is allowed",
                         name, given, MAX_TIMEOUT_S);
    if (*out == 0)
        *out = DEFAULT_TIMEOUT_S;
    return 0;
}

static int read_ca_file(char out[static PATH_MAX], struct error *err) {
    const char *given = FIND_VARIABLE("SSL_CERT_FILE");
    if (given == NULL)
        return 0;
    if (strlen(given) >= PATH_MAX || access(given, R_OK) != 0)
        return error_set(err, ERROR_CONFIG, "SSL_CERT_FILE %.300s: %s", given,
                         strlen(given) >= PATH_MAX ? "too long" : strerror(errno));
    snprintf(out, PATH_MAX, "%s", given);
    return 0;
}

int hub_settings_read(struct hub_settings *out, struct error *err) {
    char hf_home[PATH_MAX];
    *out = (struct hub_settings){
        .is_offline = is_true(FIND_VARIABLE("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))};
    const char *cache = FIND_VARIABLE("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE");
    if (read_home(hf_home, err) != 0 ||
        (cache != NULL ? expand("HF_HUB_CACHE", cache, out->cache, err)
                       : join(hf_home, "hub", out->cache, err)) != 0 ||
        read_endpoint(out->endpoint, err) != 0 || read_ca_file(out->ca_file, err) != 0 ||
        read_seconds("HF_HUB_ETAG_TIMEOUT", &out->connect_s, err) != 0 ||
        read_seconds("HF_HUB_DOWNLOAD_TIMEOUT", &out->stall_s, err) != 0)
        return -1;
    return read_token(hf_home, out->token, err);
}
