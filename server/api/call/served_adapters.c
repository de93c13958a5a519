#include "server/api/call/served_adapters.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct served_adapters {
    pthread_mutex_t lock;
    int count;
    struct adapter *items[LORA_MAX_SLOTS];
};

struct served_adapters *served_adapters_create(void) {
    struct served_adapters *adapters = calloc(1, sizeof(*adapters));
    if (adapters != NULL)
        pthread_mutex_init(&adapters->lock, NULL);
    return adapters;
}

void served_adapters_destroy(struct served_adapters *adapters) {
    if (adapters == NULL)
        return;
    for (int i = 0; i < adapters->count; i++)
        adapter_unref(adapters->items[i]);
    pthread_mutex_destroy(&adapters->lock);
    free(adapters);
}

/* -1: none has the name. */
static int index_of(const struct served_adapters *adapters, const char *name) {
    for (int i = 0; i < adapters->count; i++)
        if (strcmp(adapters->items[i]->name, name) == 0)
            return i;
    return -1;
}

int served_adapters_add(struct served_adapters *adapters, struct adapter *adapter) {
    pthread_mutex_lock(&adapters->lock);
    bool is_free = adapters->count < LORA_MAX_SLOTS && index_of(adapters, adapter->name) < 0;
    if (is_free)
        adapters->items[adapters->count++] = adapter_ref(adapter);
    pthread_mutex_unlock(&adapters->lock);
    return is_free ? 0 : -1;
}

struct adapter *served_adapters_find(struct served_adapters *adapters, const char *name) {
    pthread_mutex_lock(&adapters->lock);
    int i = index_of(adapters, name);
    struct adapter *found = i >= 0 ? adapter_ref(adapters->items[i]) : NULL;
    pthread_mutex_unlock(&adapters->lock);
    return found;
}

struct adapter *served_adapters_remove(struct served_adapters *adapters, const char *name) {
    pthread_mutex_lock(&adapters->lock);
    int i = index_of(adapters, name);
    struct adapter *found = i >= 0 ? adapters->items[i] : NULL;
    if (found != NULL) {
        adapters->count--;
        memmove(&adapters->items[i], &adapters->items[i + 1],
                (size_t)(adapters->count - i) * sizeof(adapters->items[0]));
    }
    pthread_mutex_unlock(&adapters->lock);
    return found;
}

int served_adapters_list(struct served_adapters *adapters,
                         struct adapter *out[static LORA_MAX_SLOTS]) {
    pthread_mutex_lock(&adapters->lock);
    int count = adapters->count;
    for (int i = 0; i < count; i++)
        out[i] = adapter_ref(adapters->items[i]);
    pthread_mutex_unlock(&adapters->lock);
    return count;
}
