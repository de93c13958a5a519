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
#define MAX_MISTAKES 32 /* that are listed */

struct loader {
    struct options options;
    struct model_source models;
    enum option_level list_level[OPTIONS_MAX]; /* which level filled a list */
    bool is_flag_given[OPTIONS_MAX];
    struct option_argument given[OPTIONS_MAX]; /* on the command line; name NULL: not yet */
    struct option_origin origin;
    struct error *err;
};

/* Variables that are not options: those of the project's tests, and of the simulated device. */
static const char *const other_prefixes[] = {"QUIRE_TEST_", "QUIRE_CUDASIM_"};

static int apply(struct loader *loader, int index, const char *text) {
    size_t count;
    const struct option_spec *spec = &options_table(&count)[index];
    bool is_first = loader->list_level[index] != loader->origin.level;
    loader->list_level[index] = loader->origin.level;
    if (is_first && spec->type == OPTION_LIST)
        options_clear_list(spec, &loader->options);
    if (options_set(spec, text, &loader->origin, &loader->options, loader->err) != 0)
        return -1;
    if ((spec->flags & OPTION_REPEATED) == 0)
        return 0;
    if (is_first)
        option_list_clear(&loader->models.paths);
    return model_source_add_path(&loader->models, spec, text, &loader->origin, loader->err);
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

static int apply_file_value(void *context, int option, const char *text,
                            const struct option_origin *origin, struct error *err) {
    struct loader *loader = context;
    loader->origin = *origin;
    return origin->model != NULL ? model_source_add(&loader->models, option, text, origin, err)
                                 : apply(loader, option, text);
}

static int apply_file(struct loader *loader, const char *path) {
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

/* Two names of one option that disagree: which one counts would be a guess. */
static int refuse_conflict(struct loader *loader, const struct option_argument *now,
                           const struct option_argument *before) {
    size_t count;
    char name[80], other[80];
    options_quote(now->name, now->name_length, name);
    options_quote(before->name, before->name_length, other);
    return error_set(loader->err, ERROR_CONFIG,
                     "%s and %s set option %s to different values: give one of them", other, name,
                     options_table(&count)[now->option].name);
}

static bool has_same_name(const struct option_argument *a, const struct option_argument *b) {
    if (a->name_length != b->name_length)
        return false;
    for (size_t i = 0; i < a->name_length; i++)
        if (a->name[i] != b->name[i] && strchr("-_", a->name[i]) == NULL)
            return false;
    return true;
}

/* The same name again may change its value. */
static bool conflicts(const struct option_argument *now, const struct option_argument *before) {
    size_t count;
    const struct option_spec *spec = &options_table(&count)[now->option];
    return before->name != NULL && spec->type != OPTION_LIST && spec->type != OPTION_FLAG &&
           (spec->flags & OPTION_REPEATED) == 0 && !has_same_name(now, before) &&
           strcmp(now->value, before->value) != 0;
}

/* Adds to the refusal of a value what the peer's flag of the same name is here. */
static int explain_peer(struct error *err, const struct peer_flag *flag) {
    if (err == NULL || flag->kind == PEER_SAME || flag->remark == NULL)
        return -1;
    struct error plain = *err;
    return error_set(err, plain.code, "%s; of %s: %s", plain.message, peer_flag_owner(flag),
                     flag->remark);
}

/* Applies one argument; fails with what is wrong with it. */
static int apply_argument(struct loader *loader, const struct option_argument *argument) {
    if (argument->kind == ARGUMENT_REFUSED)
        return error_set(loader->err, ERROR_CONFIG, "%s", argument->what);
    if (argument->kind == ARGUMENT_TAKEN)
        return 0;
    struct option_argument *before = &loader->given[argument->option];
    if (conflicts(argument, before))
        return refuse_conflict(loader, argument, before);
    *before = *argument;
    if (argument->value == argument->mapped)
        before->value = before->mapped;
    if (apply(loader, argument->option, before->value) == 0)
        return 0;
    return argument->flag != NULL ? explain_peer(loader->err, argument->flag) : -1;
}

static int apply_flags(struct loader *loader, int argc, char *const *argv) {
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    loader->origin = (struct option_origin){.level = OPTION_LEVEL_FLAG};
    while (options_next_argument(&reader, &argument))
        if (apply_argument(loader, &argument) != 0)
            return -1;
    return 0;
}

/* Mistakes in the arguments are left to apply_flags. */
static void find_flags(struct loader *loader, int argc, char *const *argv) {
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    while (options_next_argument(&reader, &argument))
        if (argument.kind == ARGUMENT_SETS)
            loader->is_flag_given[argument.option] = true;
}

void options_hide_secrets(int argc, char *const *argv) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    while (options_next_argument(&reader, &argument)) {
        if (argument.kind != ARGUMENT_SETS || (table[argument.option].flags & OPTION_SECRET) == 0)
            continue;
        /* The value is the end of the argument before the position. */
        char *word = argv[reader.position - 1];
        size_t length = strlen(argument.value);
        memset(word + strlen(word) - length, '*', length);
    }
}

/* What is worth saying of an argument that was accepted. */
static void log_argument(const struct option_argument *argument) {
    size_t count;
    char name[80];
    const struct peer_flag *flag = argument->flag;
    options_quote(argument->name, argument->name_length, name);
    if (argument->kind == ARGUMENT_TAKEN)
        log_info("option %s changes nothing%s%s", name, flag->remark != NULL ? ": " : "",
                 flag->remark != NULL ? flag->remark : "");
    else if (flag != NULL && flag->option != NULL && flag->remark != NULL &&
             strcmp(name + strspn(name, "-"), options_table(&count)[argument->option].name) != 0)
        log_info("option %s is --%s: %s", name, flag->option, flag->remark);
}

void options_log_flags(int argc, char *const *argv) {
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    while (options_next_argument(&reader, &argument))
        log_argument(&argument);
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
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    while (options_next_argument(&reader, &argument))
        if (argument.option == config)
            path = argument.value;
    return path;
}

int options_refuse_without_model(struct error *err) {
    return error_set(err, ERROR_CONFIG,
                     "no model is given: `quire serve MODEL`, where MODEL is a GGUF file, a "
                     "folder or ORG/NAME of a hub; or --model, QUIRE_MODEL or model: in the "
                     "configuration file");
}

int options_read(int argc, char *const *argv, char *const *environ, struct options *out,
                 struct model_source *models, struct error *err) {
    struct loader *loader = calloc(1, sizeof(*loader));
    if (loader == NULL)
        return error_set(err, ERROR_MEMORY, "out of memory while reading the options");
    loader->err = err;
    const char *path = find_config_path(argc, argv, environ);
    find_flags(loader, argc, argv);
    int status = apply_defaults(loader);
    if (status == 0 && path != NULL)
        status = apply_file(loader, path);
    if (status == 0)
        status = apply_environment(loader, environ);
    if (status == 0)
        status = apply_flags(loader, argc, argv);
    if (status == 0) {
        *out = loader->options;
        *models = loader->models;
    } else {
        options_finish(&loader->options);
        model_source_finish(&loader->models);
    }
    free(loader);
    return status;
}

int options_load(int argc, char *const *argv, char *const *environ, struct options *out,
                 struct error *err) {
    struct options options;
    struct model_source models;
    if (options_read(argc, argv, environ, &options, &models, err) != 0)
        return -1;
    model_source_finish(&models);
    if (options.model == NULL) {
        options_finish(&options);
        return options_refuse_without_model(err);
    }
    *out = options;
    return 0;
}

void options_list_mistakes(int argc, char *const *argv, const struct error *first,
                           void (*write)(void *context, const char *line), void *context) {
    struct argument_reader reader = {.argc = argc, .argv = argv};
    struct option_argument argument;
    struct error err;
    struct loader *loader = calloc(1, sizeof(*loader));
    bool has_first = false;
    int num_mistakes = 0;
    while (loader != NULL && num_mistakes < MAX_MISTAKES &&
           options_next_argument(&reader, &argument)) {
        loader->origin = (struct option_origin){.level = OPTION_LEVEL_FLAG};
        loader->err = &err;
        if (apply_argument(loader, &argument) == 0)
            continue;
        has_first |= strcmp(err.message, first->message) == 0;
        write(context, err.message);
        num_mistakes++;
    }
    if (!has_first)
        write(context, first->message);
    if (num_mistakes == MAX_MISTAKES)
        write(context, "more is wrong with the command line; see docs/migrating.md");
    if (loader != NULL) {
        options_finish(&loader->options);
        model_source_finish(&loader->models);
    }
    free(loader);
}
