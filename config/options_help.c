/* --help, from the table. */
#include "config/base/check.h"
#include "config/options_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

/* The groups in the order of the table, each up to the first option of the next one. */
static const struct option_group {
    const char *name, *first, *about, *example;
} groups[] = {
    {"model", "config", "which model is served, and how its answers are read",
     "quire serve --model model.gguf --served-model-name assistant"},
    {"serving", "host", "where the server listens, what it takes, how it stops",
     "quire serve --model model.gguf --host 0.0.0.0 --port 8080"},
    {"limits", "max-model-len", "how much one request, one client and all of them may have",
     "quire serve --model model.gguf --max-num-seqs 16 --queue-timeout 30"},
    {"security", "api-key", "who may use the server, and from where",
     "quire serve --model model.gguf --api-key-file keys.yaml --ssl-certfile server.pem"},
    {"observability", "log-level", "logs, metrics, traces, recordings",
     "quire serve --model model.gguf --access-log access.log --log-level debug"},
    {"device", "device", "processors, types of numbers, memory, several GPUs",
     "quire serve --model model.gguf --device cpu --threads 8 --kv-cache-dtype int8"},
    {"advanced", "max-num-batched-tokens",
     "how steps are made and processes watched: seldom needed",
     "quire serve --model model.gguf --batch-invariant"},
};

#define NUM_GROUPS (sizeof(groups) / sizeof(groups[0]))
#define WIDTH 100

static size_t first_of(size_t group) {
    size_t count;
    options_table(&count);
    if (group == NUM_GROUPS)
        return count;
    int index = options_find(groups[group].first, strlen(groups[group].first));
    CHECK(index >= 0);
    return (size_t)index;
}

static void write_option(const struct option_spec *spec, struct byte_buffer *out) {
    char flag[OPTION_NAME_CAPACITY], range[80];
    snprintf(flag, sizeof(flag), "--%s %s", spec->name, options_placeholder(spec));
    options_format_range(spec, range);
    bool has_range = range[0] != '\0', has_default = spec->default_text != NULL;
    byte_buffer_printf(out, "  %-32s %s%s%s%s%s%s%s\n", flag, spec->meaning,
                       has_range || has_default ? " (" : "", range,
                       has_range && has_default ? "; " : "", has_default ? "default " : "",
                       has_default ? spec->default_text : "", has_range || has_default ? ")" : "");
}

static void write_group(size_t group, struct byte_buffer *out) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    byte_buffer_printf(out, "%s: %s\n  for example: %s\n\n", groups[group].name,
                       groups[group].about, groups[group].example);
    for (size_t i = first_of(group); i < first_of(group + 1); i++)
        write_option(&table[i], out);
}

/* A group by the names of its options alone. */
static void write_names(size_t group, struct byte_buffer *out) {
    size_t count, column = WIDTH;
    const struct option_spec *table = options_table(&count);
    byte_buffer_printf(out, "\n%s: %s", groups[group].name, groups[group].about);
    for (size_t i = first_of(group); i < first_of(group + 1); i++) {
        size_t length = strlen(table[i].name) + 3;
        bool is_full = column + length > WIDTH;
        byte_buffer_printf(out, is_full ? "\n  --%s" : " --%s", table[i].name);
        column = (is_full ? 1 : column) + length;
    }
    byte_buffer_append_text(out, "\n");
}

static void write_overview(struct byte_buffer *out) {
    byte_buffer_append_text(
        out,
        "Usage: quire serve --model PATH [options]\n"
        "       quire serve --help GROUP | all    what the options of a group, or all, mean\n\n"
        "Each option may also stand in the file given by --config (name: value) or in the\n"
        "environment (QUIRE_NAME=value, lists separated by commas). A flag wins over the\n"
        "environment, the environment over the file. Sizes take the suffixes K, M, G, T.\n"
        "An option without a value means true; --no- before its name, false.\n");
    for (size_t i = 0; i < NUM_GROUPS; i++)
        write_names(i, out);
}

bool options_help(const char *group, struct byte_buffer *out) {
    bool is_all = group != NULL && strcmp(group, "all") == 0, is_known = is_all || group == NULL;
    if (group == NULL)
        write_overview(out);
    for (size_t i = 0; i < NUM_GROUPS && group != NULL; i++) {
        if (!is_all && strcmp(group, groups[i].name) != 0)
            continue;
        byte_buffer_append_text(out, is_all && i > 0 ? "\n" : "");
        write_group(i, out);
        is_known = true;
    }
    if (!is_known) {
        byte_buffer_printf(out, "--help %.40s: no such group of options; the groups are all",
                           group);
        for (size_t i = 0; i < NUM_GROUPS; i++)
            byte_buffer_printf(out, ", %s", groups[i].name);
        byte_buffer_append_text(out, "\n");
    }
    return is_known;
}
