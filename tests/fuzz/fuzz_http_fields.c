/* Any bytes as the fields of a request: what judges its framing, target, names and sites, and reads
 * its ids. The input is parts that end with NUL: Host, Origin, the target, X-Request-Id,
 * traceparent, then names and values of further fields in turn. */
#include "server/http/http_checks.h"
#include "server/telemetry/trace.h"

#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 25
#define NUM_NAMED 5 /* the first ones */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool condition) {
    if (!condition)
        abort();
}

/* Fills parts with the texts of a copy that ends with NUL; the rest are NULL. */
static void split(char *copy, size_t bytes, char *parts[MAX_PARTS]) {
    size_t at = 0;
    for (int i = 0; i < MAX_PARTS; i++) {
        parts[i] = at < bytes ? copy + at : NULL;
        at += at < bytes ? strlen(copy + at) + 1 : 0;
    }
}

static void try_framing(char *const parts[MAX_PARTS]) {
    struct http_framing framing = {.needs_host = true};
    struct api_error err = {0};
    for (int i = NUM_NAMED; i + 1 < MAX_PARTS && parts[i] != NULL; i += 2)
        http_framing_add(&framing, parts[i], parts[i + 1]);
    if (http_framing_check(&framing, &err) != 0)
        require(err.status == 400 || err.status == 501);
    else
        require(framing.num_hosts <= 1 && framing.num_lengths + framing.num_codings <= 1);
}

static void try_target(const char *target, const char *host) {
    struct api_error err = {0};
    const char *path = target != NULL ? http_target_path(target, host, &err) : "*";
    require(path != NULL ? path[0] == '/' || path[0] == '*' : err.status == 400);
}

static void try_origin(const char *host, const char *origin, const char *site) {
    static struct options options = {
        .allowed_hosts = {.count = 2, .items = {"quire.example", ".inner.example"}},
        .allowed_origins = {.count = 1, .items = {"https://app.example"}},
    };
    static struct http_origin_rules rules;
    struct error why = {0};
    struct api_error err = {0};
    if (rules.origins == NULL)
        require(http_origin_rules_init(&options, &rules, &why) == 0);
    const struct http_origin_request request = {
        .method = "POST", .host = host, .origin = origin, .fetch_site = site};
    struct header_field fields[HTTP_ORIGIN_MAX_FIELDS];
    if (http_origin_check(&rules, &request, &err) != 0)
        require(err.status == 421 || err.status == 403);
    http_origin_fields(&rules, &request, fields);
    for (int i = 0; fields[i].name != NULL; i++)
        require(i < HTTP_ORIGIN_MAX_FIELDS - 1 && fields[i].value != NULL);
}

static void try_ids(const char *id, const char *traceparent) {
    char request_id[REQUEST_ID_BYTES];
    struct trace_context trace = {0};
    http_request_id(id, request_id);
    require(request_id[0] != '\0' && strlen(request_id) < REQUEST_ID_BYTES);
    for (const char *c = request_id; *c != '\0'; c++)
        require(isalnum((unsigned char)*c) || strchr("._:-", *c) != NULL);
    trace_context_read(traceparent, &trace);
    size_t trace_digits = strlen(trace.trace_id), span_digits = strlen(trace.parent_id);
    require(trace_digits == 0 ||
            (trace_digits == TRACE_ID_DIGITS && span_digits == SPAN_ID_DIGITS));
    require(strspn(trace.trace_id, "0123456789abcdef") == trace_digits);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    char *parts[MAX_PARTS], *copy = malloc(bytes + 1);
    require(copy != NULL);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    split(copy, bytes, parts);
    try_target(parts[2], parts[0]);
    try_origin(parts[0], parts[1], parts[NUM_NAMED]);
    try_ids(parts[3], parts[4]);
    try_framing(parts);
    free(copy);
    return 0;
}
