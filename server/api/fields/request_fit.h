/* Why a request can never run here, however long it waits. */
#ifndef QUIRE_SERVER_API_FIELDS_REQUEST_FIT_H
#define QUIRE_SERVER_API_FIELDS_REQUEST_FIT_H

#include "engine/schedule/kv_demand.h"
#include "server/api/api_error.h"

/* Of a request that does not fit the limits (kv_demand_fits): -1 and *err, 400, naming what it
 * takes, what there is and the option that gives more. */
int request_fit_refuse(const struct request *request, const struct serving_limits *limits,
                       struct api_error *err);

#endif
