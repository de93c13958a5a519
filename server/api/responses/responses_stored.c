/* /v1/responses/{id} and the paths below it: responses that are kept (response_store.h). */
#include "server/api/call/endpoints.h"

#include "config/base/array.h"
#include "server/api/responses/response_store.h"
#include "config/json/json_write.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIMIT 20
#define MAX_LIMIT 100
#define MAX_SEQUENCE_DIGITS 15

static int refuse_missing(const struct api_context *context, struct text id,
                          struct api_error *err) {
    int length = id.length < 100 ? (int)id.length : 100;
    if (context->responses == NULL)
        return api_error_set(err, 404, "invalid_request_error", "response_not_found", NULL,
                             "Response with id '%.*s' not found: this server keeps none (its "
                             "option response-store-bytes).",
                             length, id.data);
    return api_error_set(err, 404, "invalid_request_error", "response_not_found", NULL,
                         "Response with id '%.*s' not found.", length, id.data);
}

static int open_part(const struct api_context *context, struct text id, bool is_of_events,
                     struct response_reader *out, bool *out_is_background, struct api_error *err) {
    if (context->responses == NULL || !response_store_open(context->responses, context->tenant, id,
                                                           is_of_events, out, out_is_background))
        return refuse_missing(context, id, err);
    return 0;
}

int responses_stored_get(const struct api_context *context, struct text id,
                         struct response_reader *out, struct api_error *err) {
    return open_part(context, id, false, out, NULL, err);
}

int responses_stored_cancel(const struct api_context *context, struct text id,
                            struct response_reader *out, struct api_error *err) {
    bool is_background = false;
    if (open_part(context, id, false, out, &is_background, err) != 0)
        return -1;
    if (is_background)
        return 0;
    response_reader_close(out);
    return bad_request(err, "response_not_in_background", NULL,
                       "Cannot cancel a response that was not made with background: true.");
}

int responses_stored_delete(const struct api_context *context, struct text id,
                            struct byte_buffer *out, struct api_error *err) {
    if (context->responses == NULL ||
        !response_store_delete(context->responses, context->tenant, id))
        return refuse_missing(context, id, err);
    json_write_begin_object(out);
    json_write_key(out, "id");
    json_write_string(out, id.data, id.length);
    json_write_text_member(out, "object", "response");
    json_write_raw_member(out, "deleted", "true");
    json_write_end_object(out);
    return 0;
}

static int read_after(const char *text, int64_t *out, struct api_error *err) {
    bool is_number = *text != '\0' && strspn(text, "0123456789") == strlen(text);
    if (!is_number || strlen(text) > MAX_SEQUENCE_DIGITS)
        return bad_request(err, "out_of_range", "starting_after",
                           "starting_after is \"%.24s\": the sequence_number of an event is "
                           "allowed",
                           text);
    *out = strtoll(text, NULL, 10);
    return 0;
}

int responses_stored_read_query(const char *stream, const char *starting_after, bool *out_is_stream,
                                int64_t *out_after, struct api_error *err) {
    *out_is_stream = stream != NULL && strcmp(stream, "true") == 0;
    *out_after = -1;
    if (stream != NULL && !*out_is_stream && strcmp(stream, "false") != 0)
        return bad_request(err, "unsupported_value", "stream",
                           "stream is \"%.24s\": true or false is allowed", stream);
    if (starting_after == NULL)
        return 0;
    if (!*out_is_stream)
        return bad_request(err, "unsupported_value", "starting_after",
                           "starting_after is allowed only with stream=true");
    return read_after(starting_after, out_after, err);
}

int responses_stored_refuse_stream(struct api_error *err) {
    return bad_request(err, "unsupported_value", "stream",
                       "stream must be false: only a response that was made with background: "
                       "true and stream: true has events");
}

/* --- Events --- */

#define NUMBER_KEY "\"sequence_number\":"

/* Returns the end of the event that contains this position. */
static size_t event_end(struct text events, size_t at) {
    const char *end = memmem(events.data + at, events.length - at, "\n\n", 2);
    return end != NULL ? (size_t)(end + 2 - events.data) : events.length;
}

/* Returns the number of the event that begins there: its first number, which no text precedes. */
static int64_t number_at(struct text events, size_t at) {
    const char *key = memmem(events.data + at, events.length - at, NUMBER_KEY, strlen(NUMBER_KEY));
    int64_t number = 0;
    const char *digit = key != NULL ? key + strlen(NUMBER_KEY) : events.data + events.length;
    for (; digit < events.data + events.length && *digit >= '0' && *digit <= '9'; digit++)
        number = 10 * number + (*digit - '0');
    return number;
}

/* Returns where the events begin that follow this number. Uses binary search, so that only a few
 * events are looked at. *last: the number of the last event. */
static size_t find_following(struct text events, int64_t after, int64_t *last) {
    size_t low = 0, high = events.length; /* the first event that follows begins within low..high */
    *last = -1;
    while (low < high) {
        size_t middle = low + (high - low) / 2, begin = low;
        if (middle > low) { /* the last event that begins before that */
            const char *before = events.data + middle;
            while (before > events.data + low && !(before[-1] == '\n' && before[-2] == '\n'))
                before--;
            begin = (size_t)(before - events.data);
        }
        int64_t number = number_at(events, begin);
        if (number > after) {
            high = begin;
        } else {
            *last = number;
            low = event_end(events, begin);
        }
    }
    return low;
}

int responses_stored_find_event(struct text events, int64_t after, size_t *out_at,
                                struct api_error *err) {
    int64_t last = -1;
    *out_at = after < 0 ? 0 : find_following(events, after, &last);
    if (last >= after)
        return 0;
    return bad_request(err, "out_of_range", "starting_after",
                       "starting_after is %lld: the last event so far is %lld", (long long)after,
                       (long long)last);
}

struct event_search {
    int64_t after;
    struct api_error *err;
};

static ssize_t seek_event(struct text events, void *context) {
    struct event_search *search = context;
    size_t at = 0;
    return responses_stored_find_event(events, search->after, &at, search->err) == 0 ? (ssize_t)at
                                                                                     : -1;
}

int responses_stored_events(const struct api_context *context, struct text id, int64_t after,
                            struct response_reader *out, struct api_error *err) {
    struct event_search search = {after, err};
    if (open_part(context, id, true, out, NULL, err) != 0)
        return -1;
    if (out->length == 0)
        responses_stored_refuse_stream(err);
    else if (response_reader_seek(out, seek_event, &search) >= 0)
        return 0;
    response_reader_close(out);
    return -1;
}

/* --- Items --- */

/* Items as lines, and which of them are requested. */
struct listing {
    struct text *items; /* [num_items], without their line feeds */
    size_t num_items, capacity;
    size_t limit;
    bool is_ascending;
};

static int read_query(const struct response_items_query *query, struct listing *out,
                      struct api_error *err) {
    out->limit = DEFAULT_LIMIT;
    if (query->limit != NULL) {
        char *end = NULL;
        bool is_number = strspn(query->limit, "0123456789") == strlen(query->limit);
        unsigned long limit = is_number ? strtoul(query->limit, &end, 10) : 0;
        if (limit < 1 || limit > MAX_LIMIT)
            return bad_request(err, "out_of_range", "limit",
                               "limit is \"%.24s\": 1 to %d are allowed", query->limit, MAX_LIMIT);
        out->limit = limit;
    }
    if (query->order == NULL || strcmp(query->order, "desc") == 0)
        return 0;
    out->is_ascending = strcmp(query->order, "asc") == 0;
    return out->is_ascending
               ? 0
               : bad_request(err, "unsupported_value", "order",
                             "order is \"%.24s\": \"asc\" or \"desc\" is allowed", query->order);
}

static int split(const struct byte_buffer *lines, size_t num_bytes, struct listing *out,
                 struct api_error *err) {
    const char *at = lines->data, *end = at + num_bytes;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!array_reserve(&out->items, &out->capacity, out->num_items + 1, sizeof(*out->items)))
            return api_error_set_memory(err);
        out->items[out->num_items++] = (struct text){at, (size_t)(line_end - at)};
        at = line_end + 1;
    }
    return 0;
}

/* Returns an item's id as it is written, including its quotes. */
static struct text id_of(struct text item) {
    const char *begin = item.data + strlen("{\"id\":"), *at = begin + 1;
    while (*at != '"')
        at += *at == '\\' ? 2 : 1;
    return (struct text){begin, (size_t)(at + 1 - begin)};
}

static struct text item_at(const struct listing *listing, size_t place) {
    return listing->items[listing->is_ascending ? place : listing->num_items - 1 - place];
}

/* Returns the index after the item with this id. */
static int find_after(const struct listing *listing, const char *after, size_t *out_place,
                      struct api_error *err) {
    struct byte_buffer id = {0};
    size_t place = 0;
    json_write_text(&id, after);
    while (!id.failed && place < listing->num_items) {
        struct text other = id_of(item_at(listing, place++));
        if (other.length == id.length && memcmp(other.data, id.data, id.length) == 0) {
            byte_buffer_finish(&id);
            *out_place = place;
            return 0;
        }
    }
    bool has_memory = !id.failed;
    byte_buffer_finish(&id);
    return has_memory
               ? bad_request(err, "item_not_found", "after",
                             "after is \"%.100s\", which is not an item of this response", after)
               : api_error_set_memory(err);
}

static void write_id(const char *name, const struct text *item, struct byte_buffer *out) {
    json_write_key(out, name);
    if (item == NULL) {
        json_write_null(out);
        return;
    }
    struct text id = id_of(*item);
    byte_buffer_append(out, id.data, id.length);
}

static void write_list(const struct listing *listing, size_t place, struct byte_buffer *out) {
    size_t left = listing->num_items - place;
    size_t count = left < listing->limit ? left : listing->limit;
    json_write_begin_object(out);
    json_write_text_member(out, "object", "list");
    json_write_key(out, "data");
    json_write_begin_array(out);
    for (size_t i = 0; i < count; i++) {
        struct text item = item_at(listing, place + i);
        if (i > 0)
            byte_buffer_append(out, ",", 1);
        byte_buffer_append(out, item.data, item.length);
    }
    json_write_end_array(out);
    struct text first = count > 0 ? item_at(listing, place) : (struct text){0};
    struct text last = count > 0 ? item_at(listing, place + count - 1) : (struct text){0};
    write_id("first_id", count > 0 ? &first : NULL, out);
    write_id("last_id", count > 0 ? &last : NULL, out);
    json_write_key(out, "has_more");
    json_write_bool(out, count < left);
    json_write_end_object(out);
}

int responses_stored_items(const struct api_context *context, struct text id,
                           const struct response_items_query *query, struct byte_buffer *out,
                           struct api_error *err) {
    struct byte_buffer lines = {0};
    struct listing listing = {0};
    size_t num_bytes = 0, place = 0;
    int result = read_query(query, &listing, err);
    if (result == 0 &&
        (context->responses == NULL ||
         !response_store_read_items(context->responses, context->tenant, id, &lines, &num_bytes)))
        result = refuse_missing(context, id, err);
    if (result == 0 && lines.failed)
        result = api_error_set_memory(err);
    if (result == 0)
        result = split(&lines, num_bytes, &listing, err);
    if (result == 0 && query->after != NULL)
        result = find_after(&listing, query->after, &place, err);
    if (result == 0)
        write_list(&listing, place, out);
    free(listing.items);
    byte_buffer_finish(&lines);
    return result;
}
