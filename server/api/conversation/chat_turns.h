/* Orders and joins messages in the way that a chat template takes them. */
#ifndef QUIRE_SERVER_API_CONVERSATION_CHAT_TURNS_H
#define QUIRE_SERVER_API_CONVERSATION_CHAT_TURNS_H

#include "config/base/byte_buffer.h"
#include "models/chat_template/template_value.h"
#include "server/api/conversation/chat_form.h"

enum chat_turn_kind {
    CHAT_TURN_SYSTEM,
    CHAT_TURN_USER,
    CHAT_TURN_ASSISTANT,
    CHAT_TURN_RESULT, /* of a tool, whatever the name of its role */
    CHAT_TURN_OTHER,
};

/* A message that others are joined to, and its content so far, once there are such others. */
struct chat_turns_open {
    struct template_value *message; /* NULL: none */
    struct byte_buffer content;
};

struct chat_turns {
    struct template_arena *arena; /* borrowed, like the form */
    const struct chat_message_form *form;
    struct template_value *messages;
    struct chat_turns_open system, result; /* result: the last message, if it is one */
    struct template_value *calls;          /* of the last assistant that called; NULL: none */
    struct template_value *given_ids;      /* of these, as given; none for a call without one */
    int num_calls, num_calls_before;
    uint64_t answered[2];         /* one bit per call */
    struct template_value *split; /* the message whose calls are added one by one; NULL: none */
    uint64_t split_left[2];       /* one bit per call that is still to be added */
    bool has_split_begun;
    bool failed; /* memory was short */
};

void chat_turns_init(struct chat_turns *turns, struct template_arena *arena,
                     const struct chat_message_form *form);
void chat_turns_finish(struct chat_turns *turns);

/* Adds a message, a map with role, content and the rest; NULL if the arena could not take it. */
void chat_turns_add(struct chat_turns *turns, enum chat_turn_kind kind,
                    struct template_value *message);
/* Returns the list of messages; NULL when memory was short. */
struct template_value *chat_turns_end(struct chat_turns *turns);

#endif
