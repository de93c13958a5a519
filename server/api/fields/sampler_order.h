/* llama.cpp's `samplers`: the order of the steps of sampling, which here is one
 * (kernels/sampling.h).
 */
#ifndef QUIRE_SERVER_API_FIELDS_SAMPLER_ORDER_H
#define QUIRE_SERVER_API_FIELDS_SAMPLER_ORDER_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Checks that the body's `samplers`, if it gives any, is the order of the steps as they are taken:
 * -1 and a 400 when not. An empty list asks for none. */
int sampler_order_check(const cJSON *json, struct api_error *err);

#endif
