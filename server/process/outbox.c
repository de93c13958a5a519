#include "server/process/outbox.h"

#include "config/base/check.h"
#include "config/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct outbox {
    struct outbox_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;   /* by its clock, CLOCK_MONOTONIC */
    struct byte_buffer items; /* guarded by lock, like all below */
    int32_t num_items;
    uint64_t num_lost;
    bool is_woken, is_stopping, has_ended;
};

/* The lock is held. Returns false when the time came first. */
static bool wait_changed(struct outbox *outbox, int64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / CLOCK_NS_PER_S),
                                   .tv_nsec = (long)(until_ns % CLOCK_NS_PER_S)};
    return pthread_cond_timedwait(&outbox->changed, &outbox->lock, &until) != ETIMEDOUT;
}

/* The lock is held. Returns once there is something to do. */
static void wait_for_items(struct outbox *outbox) {
    while (outbox->num_items == 0 && !outbox->is_woken && !outbox->is_stopping)
        pthread_cond_wait(&outbox->changed, &outbox->lock);
    if (outbox->config.gather_ms == 0)
        return;
    int64_t until_ns = clock_now_ns() + outbox->config.gather_ms * CLOCK_NS_PER_MS;
    while (!outbox->is_woken && !outbox->is_stopping &&
           outbox->num_items < outbox->config.max_items / 2 && wait_changed(outbox, until_ns))
        continue;
}

/* The lock is held, but for the delivery. */
static void deliver(struct outbox *outbox) {
    struct byte_buffer items = outbox->items;
    int32_t num_items = outbox->num_items;
    outbox->items = (struct byte_buffer){.max_length = outbox->config.max_bytes};
    outbox->num_items = 0;
    outbox->is_woken = false;
    pthread_mutex_unlock(&outbox->lock);
    int32_t num_lost = outbox->config.deliver(outbox->config.context, &items, num_items);
    byte_buffer_finish(&items);
    pthread_mutex_lock(&outbox->lock);
    outbox->num_lost += (uint64_t)num_lost;
}

static void *run(void *context) {
    struct outbox *outbox = context;
    pthread_mutex_lock(&outbox->lock);
    while (!outbox->is_stopping || outbox->num_items > 0) {
        wait_for_items(outbox);
        deliver(outbox);
    }
    outbox->has_ended = true;
    pthread_cond_broadcast(&outbox->changed);
    pthread_mutex_unlock(&outbox->lock);
    return NULL;
}

static void free_outbox(struct outbox *outbox) {
    byte_buffer_finish(&outbox->items);
    pthread_cond_destroy(&outbox->changed);
    pthread_mutex_destroy(&outbox->lock);
    free(outbox);
}

int outbox_create(const struct outbox_config *config, struct outbox **out, struct error *err) {
    struct outbox *outbox = calloc(1, sizeof(*outbox));
    pthread_condattr_t attributes;
    if (outbox == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the thread %s", config->name);
    outbox->config = *config;
    outbox->items.max_length = config->max_bytes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&outbox->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&outbox->lock, NULL);
    int rc = pthread_create(&outbox->thread, NULL, run, outbox);
    if (rc != 0) {
        free_outbox(outbox);
        return error_set(err, ERROR_IO, "cannot start the thread %s: %s", config->name,
                         strerror(rc));
    }
    pthread_setname_np(outbox->thread, config->name);
    *out = outbox;
    return 0;
}

void outbox_put(struct outbox *outbox, const void *data, size_t length) {
    pthread_mutex_lock(&outbox->lock);
    struct byte_buffer *items = &outbox->items;
    if (outbox->num_items < outbox->config.max_items)
        byte_buffer_append(items, data, length);
    else
        items->failed = true;
    outbox->num_lost += items->failed;
    outbox->num_items += !items->failed;
    items->failed = items->is_full = false;
    if (outbox->num_items == 1 || outbox->num_items == outbox->config.max_items / 2)
        pthread_cond_broadcast(&outbox->changed);
    pthread_mutex_unlock(&outbox->lock);
}

void outbox_count_lost(struct outbox *outbox) {
    pthread_mutex_lock(&outbox->lock);
    outbox->num_lost++;
    pthread_mutex_unlock(&outbox->lock);
}

void outbox_wake(struct outbox *outbox) {
    pthread_mutex_lock(&outbox->lock);
    outbox->is_woken = true;
    pthread_cond_broadcast(&outbox->changed);
    pthread_mutex_unlock(&outbox->lock);
}

uint64_t outbox_num_lost(struct outbox *outbox) {
    pthread_mutex_lock(&outbox->lock);
    uint64_t num_lost = outbox->num_lost;
    pthread_mutex_unlock(&outbox->lock);
    return num_lost;
}

bool outbox_is_stopping(struct outbox *outbox) {
    pthread_mutex_lock(&outbox->lock);
    bool is_stopping = outbox->is_stopping;
    pthread_mutex_unlock(&outbox->lock);
    return is_stopping;
}

bool outbox_destroy(struct outbox *outbox, int64_t wait_ms) {
    if (outbox == NULL)
        return true;
    int64_t until_ns = clock_now_ns() + wait_ms * CLOCK_NS_PER_MS;
    pthread_mutex_lock(&outbox->lock);
    outbox->is_stopping = true;
    pthread_cond_broadcast(&outbox->changed);
    while (!outbox->has_ended && wait_changed(outbox, until_ns))
        continue;
    bool has_ended = outbox->has_ended;
    pthread_mutex_unlock(&outbox->lock);
    if (!has_ended)
        return false;
    CHECK(pthread_join(outbox->thread, NULL) == 0);
    free_outbox(outbox);
    return true;
}
