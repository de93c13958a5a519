/* GET /metrics: gathers what metrics.h writes. */
#ifndef QUIRE_SERVER_HTTP_HTTP_METRICS_H
#define QUIRE_SERVER_HTTP_HTTP_METRICS_H

struct connection;

/* An answer of http_routes.h. I/O thread. */
int http_metrics_answer(struct connection *connection);

#endif
