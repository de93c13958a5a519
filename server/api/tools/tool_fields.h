/* The fields of a body that are about tools: tools, tool_choice, parallel_tool_calls. */
#ifndef QUIRE_SERVER_API_CHAT_TOOL_FIELDS_H
#define QUIRE_SERVER_API_CHAT_TOOL_FIELDS_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#define TOOL_FIELDS_MAX_TOOLS 128

enum tool_choice {
    TOOL_CHOICE_NONE,     /* no tool is called: none was requested, or it was forbidden */
    TOOL_CHOICE_AUTO,     /* the model decides */
    TOOL_CHOICE_REQUIRED, /* one tool call or more, of any tool */
    TOOL_CHOICE_NAMED,    /* one tool call, of `named` */
};

/* A view of the body's tree. */
struct tool_fields {
    const cJSON *tools; /* {"type":"function","function":{"name",...}}, ...; NULL: none */
    int32_t num_tools;
    enum tool_choice choice;
    const cJSON *named; /* the "function" object of the one to call; with NAMED only */
    /* The names in a choice of allowed_tools; none: all may be called. */
    const char *allowed[TOOL_FIELDS_MAX_TOOLS];
    int32_t num_allowed;
    bool allows_parallel;
};

/* Reads them. Absent and null fields and an empty list of tools are the defaults: no tools; a
 * choice of auto where there are tools; parallel tool calls allowed. -1 and *err (400, param the
 * path) for a wrong type or value, a choice without tools (auto among an empty list is none), a
 * name twice, one that no tool may have (tool_call.h) or that none has. */
int tool_fields_read(const cJSON *body, struct tool_fields *out, struct api_error *err);

/* Returns the name of an entry of `tools`. */
const char *tool_fields_name(const cJSON *tool);
/* Returns whether the choice lets this entry of `tools` be called. */
bool tool_fields_allow(const struct tool_fields *fields, const cJSON *tool);

#endif
