#include "server/client/chat/chat_terminal.h"

#include "config/base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- Text without controls --- */

static void write_character(const char *bytes, size_t length, struct byte_buffer *out) {
    int32_t character = utf8_decode(bytes, length);
    if (character == '\r')
        return;
    if (utf8_is_control(character) && character != '\n' && character != '\t')
        byte_buffer_append_text(out, UTF8_REPLACEMENT);
    else
        byte_buffer_append(out, bytes, length);
}

void terminal_text_end(struct terminal_text *text, struct byte_buffer *out) {
    if (text->num_kept > 0)
        byte_buffer_append_text(out, UTF8_REPLACEMENT);
    text->num_kept = 0;
}

/* Returns whether the byte continues the character whose beginning is kept. */
static bool fits(const struct terminal_text *text, unsigned char byte) {
    return text->num_kept == 1 ? utf8_second_fits((unsigned char)text->kept[0], byte)
                               : utf8_continues((char)byte);
}

static void take_byte(struct terminal_text *text, char byte, struct byte_buffer *out) {
    if (text->num_kept > 0 && !fits(text, (unsigned char)byte))
        terminal_text_end(text, out);
    size_t expected = utf8_lead_bytes((unsigned char)(text->num_kept > 0 ? text->kept[0] : byte));
    text->kept[text->num_kept++] = byte;
    if (expected == 0) {
        terminal_text_end(text, out);
    } else if (text->num_kept == expected) {
        write_character(text->kept, expected, out);
        text->num_kept = 0;
    }
}

void terminal_text_write(struct terminal_text *text, const char *data, size_t length,
                         struct byte_buffer *out) {
    for (size_t i = 0; i < length; i++)
        take_byte(text, data[i], out);
}

/* --- The history --- */

/* Makes the folders above path, as far as they are missing. */
static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool is_there = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!is_there)
            return false;
    }
    return true;
}

bool chat_history_path(char *out, size_t capacity) {
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int length;
    if (state != NULL && state[0] == '/') /* another one is to be ignored (XDG base directories) */
        length = snprintf(out, capacity, "%s/quire/chat_history", state);
    else if (home != NULL && home[0] == '/')
        length = snprintf(out, capacity, "%s/.local/state/quire/chat_history", home);
    else
        return false;
    return length > 0 && (size_t)length < capacity && make_folders(out);
}

/* Reads the last max_bytes of the file, from the begin of a line. */
static void read_end(const char *path, size_t max_bytes, struct byte_buffer *out,
                     bool *out_is_cut) {
    char data[65536];
    ssize_t count;
    struct stat status;
    *out_is_cut = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
        *out_is_cut = status.st_size > (off_t)CHAT_HISTORY_MAX_BYTES;
        if (*out_is_cut)
            lseek(fd, status.st_size - (off_t)max_bytes, SEEK_SET);
        out->max_length = CHAT_HISTORY_MAX_BYTES;
        while (!out->failed && (count = read(fd, data, sizeof(data))) > 0)
            byte_buffer_append(out, data, (size_t)count);
    }
    close(fd);
    const char *first = *out_is_cut ? memchr(out->data, '\n', out->length) : NULL;
    if (first != NULL)
        byte_buffer_consume(out, (size_t)(first + 1 - out->data));
}

static void write_file(const char *path, int flags, const char *data, size_t length) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd < 0)
        return;
    ssize_t written = write(fd, data, length); /* one call: entries of others are not torn */
    (void)written;
    close(fd);
}

/* Decodes a line in its place. */
static void decode(char *line) {
    char *to = line;
    for (const char *from = line; *from != '\0'; from++) {
        bool is_escaped = *from == '\\' && from[1] != '\0';
        from += is_escaped;
        *to++ = is_escaped && *from == 'n' ? '\n' : *from;
    }
    *to = '\0';
}

void chat_history_load(const char *path, void (*take)(void *context, const char *text),
                       void *context) {
    bool is_cut;
    struct byte_buffer text = {0};
    read_end(path, CHAT_HISTORY_MAX_BYTES / 2, &text, &is_cut);
    if (is_cut)
        write_file(path, O_TRUNC, text.data, text.length);
    text.max_length = 0;
    byte_buffer_append(&text, "", 1);
    char *line = text.failed ? NULL : text.data, *end;
    for (; line != NULL && (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        decode(line);
        if (line[0] != '\0')
            take(context, line);
    }
    byte_buffer_finish(&text);
}

void chat_history_add(const char *path, const char *text) {
    struct byte_buffer line = {0};
    for (; *text != '\0'; text++) {
        if (*text == '\n')
            byte_buffer_append_text(&line, "\\n");
        else if (*text == '\\')
            byte_buffer_append_text(&line, "\\\\");
        else
            byte_buffer_append(&line, text, 1);
    }
    byte_buffer_append_text(&line, "\n");
    if (!line.failed)
        write_file(path, O_APPEND, line.data, line.length);
    byte_buffer_finish(&line);
}

/* --- The terminal --- */

/* On SIGINT libedit gives the terminal back, sends the signal once more, to the handler that was
 * there before, and its reading fails: what had been typed is still to be seen then. A paste comes
 * between two sequences of the terminal ("bracketed paste", xterm's control sequences, mode 2004),
 * of which the first is bound to a function that reads to the second, so that line breaks in it do
 * not end the line. */

#define HISTORY_ENTRIES 1000
#define PASTE_ON "\x1b[?2004h"
#define PASTE_OFF "\x1b[?2004l"
#define PASTE_END L"\x1b[201~"
#define DIM "\x1b[2m" /* ECMA-48: SGR */
#define NORMAL "\x1b[0m"
#define BLANK_LINE "\r\x1b[K" /* ECMA-48: EL */
#define CUT_LINE "\x1b[?7l"   /* DEC: DECAWM */
#define FOLD_LINE "\x1b[?7h"

struct chat_terminal {
    EditLine *line;
    History *history;
    char *history_path;
    const char *prompt;
    bool (*take_interrupt)(void);
    bool is_leaving; /* at the next Ctrl-C without a text */
    bool has_style;  /* the terminal knows of dimmed text */
    bool is_dimmed;  /* what was shown last */
    bool is_in_line; /* what was shown last was not a line's end */
    bool has_status; /* a status is on the line */
    struct terminal_text text;
};

static char *get_prompt(EditLine *line) {
    struct chat_terminal *terminal;
    el_get(line, EL_CLIENTDATA, &terminal);
    return (char *)terminal->prompt;
}

/* Text that is pasted, on its way into the line. */
struct paste {
    EditLine *line;
    wchar_t text[256];
    size_t length, total;
};

static void flush_paste(struct paste *paste) {
    paste->text[paste->length] = L'\0';
    el_winsertstr(paste->line, paste->text);
    paste->length = 0;
}

/* Takes what can be shown. Terminals send CR for each line break. */
static void take_key(struct paste *paste, wchar_t key) {
    wchar_t kept = key == L'\r' ? L'\n' : key == L'\t' ? L' ' : key;
    bool is_control = (kept < 0x20 && kept != L'\n') || (kept >= 0x7f && kept < 0xa0);
    if (is_control || paste->total == CHAT_TERMINAL_MAX_INPUT_BYTES / UTF8_MAX_BYTES)
        return;
    paste->text[paste->length++] = kept;
    paste->total++;
    if (paste->length == sizeof(paste->text) / sizeof(paste->text[0]) - 1)
        flush_paste(paste);
}

/* Reads to the sequence that ends a paste. */
static unsigned char insert_paste(EditLine *line, int first) {
    static const wchar_t end[] = PASTE_END;
    struct paste paste = {.line = line};
    size_t num_matched = 0;
    wchar_t key;
    while (end[num_matched] != L'\0' && el_wgetc(line, &key) == 1) {
        if (key == end[num_matched]) {
            num_matched++;
            continue;
        }
        for (size_t i = 0; i < num_matched; i++)
            take_key(&paste, end[i]);
        num_matched = key == end[0];
        if (num_matched == 0)
            take_key(&paste, key);
    }
    flush_paste(&paste);
    return CC_REFRESH;
}

static void take_entry(void *context, const char *text) {
    struct chat_terminal *terminal = context;
    HistEvent event;
    history(terminal->history, &event, H_ENTER, text);
}

static void set_up_line(struct chat_terminal *terminal) {
    EditLine *line = terminal->line;
    el_set(line, EL_CLIENTDATA, terminal);
    el_set(line, EL_PROMPT, get_prompt);
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_SIGNAL, 1); /* the terminal is left as it was by those that stop or end us */
    el_set(line, EL_HIST, history, terminal->history);
    el_set(line, EL_ADDFN, "chat-paste", "insert what is pasted", insert_paste);
    el_set(line, EL_BIND, "\\e[200~", "chat-paste", NULL);
    el_set(line, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_set(line, EL_BIND, "\\e[3~", "ed-delete-next-char", NULL);
}

struct chat_terminal *chat_terminal_create(const char *history_path, bool (*take_interrupt)(void)) {
    HistEvent event;
    const char *name = getenv("TERM");
    struct chat_terminal *terminal = calloc(1, sizeof(*terminal));
    CHECK(terminal != NULL);
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX == 1)
        setlocale(LC_CTYPE,
                  "C.UTF-8"); /* for the model's text, regardless of the user's language */
    terminal->line = el_init("quire", stdin, stdout, stderr);
    terminal->history = history_init();
    if (terminal->line == NULL || terminal->history == NULL) {
        chat_terminal_destroy(terminal);
        return NULL;
    }
    terminal->take_interrupt = take_interrupt;
    terminal->history_path = history_path != NULL ? strdup(history_path) : NULL;
    terminal->has_style = name != NULL && strcmp(name, "dumb") != 0;
    history(terminal->history, &event, H_SETSIZE, HISTORY_ENTRIES);
    history(terminal->history, &event, H_SETUNIQUE, 1);
    set_up_line(terminal);
    if (terminal->history_path != NULL)
        chat_history_load(terminal->history_path, take_entry, terminal);
    return terminal;
}

void chat_terminal_destroy(struct chat_terminal *terminal) {
    if (terminal == NULL)
        return;
    if (terminal->line != NULL)
        el_end(terminal->line);
    if (terminal->history != NULL)
        history_end(terminal->history);
    free(terminal->history_path);
    free(terminal);
}

/* Returns the edited line with its end, NULL at the end of input. */
static const char *read_line(struct chat_terminal *terminal, const char *prompt) {
    int count = 0;
    terminal->prompt = prompt;
    terminal->take_interrupt(); /* an old one does not count */
    if (terminal->has_style)
        fputs(PASTE_ON, stdout);
    fflush(stdout);
    el_set(terminal->line, EL_PREP_TERM,
           1); /* before the prompt: what is typed early is shown once */
    const char *text = el_gets(terminal->line, &count);
    if (terminal->has_style)
        fputs(PASTE_OFF, stdout);
    fflush(stdout);
    return count > 0 ? text : NULL;
}

/* Returns whether something stands in the line that was interrupted. */
static bool has_typed(const struct chat_terminal *terminal) {
    const LineInfo *line = el_line(terminal->line);
    return line->lastchar > line->buffer;
}

/* What Ctrl-C does depends on whether it had something to give up. */
static enum chat_input give_up(struct chat_terminal *terminal, bool has_text) {
    puts("^C");
    if (!has_text && terminal->is_leaving)
        return CHAT_INPUT_LEAVE;
    terminal->is_leaving = !has_text;
    if (!has_text)
        chat_terminal_say(terminal, "Ctrl-C again, Ctrl-D or /exit leaves");
    return CHAT_INPUT_INTERRUPTED;
}

/* Returns whether more lines are to come. */
static bool take_line(const char *line, bool *is_quoted, struct byte_buffer *out) {
    size_t length = strlen(line);
    while (length > 0 && strchr(" \t\r\n", line[length - 1]) != NULL)
        length--;
    bool begins = !*is_quoted && out->length == 0 && strncmp(line, "\"\"\"", 3) == 0;
    if (begins) {
        *is_quoted = true;
        line += 3;
        length -= 3;
    }
    bool goes_on = !*is_quoted && length > 0 && line[length - 1] == '\\';
    if (*is_quoted && length >= 3 && memcmp(line + length - 3, "\"\"\"", 3) == 0) {
        *is_quoted = false;
        length -= 3;
    } else if (goes_on) {
        length--;
    }
    byte_buffer_append(out, line, length);
    goes_on = goes_on || *is_quoted;
    if (goes_on)
        byte_buffer_append_text(out, "\n");
    return goes_on;
}

/* Leaves white space at both ends out. */
static void trim(struct byte_buffer *out) {
    size_t begin = 0;
    while (out->length > 0 && strchr(" \t\r\n", out->data[out->length - 1]) != NULL)
        out->length--;
    while (begin < out->length && strchr(" \t\r\n", out->data[begin]) != NULL)
        begin++;
    byte_buffer_consume(out, begin);
    byte_buffer_append(out, "", 1);
    CHECK(!out->failed);
    out->length--;
}

enum chat_input chat_terminal_read(struct chat_terminal *terminal, struct byte_buffer *out) {
    bool is_quoted = false, goes_on = true;
    out->length = 0;
    for (const char *prompt = "> "; goes_on; prompt = ". ") {
        const char *line = read_line(terminal, prompt);
        if (line == NULL && terminal->take_interrupt())
            return give_up(terminal, out->length > 0 || has_typed(terminal));
        if (line == NULL) {
            puts("");
            return CHAT_INPUT_LEAVE;
        }
        terminal->is_leaving = false;
        goes_on = take_line(line, &is_quoted, out);
        if (out->length > CHAT_TERMINAL_MAX_INPUT_BYTES) {
            chat_terminal_say(terminal, "longer than %d MiB",
                              (int)(CHAT_TERMINAL_MAX_INPUT_BYTES >> 20));
            return CHAT_INPUT_INTERRUPTED;
        }
    }
    trim(out);
    if (out->length == 0)
        return CHAT_INPUT_INTERRUPTED;
    take_entry(terminal, out->data);
    if (terminal->history_path != NULL)
        chat_history_add(terminal->history_path, out->data);
    return CHAT_INPUT_TEXT;
}

static void set_style(struct chat_terminal *terminal, bool is_dimmed) {
    if (terminal->is_dimmed != is_dimmed && terminal->has_style)
        fputs(is_dimmed ? DIM : NORMAL, stdout);
    terminal->is_dimmed = is_dimmed;
}

static void clear_status(struct chat_terminal *terminal) {
    if (terminal->has_status)
        fputs(BLANK_LINE, stdout);
    terminal->has_status = false;
}

static void put(struct chat_terminal *terminal, const struct byte_buffer *shown) {
    CHECK(!shown->failed);
    if (shown->length == 0)
        return;
    clear_status(terminal);
    fwrite(shown->data, 1, shown->length, stdout);
    fflush(stdout);
    terminal->is_in_line = shown->data[shown->length - 1] != '\n';
}

void chat_terminal_write(struct chat_terminal *terminal, bool is_dimmed, const char *data,
                         size_t length) {
    struct byte_buffer shown = {0};
    if (terminal->is_dimmed && !is_dimmed)
        chat_terminal_end_text(terminal);
    set_style(terminal, is_dimmed);
    terminal_text_write(&terminal->text, data, length, &shown);
    put(terminal, &shown);
    byte_buffer_finish(&shown);
}

void chat_terminal_note_echo(struct chat_terminal *terminal) {
    terminal->is_in_line = true;
    terminal->has_status = false; /* the key stands after it */
}

void chat_terminal_show_status(struct chat_terminal *terminal, const char *text) {
    struct terminal_text safe = {0};
    struct byte_buffer shown = {0};
    if (!terminal->has_style || terminal->is_in_line)
        return;
    terminal_text_write(&safe, text, strlen(text), &shown);
    terminal_text_end(&safe, &shown);
    CHECK(!shown.failed);
    printf(BLANK_LINE CUT_LINE DIM "%.*s" NORMAL FOLD_LINE, (int)shown.length, shown.data);
    fflush(stdout);
    terminal->has_status = true;
    byte_buffer_finish(&shown);
}

void chat_terminal_end_text(struct chat_terminal *terminal) {
    struct byte_buffer shown = {0};
    terminal_text_end(&terminal->text, &shown);
    put(terminal, &shown);
    byte_buffer_finish(&shown);
    clear_status(terminal);
    set_style(terminal, false);
    if (terminal->is_in_line)
        puts("");
    fflush(stdout);
    terminal->is_in_line = false;
}

void chat_terminal_say(struct chat_terminal *terminal, const char *format, ...) {
    struct byte_buffer line = {0};
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    chat_terminal_end_text(terminal);
    byte_buffer_printf(&line, "%s\n", text);
    CHECK(!line.failed);
    chat_terminal_write(terminal, true, line.data, line.length);
    chat_terminal_end_text(terminal);
    byte_buffer_finish(&line);
}
