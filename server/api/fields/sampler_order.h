/* llama.cpp's `samplers`: the order of the sampling steps, which is fixed here
 * (kernels/sampling.h). */
#ifndef QUIRE_SERVER_API_FIELDS_SAMPLER_ORDER_H
#define QUIRE_SERVER_API_FIELDS_SAMPLER_ORDER_H

#include "config/json/api_error.h"

#include <cjson/cJSON.h>

/* Checks that the body's `samplers`, if given, is the order in which the steps are taken: returns
 * -1 and a 400 if not. An empty list requests none. */
int sampler_order_check(const cJSON *json, struct api_error *err);

#endif
