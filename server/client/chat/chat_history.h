/* The file with what the user typed in conversations: an entry in each line, with "\n" for a line
 * break in it and "\\" for a backslash, mode 0600. Each entry goes to its end at once, as several
 * conversations may be under way. A file that cannot be used is no error: nothing is kept then. */
#ifndef QUIRE_SERVER_CHAT_CHAT_HISTORY_H
#define QUIRE_SERVER_CHAT_CHAT_HISTORY_H

#include <stdbool.h>
#include <stddef.h>

#define CHAT_HISTORY_MAX_BYTES ((size_t)4 << 20)

/* $XDG_STATE_HOME/quire/chat_history, whose folders are made, or in ~/.local/state. False: there is
 * no such place. */
bool chat_history_path(char *out, size_t capacity);

/* Calls take with each entry, oldest first. A file of more than CHAT_HISTORY_MAX_BYTES is shortened
 * to the newer half of that first. */
void chat_history_load(const char *path, void (*take)(void *context, const char *text),
                       void *context);
void chat_history_add(const char *path, const char *text);

#endif
