#include "server/api/responses/response_store.h"

#include "server/api/responses/stored_items.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_PER_BUCKET 4096
#define MAX_BUCKETS 65536

/* One block of memory: the struct is followed by the id with its NUL, the object and the events. */
struct stored_entry {
    struct stored_entry *older, *newer; /* in order of use */
    struct stored_entry *next;          /* in its bucket */
    struct response_reader *readers;
    bool is_deleted; /* in no bucket; kept for its readers */
    size_t bytes;    /* that count against max_bytes */
    size_t id_bytes, object_bytes, events_bytes, input_bytes;
    struct stored_items *items; /* a reference */
    int32_t tenant;
    bool is_background;
    char data[];
};

struct response_store {
    pthread_mutex_t lock;
    size_t max_bytes, num_buckets;
    /* guarded by lock */
    struct stored_entry *oldest, *newest;
    struct response_store_stats stats;
    struct stored_entry *buckets[];
};

static const char *object_of(const struct stored_entry *entry) {
    return entry->data + entry->id_bytes + 1;
}

static const char *events_of(const struct stored_entry *entry) {
    return object_of(entry) + entry->object_bytes;
}

/* --- The table and the order of use; called with the lock held --- */

/* FNV-1a. Ids that are chosen to collide only make lists longer, by at most the entries that there
 * is room for. */
static struct stored_entry **bucket_of(struct response_store *store, int32_t tenant,
                                       struct text id) {
    uint64_t hash = 0xcbf29ce484222325U ^ (uint32_t)tenant;
    for (size_t i = 0; i < id.length; i++)
        hash = (hash ^ (uint8_t)id.data[i]) * 0x100000001b3U;
    return &store->buckets[(hash >> 32) % store->num_buckets];
}

/* Returns the place where the entry is linked in its bucket, or the end of the bucket. */
static struct stored_entry **find(struct response_store *store, int32_t tenant, struct text id) {
    struct stored_entry **at = bucket_of(store, tenant, id);
    while (*at != NULL && ((*at)->tenant != tenant || (*at)->id_bytes != id.length ||
                           memcmp((*at)->data, id.data, id.length) != 0))
        at = &(*at)->next;
    return at;
}

static void unlink_use(struct response_store *store, const struct stored_entry *entry) {
    *(entry->older != NULL ? &entry->older->newer : &store->oldest) = entry->newer;
    *(entry->newer != NULL ? &entry->newer->older : &store->newest) = entry->older;
}

static void link_newest(struct response_store *store, struct stored_entry *entry) {
    entry->older = store->newest;
    entry->newer = NULL;
    *(store->newest != NULL ? &store->newest->newer : &store->oldest) = entry;
    store->newest = entry;
}

/* Frees the entry. Its readers find it gone. */
static void destroy(struct response_store *store, struct stored_entry *entry) {
    for (struct response_reader *reader = entry->readers; reader != NULL; reader = reader->next)
        reader->entry = NULL;
    unlink_use(store, entry);
    store->stats.bytes -= entry->bytes + stored_items_release(entry->items);
    free(entry);
}

/* Takes the entry out of its bucket, so that it is not found any more. */
static struct stored_entry *take_out(struct response_store *store, struct stored_entry **at) {
    struct stored_entry *entry = *at;
    *at = entry->next;
    store->stats.num_entries--;
    entry->is_deleted = true;
    return entry;
}

static void forget(struct response_store *store, struct stored_entry **at) {
    struct stored_entry *entry = take_out(store, at);
    if (entry->readers == NULL)
        destroy(store, entry);
}

static void drop_oldest(struct response_store *store) {
    struct stored_entry *entry = store->oldest;
    store->stats.num_evicted += !entry->is_deleted;
    if (!entry->is_deleted)
        take_out(store, find(store, entry->tenant, (struct text){entry->data, entry->id_bytes}));
    destroy(store, entry);
}

/* --- Called from outside --- */

struct response_store *response_store_create(size_t max_bytes) {
    size_t num_buckets = max_bytes / BYTES_PER_BUCKET;
    num_buckets = num_buckets < 1 ? 1 : num_buckets > MAX_BUCKETS ? MAX_BUCKETS : num_buckets;
    size_t bytes = sizeof(struct response_store) + num_buckets * sizeof(struct stored_entry *);
    struct response_store *store = calloc(1, bytes);
    if (store == NULL)
        return NULL;
    pthread_mutex_init(&store->lock, NULL);
    store->max_bytes = max_bytes;
    store->num_buckets = num_buckets;
    store->stats.bytes = stored_memory_bytes(bytes);
    return store;
}

void response_store_destroy(struct response_store *store) {
    if (store == NULL)
        return;
    while (store->oldest != NULL)
        drop_oldest(store);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* Makes room for `bytes` bytes, in addition to needed_bytes that cannot be dropped for them.
 * Returns false when there is not enough room in total, or others hold it. */
static bool make_room(struct response_store *store, size_t bytes, size_t needed_bytes) {
    size_t fixed =
        stored_memory_bytes(sizeof(*store) + store->num_buckets * sizeof(struct stored_entry *));
    if (fixed > store->max_bytes || bytes + needed_bytes > store->max_bytes - fixed)
        return false;
    while (store->stats.bytes + bytes > store->max_bytes) {
        if (store->oldest == NULL)
            return false;
        drop_oldest(store);
    }
    return true;
}

static void fill(struct stored_entry *entry, const struct stored_response *response) {
    entry->id_bytes = strlen(response->id);
    entry->object_bytes = response->object.length;
    entry->events_bytes = response->events.length;
    entry->input_bytes = response->input_bytes;
    entry->tenant = response->tenant;
    entry->readers = NULL;
    entry->is_deleted = false;
    entry->is_background = response->is_background;
    char *end = mempcpy(entry->data, response->id, entry->id_bytes + 1);
    end = mempcpy(end, response->object.data, entry->object_bytes);
    if (entry->events_bytes > 0)
        memcpy(end, response->events.data, entry->events_bytes);
}

static bool add(struct response_store *store, const struct stored_response *response) {
    size_t bytes = sizeof(struct stored_entry) + strlen(response->id) + 1 +
                   response->object.length + response->events.length;
    size_t items_bytes = stored_items_memory_bytes(response->items.length);
    if (!make_room(store, stored_memory_bytes(bytes) + items_bytes,
                   stored_items_total_memory_bytes(response->previous)))
        return false;
    struct stored_entry *entry = malloc(bytes);
    struct stored_items *items =
        entry != NULL ? stored_items_create(response->previous, response->items) : NULL;
    if (items == NULL) {
        free(entry);
        return false;
    }
    fill(entry, response);
    entry->items = items;
    entry->bytes = stored_memory_bytes(bytes);
    struct stored_entry **bucket =
        bucket_of(store, entry->tenant, (struct text){entry->data, entry->id_bytes});
    entry->next = *bucket;
    *bucket = entry;
    link_newest(store, entry);
    store->stats.bytes += entry->bytes + items_bytes;
    store->stats.num_entries++;
    return true;
}

bool response_store_put(struct response_store *store, const struct stored_response *response) {
    const struct text id = {response->id, strlen(response->id)};
    pthread_mutex_lock(&store->lock);
    struct stored_entry **at = find(store, response->tenant, id);
    if (*at != NULL)
        forget(store, at);
    bool is_kept = add(store, response);
    store->stats.num_refused += !is_kept;
    pthread_mutex_unlock(&store->lock);
    return is_kept;
}

void response_store_refuse(struct response_store *store) {
    pthread_mutex_lock(&store->lock);
    store->stats.num_refused++;
    pthread_mutex_unlock(&store->lock);
}

static void mark_used(struct response_store *store, struct stored_entry *entry) {
    unlink_use(store, entry);
    link_newest(store, entry);
}

/* Returns the entry, and makes it the most recently used; or NULL. Called with the lock held. */
static struct stored_entry *use(struct response_store *store, int32_t tenant, struct text id) {
    struct stored_entry *entry = *find(store, tenant, id);
    if (entry != NULL)
        mark_used(store, entry);
    return entry;
}

/* --- Readers --- */

bool response_store_open(struct response_store *store, int32_t tenant, struct text id,
                         bool is_of_events, struct response_reader *out, bool *out_is_background) {
    pthread_mutex_lock(&store->lock);
    struct stored_entry *entry = use(store, tenant, id);
    if (entry != NULL) {
        *out = (struct response_reader){.store = store,
                                        .entry = entry,
                                        .next = entry->readers,
                                        .is_of_events = is_of_events,
                                        .length = is_of_events ? entry->events_bytes
                                                               : entry->object_bytes};
        if (out->next != NULL)
            out->next->previous = out;
        entry->readers = out;
        if (out_is_background != NULL)
            *out_is_background = entry->is_background;
    }
    pthread_mutex_unlock(&store->lock);
    return entry != NULL;
}

static const char *bytes_of(const struct response_reader *reader) {
    return reader->is_of_events ? events_of(reader->entry) : object_of(reader->entry);
}

ssize_t response_reader_read(struct response_reader *reader, size_t offset, char *out,
                             size_t capacity) {
    size_t left = offset < reader->length ? reader->length - offset : 0;
    size_t length = left < capacity ? left : capacity;
    pthread_mutex_lock(&reader->store->lock);
    bool is_there = reader->entry != NULL;
    if (is_there) {
        memcpy(out, bytes_of(reader) + reader->at + offset, length);
        mark_used(reader->store, reader->entry);
    }
    pthread_mutex_unlock(&reader->store->lock);
    return is_there ? (ssize_t)length : -1;
}

ssize_t response_reader_seek(struct response_reader *reader, response_seek *seek, void *context) {
    ssize_t at = -1;
    pthread_mutex_lock(&reader->store->lock);
    if (reader->entry != NULL)
        at = seek((struct text){bytes_of(reader) + reader->at, reader->length}, context);
    pthread_mutex_unlock(&reader->store->lock);
    if (at > 0) {
        reader->at += (size_t)at;
        reader->length -= (size_t)at;
    }
    return at;
}

void response_reader_close(struct response_reader *reader) {
    struct response_store *store = reader->store;
    if (store == NULL)
        return;
    pthread_mutex_lock(&store->lock);
    struct stored_entry *entry = reader->entry;
    if (entry != NULL) {
        *(reader->previous != NULL ? &reader->previous->next : &entry->readers) = reader->next;
        if (reader->next != NULL)
            reader->next->previous = reader->previous;
        if (entry->is_deleted && entry->readers == NULL)
            destroy(store, entry);
    }
    pthread_mutex_unlock(&store->lock);
    *reader = (struct response_reader){0};
}

/* --- Items, and the rest --- */

bool response_store_read_items(struct response_store *store, int32_t tenant, struct text id,
                               struct byte_buffer *out, size_t *out_input_bytes) {
    pthread_mutex_lock(&store->lock);
    const struct stored_entry *entry = use(store, tenant, id);
    if (entry != NULL) {
        stored_items_write(entry->items, out);
        *out_input_bytes = stored_items_shared_length(entry->items) + entry->input_bytes;
    }
    pthread_mutex_unlock(&store->lock);
    return entry != NULL;
}

struct stored_items *response_store_hold_items(struct response_store *store, int32_t tenant,
                                               struct text id, struct byte_buffer *out) {
    struct stored_items *items = NULL;
    pthread_mutex_lock(&store->lock);
    const struct stored_entry *entry = use(store, tenant, id);
    if (entry != NULL) {
        items = stored_items_share(entry->items);
        stored_items_write(items, out);
    }
    pthread_mutex_unlock(&store->lock);
    return items;
}

/* Returns whether some line begins with this text. */
static bool has_line(struct text lines, struct text begin) {
    const char *at = lines.data, *end = lines.data + lines.length;
    while ((at = memmem(at, (size_t)(end - at), begin.data, begin.length)) != NULL) {
        if (at == lines.data || at[-1] == '\n')
            return true;
        at++;
    }
    return false;
}

/* Appends shared references to the items of a client's responses, newest first. */
static void hold_all(struct response_store *store, int32_t tenant, struct byte_buffer *out) {
    pthread_mutex_lock(&store->lock);
    for (struct stored_entry *entry = store->newest; entry != NULL; entry = entry->older) {
        if (entry->tenant != tenant || entry->is_deleted || entry->items == NULL)
            continue;
        byte_buffer_append(out, &entry->items, sizeof(entry->items));
        if (out->failed)
            break;
        stored_items_share(entry->items);
    }
    pthread_mutex_unlock(&store->lock);
}

/* Searching everything that a client has stored takes long, and the I/O thread needs the lock. */
bool response_store_find_item(struct response_store *store, int32_t tenant, struct text id,
                              struct byte_buffer *out) {
    struct byte_buffer begin = {0}, held = {0};
    byte_buffer_printf(&begin, "{\"id\":\"%.*s\"", (int)id.length, id.data);
    hold_all(store, tenant, &held);
    bool is_found = false;
    for (size_t at = 0; at < held.length; at += sizeof(struct stored_items *)) {
        struct stored_items *items;
        memcpy(&items, held.data + at, sizeof(items));
        struct text added = stored_items_added(items);
        if (!is_found && !begin.failed &&
            has_line(added, (struct text){begin.data, begin.length})) {
            is_found = true;
            byte_buffer_append(out, added.data, added.length);
        }
        response_store_release_items(store, items);
    }
    byte_buffer_finish(&begin);
    byte_buffer_finish(&held);
    return is_found;
}

void response_store_release_items(struct response_store *store, struct stored_items *items) {
    if (items == NULL)
        return;
    pthread_mutex_lock(&store->lock);
    store->stats.bytes -= stored_items_release(items);
    pthread_mutex_unlock(&store->lock);
}

bool response_store_delete(struct response_store *store, int32_t tenant, struct text id) {
    pthread_mutex_lock(&store->lock);
    struct stored_entry **at = find(store, tenant, id);
    bool is_there = *at != NULL;
    if (is_there)
        forget(store, at);
    pthread_mutex_unlock(&store->lock);
    return is_there;
}

struct response_store_stats response_store_stats(struct response_store *store) {
    if (store == NULL)
        return (struct response_store_stats){0};
    pthread_mutex_lock(&store->lock);
    struct response_store_stats stats = store->stats;
    pthread_mutex_unlock(&store->lock);
    return stats;
}
