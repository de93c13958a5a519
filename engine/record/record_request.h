/* A request in a recording: exactly what the engine reads of it, including the prompt. */
#ifndef QUIRE_ENGINE_RECORD_RECORD_REQUEST_H
#define QUIRE_ENGINE_RECORD_RECORD_REQUEST_H

#include "engine/record/record_header.h"
#include "engine/request/request.h"

/* What requests that are read refer to: markers of reasoning (thinking_budget.h) that were read
 * from the recording, and adapters. */
#define RECORD_MAX_MARKERS 64
struct record_markers {
    char *markers[RECORD_MAX_MARKERS];
    int32_t count;
    struct grammar *grammar;                  /* of the last request that had one; a reference */
    struct adapter *adapters[LORA_MAX_SLOTS]; /* which the slots have now; the caller's */
};
void record_markers_finish(struct record_markers *markers);

/* Appends the values of a submitted request. `last`: the most recent grammar of an earlier request,
 * or NULL. A grammar that both share is written once, so that what was found for one serves both on
 * replay.
 */
void record_request_write(const struct request *request, const struct grammar *last,
                          struct byte_buffer *out);

/* Creates the written request and checks that the engine of that header, whose model has that many
 * end tokens, would accept it. The request must not outlive the markers. Fails with ERROR_SYNTAX,
 * naming the first value that such an engine does not accept, or ERROR_MEMORY. */
int record_request_read(struct record_input *in, const struct record_header *header,
                        int32_t num_end_tokens, struct record_markers *markers,
                        struct request **out, struct error *err);

#endif
