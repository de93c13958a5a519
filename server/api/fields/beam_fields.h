/* Beam search as vLLM's API has it: use_beam_search turns it on, best_of (else n) is its width, and
 * length_penalty and early_stopping, which do nothing without it, say how beams are compared and
 * when it ends. */
#ifndef QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H

#include "server/api/fields/sampling_body.h"

/* Reads early_stopping into a body that sampling_body_read filled. With use_beam_search it sets the
 * fields that choose among tokens to leave them as they are, and refuses bodies that say otherwise,
 * that need the answer before its end, or whose width would need more candidates a step than the
 * sampler reports. -1 and *err, 400, param the field. */
int beam_fields_read(const struct api_context *context, const cJSON *json,
                     struct sampling_body *body, struct api_error *err);

/* Appends, comma-separated, the names of those the body gives to no effect. */
void beam_fields_list_idle(const cJSON *json, struct byte_buffer *out);

#endif
