/* GET /: browsers ask for text/html and get the chat page; curl and the like accept anything and
 * get a list of the routes. Neither needs a key: they hold nothing of this server's. */
#include "server/http/http_state.h"

#include "server/page/page.h"

#include <string.h>

static const struct header_field text_fields[] = {
    {"Content-Type", "text/plain; charset=utf-8"},
    {"Vary", "Accept"},
    {NULL, NULL},
};

/* The page may be kept, but is asked for again each time: a new server may bring a new one. */
static const struct header_field page_fields[] = {
    {"Content-Type", "text/html; charset=utf-8"},
    {"Content-Security-Policy", page_chat_policy},
    {"Referrer-Policy", "no-referrer"},
    {"Cache-Control", "no-cache"},
    {"ETag", page_chat_etag},
    {"Vary", "Accept"},
    {NULL, NULL},
};

static bool header_names(const struct connection *connection, const char *field,
                         const char *value) {
    const char *text = MHD_lookup_connection_value(connection->mhd, MHD_HEADER_KIND, field);
    return text && strcasestr(text, value) != NULL;
}

static void write_routes(struct byte_buffer *out) {
    size_t num_routes;
    const struct route *routes = route_list(&num_routes);
    byte_buffer_append_text(out, "quire\n");
    for (size_t i = 0; i < num_routes; i++)
        byte_buffer_printf(out, "%s %s%s\n", routes[i].methods, routes[i].path,
                           routes[i].is_prefix ? "..." : "");
}

int index_answer(struct connection *connection) {
    struct exchange *exchange = &connection->exchange;
    if (!header_names(connection, "Accept", "text/html")) {
        exchange->fields = text_fields;
        write_routes(&exchange->out);
        return 0;
    }
    exchange->fields = page_fields;
    if (header_names(connection, "If-None-Match", page_chat_etag))
        exchange->status = 304;
    else
        byte_buffer_append(&exchange->out, (const char *)page_chat, page_chat_bytes);
    return 0;
}
