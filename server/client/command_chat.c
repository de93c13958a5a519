/* `quire chat`: a conversation in the terminal with a running server, or with one that it starts
 * for itself. With a question, or if input or output is not a terminal, one answer on stdout. */
#include "server/client/client.h"

#include "config/base/help_text.h"
#include "config/options_table.h"
#include "server/client/chat/chat_client.h"
#include "server/client/chat/chat_terminal.h"
#include "server/client/chat/chat_session.h"
#include "server/client/chat/chat_server.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define STATUS_NO_ANSWER 1
#define STATUS_INTERRUPTED 130 /* like a shell's */

static const char chat_usage[] =
    "usage: quire chat [--url URL [--model NAME]] [--FIELD VALUE ...] [QUESTION]\n"
    "       quire chat MODEL [option of quire serve ...] [--FIELD VALUE ...] [QUESTION]\n";

static const char run_usage[] =
    "usage: quire run MODEL [option of quire serve ...] [--FIELD VALUE ...] [QUESTION]\n";

static const char usage[] =
    "\n"
    "Where it runs:\n"
    "  --url URL\ta running server, http or https; default " CLIENT_DEFAULT_URL
    ". CURL_CA_BUNDLE names a file of certificate authorities to trust instead of the system's\n"
    "  --api-key-env NAME\tenvironment variable with the API key; default QUIRE_API_KEY\n"
    "  --model MODEL\tstart a server with this model and these options, as quire serve does, that "
    "only this conversation can reach, and stop it afterwards. `quire run` takes any MODEL as its "
    "first word; `quire chat` takes a .gguf file, a folder, or ORG/NAME:Q4_K_M. After --url: the "
    "name, or a part of it, of a model of that server; default: its first\n"
    "  for example: quire run model.gguf, or quire chat --url http://gpu1:8000\n"
    "\n"
    "How it answers:\n"
    "  --system TEXT\tsystem prompt\n"
    "  --set NAME=VALUE\tmax_tokens, seed or a sampling parameter: temperature, top_p, top_k, "
    "min_p, presence_penalty, frequency_penalty, repetition_penalty, typical_p, xtc_probability, "
    "xtc_threshold, dynatemp_range, dynatemp_exponent, top_n_sigma, mirostat, mirostat_tau, "
    "mirostat_eta, dry_multiplier, dry_base, dry_allowed_length, dry_penalty_last_n; repeatable. "
    "--NAME VALUE is the same, except for --seed, an option of quire serve\n"
    "  QUESTION\tanswer this and leave; - reads it from stdin, as does input that is not a "
    "terminal. Only the answer goes to stdout; status 0, or 1 and one line on stderr if there is "
    "none\n"
    "\n"
    "/help shows the commands of a conversation. Its lines are kept in "
    "$XDG_STATE_HOME/quire/chat_history.\n";

struct chat {
    const char *url, *key_variable, *question;
    char **server_words; /* --model and the options for the server; as many as there are words */
    int num_server_words;
    const char *named;      /* value of the only option of a server, if that is --model */
    int num_server_options; /* of those words */
    bool has_model, has_socket, has_mistake;
    const char *model_name; /* of the running server's model; NULL: the first */
    struct chat_session session;
    struct chat_server server;
    struct chat_client client;
};

static volatile sig_atomic_t is_interrupted, is_told_to_end;

static void note_interrupt(int number) {
    is_interrupted = 1;
}

/* Our own server and its folder must not be left over. A signal just before a system call does not
 * interrupt it, and libedit retries an interrupted one: hence SIGALRM, repeated until the end. */
static void note_end(int number) {
    is_told_to_end = 1;
    alarm(1);
}

static bool must_end(void) {
    return is_told_to_end != 0;
}

static bool take_interrupt(void) {
    bool was = is_interrupted;
    is_interrupted = 0;
    return was;
}

static bool take_stop(void) {
    return take_interrupt() || must_end();
}

/* System calls end with EINTR, also those of libcurl and libedit. */
static void catch_signals(void) {
    const struct sigaction interrupt = {.sa_handler = note_interrupt};
    const struct sigaction end = {.sa_handler = note_end};
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGHUP, &end, NULL);
    sigaction(SIGALRM, &end, NULL);
    signal(SIGPIPE, SIG_IGN);
}

static int refuse(const char *what) {
    fprintf(stderr, "quire chat: %s\n", what);
    return -1;
}

static int refuse_word(const char *what, const char *word) {
    fprintf(stderr, "quire chat: %s '%.64s'; --help says more\n", what, word);
    return -1;
}

/* NAME=VALUE */
static int set_field(struct chat *chat, const char *text) {
    struct error err;
    char name[64];
    size_t length = strcspn(text, "=");
    if (text[length] == '\0' || length >= sizeof(name))
        return refuse_word("--set takes NAME=VALUE, not", text);
    memcpy(name, text, length);
    name[length] = '\0';
    return chat_session_set(&chat->session, name, text + length + 1, &err) == 0
               ? 0
               : refuse(err.message);
}

/* Reads --NAME VALUE or --NAME=VALUE of a setting, unless a server has an option of that name. */
static int take_field(struct chat *chat, const char *word, const char *value) {
    struct error err;
    char name[64];
    size_t length = strcspn(word, "=");
    bool is_given = word[length] == '=';
    if (strncmp(word, "--", 2) != 0 || length - 2 >= sizeof(name) ||
        options_find(word + 2, length - 2) >= 0)
        return 0;
    for (size_t i = 2; i <= length; i++)
        name[i - 2] = i == length ? '\0' : word[i] == '-' ? '_' : word[i];
    if (!chat_session_has(name))
        return 0;
    value = is_given ? word + length + 1 : value;
    if (value == NULL)
        return refuse_word("a value is missing after", word);
    return chat_session_set(&chat->session, name, value, &err) != 0 ? refuse(err.message)
           : is_given                                               ? 1
                                                                    : 2;
}

/* Reads an option of ours; returns how many words it takes, 0 if it is none. value is the next
 * word, or NULL. */
static int take_own(struct chat *chat, const char *name, const char *value) {
    int field = take_field(chat, name, value);
    if (field != 0 || value == NULL)
        return field;
    if (strcmp(name, "--url") == 0)
        chat->url = value;
    else if (strcmp(name, "--api-key-env") == 0)
        chat->key_variable = value;
    else if (strcmp(name, "--system") == 0)
        chat_session_set_system(&chat->session, value);
    else if (strcmp(name, "--set") == 0)
        return set_field(chat, value) == 0 ? 2 : -1;
    else
        return 0;
    return 2;
}

/* Adds words for the server. */
static void keep_words(struct chat *chat, int count, char *const *words) {
    for (int i = 0; i < count; i++)
        chat->server_words[chat->num_server_words++] = words[i];
}

/* Keeps an option of the server at argv[at] with its value; returns how many words it takes. What
 * is wrong with it is said by check_server_words. */
static int take_server_option(struct chat *chat, int argc, char *const *argv, int at) {
    struct argument_reader reader = {.argc = argc, .argv = argv, .position = at, .has_model = true};
    struct option_argument argument;
    options_next_argument(&reader, &argument);
    bool sets = argument.kind == ARGUMENT_SETS;
    bool sets_model = sets && argument.option == options_find("model", 5);
    chat->has_model |= sets_model;
    chat->named = sets_model && chat->num_server_options == 0 && argument.value != argument.mapped
                      ? argument.value
                      : NULL;
    chat->num_server_options++;
    chat->has_socket |= sets && argument.option == options_find("uds", 3);
    chat->has_mistake |= argument.kind == ARGUMENT_REFUSED;
    keep_words(chat, reader.position - at, argv + at);
    return reader.position - at;
}

/* Returns whether a word without a name is a model and not a question. */
static bool is_model(const char *word) {
    char config[PATH_MAX];
    struct hub_reference reference;
    size_t length = strlen(word);
    snprintf(config, sizeof(config), "%.4000s/config.json", word);
    return (length > 5 && strcmp(word + length - 5, ".gguf") == 0) || access(config, F_OK) == 0 ||
           (strchr(word, ' ') == NULL && hub_reference_parse(word, &reference, NULL) == 0 &&
            (reference.choice[0] != '\0' || hub_reference_is_address(word)));
}

static int take_word(struct chat *chat, char *word, bool is_run) {
    static char flag[] = "--model";
    if (!chat->has_model && chat->question == NULL && (is_run || is_model(word))) {
        chat->has_model = true;
        chat->num_server_options++;
        keep_words(chat, 2, (char *const[]){flag, word});
        return 0;
    }
    if (chat->question != NULL)
        return refuse_word("one question, in quotes; also given:", word);
    chat->question = word;
    return 0;
}

static void write_mistake(void *context, const char *line) {
    refuse(line);
}

/* Before a server is started with them. */
static int check_server_words(const struct chat *chat) {
    struct options options;
    struct error err;
    if (options_load(chat->num_server_words, chat->server_words, environ, &options, &err) != 0) {
        options_list_mistakes(chat->num_server_words, chat->server_words, &err, write_mistake,
                              NULL);
        return -1;
    }
    options_finish(&options);
    return 0;
}

static int check_words(struct chat *chat, bool is_run) {
    if (chat->url != NULL && chat->named != NULL && chat->num_server_options == 1 && !is_run) {
        chat->model_name = chat->named;
        chat->has_model = false;
        return 0;
    }
    if (chat->has_mistake)
        return check_server_words(chat);
    if (is_run && !chat->has_model)
        return refuse("run needs a MODEL: a .gguf file, a folder, or ORG/NAME of a hub");
    if (chat->num_server_words > 0 && !chat->has_model)
        return refuse_word("for a server that `quire run MODEL` starts:", chat->server_words[0]);
    if (chat->has_model && chat->url != NULL)
        return refuse("--url or a model, not both");
    if (chat->has_socket)
        return refuse("--uds: the server that it starts has its own socket");
    return chat->has_model ? check_server_words(chat) : 0;
}

static int read_words(struct chat *chat, int argc, char *const *argv, bool is_run) {
    for (int i = 0; i < argc;) {
        bool is_option = argv[i][0] == '-' && argv[i][1] != '\0';
        int own = is_option ? take_own(chat, argv[i], i + 1 < argc ? argv[i + 1] : NULL) : 1;
        if (own < 0 || (!is_option && take_word(chat, argv[i], is_run) != 0))
            return -1;
        i += own > 0 ? own : take_server_option(chat, argc, argv, i);
    }
    return check_words(chat, is_run);
}

static int connect_client(struct chat *chat, struct error *err) {
    bool is_default = chat->url == NULL && !chat->has_model;
    const char *url = chat->has_model ? "http://localhost"
                      : is_default    ? CLIENT_DEFAULT_URL
                                      : chat->url;
    const char *socket_path = chat->has_model ? chat->server.socket_path : NULL;
    struct error why;
    if (chat->has_model &&
        chat_server_start(chat->server_words, chat->num_server_words, isatty(STDERR_FILENO),
                          take_stop, &chat->server, err) != 0)
        return -1;
    if (chat_client_open(url, socket_path, chat->key_variable, &chat->client, err) != 0)
        return -1;
    if (chat_client_find_model(&chat->client, chat->model_name, &why) == 0)
        return 0;
    return error_set(err, why.code, "%s%s", why.message,
                     is_default ? " (--url names another server, `quire run MODEL` starts one)"
                                : "");
}

/* Where one answer goes. */
struct one_answer {
    struct terminal_text text;
    bool is_terminal; /* stdout; elsewhere every byte arrives as it is */
    bool is_in_line, has_failed;
};

static void write_bytes(struct one_answer *one, const char *data, size_t length) {
    if (length == 0)
        return;
    one->has_failed |= fwrite(data, 1, length, stdout) != length || fflush(stdout) != 0;
    one->is_in_line = data[length - 1] != '\n';
}

static void write_part(void *context, bool is_reasoning, const char *data, size_t length) {
    struct one_answer *one = context;
    struct byte_buffer shown = {0};
    if (is_reasoning)
        return;
    if (!one->is_terminal) {
        write_bytes(one, data, length);
        return;
    }
    terminal_text_write(&one->text, data, length, &shown);
    write_bytes(one, shown.data, shown.length);
    byte_buffer_finish(&shown);
}

static bool is_stopped(void *context) {
    struct one_answer *one = context;
    return is_interrupted != 0 || must_end() || one->has_failed;
}

/* Messages come from the server as well. */
static void say(const char *what) {
    struct terminal_text text = {0};
    struct byte_buffer shown = {0};
    terminal_text_write(&text, what, strcspn(what, "\n"), &shown);
    terminal_text_end(&text, &shown);
    byte_buffer_append(&shown, "", 1);
    refuse(shown.failed ? "no memory" : shown.data);
    byte_buffer_finish(&shown);
}

static int answer_once(struct chat *chat, const char *question, size_t length) {
    struct one_answer one = {.is_terminal = isatty(STDOUT_FILENO)};
    const struct chat_sink sink = {write_part, is_stopped, &one};
    struct byte_buffer body = {0};
    struct chat_answer answer;
    chat_session_add(&chat->session, false, question, length);
    chat_session_write_body(&chat->session, chat->client.model, &body);
    chat_client_ask(&chat->client, &body, &sink, &answer);
    if (one.is_in_line)
        write_bytes(&one, "\n", 1);
    int status = answer.end == CHAT_ANSWERED && !one.has_failed ? EX_OK : STATUS_NO_ANSWER;
    if (one.has_failed)
        refuse("the answer cannot be written to stdout");
    else if (answer.end == CHAT_STOPPED)
        status = STATUS_INTERRUPTED;
    else if (status != EX_OK)
        say(answer.why);
    byte_buffer_finish(&answer.content);
    byte_buffer_finish(&body);
    return status;
}

static int read_stdin(struct byte_buffer *out) {
    char data[65536];
    size_t count;
    out->max_length = CHAT_TERMINAL_MAX_INPUT_BYTES;
    while (!out->failed && (count = fread(data, 1, sizeof(data), stdin)) > 0)
        byte_buffer_append(out, data, count);
    if (out->failed)
        return refuse("stdin holds more than 4 MiB");
    if (ferror(stdin))
        return refuse("stdin cannot be read");
    return out->length > 0 && memchr(out->data, '\0', out->length) == NULL
               ? 0
               : refuse("stdin holds no text");
}

static int run_once(struct chat *chat) {
    struct byte_buffer input = {0};
    struct error err;
    bool reads = chat->question == NULL || strcmp(chat->question, "-") == 0;
    if (reads && read_stdin(&input) != 0) {
        byte_buffer_finish(&input);
        return STATUS_NO_ANSWER;
    }
    int status = STATUS_NO_ANSWER;
    if (connect_client(chat, &err) != 0)
        say(err.message);
    else if (reads)
        status = answer_once(chat, input.data, input.length);
    else
        status = answer_once(chat, chat->question, strlen(chat->question));
    byte_buffer_finish(&input);
    return status;
}

static int converse(struct chat *chat) {
    char path[PATH_MAX];
    struct error err;
    if (connect_client(chat, &err) != 0) {
        say(err.message);
        return STATUS_NO_ANSWER;
    }
    bool has_path = chat_history_path(path, sizeof(path));
    struct chat_terminal *terminal = chat_terminal_create(has_path ? path : NULL, take_interrupt);
    if (terminal == NULL) {
        refuse("this terminal cannot be used");
        return STATUS_NO_ANSWER;
    }
    chat_terminal_say(terminal, "%.200s%s%.200s; /help shows commands", chat->client.model,
                      chat->has_model ? "" : " at ",
                      chat->has_model ? "" : chat->client.url.origin);
    if (chat->client.has_states)
        chat_terminal_say(terminal, "%d models; /model lists them", chat->client.num_models);
    struct chat_loop loop = {.client = &chat->client,
                             .session = &chat->session,
                             .terminal = terminal,
                             .take_interrupt = take_interrupt,
                             .must_end = must_end};
    chat_loop_run(&loop);
    chat_terminal_destroy(terminal);
    return EX_OK;
}

static int run_chat(int argc, char *const *argv, bool is_run) {
    if (client_wants_help(argc, argv)) {
        help_text_print(is_run ? run_usage : chat_usage, stdout);
        help_text_print(usage, stdout);
        return EX_OK;
    }
    struct chat chat = {.key_variable = "QUIRE_API_KEY"};
    chat.server_words = calloc((size_t)argc + 2, sizeof(*chat.server_words));
    int status = chat.server_words != NULL ? EX_USAGE : EX_OSERR;
    if (chat.server_words != NULL && read_words(&chat, argc, argv, is_run) == 0) {
        catch_signals();
        bool is_once = chat.question != NULL || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO);
        status = is_once ? run_once(&chat) : converse(&chat);
    }
    chat_client_close(&chat.client);
    chat_server_stop(&chat.server);
    chat_session_finish(&chat.session);
    free(chat.server_words);
    return status;
}

int command_chat(int argc, char *const *argv) {
    return run_chat(argc, argv, false);
}

int command_run(int argc, char *const *argv) {
    return run_chat(argc, argv, true);
}
