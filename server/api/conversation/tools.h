/* The tools of a conversation and the choice among them, which all APIs define alike but for the
 * places of the members. The functions return -1 and *err, 400 with the path of what is wrong, or
 * 503 when memory is short. */
#ifndef QUIRE_SERVER_API_CONVERSATION_TOOLS_H
#define QUIRE_SERVER_API_CONVERSATION_TOOLS_H

#include "config/json/json_path.h"
#include "server/api/conversation/conversation.h"

/* Where a body defines a tool. */
struct tool_source {
    const cJSON *object;          /* has its name, description and the rest */
    const struct json_path *path; /* of the object */
    const char *schema_name;      /* of a function's parameters in it */
    const cJSON *shown;           /* a function as the model sees it; NULL: made of the members */
    const cJSON *name, *description; /* texts in place of the object's; NULL: none */
    bool has_flat_grammar;           /* a custom tool's: its members stand in `format` itself */
};

/* Add a tool, which may be called. Names are distinct and valid (tool_call.h). */
int tools_add_function(struct conversation *conversation, const struct tool_source *source,
                       struct api_error *err);
int tools_add_custom(struct conversation *conversation, const struct tool_source *source,
                     struct api_error *err);

/* Set the choice, after all tools were added: AUTO where there are any is the default. A choice
 * other than NONE needs tools. */
void tools_set_default(struct conversation *conversation);
int tools_set_choice(struct conversation *conversation, enum tool_choice choice,
                     struct api_error *err);
/* Chooses the tool of that name; is_custom: it must be a custom one. */
int tools_choose(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                 bool is_custom, struct api_error *err);
/* Lists a tool among those that may be called; with the first one, all others may not. */
int tools_allow(struct conversation *conversation, const cJSON *name, const struct json_path *path,
                bool is_custom, struct api_error *err);

/* Reads parallel_tool_calls. */
int tools_read_parallel(const cJSON *body, struct conversation *out, struct api_error *err);

#endif
