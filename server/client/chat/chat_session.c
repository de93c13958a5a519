#include "server/client/chat/chat_session.h"

#include "config/base/check.h"
#include "config/base/clock.h"
#include "config/json/json_write.h"
#include "models/config/sampling_fields.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- What was said, and how to answer --- */

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
    return error_set(err, ERROR_CONFIG, "unknown setting %.40s; the settings are %s", name, known);
}

static int find_setting(const char *name) {
    int i = 0;
    while (i < NUM_SETTINGS && strcmp(settings[i].name, name) != 0)
        i++;
    return i;
}

bool chat_session_has(const char *name) {
    return find_setting(name) < NUM_SETTINGS;
}

int chat_session_set(struct chat_session *session, const char *name, const char *value,
                     struct error *err) {
    int i = find_setting(name);
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

/* --- The loop --- */

#define STATUS_MS 1000

static void write_part(void *context, bool is_reasoning, const char *data, size_t length) {
    struct chat_loop *loop = context;
    loop->has_text = true;
    chat_terminal_write(loop->terminal, is_reasoning, data, length);
}

static const char *name_status(const struct chat_model *model) {
    return strcmp(model->status, "unloaded") == 0   ? "not loaded"
           : strcmp(model->status, "sleeping") == 0 ? "asleep"
                                                    : model->status;
}

static const struct chat_model *find_current(const struct chat_loop *loop,
                                             const struct chat_models *models) {
    for (int i = 0; i < models->count; i++)
        if (strcmp(models->items[i].name, loop->client->model) == 0)
            return &models->items[i];
    return NULL;
}

/* Says, once a second, what an answer waits for: its model, while that is not loaded. */
static void show_loading(struct chat_loop *loop) {
    struct chat_models models;
    struct error err;
    int64_t now_ns = clock_now_ns();
    char text[CHAT_MODEL_NAME_BYTES + 64];
    if (!loop->client->has_states || loop->has_text ||
        now_ns - loop->status_ns < STATUS_MS * CLOCK_NS_PER_MS)
        return;
    loop->status_ns = now_ns;
    if (chat_client_list(loop->client, STATUS_MS, &models, &err) != 0)
        return;
    const struct chat_model *model = find_current(loop, &models);
    if (model != NULL && strcmp(model->status, "loading") == 0)
        snprintf(text, sizeof(text), "loading %s", model->name);
    else if (model != NULL && strcmp(model->status, "loaded") != 0)
        snprintf(text, sizeof(text), "waiting until %s can be loaded", model->name);
    else
        snprintf(text, sizeof(text), "%s is loaded", loop->client->model);
    chat_terminal_show_status(loop->terminal, text);
    free(models.items);
}

static bool is_stopped(void *context) {
    struct chat_loop *loop = context;
    show_loading(loop);
    return loop->take_interrupt() || loop->must_end();
}

/* One line about a missing or incomplete answer. */
static void explain(struct chat_loop *loop, const struct chat_answer *answer) {
    struct chat_terminal *terminal = loop->terminal;
    bool ends_at_length = strcmp(answer->finish_reason, "length") == 0;
    bool is_full = loop->client->max_model_len > 0 && answer->prompt_tokens >= 0 &&
                   answer->prompt_tokens + answer->completion_tokens >= loop->client->max_model_len;
    switch (answer->end) {
    case CHAT_ANSWERED:
        if (ends_at_length && is_full)
            chat_terminal_say(terminal, "the context of %lld tokens is full; /clear starts again",
                              (long long)loop->client->max_model_len);
        else if (ends_at_length)
            chat_terminal_say(terminal, "cut off after %lld tokens (max_tokens)",
                              (long long)answer->completion_tokens);
        break;
    case CHAT_STOPPED:
        chat_terminal_say(terminal, "stopped");
        break;
    case CHAT_FULL:
        chat_terminal_say(terminal, "the context is full: %s; /clear starts again", answer->why);
        break;
    case CHAT_REFUSED:
        chat_terminal_say(terminal, "no answer: %s", answer->why);
        break;
    case CHAT_LOST:
        chat_terminal_say(terminal, "%s: %s",
                          answer->content.length > 0 ? "the answer breaks off" : "no answer",
                          answer->why);
        break;
    }
}

/* What came of an answer stays in the conversation. Without any the question does not, as a model
 * expects user and assistant in turn. */
static void keep(struct chat_loop *loop, const struct chat_answer *answer) {
    if (answer->content.length > 0)
        chat_session_add(loop->session, true, answer->content.data, answer->content.length);
    else
        chat_session_drop(loop->session);
    loop->last = *answer;
    loop->last.content = (struct byte_buffer){0};
    loop->num_answers += answer->content.length > 0;
    loop->completion_tokens += answer->completion_tokens;
}

/* The last message is the user's. */
static void answer_user(struct chat_loop *loop) {
    const struct chat_sink sink = {write_part, is_stopped, loop};
    struct byte_buffer body = {0};
    struct chat_answer answer;
    struct error err;
    chat_session_write_body(loop->session, loop->client->model, &body);
    loop->take_interrupt(); /* an old one does not count */
    loop->has_text = false;
    loop->status_ns = clock_now_ns(); /* most answers begin within a second */
    chat_client_ask(loop->client, &body, &sink, &answer);
    if (loop->client->has_states && loop->client->max_model_len == 0)
        chat_client_find_model(loop->client, loop->client->model, &err); /* it is loaded now */
    if (answer.end == CHAT_STOPPED)
        chat_terminal_note_echo(loop->terminal);
    chat_terminal_end_text(loop->terminal);
    explain(loop, &answer);
    keep(loop, &answer);
    byte_buffer_finish(&answer.content);
    byte_buffer_finish(&body);
}

static void clear(struct chat_loop *loop, const char *rest) {
    chat_session_clear(loop->session);
    chat_terminal_say(loop->terminal, "a new conversation");
}

static void set_system(struct chat_loop *loop, const char *rest) {
    if (rest[0] != '\0')
        chat_session_set_system(loop->session, strcmp(rest, "none") == 0 ? NULL : rest);
    const char *system = loop->session->system;
    chat_terminal_say(loop->terminal, "system: %.900s", system != NULL ? system : "none");
}

static void retry(struct chat_loop *loop, const char *rest) {
    struct chat_session *session = loop->session;
    if (session->num_messages > 0 && session->messages[session->num_messages - 1].is_answer)
        chat_session_drop(session);
    if (session->num_messages > 0)
        answer_user(loop);
    else
        chat_terminal_say(loop->terminal, "there is no question to retry");
}

static void save(struct chat_loop *loop, const char *rest) {
    struct error err;
    if (rest[0] == '\0')
        chat_terminal_say(loop->terminal, "/save FILE: where to?");
    else if (chat_session_save(loop->session, loop->client->model, rest, &err) != 0)
        chat_terminal_say(loop->terminal, "not saved: %s", err.message);
    else
        chat_terminal_say(loop->terminal, "saved %d messages", loop->session->num_messages);
}

static void set(struct chat_loop *loop, const char *rest) {
    struct error err;
    char name[64];
    size_t length = strcspn(rest, " ");
    if (rest[0] == '\0') {
        struct byte_buffer lines = {0};
        chat_session_show_settings(loop->session, &lines);
        chat_terminal_write(loop->terminal, true, lines.data, lines.length);
        chat_terminal_end_text(loop->terminal);
        byte_buffer_finish(&lines);
        return;
    }
    const char *value = rest + length + strspn(rest + length, " ");
    if (length >= sizeof(name) || value[0] == '\0') {
        chat_terminal_say(loop->terminal, "/set NAME VALUE: /set shows the names");
        return;
    }
    memcpy(name, rest, length);
    name[length] = '\0';
    if (chat_session_set(loop->session, name, value, &err) != 0)
        chat_terminal_say(loop->terminal, "%s", err.message);
    else
        chat_terminal_say(loop->terminal, "%s is %s", name, value);
}

/* Lists the models, or continues with the one that is named. */
static void change_model(struct chat_loop *loop, const char *rest) {
    struct chat_models models;
    struct error err;
    if (rest[0] != '\0') {
        if (chat_client_find_model(loop->client, rest, &err) == 0)
            chat_terminal_say(loop->terminal, "model: %.200s", loop->client->model);
        else
            chat_terminal_say(loop->terminal, "%s; /model lists them", err.message);
        return;
    }
    if (chat_client_list(loop->client, CHAT_LIST_MS, &models, &err) != 0) {
        chat_terminal_say(loop->terminal, "%s", err.message);
        return;
    }
    for (int i = 0; i < models.count; i++) {
        const struct chat_model *model = &models.items[i];
        chat_terminal_say(loop->terminal, "%c %-*s%s",
                          strcmp(model->name, loop->client->model) == 0 ? '*' : ' ',
                          model->status[0] != '\0' ? 40 : 0, model->name, name_status(model));
    }
    free(models.items);
}

static double seconds_between(int64_t begin_ns, int64_t end_ns) {
    return (double)(end_ns - begin_ns) / (double)CLOCK_NS_PER_S;
}

static void show_stats(struct chat_loop *loop, const char *rest) {
    const struct chat_answer *last = &loop->last;
    double seconds = seconds_between(last->first_ns, last->last_ns);
    if (last->first_ns == 0) {
        chat_terminal_say(loop->terminal, "no answer yet");
        return;
    }
    chat_terminal_say(loop->terminal, "first token after %.3f s",
                      seconds_between(last->started_ns, last->first_ns));
    if (last->completion_tokens > 1 && seconds > 0)
        chat_terminal_say(loop->terminal, "%lld tokens, %.1f tokens/s",
                          (long long)last->completion_tokens,
                          (double)(last->completion_tokens - 1) / seconds);
    else
        chat_terminal_say(loop->terminal, "%lld tokens", (long long)last->completion_tokens);
    if (last->prompt_tokens >= 0 && loop->client->max_model_len > 0)
        chat_terminal_say(loop->terminal, "context: %lld of %lld tokens",
                          (long long)(last->prompt_tokens + last->completion_tokens),
                          (long long)loop->client->max_model_len);
    chat_terminal_say(loop->terminal, "%lld answers with %lld tokens in all",
                      (long long)loop->num_answers, (long long)loop->completion_tokens);
}

static void show_help(struct chat_loop *loop, const char *rest);

static const struct command {
    const char *name, *argument, *meaning;
    void (*run)(struct chat_loop *loop, const char *rest); /* NULL: leaves */
} commands[] = {
    {"/clear", "", "begins a new conversation", clear},
    {"/system", "[TEXT]", "sets the system prompt; without TEXT: none", set_system},
    {"/model", "[NAME]", "continues with another model; without NAME: lists them", change_model},
    {"/retry", "", "generates the last answer again", retry},
    {"/set", "[NAME VALUE]", "sets temperature or another field; default: the server's", set},
    {"/save", "FILE", "saves the conversation as JSON", save},
    {"/stats", "", "tokens, speed and context of the last answer", show_stats},
    {"/help", "", "shows this", show_help},
    {"/exit", "", "ends the chat, like Ctrl-D", NULL},
};
#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void show_help(struct chat_loop *loop, const char *rest) {
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        chat_terminal_say(loop->terminal, "%-8s %-13s %s", commands[i].name, commands[i].argument,
                          commands[i].meaning);
    chat_terminal_say(
        loop->terminal,
        "A line that ends in \\ continues on the next, and so do lines between \"\"\" and \"\"\". "
        "Ctrl-C stops an answer.");
}

/* Returns whether the user stays. */
static bool run_command(struct chat_loop *loop, const char *text) {
    size_t length = strcspn(text, " \n");
    const char *rest = text + length + strspn(text + length, " \n");
    for (size_t i = 0; i < NUM_COMMANDS; i++) {
        if (strlen(commands[i].name) != length || strncmp(commands[i].name, text, length) != 0)
            continue;
        if (commands[i].run == NULL)
            return false;
        commands[i].run(loop, rest);
        return true;
    }
    chat_terminal_say(loop->terminal, "unknown command %.*s; /help lists them",
                      length < 40 ? (int)length : 40, text);
    return true;
}

/* A path is not a command. */
static bool is_command(const char *text) {
    return text[0] == '/' && text[1 + strspn(text + 1, "abcdefghijklmnopqrstuvwxyz")] != '/';
}

void chat_loop_run(struct chat_loop *loop) {
    struct byte_buffer text = {0};
    enum chat_input input;
    bool stays = true;
    while (stays && !loop->must_end() &&
           (input = chat_terminal_read(loop->terminal, &text)) != CHAT_INPUT_LEAVE) {
        if (input != CHAT_INPUT_TEXT)
            continue;
        if (is_command(text.data)) {
            stays = run_command(loop, text.data);
        } else {
            chat_session_add(loop->session, false, text.data, text.length);
            answer_user(loop);
        }
    }
    byte_buffer_finish(&text);
}
