/* The user's side of `quire chat`: lines are edited by libedit, with a history that is kept in a
 * file, and answers are shown as they come (terminal_text.h). One at a time in a process. */
#ifndef QUIRE_SERVER_CHAT_CHAT_TERMINAL_H
#define QUIRE_SERVER_CHAT_CHAT_TERMINAL_H

#include "config/base/byte_buffer.h"

#include <stdbool.h>

#define CHAT_TERMINAL_MAX_INPUT_BYTES ((size_t)4 << 20)

struct chat_terminal;

enum chat_input {
    CHAT_INPUT_TEXT,
    CHAT_INPUT_INTERRUPTED, /* by Ctrl-C in what was typed, which is gone */
    CHAT_INPUT_LEAVE, /* Ctrl-D, or Ctrl-C twice with nothing typed; or the terminal is gone */
};

/* history_path: of the file (chat_history.h); NULL: none is kept. take_interrupt: whether the
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
