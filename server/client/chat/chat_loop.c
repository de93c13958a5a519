#include "server/client/chat/chat_loop.h"

#include "config/base/clock.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void write_part(void *context, bool is_reasoning, const char *data, size_t length) {
    struct chat_loop *loop = context;
    chat_terminal_write(loop->terminal, is_reasoning, data, length);
}

static bool is_stopped(void *context) {
    struct chat_loop *loop = context;
    return loop->take_interrupt() || loop->must_end();
}

/* One line about an answer that is none, or not a whole one. */
static void explain(struct chat_loop *loop, const struct chat_answer *answer) {
    struct chat_terminal *terminal = loop->terminal;
    bool ends_at_length = strcmp(answer->finish_reason, "length") == 0;
    bool is_full = loop->client->max_model_len > 0 && answer->prompt_tokens >= 0 &&
                   answer->prompt_tokens + answer->completion_tokens >= loop->client->max_model_len;
    switch (answer->end) {
    case CHAT_ANSWERED:
        if (ends_at_length && is_full)
            chat_terminal_say(terminal, "the context of %lld tokens is full; /clear begins anew",
                              (long long)loop->client->max_model_len);
        else if (ends_at_length)
            chat_terminal_say(terminal, "cut off after %lld tokens (max_tokens)",
                              (long long)answer->completion_tokens);
        break;
    case CHAT_STOPPED:
        chat_terminal_say(terminal, "stopped");
        break;
    case CHAT_FULL:
        chat_terminal_say(terminal, "the context is full: %s; /clear begins anew", answer->why);
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
    chat_session_write_body(loop->session, loop->client->model, &body);
    loop->take_interrupt(); /* an old one does not count */
    chat_client_ask(loop->client, &body, &sink, &answer);
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
        chat_terminal_say(loop->terminal, "there is nothing to answer again");
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
    {"/system", "[TEXT]", "says what the model is to be; none: nothing", set_system},
    {"/retry", "", "asks for the last answer again", retry},
    {"/set", "[NAME VALUE]", "temperature and the like; default: as the server has it", set},
    {"/save", "FILE", "writes the conversation as JSON", save},
    {"/stats", "", "tokens, speed and context of the last answer", show_stats},
    {"/help", "", "shows this", show_help},
    {"/exit", "", "leaves, as Ctrl-D does", NULL},
};
#define NUM_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void show_help(struct chat_loop *loop, const char *rest) {
    for (size_t i = 0; i < NUM_COMMANDS; i++)
        chat_terminal_say(loop->terminal, "%-8s %-13s %s", commands[i].name, commands[i].argument,
                          commands[i].meaning);
    chat_terminal_say(loop->terminal,
                      "A line that ends in \\ goes on, as do lines between \"\"\" and \"\"\". "
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
    chat_terminal_say(loop->terminal, "there is no %.*s; /help shows what there is",
                      length < 40 ? (int)length : 40, text);
    return true;
}

/* A path is no command. */
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
