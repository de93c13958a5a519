/* --help, rendered once from the table. */
#include "config/base/check.h"
#include "config/options_table.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static char help_text[32768];
static pthread_once_t help_once = PTHREAD_ONCE_INIT;

const char *options_placeholder(const struct option_spec *spec) {
    switch (spec->type) {
    case OPTION_INTEGER:
        return "N";
    case OPTION_BYTES:
        return "BYTES";
    case OPTION_DECIMAL:
        return "X";
    case OPTION_FLAG:
        return "";
    case OPTION_CHOICE:
        return "WORD";
    case OPTION_STRING:
        if ((spec->flags & OPTION_PATH) != 0)
            return "PATH";
        return (spec->flags & OPTION_JSON) != 0 ? "JSON" : "TEXT";
    case OPTION_LIST:
        return "TEXT";
    }
    CHECK(!"every option type is handled");
}

void options_format_range(const struct option_spec *spec, char out[static 80]) {
    size_t length = 0;
    out[0] = '\0';
    if (spec->choices == NULL) {
        if (spec->type == OPTION_INTEGER || spec->type == OPTION_BYTES)
            snprintf(out, 80, "%" PRId64 " to %" PRId64, spec->minimum, spec->maximum);
        if (spec->type == OPTION_DECIMAL)
            snprintf(out, 80, "%g to %g", (double)spec->minimum / 100, (double)spec->maximum / 100);
        return;
    }
    for (const char *c = spec->choices; *c != '\0' && length + 3 < 80; c++) {
        if (*c == ' ')
            out[length++] = ',';
        out[length++] = *c;
    }
    out[length] = '\0';
}

static size_t format_option(const struct option_spec *spec, char *out, size_t capacity) {
    char flag[OPTION_NAME_CAPACITY], range[80];
    snprintf(flag, sizeof(flag), "--%s %s", spec->name, options_placeholder(spec));
    options_format_range(spec, range);
    bool has_range = range[0] != '\0', has_default = spec->default_text != NULL;
    int length =
        snprintf(out, capacity, "  %-32s %s%s%s%s%s%s%s\n", flag, spec->meaning,
                 has_range || has_default ? " (" : "", range, has_range && has_default ? "; " : "",
                 has_default ? "default " : "", has_default ? spec->default_text : "",
                 has_range || has_default ? ")" : "");
    CHECK(length >= 0 && (size_t)length < capacity);
    return (size_t)length;
}

static void build_help(void) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    size_t length = (size_t)snprintf(
        help_text, sizeof(help_text),
        "Usage: quire serve --model PATH [options]\n\n"
        "Each option may also stand in the file given by --config (name: value) or in the\n"
        "environment (QUIRE_NAME=value, lists separated by commas). A flag wins over the\n"
        "environment, the environment over the file. Sizes take the suffixes K, M, G, T.\n"
        "An option without a value means true; --no- before its name, false.\n\n");
    for (size_t i = 0; i < count; i++)
        length += format_option(&table[i], help_text + length, sizeof(help_text) - length);
}

const char *options_help(void) {
    pthread_once(&help_once, build_help);
    return help_text;
}
