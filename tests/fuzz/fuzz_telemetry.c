/* Any bytes as what a server or a client says to those that watch: the first byte chooses which. */
#include "server/http_client.h"
#include "server/top_view.h"
#include "server/trace_context.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

static void read_trace(const char *text) {
    struct trace_context context;
    trace_context_read(text, &context);
    bool is_good = context.trace_id[0] != '\0';
    require(strlen(context.trace_id) == (is_good ? TRACE_ID_DIGITS : 0));
    require(strlen(context.parent_id) == (is_good ? SPAN_ID_DIGITS : 0));
    require(is_good || !context.is_sampled);
}

static void read_url(const char *text) {
    struct http_url url;
    struct error err;
    if (http_url_parse(text, &url, &err) != 0)
        return;
    require(strncmp(url.origin, "http://", 7) == 0 || strncmp(url.origin, "https://", 8) == 0);
    require(url.path[0] == '\0' || url.path[0] == '/');
    const char *authority = strstr(url.origin, "://") + 3;
    require(authority[0] != '\0' && authority[strcspn(authority, "/?#@")] == '\0');
}

/* Half of it is the earlier answer. A terminal must not obey what a server says. */
static void show(char *text, size_t length) {
    struct byte_buffer view = {0};
    char *earlier = strdup(text + length / 2);
    require(earlier != NULL);
    top_view_write(text, earlier, 2, &view);
    top_view_write(text, NULL, 0, &view);
    for (size_t i = 0; i < view.length; i++)
        require(view.data[i] == '\n' || isprint((unsigned char)view.data[i]));
    byte_buffer_finish(&view);
    free(earlier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    if (bytes == 0)
        return 0;
    char *text = malloc(bytes);
    require(text != NULL);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    switch (data[0]) {
    case 't':
        read_trace(text);
        break;
    case 'u':
        read_url(text);
        break;
    default:
        show(text, bytes - 1);
    }
    free(text);
    return 0;
}
