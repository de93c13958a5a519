/* Any bytes as what a server or a client says to those that watch: the first byte chooses which. */
#include "server/client/chat/chat_terminal.h"
#include "server/client/chat/chat_client.h"
#include "server/net/http_client.h"
#include "server/client/top_view.h"
#include "server/telemetry/trace.h"

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

static void on_event(void *context, const struct completion_event *event) {
    size_t *num_bytes = context;
    require(event->prompt_tokens >= -1 && event->completion_tokens >= -1);
    require(utf8_valid_prefix(event->text.data, event->text.length) == event->text.length);
    *num_bytes += event->text.length + event->reasoning.length;
}

/* A stream in one piece says what it says byte by byte. */
static void read_stream(const char *text, size_t length) {
    size_t num_bytes[2] = {0};
    int status[2] = {0};
    for (int i = 0; i < 2; i++) {
        struct error err;
        struct completion_stream stream = {.on_event = on_event, .context = &num_bytes[i]};
        size_t piece = i == 0 ? length : 1;
        for (size_t at = 0; at < length && status[i] == 0; at += piece)
            status[i] = completion_stream_take(&stream, text + at, piece, &err);
        completion_stream_finish(&stream);
    }
    require(status[0] == status[1] && num_bytes[0] == num_bytes[1]);
    struct completion_refusal refusal;
    struct byte_buffer body = {0};
    byte_buffer_append(&body, text, length);
    completion_refusal_read(&body, &refusal);
    for (const char *c = refusal.message; *c != '\0'; c++)
        require((unsigned char)*c >= 0x20 && *c != 0x7f);
    byte_buffer_finish(&body);
}

/* Of the controls only the ends of lines and tabs are left of what a model wrote. */
static void show_text(const char *text, size_t length) {
    struct terminal_text state = {0};
    struct byte_buffer out = {0};
    terminal_text_write(&state, text, length, &out);
    terminal_text_end(&state, &out);
    require(out.length == 0 || utf8_valid_prefix(out.data, out.length) == out.length);
    for (size_t i = 0; i < out.length; i++) {
        unsigned char byte = (unsigned char)out.data[i];
        require((byte >= 0x20 && byte != 0x7f) || byte == '\n' || byte == '\t');
        require(byte != 0xc2 || (unsigned char)out.data[i + 1] >= 0xa0);
    }
    byte_buffer_finish(&out);
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
    case 's':
        read_stream(text, bytes - 1);
        break;
    case 'x':
        show_text(text, bytes - 1);
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
