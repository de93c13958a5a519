/* The form in which a chat template takes messages, found by rendering small conversations with it.
 * Only two things are guessed from its source: whether it knows the role developer, and whether it
 * knows tools. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_FORM_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_FORM_H

#include "models/chat_template/chat_template.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>

struct chat_message_form {
    bool has_developer;        /* it knows the role developer; otherwise developer becomes system */
    bool has_null_content;     /* next to tool calls, content may be none; otherwise it is "" */
    bool takes_text_arguments; /* of a call: the text of an object, not a map */
    bool takes_short_ids;      /* of calls: nine letters and digits, like Mistral's */
    bool takes_parts;          /* content is a list of parts, not a text */
    bool takes_no_empty_turn;  /* an assistant that said nothing and called nothing says " " */
    bool takes_empty_tools;    /* tools are [] if there are none */
    bool splits_words;         /* the text and the calls of a turn are two messages */
    bool takes_one_call;       /* per turn: each call is followed by its result */
    bool joins_results;        /* a result joins the one before it */
    bool joins_users;          /* a user's text after a tool's result joins it */
    bool joins_systems;        /* all system messages are joined into one, which comes first */
    bool writes_calls; /* it knows no calls: they become text of the assistant in hermes' format */
    bool writes_results; /* it does not know the role tool: a result becomes a user's message */
    /* Of one request. */
    const char *final_suffix; /* appended to the content of the last message; NULL: nothing */
    /* Put after the system message if that comes first, otherwise before the first text of a
     * user; NULL: nothing. */
    const char *tool_text;
};

/* Fills *out. `source` is the template's source; `writes_tools` is what is known about that flag.
 * Takes at most about fifty renderings of a few messages. A template that refuses even the simplest
 * one gets the form that changes least. Running out of memory is not an error: *out is then what
 * was found before. */
void chat_form_probe(const struct chat_template *chat_template, const char *source,
                     const struct tokenizer *tokenizer, bool writes_tools,
                     struct chat_message_form *out);

#endif
