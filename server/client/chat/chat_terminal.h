/* The user's side of `quire chat`: lines are edited with libedit, with a history in a file, and
 * answers are shown as they arrive. Only one at a time per process. */
#ifndef QUIRE_SERVER_CLIENT_CHAT_CHAT_TERMINAL_H
#define QUIRE_SERVER_CLIENT_CHAT_CHAT_TERMINAL_H

#include "config/base/byte_buffer.h"
#include "config/base/utf8.h"

#include <stdbool.h>
#include <stddef.h>

/* --- Makes text of a model or a server safe for a terminal: no byte acts as a control --- */

/* A zeroed struct begins a text, whose pieces may end anywhere. */
struct terminal_text {
    char kept[UTF8_MAX_BYTES]; /* the beginning of a character */
    size_t num_kept;
};

/* Appends the piece to out. Line feeds and tabs stay, carriage returns are left out. Other controls
 * (C0, DEL, C1), bytes that are not UTF-8, and the controls that reorder text (U+202A to U+202E,
 * U+2066 to U+2069) become U+FFFD. */
void terminal_text_write(struct terminal_text *text, const char *data, size_t length,
                         struct byte_buffer *out);
/* Ends the text; an incomplete character counts as cut off. */
void terminal_text_end(struct terminal_text *text, struct byte_buffer *out);

/* --- The history --- */

/* The file with the user's input of all conversations: one entry per line, with "\n" for a line
 * break and "\\" for a backslash, mode 0600. Each entry is appended at once, because several
 * conversations may be running. A file that cannot be used is not an error: then nothing is kept.
 */

#define CHAT_HISTORY_MAX_BYTES ((size_t)4 << 20)

/* $XDG_STATE_HOME/quire/chat_history, whose folders are created, or in ~/.local/state. False: no
 * such path is known. */
bool chat_history_path(char *out, size_t capacity);

/* Calls take with each entry, oldest first. A file of more than CHAT_HISTORY_MAX_BYTES is first
 * shortened to its newest entries, half that size. */
void chat_history_load(const char *path, void (*take)(void *context, const char *text),
                       void *context);
void chat_history_add(const char *path, const char *text);

/* --- The terminal --- */

#define CHAT_TERMINAL_MAX_INPUT_BYTES ((size_t)4 << 20)

struct chat_terminal;

enum chat_input {
    CHAT_INPUT_TEXT,
    CHAT_INPUT_INTERRUPTED, /* by Ctrl-C; the typed text is discarded */
    CHAT_INPUT_LEAVE, /* Ctrl-D, or Ctrl-C twice with nothing typed; or the terminal is gone */
};

/* history_path: the history file; NULL: no history. take_interrupt: returns whether the caller's
 * handler has seen SIGINT since the last call. Returns NULL when there is no terminal that libedit
 * can use. */
struct chat_terminal *chat_terminal_create(const char *history_path, bool (*take_interrupt)(void));
void chat_terminal_destroy(struct chat_terminal *terminal); /* accepts NULL */

/* Reads the user's input: one line, several if lines end in a backslash, or the text between """ at
 * the beginning of a line and """ at the end of one. Pasted text counts as one line, including its
 * line breaks. out: NUL-terminated after its length, without leading and trailing white space; not
 * empty. */
enum chat_input chat_terminal_read(struct chat_terminal *terminal, struct byte_buffer *out);

/* Show text of a model or a server, at once. */
void chat_terminal_write(struct chat_terminal *terminal, bool is_dimmed, const char *data,
                         size_t length);
/* Notes that the terminal itself has echoed a key, as it does with Ctrl-C during an answer. */
void chat_terminal_note_echo(struct chat_terminal *terminal);
/* Ends a text: begins a new line, unless it is on one, in the usual style. */
void chat_terminal_end_text(struct chat_terminal *terminal);
/* Shows a line that the next output takes the place of. Nothing on a terminal without control
 * sequences. */
void chat_terminal_show_status(struct chat_terminal *terminal, const char *text);
/* Shows a line of our own, dimmed. */
void chat_terminal_say(struct chat_terminal *terminal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
