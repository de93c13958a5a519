/* The user's side of `quire chat`: lines are edited by libedit, with a history that is kept in a
 * file, and answers are shown as they come. One at a time in a process. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_TERMINAL_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_TERMINAL_H

#include "config/base/byte_buffer.h"
#include "config/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>

/* --- Text of a model or a server as a terminal may show it: no byte of it acts as a control --- */

/* A zeroed struct begins a text, whose pieces may end anywhere. */
struct terminal_text {
    char kept[UTF8_MAX_BYTES]; /* the begin of a character */
    size_t num_kept;
};

/* Appends the piece to out. Lines and tabs stay, a carriage return is left out; any other control
 * (C0, DEL, C1), bytes that are no UTF-8, and the controls that reorder text (U+202A to U+202E,
 * U+2066 to U+2069) are U+FFFD. */
void terminal_text_write(struct terminal_text *text, const char *data, size_t length,
                         struct byte_buffer *out);
/* Ends the text: what is kept was cut off. */
void terminal_text_end(struct terminal_text *text, struct byte_buffer *out);

/* --- The history --- */

/* The file with what the user typed in conversations: an entry in each line, with "\n" for a line
 * break in it and "\\" for a backslash, mode 0600. Each entry goes to its end at once, as several
 * conversations may be under way. A file that cannot be used is no error: nothing is kept then. */

#define CHAT_HISTORY_MAX_BYTES ((size_t)4 << 20)

/* $XDG_STATE_HOME/quire/chat_history, whose folders are made, or in ~/.local/state. False: there is
 * no such place. */
bool chat_history_path(char *out, size_t capacity);

/* Calls take with each entry, oldest first. A file of more than CHAT_HISTORY_MAX_BYTES is shortened
 * to the newer half of that first. */
void chat_history_load(const char *path, void (*take)(void *context, const char *text),
                       void *context);
void chat_history_add(const char *path, const char *text);

/* --- The terminal --- */

#define CHAT_TERMINAL_MAX_INPUT_BYTES ((size_t)4 << 20)

struct chat_terminal;

enum chat_input {
    CHAT_INPUT_TEXT,
    CHAT_INPUT_INTERRUPTED, /* by Ctrl-C in what was typed, which is gone */
    CHAT_INPUT_LEAVE, /* Ctrl-D, or Ctrl-C twice with nothing typed; or the terminal is gone */
};

/* history_path: of the file with the history; NULL: none is kept. take_interrupt: whether the
 * caller's handler has seen SIGINT since the last time. NULL: there is no terminal that libedit can
 * use. */
struct chat_terminal *chat_terminal_create(const char *history_path, bool (*take_interrupt)(void));
void chat_terminal_destroy(struct chat_terminal *terminal); /* accepts NULL */

/* Reads what the user says: a line, several where a line ends in a backslash, or what stands
 * between """ at the begin of a line and """ at the end of one. Pasted text is one line, with its
 * line breaks in it. out: NUL-terminated behind its length, without leading and trailing white
 * space; not empty. */
enum chat_input chat_terminal_read(struct chat_terminal *terminal, struct byte_buffer *out);

/* Show text of a model or a server, at once. */
void chat_terminal_write(struct chat_terminal *terminal, bool is_dimmed, const char *data,
                         size_t length);
/* The terminal itself has shown a key, as it does with Ctrl-C beside an answer. */
void chat_terminal_note_echo(struct chat_terminal *terminal);
/* Begins a new line, if that is not done, in the usual style: a text is at its end. */
void chat_terminal_end_text(struct chat_terminal *terminal);
/* Shows a line of our own, dimmed. */
void chat_terminal_say(struct chat_terminal *terminal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
