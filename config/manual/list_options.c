/* Prints the option table for manual.py, a line of fields separated by tabs for each option: name,
 * type, what its value is called, whether the file may have it, default, range, choices, meaning. A
 * build-time program. */
#include "config/options_table.h"

#include <stdio.h>

static const char *type_name(enum option_type type) {
    static const char *const names[] = {
        [OPTION_STRING] = "string",   [OPTION_CHOICE] = "choice", [OPTION_INTEGER] = "integer",
        [OPTION_BYTES] = "bytes",     [OPTION_FLAG] = "flag",     [OPTION_LIST] = "list",
        [OPTION_DECIMAL] = "decimal",
    };
    return names[type];
}

int main(void) {
    size_t count;
    const struct option_spec *table = options_table(&count);
    for (size_t i = 0; i < count; i++) {
        const struct option_spec *spec = &table[i];
        char range[80];
        options_format_range(spec, range);
        printf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", spec->name, type_name(spec->type),
               options_placeholder(spec), (spec->flags & OPTION_NOT_IN_FILE) != 0 ? "" : "file",
               spec->default_text != NULL ? spec->default_text : "", range,
               spec->choices != NULL ? spec->choices : "", spec->meaning);
    }
    return ferror(stdout) || fclose(stdout) != 0;
}
