/* Text to checked value: one option, one place. */
#include "config/base/check.h"
#include "config/options_table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void options_quote(const char *text, size_t length, char out[static 80]) {
    size_t shown = length < 60 ? length : 60;
    for (size_t i = 0; i < shown; i++)
        out[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    strcpy(out + shown, length > shown ? "..." : "");
}

int options_error(const struct option_spec *spec, const char *text,
                  const struct option_origin *origin, struct error *err, const char *what) {
    char value[80] = "";
    char place[160] = "default";
    if (text != NULL && (spec->flags & OPTION_SECRET) == 0)
        options_quote(text, strlen(text), value);
    if (origin->level == OPTION_LEVEL_FLAG)
        snprintf(place, sizeof(place), "command line");
    if (origin->level == OPTION_LEVEL_ENV)
        snprintf(place, sizeof(place), "environment");
    if (origin->level == OPTION_LEVEL_FILE)
        snprintf(place, sizeof(place), "%.120s line %zu", origin->path, origin->line);
    bool shown = text != NULL && (spec->flags & OPTION_SECRET) == 0;
    return error_set(err, ERROR_CONFIG, "option %s%s%s%s%s%s (%s): %s", spec->name,
                     shown ? " \"" : "", value, shown ? "\"" : "",
                     origin->model != NULL ? " of model " : "",
                     origin->model != NULL ? origin->model : "", place, what);
}

/* Is text one of the words in choices? */
static bool is_choice(const char *choices, const char *text) {
    size_t length = strlen(text);
    for (const char *word = choices; word != NULL;) {
        const char *end = strchrnul(word, ' ');
        if ((size_t)(end - word) == length && memcmp(word, text, length) == 0)
            return true;
        word = *end == '\0' ? NULL : end + 1;
    }
    return false;
}

/* Returns the power of two that a size suffix (K, k, KiB, ...) stands for, or -1. */
static int suffix_shift(const char *suffix) {
    static const char letters[] = "kKmMgGtT";
    const char *letter = suffix[0] != '\0' ? strchr(letters, suffix[0]) : NULL;
    if (letter == NULL || (suffix[1] != '\0' && strcmp(suffix + 1, "iB") != 0))
        return -1;
    return 10 * ((int)(letter - letters) / 2 + 1);
}

static bool takes_suffix(const struct option_spec *spec) {
    return spec->type == OPTION_BYTES || (spec->flags & OPTION_SUFFIX) != 0;
}

static bool is_auto(const struct option_spec *spec, const char *text) {
    return (spec->flags & OPTION_OR_AUTO) != 0 && strcmp(text, "auto") == 0;
}

/* Decimal digits with an optional minus, then a size suffix where the option takes one. */
static bool parse_integer(const struct option_spec *spec, const char *text, int64_t *out) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] < '0' || digits[0] > '9')
        return false;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno != 0)
        return false;
    if (*end != '\0') {
        int shift = takes_suffix(spec) ? suffix_shift(end) : -1;
        if (shift < 0 || __builtin_mul_overflow(value, 1LL << shift, &value))
            return false;
    }
    *out = value;
    return true;
}

static int set_integer(const struct option_spec *spec, const char *text,
                       const struct option_origin *origin, int64_t *field, struct error *err) {
    char what[160];
    int64_t value;
    if (is_auto(spec, text)) {
        *field = 0;
        return 0;
    }
    if (parse_integer(spec, text, &value) && value >= spec->minimum && value <= spec->maximum &&
        (spec->choices == NULL || is_choice(spec->choices, text))) {
        *field = value;
        return 0;
    }
    if (spec->choices != NULL)
        snprintf(what, sizeof(what), "must be one of: %s", spec->choices);
    else
        snprintf(what, sizeof(what), "must be a whole number from %" PRId64 " to %" PRId64 "%s%s",
                 spec->minimum, spec->maximum,
                 takes_suffix(spec) ? ", suffix K, M, G or T allowed" : "",
                 (spec->flags & OPTION_OR_AUTO) != 0 ? ", or auto" : "");
    return options_error(spec, text, origin, err, what);
}

/* A share of 1 may also be written in per cent. */
static bool is_share(const struct option_spec *spec) {
    return spec->maximum == 100;
}

/* Digits with at most one point between or before them, for a share with % after them. */
static bool parse_decimal(const struct option_spec *spec, const char *text, double *out) {
    size_t whole = strspn(text, "0123456789");
    size_t places = text[whole] == '.' ? strspn(text + whole + 1, "0123456789") : 0;
    size_t length = whole + (text[whole] == '.' ? places + 1 : 0);
    bool is_percent = is_share(spec) && text[length] == '%';
    if (text[length + is_percent] != '\0' || length > 32 || (places == 0 && length != whole) ||
        length == 0)
        return false;
    *out = strtod(text, NULL) / (is_percent ? 100 : 1);
    return true;
}

static int set_decimal(const struct option_spec *spec, const char *text,
                       const struct option_origin *origin, double *field, struct error *err) {
    char what[80];
    double value, least = (double)spec->minimum / 100, most = (double)spec->maximum / 100;
    if (is_auto(spec, text)) {
        *field = OPTIONS_AUTO;
        return 0;
    }
    if (parse_decimal(spec, text, &value) && value >= least && value <= most) {
        *field = value;
        return 0;
    }
    snprintf(what, sizeof(what), "must be a number from %g to %g%s%s", least, most,
             is_share(spec) ? ", or in per cent" : "",
             (spec->flags & OPTION_OR_AUTO) != 0 ? ", or auto" : "");
    return options_error(spec, text, origin, err, what);
}

bool options_parse_flag(const char *text, bool *out) {
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(text, words[i]) == 0) {
            *out = i % 2 == 1;
            return true;
        }
    return false;
}

static int set_flag(const struct option_spec *spec, const char *text,
                    const struct option_origin *origin, bool *field, struct error *err) {
    return options_parse_flag(text, field)
               ? 0
               : options_error(spec, text, origin, err,
                               "must be true or false (also on, off, yes, no, 1, 0)");
}

static bool is_metric_name(const char *text) {
    if (text[0] >= '0' && text[0] <= '9')
        return false;
    return text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:")] ==
           '\0';
}

static int check_string(const struct option_spec *spec, const char *text,
                        const struct option_origin *origin, struct error *err) {
    char what[160];
    size_t length = strlen(text);
    if (length < (size_t)spec->minimum || length > (size_t)spec->maximum) {
        snprintf(what, sizeof(what), "must be %" PRId64 " to %" PRId64 " bytes long, is %zu",
                 spec->minimum, spec->maximum, length);
        return options_error(spec, text, origin, err, what);
    }
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return options_error(spec, text, origin, err, "must not hold control characters");
    if ((spec->flags & OPTION_METRIC_NAME) != 0 && !is_metric_name(text))
        return options_error(spec, text, origin, err,
                             "must hold letters, digits, _ and : only and not start with a digit");
    return 0;
}

static char *copy_text(const char *text, struct error *err) {
    char *copy = strdup(text);
    if (copy == NULL)
        error_set(err, ERROR_MEMORY, "out of memory while reading the options");
    return copy;
}

static int set_string(const char *text, char **field, struct error *err) {
    char *copy = copy_text(text, err);
    if (copy == NULL)
        return -1;
    free(*field);
    *field = copy;
    return 0;
}

int option_list_append(struct option_list *list, const char *text, struct error *err) {
    char *copy = copy_text(text, err);
    if (copy == NULL)
        return -1;
    list->items[list->count++] = copy;
    return 0;
}

bool option_list_has(const struct option_list *list, const char *text) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

static int append_item(const struct option_spec *spec, const char *text,
                       const struct option_origin *origin, struct option_list *list,
                       struct error *err) {
    char what[64];
    if (list->count == OPTIONS_MAX_LIST) {
        snprintf(what, sizeof(what), "takes at most %d values", OPTIONS_MAX_LIST);
        return options_error(spec, text, origin, err, what);
    }
    return option_list_append(list, text, err);
}

static char *trim(char *text) {
    text += strspn(text, " ");
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ')
        length--;
    text[length] = '\0';
    return text;
}

/* Cuts the quotes off; NULL where they are missing. */
static char *unquote(char *text) {
    size_t length = strlen(text);
    if (length < 2 || text[0] != '"' || text[length - 1] != '"')
        return NULL;
    text[length - 1] = '\0';
    return text + 1;
}

/* Adds the items of `words`, which it takes apart. */
static int append_separated(const struct option_spec *spec, char *words, bool is_array,
                            const struct option_origin *origin, struct option_list *list,
                            struct error *err) {
    for (char *rest = words; rest != NULL;) {
        char *word = trim(strsep(&rest, ","));
        char *item = is_array ? unquote(word) : word;
        if (item == NULL)
            return options_error(spec, word, origin, err, "must be a JSON array of strings");
        if (check_string(spec, item, origin, err) != 0 ||
            append_item(spec, item, origin, list, err) != 0)
            return -1;
    }
    return 0;
}

/* A bracket may also begin an IPv6 address, so that what comes next decides whether it is an
 * array. */
static bool is_array(const char *text) {
    if (text[0] != '[')
        return false;
    char inside = text[1 + strspn(text + 1, " ")];
    return inside == '"' || inside == ']';
}

/* "a, b" or the JSON array ["a", "b"]. */
static int append_words(const struct option_spec *spec, const char *text,
                        const struct option_origin *origin, struct option_list *list,
                        struct error *err) {
    char *copy = copy_text(text, err);
    if (copy == NULL)
        return -1;
    char *words = trim(copy);
    bool in_brackets = is_array(words);
    size_t length = strlen(words);
    int rc = 0;
    if (in_brackets && words[length - 1] != ']') {
        rc = options_error(spec, text, origin, err, "must be a JSON array of strings");
    } else if (in_brackets) {
        words[length - 1] = '\0';
        words = trim(words + 1);
    }
    if (rc == 0 && !(in_brackets && words[0] == '\0'))
        rc = append_separated(spec, words, in_brackets, origin, list, err);
    free(copy);
    return rc;
}

int options_set(const struct option_spec *spec, const char *text,
                const struct option_origin *origin, struct options *options, struct error *err) {
    char what[400];
    void *field = (char *)options + spec->offset;
    switch (spec->type) {
    case OPTION_INTEGER:
    case OPTION_BYTES:
        return set_integer(spec, text, origin, field, err);
    case OPTION_DECIMAL:
        return set_decimal(spec, text, origin, field, err);
    case OPTION_FLAG:
        return set_flag(spec, text, origin, field, err);
    case OPTION_CHOICE:
        if (is_choice(spec->choices, text))
            return set_string(text, field, err);
        snprintf(what, sizeof(what), "must be one of: %s", spec->choices);
        return options_error(spec, text, origin, err, what);
    case OPTION_STRING:
        return check_string(spec, text, origin, err) == 0 ? set_string(text, field, err) : -1;
    case OPTION_LIST:
        if ((spec->flags & OPTION_WORDS) != 0)
            return append_words(spec, text, origin, field, err);
        return check_string(spec, text, origin, err) == 0
                   ? append_item(spec, text, origin, field, err)
                   : -1;
    }
    CHECK(!"every option type is handled");
}

void option_list_clear(struct option_list *list) {
    for (int i = 0; i < list->count; i++)
        free(list->items[i]);
    list->count = 0;
}

void options_clear_list(const struct option_spec *spec, struct options *options) {
    option_list_clear((struct option_list *)((char *)options + spec->offset));
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

/* Returns whether the field's value is what "auto" stands for. */
static bool has_auto(const struct option_spec *spec, const void *field) {
    return (spec->flags & OPTION_OR_AUTO) != 0 &&
           (spec->type == OPTION_DECIMAL ? *(const double *)field == OPTIONS_AUTO
                                         : *(const int64_t *)field == 0);
}

bool options_print(const struct options *options, const char *name, char *out, size_t capacity) {
    size_t count;
    int index = options_find(name, strlen(name)), length = -1;
    CHECK(index >= 0);
    const struct option_spec *spec = &options_table(&count)[index];
    const void *field = (const char *)options + spec->offset;
    CHECK(spec->type != OPTION_LIST && (spec->flags & OPTION_SECRET) == 0);
    switch (spec->type) {
    case OPTION_STRING:
    case OPTION_CHOICE: {
        const char *text = *(char *const *)field;
        length = text != NULL ? snprintf(out, capacity, "%s", text) : -1;
        break;
    }
    case OPTION_INTEGER:
    case OPTION_BYTES:
        length = has_auto(spec, field)
                     ? snprintf(out, capacity, "auto")
                     : snprintf(out, capacity, "%" PRId64, *(const int64_t *)field);
        break;
    case OPTION_DECIMAL:
        length = has_auto(spec, field) ? snprintf(out, capacity, "auto")
                                       : snprintf(out, capacity, "%f", *(const double *)field);
        break;
    case OPTION_FLAG:
        length = snprintf(out, capacity, "%s", *(const bool *)field ? "true" : "false");
        break;
    case OPTION_LIST:
        break;
    }
    return length >= 0 && (size_t)length < capacity;
}

/* http://USER:PASSWORD@HOST, also within JSON. */
static bool has_password(const char *text) {
    const char *authority = text;
    while ((authority = strstr(authority, "://")) != NULL) {
        authority += strlen("://");
        if (authority[strcspn(authority, "/?#@\" ")] == '@')
            return true;
    }
    return false;
}

static enum option_value_kind text_kind(const char *text) {
    if (text == NULL)
        return OPTION_VALUE_NONE;
    return has_password(text) ? OPTION_VALUE_SECRET : OPTION_VALUE_TEXT;
}

static enum option_value_kind list_kind(const struct option_list *list) {
    for (int i = 0; i < list->count; i++)
        if (has_password(list->items[i]))
            return OPTION_VALUE_SECRET;
    return OPTION_VALUE_LIST;
}

static void get_value(const struct option_spec *spec, const void *field, struct option_value *out) {
    switch (spec->type) {
    case OPTION_STRING:
    case OPTION_CHOICE:
        out->text = *(char *const *)field;
        out->kind = text_kind(out->text);
        break;
    case OPTION_INTEGER:
    case OPTION_BYTES:
        out->kind = OPTION_VALUE_INTEGER;
        out->integer = *(const int64_t *)field;
        break;
    case OPTION_DECIMAL:
        out->decimal = *(const double *)field;
        out->kind = OPTION_VALUE_DECIMAL;
        break;
    case OPTION_FLAG:
        out->kind = OPTION_VALUE_FLAG;
        out->flag = *(const bool *)field;
        break;
    case OPTION_LIST:
        out->list = field;
        out->kind = list_kind(out->list);
        break;
    }
    if (has_auto(spec, field)) {
        out->kind = OPTION_VALUE_TEXT;
        out->text = "auto";
    }
}

bool options_are_per_model(size_t index) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    return index < count && (table[index].flags & OPTION_PER_MODEL) != 0;
}

bool options_get(const struct options *options, size_t index, struct option_value *out) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    if (index >= count)
        return false;
    const void *field = (const char *)options + table[index].offset;
    struct option_value value = {.name = table[index].name};
    get_value(&table[index], field, &value);
    bool is_given = value.kind != OPTION_VALUE_NONE &&
                    (value.kind != OPTION_VALUE_LIST || value.list->count > 0);
    bool is_secret = value.kind == OPTION_VALUE_SECRET || (table[index].flags & OPTION_SECRET) != 0;
    if (is_secret)
        value = (struct option_value){.name = value.name,
                                      .kind = is_given ? OPTION_VALUE_SECRET : OPTION_VALUE_NONE};
    *out = value;
    return true;
}
