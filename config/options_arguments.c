/* One argument of the command line after the other: whose name it is, what it sets, or why it is
 * refused. */
#include "config/options_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define MODEL_WORD "MODEL"

static const struct option_spec *spec_of(int option) {
    size_t count;
    return &options_table(&count)[option];
}

static bool is_option(int option, const char *name) {
    return option >= 0 && strcmp(spec_of(option)->name, name) == 0;
}

/* --- Words --- */

/* "-1" and "-" are values. */
static bool is_flag_word(const char *word) {
    return word[0] == '-' && (word[1] == '-' || isalpha((unsigned char)word[1]));
}

/* Returns the next word and moves past it; NULL if there is none or it is a flag. */
static const char *take_word(struct argument_reader *reader) {
    if (reader->position == reader->argc || is_flag_word(reader->argv[reader->position]))
        return NULL;
    return reader->argv[reader->position++];
}

/* Returns the next word if it is one that may follow a switch. */
static const char *take_switch_word(struct argument_reader *reader) {
    bool ignored;
    if (reader->position == reader->argc)
        return NULL;
    const char *word = reader->argv[reader->position];
    if (!options_parse_flag(word, &ignored) && strcmp(word, "auto") != 0)
        return NULL;
    reader->position++;
    return word;
}

/* --- Refusals --- */

static bool refuse(struct option_argument *argument, const char *what) {
    char shown[80];
    options_quote(argument->name, argument->name_length, shown);
    argument->kind = ARGUMENT_REFUSED;
    snprintf(argument->what, sizeof(argument->what), "option %s%s", shown, what);
    return true;
}

/* Says what a peer's flag is here. */
static bool refuse_peer(struct option_argument *argument, const char *verdict) {
    char what[300];
    const struct peer_flag *flag = argument->flag;
    bool has_other = flag->kind == PEER_NONE && flag->option != NULL;
    snprintf(what, sizeof(what), " of %s %s%s%s%s%s%s", peer_flag_owner(flag), verdict,
             has_other ? "; use --" : "", has_other ? flag->option : "",
             flag->remark == NULL ? ""
             : has_other          ? " ("
                                  : ": ",
             flag->remark != NULL ? flag->remark : "",
             has_other && flag->remark != NULL ? ")" : "");
    return refuse(argument, what);
}

/* The next word is probably its value. */
static void skip_value(struct argument_reader *reader, const struct option_spec *near) {
    if (reader->has_model || (near != NULL && near->type != OPTION_FLAG))
        take_word(reader);
}

static bool refuse_unknown(struct argument_reader *reader, struct option_argument *argument,
                           const char *given) {
    char shown[80];
    size_t dashes = strspn(argument->name, "-");
    options_quote(argument->name, argument->name_length, shown);
    const struct option_spec *near =
        dashes < argument->name_length
            ? options_suggest(argument->name + dashes, argument->name_length - dashes)
            : NULL;
    if (given == NULL)
        skip_value(reader, near);
    argument->kind = ARGUMENT_REFUSED;
    snprintf(argument->what, sizeof(argument->what), "unknown option %s%s%s%s", shown,
             near != NULL ? "; did you mean --" : "", near != NULL ? near->name : "",
             near != NULL ? "?" : "; --help lists them");
    return true;
}

static bool refuse_word(struct option_argument *argument, const char *word) {
    char shown[80];
    options_quote(word, strlen(word), shown);
    argument->kind = ARGUMENT_REFUSED;
    snprintf(
        argument->what, sizeof(argument->what),
        "unexpected argument \"%s\": the model is given already (more models: --model NAME), and "
        "options are written --name value",
        shown);
    return true;
}

/* --- What an argument sets --- */

static bool set(struct argument_reader *reader, struct option_argument *argument, int option,
                const char *value) {
    argument->kind = ARGUMENT_SETS;
    argument->option = option;
    argument->value = value;
    reader->has_model |= is_option(option, "model");
    reader->list = spec_of(option)->type == OPTION_LIST ? option + 1 : 0;
    return true;
}

static bool read_unnamed(struct argument_reader *reader, struct option_argument *argument) {
    const char *word = reader->argv[reader->position++];
    if (reader->has_model && reader->list == 0)
        return refuse_word(argument, word);
    int option = reader->has_model ? reader->list - 1 : options_find("model", strlen("model"));
    argument->name = reader->has_model ? spec_of(option)->name : MODEL_WORD;
    argument->name_length = strlen(argument->name);
    return set(reader, argument, option, word);
}

/* Sets the option to what the peer's value is called here; nothing at all is a value too. */
static bool set_mapped(struct argument_reader *reader, struct option_argument *argument, int option,
                       const char *value) {
    const char *ours;
    size_t length;
    if (argument->flag == NULL || argument->flag->kind != PEER_SAME ||
        !peer_flag_map(argument->flag, value, &ours, &length))
        return set(reader, argument, option, value);
    if (length == 0) {
        argument->kind = ARGUMENT_TAKEN;
        return true;
    }
    snprintf(argument->mapped, sizeof(argument->mapped), "%.*s", (int)length, ours);
    return set(reader, argument, option, argument->mapped);
}

/* --- Names that are ours --- */

/* Reads the value of an option of ours, or of a peer's name for it. given: after "=", or NULL. */
static bool read_value(struct argument_reader *reader, struct option_argument *argument, int option,
                       const char *given) {
    const char *value = given;
    bool is_switch = spec_of(option)->type == OPTION_FLAG;
    if (value == NULL)
        value = is_switch ? take_switch_word(reader) : take_word(reader);
    if (value == NULL && is_switch)
        value = "true";
    if (value == NULL)
        return refuse(argument, " (command line): needs a value after it");
    return set_mapped(reader, argument, option, value);
}

/* The option that "no-NAME" switches off, or -1. */
static int find_negated(const char *name, size_t length) {
    static const char prefix[] = "no-";
    size_t skipped = strlen(prefix);
    if (length <= skipped || strncmp(name, prefix, skipped) != 0)
        return -1;
    int option = options_find(name + skipped, length - skipped);
    return option >= 0 && spec_of(option)->type == OPTION_FLAG ? option : -1;
}

/* --- Names that are a peer's --- */

static const char *take_peer_value(struct argument_reader *reader, const struct peer_flag *flag) {
    const char *value = NULL;
    if (flag->takes == PEER_MAYBE)
        return take_switch_word(reader);
    if (flag->takes == PEER_VALUE || flag->takes == PEER_MANY)
        value = take_word(reader);
    while (flag->takes == PEER_MANY && value != NULL && take_word(reader) != NULL)
        ;
    return value;
}

/* What asks for what is so anyway is taken. */
static bool read_switch(struct option_argument *argument, bool is_on) {
    bool is_kept = argument->flag->kind == PEER_TAKEN;
    if (is_on == is_kept) {
        argument->kind = ARGUMENT_TAKEN;
        return true;
    }
    return refuse_peer(argument, is_kept                                 ? "cannot be turned off"
                                 : argument->flag->kind == PEER_NEEDLESS ? "is not needed"
                                                                         : "is not available");
}

static bool read_peer(struct argument_reader *reader, struct option_argument *argument,
                      const char *given, bool is_negated) {
    const struct peer_flag *flag = argument->flag;
    const char *ours;
    size_t length;
    bool is_on = true;
    if (flag->kind == PEER_SAME) {
        int option = options_find(flag->option, strlen(flag->option));
        return read_value(reader, argument, option, is_negated ? "false" : given);
    }
    const char *value = is_negated      ? "false"
                        : given != NULL ? given
                                        : take_peer_value(reader, flag);
    if (value != NULL && peer_flag_map(flag, value, &ours, &length)) {
        argument->kind = ARGUMENT_TAKEN;
        return true;
    }
    bool is_switch = flag->takes == PEER_NOTHING || flag->takes == PEER_MAYBE;
    if (!is_switch && flag->kind == PEER_TAKEN && flag->values != NULL)
        return refuse_peer(argument, "cannot have this value");
    if (is_switch && value != NULL)
        options_parse_flag(value, &is_on);
    return read_switch(argument, is_on);
}

/* Finds a peer's flag, or the switch that "--no-NAME" turns off. */
static const struct peer_flag *find_peer(const char *name, size_t length, bool *out_negated) {
    static const char prefix[] = "--no-";
    char plain[OPTION_NAME_CAPACITY + 2];
    const struct peer_flag *flag = peer_flag_find(name, length);
    size_t skipped = strlen(prefix);
    *out_negated = false;
    if (flag != NULL || length <= skipped || length >= sizeof(plain) ||
        strncmp(name, prefix, skipped) != 0)
        return flag;
    snprintf(plain, sizeof(plain), "--%.*s", (int)(length - skipped), name + skipped);
    flag = peer_flag_find(plain, strlen(plain));
    *out_negated = true;
    return flag != NULL && (flag->takes == PEER_NOTHING || flag->takes == PEER_MAYBE) ? flag : NULL;
}

/* Other programs' names for an option of ours only serve to suggest it. */
static bool is_known_peer(const struct peer_flag *flag) {
    return flag != NULL && (flag->peers != PEER_OTHER || flag->option == NULL ||
                            options_find(flag->option, strlen(flag->option)) < 0);
}

bool options_next_argument(struct argument_reader *reader, struct option_argument *out) {
    *out = (struct option_argument){.option = -1};
    if (reader->position == reader->argc)
        return false;
    const char *word = reader->argv[reader->position], *equals = strchr(word, '=');
    if (!is_flag_word(word))
        return read_unnamed(reader, out);
    const char *given = equals != NULL ? equals + 1 : NULL;
    bool is_negated, is_long = word[1] == '-';
    reader->position++;
    reader->list = 0;
    out->name = word;
    out->name_length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    int option = is_long ? options_find(word + 2, out->name_length - 2) : -1;
    int negated = is_long && given == NULL ? find_negated(word + 2, out->name_length - 2) : -1;
    out->flag = find_peer(word, out->name_length, &is_negated);
    if (is_negated && given != NULL)
        out->flag = NULL;
    if (option >= 0)
        return read_value(reader, out, option, given);
    if (negated >= 0)
        return set(reader, out, negated, "false");
    return is_known_peer(out->flag) ? read_peer(reader, out, given, is_negated)
                                    : refuse_unknown(reader, out, given);
}
