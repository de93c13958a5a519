/* Brings the three sources together. The environment and the flags are searched once for the
 * configuration file's path; then defaults, file, environment and flags are applied in this order,
 * so that the later one wins. Every value of the file is checked, also one that is overridden
 * afterwards: a typing error never hides. The environment may have been made for other programs, so
 * a variable in it is only checked when it counts. */
#include "config/options.h"

#include "config/base/check.h"
#include "config/base/log.h"
#include "config/options_table.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENV_PREFIX "QUIRE_"

struct loader {
    struct options options;
    enum option_level list_level[OPTIONS_MAX]; /* which level filled a list */
    bool is_flag_given[OPTIONS_MAX];
    struct option_origin origin;
    struct error *err;
};

/* Variables that are not options: those of the project's tests, and of the simulated device. */
static const char *const other_prefixes[] = {"QUIRE_TEST_", "QUIRE_CUDASIM_"};

static int apply(struct loader *loader, int index, const char *text) {
    size_t count;
    const struct option_spec *spec = &options_table(&count)[index];
    if (spec->type == OPTION_LIST && loader->list_level[index] != loader->origin.level) {
        options_clear_list(spec, &loader->options);
        loader->list_level[index] = loader->origin.level;
    }
    return options_set(spec, text, &loader->origin, &loader->options, loader->err);
}

static int apply_defaults(struct loader *loader) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    loader->origin = (struct option_origin){.level = OPTION_LEVEL_DEFAULT};
    for (size_t i = 0; i < count; i++)
        if (table[i].default_text != NULL && apply(loader, (int)i, table[i].default_text) != 0)
            return -1;
    return 0;
}

static int apply_file_value(void *context, int option, const char *text, size_t line,
                            struct error *err) {
    struct loader *loader = context;
    loader->origin.line = line;
    return apply(loader, option, text);
}

static int apply_file(struct loader *loader, const char *path) {
    loader->origin = (struct option_origin){.level = OPTION_LEVEL_FILE, .path = path};
    return options_file_read(path, apply_file_value, loader, loader->err);
}

static bool is_option_variable(const char *variable) {
    for (size_t i = 0; i < sizeof(other_prefixes) / sizeof(other_prefixes[0]); i++)
        if (strncmp(variable, other_prefixes[i], strlen(other_prefixes[i])) == 0)
            return false;
    return strncmp(variable, ENV_PREFIX, strlen(ENV_PREFIX)) == 0;
}

/* Splits "QUIRE_NAME=value": the option's name in lower case into name. Returns the value, or NULL
 * for a variable that is not meant for us. */
static const char *split_variable(const char *variable, char name[static OPTION_NAME_CAPACITY]) {
    const char *equals = strchr(variable, '=');
    size_t prefix = strlen(ENV_PREFIX);
    if (equals == NULL || !is_option_variable(variable))
        return NULL;
    size_t length = 0;
    for (const char *c = variable + prefix; c < equals && length + 1 < OPTION_NAME_CAPACITY; c++)
        name[length++] = (char)tolower((unsigned char)*c);
    name[length] = '\0';
    return equals + 1;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text);
    return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* Returns whether the text after "port_" is a number, a protocol, and nothing or a part of the
 * address. */
static bool is_port_link(const char *text) {
    static const char *const protocols[] = {"_tcp", "_udp", "_sctp"};
    static const char *const parts[] = {"", "_proto", "_port", "_addr"};
    size_t digits = strspn(text, "0123456789");
    char wanted[32];
    for (size_t i = 0; digits > 0 && i < sizeof(protocols) / sizeof(protocols[0]); i++)
        for (size_t j = 0; j < sizeof(parts) / sizeof(parts[0]); j++) {
            snprintf(wanted, sizeof(wanted), "%s%s", protocols[i], parts[j]);
            if (strcmp(text + digits, wanted) == 0)
                return true;
        }
    return false;
}

/* Returns whether Kubernetes or Docker sets the variable: they do for each service that a container
 * may use, and for the service "quire" or "quire-x" the names begin like ours. name is in lower
 * case and without the prefix. */
static bool is_service_link(const char *name, const char *value) {
    if (ends_with(name, "service_host") || strstr(name, "service_port") != NULL)
        return true;
    if (ends_with(name, "port") && (starts_with(value, "tcp://") || starts_with(value, "udp://") ||
                                    starts_with(value, "sctp://")))
        return true;
    for (const char *port = strstr(name, "port_"); port; port = strstr(port + 1, "port_"))
        if (is_port_link(port + strlen("port_")))
            return true;
    return false;
}

static void warn_of_variable(const char *variable, const char *name) {
    char shown[80], upper[OPTION_NAME_CAPACITY] = "";
    options_quote(variable, strcspn(variable, "="), shown);
    const struct option_spec *near = options_suggest(name, strlen(name));
    for (size_t i = 0; near != NULL && near->name[i] != '\0'; i++) {
        upper[i] = near->name[i] == '-' ? '_' : (char)toupper((unsigned char)near->name[i]);
        upper[i + 1] = '\0';
    }
    log_warning("unknown environment variable %s is ignored%s%s%s", shown,
                near != NULL ? "; did you mean " ENV_PREFIX : "", upper, near != NULL ? "?" : "");
}

void options_warn_of_variables(char *const *environ) {
    char name[OPTION_NAME_CAPACITY];
    for (; *environ != NULL; environ++) {
        const char *value = split_variable(*environ, name);
        if (value != NULL && options_find(name, strlen(name)) < 0 && !is_service_link(name, value))
            warn_of_variable(*environ, name);
    }
}

/* An environment variable is one string, so a list is separated by commas. */
static int apply_comma_list(struct loader *loader, int index, const char *text) {
    for (;;) {
        size_t length = strcspn(text, ",");
        char *item = strndup(text, length);
        if (item == NULL)
            return error_set(loader->err, ERROR_MEMORY, "out of memory while reading the options");
        int rc = apply(loader, index, item);
        free(item);
        if (rc != 0 || text[length] == '\0')
            return rc;
        text += length + 1;
    }
}

static int apply_environment(struct loader *loader, char *const *environ) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    char name[OPTION_NAME_CAPACITY];
    loader->origin = (struct option_origin){.level = OPTION_LEVEL_ENV};
    for (; *environ != NULL; environ++) {
        const char *value = split_variable(*environ, name);
        if (value == NULL)
            continue;
        int index = options_find(name, strlen(name));
        if (index < 0 || loader->is_flag_given[index] || is_service_link(name, value))
            continue;
        bool is_split = table[index].type == OPTION_LIST && !(table[index].flags & OPTION_WORDS);
        int rc = is_split ? apply_comma_list(loader, index, value) : apply(loader, index, value);
        if (rc != 0)
            return -1;
    }
    return 0;
}

static int unknown_argument(const char *argument, struct error *err) {
    char shown[80];
    bool is_flag = strncmp(argument, "--", 2) == 0;
    size_t length = is_flag ? strcspn(argument, "=") : strlen(argument);
    options_quote(argument, length, shown);
    if (!is_flag)
        return error_set(err, ERROR_CONFIG,
                         "unexpected argument \"%s\"; options are written --name value", shown);
    const struct option_spec *near = options_suggest(argument + 2, length - 2);
    return error_set(err, ERROR_CONFIG, "unknown option %s%s%s%s", shown,
                     near != NULL ? "; did you mean --" : "", near != NULL ? near->name : "",
                     near != NULL ? "?" : "; --help lists them");
}

/* The option that "no-NAME" switches off, or -1. */
static int find_negated(const char *name) {
    static const char prefix[] = "no-";
    size_t count, length = strlen(prefix);
    if (strncmp(name, prefix, length) != 0)
        return -1;
    int index = options_find(name + length, strlen(name + length));
    return index >= 0 && options_table(&count)[index].type == OPTION_FLAG ? index : -1;
}

/* Reads the flag at argv[*position] and moves past it and its value. Returns the option's index, or
 * -1 with err filled. */
static int next_flag(int argc, char *const *argv, int *position, const char **out_value,
                     struct error *err) {
    const char *argument = argv[*position];
    if (strncmp(argument, "--", 2) != 0)
        return unknown_argument(argument, err);
    const char *name = argument + strlen("--"), *end = strchrnul(name, '=');
    int negated = find_negated(name);
    int index = negated >= 0 ? negated : options_find(name, (size_t)(end - name));
    if (index < 0)
        return unknown_argument(argument, err);
    *position += 1;
    if (*end == '=') {
        *out_value = end + 1;
        return index;
    }
    size_t count;
    const struct option_spec *spec = &options_table(&count)[index];
    if (spec->type == OPTION_FLAG) {
        *out_value = negated >= 0 ? "false" : "true";
        return index;
    }
    if (*position == argc || strncmp(argv[*position], "--", 2) == 0) {
        struct option_origin origin = {.level = OPTION_LEVEL_FLAG};
        return options_error(spec, NULL, &origin, err, "needs a value after it");
    }
    *out_value = argv[*position];
    *position += 1;
    return index;
}

static int apply_flags(struct loader *loader, int argc, char *const *argv) {
    loader->origin = (struct option_origin){.level = OPTION_LEVEL_FLAG};
    for (int position = 0; position < argc;) {
        const char *value;
        int index = next_flag(argc, argv, &position, &value, loader->err);
        if (index < 0 || apply(loader, index, value) != 0)
            return -1;
    }
    return 0;
}

/* Mistakes in the arguments are left to apply_flags. */
static void find_flags(struct loader *loader, int argc, char *const *argv) {
    for (int position = 0; position < argc;) {
        const char *value;
        int index = next_flag(argc, argv, &position, &value, NULL);
        if (index < 0)
            return;
        loader->is_flag_given[index] = true;
    }
}

void options_hide_secrets(int argc, char *const *argv) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    for (int position = 0; position < argc;) {
        const char *value;
        int index = next_flag(argc, argv, &position, &value, NULL);
        if (index < 0)
            return;
        if ((table[index].flags & OPTION_SECRET) == 0)
            continue;
        /* The value is the end of the argument before the position. */
        char *word = argv[position - 1];
        size_t length = strlen(value);
        memset(word + strlen(word) - length, '*', length);
    }
}

/* Returns the path of the configuration file: the last --config, else QUIRE_CONFIG, else NULL.
 * Mistakes in the arguments are left to apply_flags. */
static const char *find_config_path(int argc, char *const *argv, char *const *environ) {
    int config = options_find("config", strlen("config"));
    const char *path = NULL, *value;
    char name[OPTION_NAME_CAPACITY];
    for (; *environ != NULL; environ++)
        if ((value = split_variable(*environ, name)) != NULL &&
            options_find(name, strlen(name)) == config)
            path = value;
    for (int position = 0; position < argc;) {
        int index = next_flag(argc, argv, &position, &value, NULL);
        if (index < 0)
            break;
        if (index == config)
            path = value;
    }
    return path;
}

static int check_complete(const struct options *options, struct error *err) {
    if (options->model == NULL)
        return error_set(err, ERROR_CONFIG,
                         "option model is missing: give the GGUF file to serve with --model PATH, "
                         "QUIRE_MODEL or model: in the configuration file");
    return 0;
}

int options_load(int argc, char *const *argv, char *const *environ, struct options *out,
                 struct error *err) {
    struct loader loader = {.err = err};
    const char *path = find_config_path(argc, argv, environ);
    find_flags(&loader, argc, argv);
    if (apply_defaults(&loader) != 0 || (path != NULL && apply_file(&loader, path) != 0) ||
        apply_environment(&loader, environ) != 0 || apply_flags(&loader, argc, argv) != 0 ||
        check_complete(&loader.options, err) != 0) {
        options_finish(&loader.options);
        return -1;
    }
    *out = loader.options;
    return 0;
}

void options_finish(struct options *options) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        if (table[i].type == OPTION_LIST)
            options_clear_list(&table[i], options);
        if (table[i].type == OPTION_STRING || table[i].type == OPTION_CHOICE)
            free(*(char **)((char *)options + table[i].offset));
    }
    *options = (struct options){0};
}
