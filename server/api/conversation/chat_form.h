/* The form in which a chat template takes messages, found by rendering small conversations with it:
 * nothing is guessed from its source but whether it knows the role developer, and tools at all. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_FORM_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_FORM_H

#include "models/chat_template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>

struct chat_message_form {
    bool has_developer;        /* it knows the role developer; otherwise that becomes system */
    bool has_null_content;     /* beside tool calls, content may be none; otherwise it is "" */
    bool takes_text_arguments; /* of a call: the text of an object, not a map */
    bool takes_short_ids;      /* of calls: nine letters and digits, as Mistral's */
    bool takes_parts;          /* content is a list of parts, not a text */
    bool takes_no_empty_turn;  /* an assistant that said nothing and called nothing says " " */
    bool takes_empty_tools;    /* tools are [] where there are none */
    bool splits_words;         /* words and calls of a turn are two messages */
    bool takes_one_call;       /* of a turn: each call is followed by its answer */
    bool joins_results;        /* an answer joins the one before it */
    bool joins_users;          /* what a user says behind a tool's answer joins that */
    bool joins_systems;        /* all system messages are one, which comes first */
    bool writes_calls;   /* it knows none: they become text of the assistant in hermes' form */
    bool writes_results; /* it knows no role tool: a tool's answer becomes a user's */
    /* Of one request. */
    const char *final_suffix; /* appended to the content of the last message; NULL: nothing */
    /* Put behind the system message that comes first, or else before the first
     * text of a user; NULL: nothing. */
    const char *tool_text;
};

/* Fills *out; `source` is the template's, `writes_tools` what is known of that. Costs some fifty
 * renderings of a few messages at most; a template that refuses even the simplest one gets the form
 * that changes least. Memory that is short is no error: *out is then what was found until there. */
void chat_form_probe(const struct chat_template *chat_template, const char *source,
                     const struct tokenizer *tokenizer, bool writes_tools,
                     struct chat_message_form *out);

#endif
