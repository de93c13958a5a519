/* Beam search as vLLM's API has it: use_beam_search turns it on, best_of (else n) is its width, and
 * length_penalty and early_stopping, which do nothing without it, say how beams are compared and
 * when it ends. */
#ifndef QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H
#define QUIRE_SERVER_API_FIELDS_BEAM_FIELDS_H

#include "server/api/fields/sampling_request.h"

/* Once all other fields of the request are read. Reads early_stopping. With use_beam_search, fields
 * that choose among tokens are set to leave them as they are, and refused where the body says
 * otherwise; so are those that need the answer before its end, and a width with which a step would
 * look at more tokens than the sampler tells. -1 and *err, 400, param the field. */
int beam_fields_read(const struct api_context *context, const cJSON *json,
                     struct sampling_request *request, struct api_error *err);

/* Appends, comma-separated, the names of those the body gives to no effect. */
void beam_fields_list_idle(const cJSON *json, struct byte_buffer *out);

#endif
