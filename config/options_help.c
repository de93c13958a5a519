/* --help, from the table. */
#include "config/base/check.h"
#include "config/base/help_text.h"
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

void options_append_range(const struct option_spec *spec, struct byte_buffer *out) {
    if (spec->choices == NULL) {
        if (spec->type == OPTION_INTEGER || spec->type == OPTION_BYTES)
            byte_buffer_printf(out, "%" PRId64 " to %" PRId64, spec->minimum, spec->maximum);
        if (spec->type == OPTION_DECIMAL)
            byte_buffer_printf(out, "%g to %g", (double)spec->minimum / 100,
                               (double)spec->maximum / 100);
        return;
    }
    for (const char *word = spec->choices; *word != '\0';) {
        size_t length = strcspn(word, " ");
        byte_buffer_printf(out, "%s%.*s", word == spec->choices ? "" : ", ", (int)length, word);
        word += length + (word[length] == ' ');
    }
}

/* The groups in the order of the table, each up to the first option of the next one. */
static const struct option_group {
    const char *name, *first, *about, *example;
} groups[] = {
    {"model", "config", "which model is served, and how its answers are read",
     "quire serve model.gguf --served-model-name assistant"},
    {"serving", "host", "where the server listens, what it takes, how it stops",
     "quire serve model.gguf --host 0.0.0.0 --port 8080"},
    {"limits", "max-model-len", "what one request, one client and all of them may use",
     "quire serve model.gguf --max-model-len 32K --max-num-seqs 16"},
    {"security", "api-key", "who may use the server, and from where",
     "quire serve model.gguf --api-key-file keys.yaml"},
    {"observability", "log-level", "logs, metrics, traces, recordings",
     "quire serve model.gguf --access-log access.log --log-level debug"},
    {"device", "device", "processors, number formats, memory, several GPUs",
     "quire serve model.gguf --device cpu --kv-cache-dtype int8"},
    {"advanced", "max-num-batched-tokens",
     "how steps are made and processes watched: seldom needed",
     "quire serve model.gguf --batch-invariant"},
};

#define NUM_GROUPS (sizeof(groups) / sizeof(groups[0]))

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
    const char *placeholder = options_placeholder(spec);
    struct byte_buffer range = {0};
    options_append_range(spec, &range);
    bool has_range = range.length > 0, has_default = spec->default_text != NULL;
    byte_buffer_printf(out, "  --%s%s%s\t%s", spec->name, placeholder[0] != '\0' ? " " : "",
                       placeholder, spec->meaning);
    if (has_range || has_default) {
        byte_buffer_append_text(out, " (");
        byte_buffer_append(out, range.data, range.length);
        byte_buffer_printf(out, "%s%s%s)", has_range && has_default ? "; " : "",
                           has_default ? "default " : "", has_default ? spec->default_text : "");
    }
    byte_buffer_append_text(out, "\n");
    byte_buffer_finish(&range);
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
    size_t count;
    const struct option_spec *table = options_table(&count);
    byte_buffer_printf(out, "\n%s: %s\n ", groups[group].name, groups[group].about);
    for (size_t i = first_of(group); i < first_of(group + 1); i++)
        byte_buffer_printf(out, " --%s", table[i].name);
    byte_buffer_printf(out, "\n  for example: %s\n", groups[group].example);
}

static void write_overview(struct byte_buffer *out) {
    byte_buffer_append_text(
        out,
        "usage: quire serve MODEL [--OPTION VALUE ...]\n"
        "       quire serve --help GROUP | all\n\n"
        "MODEL is a .gguf file, a folder with config.json and .safetensors files, or a model of a "
        "hub: ORG/NAME, ORG/NAME:Q4_K_M, hf.co/ORG/NAME or the address of its page or file.\n\n"
        "One server can have several models: repeat --model, or see --models-dir, --models-hub and "
        "`models:` in the file given by --config, which has options for each.\n\n"
        "--help GROUP says what the options of a group mean, --help all what all of them mean.\n\n"
        "Each option may also stand in the file given by --config (name: value) or in the "
        "environment (QUIRE_NAME=value, lists separated by commas). A flag wins over the "
        "environment, the environment over the file. Sizes take the suffixes K, M, G, T; switches "
        "true, false, on, off, or no value at all, and --no- before their name turns them off.\n\n"
        "Flags of vLLM and llama-server are understood too: those with a counterpart here (-m, "
        "-c, -np, -t, -hf, -a) set it, those that ask for what is always on are "
        "accepted, the others are refused with an explanation.\n");
    for (size_t i = 0; i < NUM_GROUPS; i++)
        write_names(i, out);
}

/* Appends the plain text. */
static bool write_help(const char *group, struct byte_buffer *out) {
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

bool options_help(const char *group, size_t width, struct byte_buffer *out) {
    struct byte_buffer plain = {0};
    bool is_known = write_help(group, &plain);
    byte_buffer_append(&plain, "", 1);
    if (plain.failed)
        out->failed = true;
    else
        help_text_wrap(plain.data, width, out);
    byte_buffer_finish(&plain);
    return is_known;
}
