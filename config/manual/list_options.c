/* Prints the option table for manual.py, a line of fields separated by tabs for each option: name,
 * type, what its value is called, whether the file may have it, default, range, choices, meaning.
 * With "peers", the flags of other servers for migrating.py: whose they are, names, kind, option,
 * remark. A build-time program. */
#include "config/options_table.h"

#include <string.h>

#include <stdio.h>

static const char *type_name(enum option_type type) {
    static const char *const names[] = {
        [OPTION_STRING] = "string",   [OPTION_CHOICE] = "choice", [OPTION_INTEGER] = "integer",
        [OPTION_BYTES] = "bytes",     [OPTION_FLAG] = "flag",     [OPTION_LIST] = "list",
        [OPTION_DECIMAL] = "decimal",
    };
    return names[type];
}

static void print_options(void) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        const struct option_spec *spec = &table[i];
        struct byte_buffer range = {0};
        options_append_range(spec, &range);
        byte_buffer_append(&range, "", 1);
        printf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", spec->name, type_name(spec->type),
               options_placeholder(spec), (spec->flags & OPTION_NOT_IN_FILE) != 0 ? "" : "file",
               spec->default_text != NULL ? spec->default_text : "", range.data,
               spec->choices != NULL ? spec->choices : "", spec->meaning);
        byte_buffer_finish(&range);
    }
}

static void print_peers(void) {
    static const char *const kinds[] = {
        [PEER_SAME] = "same",
        [PEER_TAKEN] = "taken",
        [PEER_NEEDLESS] = "needless",
        [PEER_NONE] = "none",
    };
    size_t count;
    const struct peer_flag *flags = peer_flags(&count);
    for (size_t i = 0; i < count; i++)
        printf("%s\t%s\t%s\t%s\t%s\n", peer_flag_owner(&flags[i]), flags[i].names,
               kinds[flags[i].kind], flags[i].option != NULL ? flags[i].option : "",
               flags[i].remark != NULL ? flags[i].remark : "");
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "peers") == 0)
        print_peers();
    else
        print_options();
    return ferror(stdout) || fclose(stdout) != 0;
}
