/* The markers of the formats whose calls are enclosed in a section: see tool_sections.c. */
#ifndef QUIRE_SERVER_OUTPUT_TOOL_SECTIONS_H
#define QUIRE_SERVER_OUTPUT_TOOL_SECTIONS_H

#include "server/output/output_parser.h"

/* call_begin and section_end are the same up to a byte. */
struct tool_sections {
    const char *call_begin, *separator, *call_end, *section_end;
    bool has_ids; /* instead of names */
};

/* NULL: the format has no sections. */
const struct tool_sections *tool_sections_of(enum tool_call_format format);

#endif
