/* Reads the tools of a conversation and the choice among them, which all APIs define alike except
 * for the places of the members. On failure the functions return -1 and fill *err: 400 with the
 * path of what is wrong, or 503 when memory is short. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOLS_H
#define QUIRE_SERVER_API_CONVERSATION_TOOLS_H

#include "config/json/json_path.h"
#include "server/api/conversation/conversation.h"

/* Where a body defines a tool. */
struct tool_source {
    const cJSON *object;          /* has its name, description and the rest */
    const struct json_path *path; /* of the object */
    const char *schema_name;      /* of a function's parameters in it */
    const cJSON *shown; /* a function as the model sees it; NULL: it is made from the members */
    const cJSON *name, *description; /* texts to use instead of the object's; NULL: none */
    bool has_flat_grammar;           /* of a custom tool: its members are in `format` itself */
};

/* Add a tool, which may be called. Names must be distinct and valid (tool_call.h). */
int tools_add_function(struct conversation *conversation, const struct tool_source *source,
                       struct api_error *err);
int tools_add_custom(struct conversation *conversation, const struct tool_source *source,
                     struct api_error *err);

/* Set the choice, after all tools were added. The default is AUTO if there are any. A choice other
 * than NONE needs tools. */
void tools_set_default(struct conversation *conversation);
int tools_set_choice(struct conversation *conversation, enum tool_choice choice,
                     struct api_error *err);
/* Chooses the tool with this name; is_custom: it must be a custom tool. */
int tools_choose(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                 bool is_custom, struct api_error *err);
/* Lists a tool as one that may be called. The first listing forbids all other tools. */
int tools_allow(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                bool is_custom, struct api_error *err);

/* Reads parallel_tool_calls. */
int tools_read_parallel(const cJSON *body, struct conversation *out, struct api_error *err);

#endif
