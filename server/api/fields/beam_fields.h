/* Beam search, like in vLLM's API: use_beam_search turns it on, best_of (or else n) is its width,
 * and length_penalty and early_stopping, which have no effect without it, say how beams are
 * compared and when the search ends. */
#ifndef QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H

#include "server/api/fields/sampling_body.h"

/* Reads early_stopping into a body that sampling_body_read filled. With use_beam_search it makes
 * the fields that choose among tokens neutral, and refuses bodies that request anything else, that
 * need the answer before its end, or whose width would need more candidates per step than the
 * sampler reports. On failure returns -1 and fills *err: 400, param is the field. */
int beam_fields_read(const struct api_context *context, const cJSON *json,
                     struct sampling_body *body, struct api_error *err);

/* Appends the names of those that the body gives without effect, comma-separated. */
void beam_fields_list_idle(const cJSON *json, struct byte_buffer *out);

#endif
