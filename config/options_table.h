/* Private to config/options*.c: what one option is, and the table of all of them. */
#ifndef QUIRE_CONFIG_OPTIONS_TABLE_H
#define QUIRE_CONFIG_OPTIONS_TABLE_H

#include "config/model_options.h"
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
    OPTION_PER_MODEL = 256,   /* concerns a model or its engine: may stand in `models:` */
    OPTION_FIRST_MODEL = 512, /* holds names: outside of `models:` only the first model's */
    OPTION_REPEATED = 1024,   /* OPTION_STRING: if given several times, of a model each; the last
                                 counts   for readers of one */
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

/* Settings of `models:` that are not options of the server: their fields are in struct
 * model_options, their indices follow those of the table. */
enum { SETTING_PIN = OPTIONS_MAX, SETTING_PRELOAD, NUM_SETTINGS };

/* Returns the option with this index, or the setting. */
const struct option_spec *options_spec(int option);

/* Says where a value came from. A list given in a higher level replaces the lower level's list. */
enum option_level { OPTION_LEVEL_DEFAULT, OPTION_LEVEL_FILE, OPTION_LEVEL_ENV, OPTION_LEVEL_FLAG };

struct option_origin {
    enum option_level level;
    const char *path;  /* OPTION_LEVEL_FILE */
    size_t line;       /* OPTION_LEVEL_FILE, from 1 */
    const char *model; /* in `models:`, the model's name; else NULL */
};

/* Checks text and stores it in the option's field of *options: a scalar is replaced, a list grows
 * by the items that text holds (usually one). Returns -1 with ERROR_CONFIG on failure; a scalar is
 * then unchanged. */
int options_set(const struct option_spec *spec, const char *text,
                const struct option_origin *origin, struct options *options, struct error *err);

void option_list_clear(struct option_list *list);
/* Appends a copy to a list that is not full. */
int option_list_append(struct option_list *list, const char *text, struct error *err);
bool option_list_has(const struct option_list *list, const char *text);
/* Empties a list option. */
void options_clear_list(const struct option_spec *spec, struct options *options);

/* Fills err with "NAME VALUE (ORIGIN): WHAT", each part printable and cut to a sane length. text
 * may be NULL. Returns -1. */
int options_error(const struct option_spec *spec, const char *text,
                  const struct option_origin *origin, struct error *err, const char *what);

/* Calls set for every value of the flat YAML map in the file: once for a scalar, once for each item
 * of a sequence, once for a map, written as JSON. set returns -1 to stop. For each model of
 * `models:` it is called with origin->model: first with option -1 and text NULL, then for every
 * setting. */
typedef int (*options_file_set)(void *context, int option, const char *text,
                                const struct option_origin *origin, struct error *err);
int options_file_read(const char *path, options_file_set set, void *context, struct error *err);

/* --- The models, until the options that they have in common are known --- */

struct model_setting {
    int model, option; /* indices */
    char *text;
};

/* Zeroed: empty. Owns all that it points to. */
struct model_source {
    struct option_list paths; /* of the highest level at which OPTION_REPEATED was given */
    struct option_list names; /* of `models:` */
    size_t lines[OPTIONS_MAX_LIST];
    struct model_setting *settings;
    size_t num_settings, capacity;
    struct model_options checked; /* had all settings of all models */
};

/* As options_load, but nothing is required; *models too is only filled on success. */
int options_read(int argc, char *const *argv, char *const *environ, struct options *out,
                 struct model_source *models, struct error *err);
int options_refuse_without_model(struct error *err);

/* Checks and keeps what an options_file_set of `models:` is given. */
int model_source_add(struct model_source *source, int option, const char *text,
                     const struct option_origin *origin, struct error *err);
int model_source_add_path(struct model_source *source, const struct option_spec *spec,
                          const char *path, const struct option_origin *origin, struct error *err);
/* Sets the index-th setting in *model; a list replaces the one that all models have. */
int model_source_apply(const struct model_source *source, size_t index,
                       const struct option_origin *origin, struct model_options *model,
                       struct error *err);
void model_source_finish(struct model_source *source);

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
