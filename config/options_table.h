/* Private to config/options*.c: what one option is, and the table of all of them. */
#ifndef QUIRE_CONFIG_OPTIONS_TABLE_H
#define QUIRE_CONFIG_OPTIONS_TABLE_H

#include "config/options.h"
#include "config/peer_flags.h"

#include <stddef.h>

enum option_type {
    OPTION_STRING,  /* char *; minimum and maximum bound its length in bytes */
    OPTION_CHOICE,  /* char *; one of choices */
    OPTION_INTEGER, /* int64_t in minimum..maximum; one of choices if there are any */
    OPTION_BYTES,   /* like OPTION_INTEGER; takes suffixes K, k, ..., T, t (powers of 1024) */
    OPTION_DECIMAL, /* double, written as a decimal; minimum and maximum are in hundredths */
    OPTION_FLAG,    /* bool, "true" or "false"; on the command line the name alone means true, and
                       "no-" with the name false */
    OPTION_LIST,    /* struct option_list; its items are bounded like OPTION_STRING */
};

enum option_flags {
    OPTION_SECRET = 1,      /* its value never appears in a message */
    OPTION_METRIC_NAME = 2, /* holds only characters of a Prometheus name: [a-zA-Z0-9_:] */
    OPTION_NOT_IN_FILE = 4,
    OPTION_OR_AUTO =
        8, /* "auto" is accepted too: OPTIONS_AUTO of an OPTION_DECIMAL, 0 of an OPTION_INTEGER */
    OPTION_WORDS = 16,   /* OPTION_LIST: one value may hold several items, separated by commas or as
                           a JSON array of strings; none holds a comma */
    OPTION_JSON = 32,    /* OPTION_STRING: a JSON object, in the file also written as a map of plain
                            values; its reader checks the contents */
    OPTION_PATH = 64,    /* OPTION_STRING: path of a file, folder or UNIX socket */
    OPTION_SUFFIX = 128, /* OPTION_INTEGER: takes K, M, G and T like OPTION_BYTES */
};

struct option_spec {
    const char *name; /* with dashes, as on the command line */
    enum option_type type;
    int flags;
    size_t offset;            /* into struct options */
    const char *default_text; /* read like any other value; NULL: nothing */
    int64_t minimum, maximum;
    const char *choices; /* separated by single spaces, or NULL */
    const char *meaning; /* one phrase for --help */
};

#define OPTION_NAME_CAPACITY 64
#define OPTIONS_MAX 128 /* room for options_table */

/* Returns all options in the order of --help, and their number in *out_count. */
const struct option_spec *options_table(size_t *out_count);

/* Returns the index of the option with this name, `-` and `_` alike, or -1. */
int options_find(const char *name, size_t length);

/* Returns the option that was probably meant: a peer's name for it, or one so close that a typing
 * error is likely. name is without dashes. NULL: none. */
const struct option_spec *options_suggest(const char *name, size_t length);

/* Says where a value came from. A list given in a higher level replaces the lower level's list. */
enum option_level { OPTION_LEVEL_DEFAULT, OPTION_LEVEL_FILE, OPTION_LEVEL_ENV, OPTION_LEVEL_FLAG };

struct option_origin {
    enum option_level level;
    const char *path; /* OPTION_LEVEL_FILE */
    size_t line;      /* OPTION_LEVEL_FILE, from 1 */
};

/* Checks text and stores it in the option's field of *options: a scalar is replaced, a list grows
 * by the items that text holds (usually one). Returns -1 with ERROR_CONFIG on failure; a scalar is
 * then unchanged. */
int options_set(const struct option_spec *spec, const char *text,
                const struct option_origin *origin, struct options *options, struct error *err);

/* Empties a list option. */
void options_clear_list(const struct option_spec *spec, struct options *options);

/* Fills err with "NAME VALUE (ORIGIN): WHAT", each part printable and cut to a sane length. text
 * may be NULL. Returns -1. */
int options_error(const struct option_spec *spec, const char *text,
                  const struct option_origin *origin, struct error *err, const char *what);

/* Calls set for every value of the flat YAML map in the file: once for a scalar, once for each item
 * of a sequence, once for a map, written as JSON. set returns -1 to stop. */
typedef int (*options_file_set)(void *context, int option, const char *text, size_t line,
                                struct error *err);
int options_file_read(const char *path, options_file_set set, void *context, struct error *err);

/* Reads true, false, on, off, yes, no, 1 and 0, in either case. */
bool options_parse_flag(const char *text, bool *out);

/* --- The command line, argument by argument --- */

enum argument_kind {
    ARGUMENT_SETS,    /* an option to a value */
    ARGUMENT_TAKEN,   /* a peer's flag that changes nothing */
    ARGUMENT_REFUSED, /* `what` says why */
};

struct option_argument {
    enum argument_kind kind;
    const char *name; /* as given, of name_length bytes; "MODEL" if there was none */
    size_t name_length;
    const struct peer_flag *flag; /* NULL: the name is ours, or nobody's */
    int option;                   /* SETS: its index; else -1 */
    const char *value;            /* SETS: points to mapped, or to the end of a word of argv */
    char mapped[64];
    char what[400]; /* REFUSED */
};

/* Where the reading is; zeroed but for argc and argv it is at the beginning. */
struct argument_reader {
    int argc;
    char *const *argv;
    int position; /* of the next argument */
    bool has_model;
    int list; /* 1 + the index of the list option whose further values may follow; 0: none */
};

/* Reads the argument at the reader's position with its value, and moves past it. Takes our names, a
 * peer's (peer_flags.h), and one word without a name, the model; with a model given already, such a
 * word after a list option's value is another value. Returns false at the end. */
bool options_next_argument(struct argument_reader *reader, struct option_argument *out);

/* Returns the word that stands for the option's value in help texts, such as "PATH" or "N"; empty
 * for OPTION_FLAG. Static storage. */
const char *options_placeholder(const struct option_spec *spec);

/* Appends what is allowed: "1 to 1024", "16, 32, 64", or nothing for free text. */
void options_append_range(const struct option_spec *spec, struct byte_buffer *out);

/* Makes text safe to show in one line: control characters become '?', long text is cut. */
void options_quote(const char *text, size_t length, char out[static 80]);

#endif
