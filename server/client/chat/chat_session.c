#include "server/client/chat/chat_session.h"

#include "config/base/check.h"
#include "models/config/sampling_fields.h"
#include "config/json/json_write.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The server checks once more what these mean for it. */
static const struct setting {
    const char *name;
    double minimum, maximum;
    bool is_whole;
} settings[] = {
#define SETTING(name, type, min, least, max, gguf_key)                                             \
    {#name, min, max, SAMPLING_FIELD_##type == SAMPLING_FIELD_INT32},
    FOR_SAMPLING_FIELDS(SETTING)
#undef SETTING
        {"max_tokens", 1, 1000000000, true},
    {"seed", 0, 9007199254740991, true},
};
#define NUM_SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))
_Static_assert(NUM_SETTINGS <= CHAT_SESSION_MAX_SETTINGS, "room for all");

void chat_session_add(struct chat_session *session, bool is_answer, const char *text,
                      size_t length) {
    if (session->num_messages == session->capacity) {
        int capacity = session->capacity > 0 ? 2 * session->capacity : 16;
        struct chat_message *grown =
            reallocarray(session->messages, (size_t)capacity, sizeof(*grown));
        CHECK(grown != NULL);
        session->messages = grown;
        session->capacity = capacity;
    }
    struct chat_message *message = &session->messages[session->num_messages++];
    message->is_answer = is_answer;
    message->text = strndup(text, length);
    CHECK(message->text != NULL);
}

void chat_session_drop(struct chat_session *session) {
    if (session->num_messages > 0)
        free(session->messages[--session->num_messages].text);
}

void chat_session_clear(struct chat_session *session) {
    while (session->num_messages > 0)
        chat_session_drop(session);
}

void chat_session_set_system(struct chat_session *session, const char *text) {
    free(session->system);
    session->system = NULL;
    if (text == NULL || text[0] == '\0')
        return;
    session->system = strdup(text);
    CHECK(session->system != NULL);
}

void chat_session_finish(struct chat_session *session) {
    chat_session_clear(session);
    free(session->messages);
    free(session->system);
    *session = (struct chat_session){0};
}

static int refuse_name(const char *name, struct error *err) {
    char known[512] = "";
    for (int i = 0; i < NUM_SETTINGS; i++)
        strcat(strcat(known, i > 0 ? ", " : ""), settings[i].name);
    return error_set(err, ERROR_CONFIG, "there is no setting %.40s; known: %s", name, known);
}

int chat_session_set(struct chat_session *session, const char *name, const char *value,
                     struct error *err) {
    int i = 0;
    while (i < NUM_SETTINGS && strcmp(settings[i].name, name) != 0)
        i++;
    if (i == NUM_SETTINGS)
        return refuse_name(name, err);
    const struct setting *setting = &settings[i];
    char *end;
    double number = strtod(value, &end);
    bool is_default = strcmp(value, "default") == 0;
    bool is_number = end != value && *end == '\0' && isfinite(number);
    if (!is_default && (!is_number || number < setting->minimum || number > setting->maximum ||
                        (setting->is_whole && number != floor(number))))
        return error_set(err, ERROR_CONFIG, "%s must be %s of %.16g to %.16g or default, not %.40s",
                         name, setting->is_whole ? "a whole number" : "a number", setting->minimum,
                         setting->maximum, value);
    session->is_set[i] = !is_default;
    session->settings[i] = number;
    return 0;
}

static void write_number(double number, struct byte_buffer *out) {
    char text[40];
    snprintf(text, sizeof(text), "%.16g", number);
    byte_buffer_append_text(out, text);
}

void chat_session_show_settings(const struct chat_session *session, struct byte_buffer *out) {
    for (int i = 0; i < NUM_SETTINGS; i++) {
        byte_buffer_printf(out, "%-19s", settings[i].name);
        if (session->is_set[i])
            write_number(session->settings[i], out);
        else
            byte_buffer_append_text(out, "default");
        byte_buffer_append_text(out, "\n");
    }
}

static void write_message(const char *role, const char *text, struct byte_buffer *out) {
    json_write_begin_object(out);
    json_write_text_member(out, "role", role);
    json_write_text_member(out, "content", text);
    json_write_end_object(out);
}

/* "model" and "messages" of an object. */
static void write_conversation(const struct chat_session *session, const char *model,
                               struct byte_buffer *out) {
    json_write_text_member(out, "model", model);
    json_write_key(out, "messages");
    json_write_begin_array(out);
    if (session->system != NULL)
        write_message("system", session->system, out);
    for (int i = 0; i < session->num_messages; i++)
        write_message(session->messages[i].is_answer ? "assistant" : "user",
                      session->messages[i].text, out);
    json_write_end_array(out);
}

void chat_session_write_body(const struct chat_session *session, const char *model,
                             struct byte_buffer *out) {
    json_write_begin_object(out);
    write_conversation(session, model, out);
    for (int i = 0; i < NUM_SETTINGS; i++) {
        char text[40];
        if (!session->is_set[i])
            continue;
        snprintf(text, sizeof(text), "%.16g", session->settings[i]);
        json_write_raw_member(out, settings[i].name, text);
    }
    json_write_raw_member(out, "stream", "true");
    json_write_raw_member(out, "stream_options", "{\"include_usage\":true}");
    json_write_end_object(out);
    CHECK(!out->failed);
}

int chat_session_save(const struct chat_session *session, const char *model, const char *path,
                      struct error *err) {
    struct byte_buffer text = {0};
    json_write_begin_object(&text);
    write_conversation(session, model, &text);
    json_write_end_object(&text);
    byte_buffer_append_text(&text, "\n");
    CHECK(!text.failed);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool is_written = fd >= 0 && write(fd, text.data, text.length) == (ssize_t)text.length;
    int number = errno;
    if (fd >= 0)
        is_written = close(fd) == 0 && is_written;
    byte_buffer_finish(&text);
    return is_written ? 0 : error_set(err, ERROR_IO, "%.200s: %s", path, strerror(number));
}
