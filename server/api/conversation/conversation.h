/* What a request tells the model, whichever API it came through: messages, tools and their choice,
 * the form of the output, sampling. The readers of bodies fill it (chat/chat_body.h,
 * responses/responses_body.h, messages/messages_body.h), and each of them knows the names of its
 * own fields; the rest of the server knows only this.
 *
 * Texts and JSON are either borrowed from the body's tree, which outlives the conversation unless
 * the conversation owns it, or made and owned by the conversation (conversation_own). */
#ifndef QUIRE_SERVER_API_CONVERSATION_CONVERSATION_H
#define QUIRE_SERVER_API_CONVERSATION_CONVERSATION_H

#include "config/json/json_path.h"
#include "server/api/fields/sampling_body.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#define CONVERSATION_MAX_MESSAGES 2048
#define CONVERSATION_MAX_TOOLS 128
#define MESSAGE_MAX_CALLS 128

/* --- Messages --- */

enum message_role {
    MESSAGE_SYSTEM,
    MESSAGE_DEVELOPER,
    MESSAGE_USER,
    MESSAGE_ASSISTANT,
    MESSAGE_TOOL,  /* the result of a call */
    MESSAGE_OTHER, /* a different role of the model's chat template */
};

/* A call of an assistant's message. */
struct message_call {
    const char *id; /* NULL: none was given */
    const char *name;
    const char *text;    /* text of the arguments, or the input of a custom tool; NULL: none */
    const cJSON *object; /* the arguments if they were given as an object; otherwise NULL */
    bool is_custom;
};

struct message {
    enum message_role role;
    const char *role_name;
    const char **parts; /* [num_parts], the texts of its content */
    int num_parts;
    bool has_content;                            /* false: null, or left out */
    const char *name, *reasoning, *tool_call_id; /* NULL: none */
    struct message_call *calls;                  /* [num_calls] */
    int num_calls;
    size_t parts_capacity, calls_capacity;
};

/* --- Tools --- */

enum tool_kind {
    TOOL_FUNCTION, /* called with an object, which matches a schema */
    TOOL_CUSTOM,   /* called with a text: the model sees a function of one string, `input` */
};

struct tool {
    enum tool_kind kind;
    const char *name;
    const cJSON *shown;      /* to the model: {"type":"function","function":{"name",...}} */
    const cJSON *parameters; /* a JSON schema of the arguments, also of a custom tool; NULL: none */
    bool is_strict;
    const char *lark;        /* the grammar of a custom tool's input; NULL: none */
    const char *schema_path; /* where the body says what a call must match */
    bool is_allowed;         /* the tool choice allows calling it */
};

enum tool_choice {
    TOOL_CHOICE_NONE,     /* no tool is called: none was sent, or calls are forbidden */
    TOOL_CHOICE_AUTO,     /* the model decides */
    TOOL_CHOICE_REQUIRED, /* one call or more, of any tool that is allowed */
    TOOL_CHOICE_NAMED,    /* one call, of the one tool that is allowed */
};

/* --- Conversation --- */

/* The names that an API gives to fields whose errors may be found only after they were read. */
struct conversation_names {
    const struct body_names *body;
    const char *messages;       /* "messages", "input" */
    const char *tools;          /* "tools", "functions" */
    const char *tool_choice;    /* "tool_choice", "function_call" */
    const char *continue_final; /* "continue_final_message", "messages" */
    const char *wants_logprobs; /* how logprobs are requested: "logprobs: true" */
};

struct conversation {
    const struct conversation_names *names;
    const cJSON *body; /* has the form of the output, and other sampling fields */
    cJSON *owned;      /* an array of trees: the body if it is owned, and what was made */

    struct message *messages; /* [num_messages] */
    int num_messages;
    size_t messages_capacity;
    struct tool *tools; /* [num_tools] */
    int num_tools;
    size_t tools_capacity;
    enum tool_choice tool_choice;
    bool has_allowed_tools; /* the tool choice lists them */
    bool allows_parallel;
    bool has_functions; /* tools were given in OpenAI's old form, functions, and calls are returned
                           in it */

    /* For the template; NULL: not given. */
    const cJSON *documents;       /* a list of objects */
    const cJSON *template_kwargs; /* further variables */
    const char *chat_template;    /* to use instead of the model's */
    bool add_generation_prompt, continue_final_message;
    enum thinking_switch { THINKING_AS_IS, THINKING_OFF, THINKING_ON } thinking;

    struct sampling_body sampling;
    struct byte_buffer ignored; /* names of the fields that are not read, comma-separated */

    /* read by the tables of fields */
    int64_t max_completion_tokens; /* if it is given: takes precedence over max_tokens */
    int64_t top_logprobs;
    int64_t thinking_token_budget; /* -1: none */
    const char *reasoning_effort;  /* NULL: not given */
    bool logprobs, echo, include_reasoning, add_special_tokens, timings_per_token, return_progress;
};

/* Returns a conversation without messages, with the server's defaults. The names are static. */
struct conversation conversation_defaults(const struct api_context *context,
                                          const struct conversation_names *names);
void conversation_finish(struct conversation *conversation); /* also of a zeroed struct */

/* Take ownership of a tree, which then lives as long as the conversation; NULL: memory was short
 * when it was made. Return the tree, or NULL and fill *err. conversation_own_text does the same
 * with a text, without its NUL, and frees the buffer. */
const cJSON *conversation_own(struct conversation *conversation, cJSON *tree,
                              struct api_error *err);
const char *conversation_own_text(struct conversation *conversation, struct byte_buffer *text,
                                  struct api_error *err);

/* Adds a message without content. Pointers to other messages become invalid. On failure returns
 * NULL and fills *err: 400 when there are too many, or 503. */
struct message *conversation_add_message(struct conversation *conversation, const char *role,
                                         struct api_error *err);
/* Returns the last message; NULL if there is none. */
struct message *conversation_last(const struct conversation *conversation);
/* Removes the last message, which has no calls. */
void conversation_drop_last(struct conversation *conversation);
/* Adds a text to the content. Returns -1 and fills *err when memory is short. */
int message_add_part(struct message *message, const char *text, struct api_error *err);
/* Adds a zeroed call. Returns NULL and fills *err when memory is short. The caller bounds the
 * number of calls. */
struct message_call *message_add_call(struct message *message, struct api_error *err);

/* Returns the role of a message; NULL with *err filled (400) if it is not a name of 1 to 64
 * characters. */
const char *message_role_name(const cJSON *message, const struct json_path *path,
                              struct api_error *err);

/* Appends to `ignored` the names of the object's members that are given and not known, each once,
 * as "PREFIX.NAME". */
void conversation_ignore_members(struct conversation *conversation, const cJSON *object,
                                 const char *prefix, const char *const *known, size_t num_known);
#define CONVERSATION_IGNORE(conversation, object, prefix, known)                                   \
    conversation_ignore_members(conversation, object, prefix, known,                               \
                                sizeof(known) / sizeof((known)[0]))
/* Appends one such name, as "NAME". */
void conversation_ignore(struct conversation *conversation, const char *name);

/* Returns the number of logprobs per token: -1 for none, otherwise how many of the most probable
 * ones. */
int32_t conversation_num_logprobs(const struct conversation *conversation);
/* Returns whether the answer must be tool calls. */
bool conversation_forces_calls(const struct conversation *conversation);

#endif
