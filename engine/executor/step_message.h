/* What rank 0 tells the other ranks that are processes, on the transport's channel of steps: each
 * message is this head, and for a step its arena (models/batch.h), of the capacity that the head
 * says. */
#ifndef QUIRE_ENGINE_EXECUTOR_STEP_MESSAGE_H
#define QUIRE_ENGINE_EXECUTOR_STEP_MESSAGE_H

#include "models/batch.h"

enum step_message_kind {
    STEP_MEMORY,  /* before the first step: no step's capacity is beyond this one */
    STEP_COMPUTE, /* an arena follows, of what ranks read that do not sample */
    STEP_SAMPLE,  /* an arena follows, of all that the batch has; answered with the result, laid out
                     as behind it in the memory of a step of that capacity */
    STEP_PING,
    STEP_QUIT,
};

struct step_message {
    enum step_message_kind kind;
    bool wants_stats; /* answered, once the step is computed, with the struct rank_stats of the
                         rank: so it is there. Always of a ping */
    struct batch_capacity capacity;
};

#endif
