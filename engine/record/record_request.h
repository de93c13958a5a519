/* A request in a recording: everything the engine reads of it, and no more. A prompt is in it. */
#ifndef QUIRE_ENGINE_RECORD_REQUEST_H
#define QUIRE_ENGINE_RECORD_REQUEST_H

#include "engine/record/record_header.h"
#include "engine/request/request.h"

/* Markers of reasoning (thinking_budget.h) that were read; requests point to them. */
#define RECORD_MAX_MARKERS 64
struct record_markers {
    char *markers[RECORD_MAX_MARKERS];
    int32_t count;
    struct grammar *grammar; /* of the last request that had one; a reference */
};
void record_markers_finish(struct record_markers *markers);

/* Appends the values of a request that was submitted. `last`: the grammar of the one before that
 * had one, or NULL: one that both share is written once, since what was found for one serves both.
 */
void record_request_write(const struct request *request, const struct grammar *last,
                          struct byte_buffer *out);

/* Creates the request that was written, with all that makes it one the engine of that header, with
 * so many end tokens in its model, takes. It does not outlive the markers. ERROR_SYNTAX names the
 * first value that no such engine takes; ERROR_MEMORY. */
int record_request_read(struct record_input *in, const struct record_header *header,
                        int32_t num_end_tokens, struct record_markers *markers,
                        struct request **out, struct error *err);

#endif
