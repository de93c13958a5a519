/* Says why a function failed.
 *
 * A failing function returns -1 (or NULL) and fills the caller's `struct error`; it leaves every
 * other output untouched and logs nothing. Only `main` and the HTTP layer turn errors into text
 * that people see, so a message names the thing that is wrong (option, file, field), its value and
 * what is allowed, in one line without a trailing full stop or newline.
 */
#ifndef QUIRE_CONFIG_BASE_ERROR_H
#define QUIRE_CONFIG_BASE_ERROR_H

enum error_code {
    ERROR_NONE = 0,
    ERROR_SYNTAX, /* the bytes are not in the expected format. The caller, who knows where they come
                     from, turns it into ERROR_MODEL or an HTTP status and puts a subject before the
                     message */
    ERROR_CONFIG, /* an option or the configuration file: exit status 78 */
    ERROR_MODEL,  /* a model file is broken or not supported: exit status 78 */
    ERROR_MEMORY, /* an allocation failed or a memory limit is too small */
    ERROR_IO,     /* the operating system refused: socket, file, thread */
    ERROR_DEVICE, /* a backend failed: exit status 70 */
    ERROR_UNAVAILABLE, /* another server does not answer, or answers wrongly: exit status 69 */
    ERROR_INTERRUPTED, /* stopped by a signal; running it again continues from there: 75 */
    ERROR_RESTART, /* the ranks are lost and may be started again (engine/executor/executor.h) */
};

struct error {
    enum error_code code;
    char message[512];
};

/* Formats into err (which may be NULL), with '?' for each control character, and returns -1, so
 * that `return error_set(...)` reads well. */
int error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
