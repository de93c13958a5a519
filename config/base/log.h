/* Levelled log to stderr. Any thread may call it; a line is written by one system call. When stderr
 * takes nothing (a full pipe, a stopped terminal), lines are lost instead of blocking the caller.
 * The log says how many once stderr takes data again.
 *
 * When stderr is the systemd journal (JOURNAL_STREAM is set) lines start with the `<N>` priority
 * prefix of sd-daemon(3) instead of a time stamp. Prompts and generated text are never logged. */
#ifndef QUIRE_CONFIG_BASE_LOG_H
#define QUIRE_CONFIG_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* Names are error, warning, info, debug. Returns false for any other. */
bool log_level_parse(const char *name, enum log_level *out);
const char *log_level_name(enum log_level level);
/* Returns the number of lines that could not be written since the start. */
uint64_t log_num_lost(void);
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says whether what is written to the descriptor becomes lines of the systemd journal. */
bool log_is_journal(int fd);
bool log_is_terminal(void);
/* Shows progress at level info: an unterminated line that replaces the one shown before and is
 * replaced by the next log line. Does nothing unless stderr is a terminal. */
void log_status(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)

#endif
