#include "engine/request/adapter.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

struct adapter *adapter_create(const char *name, struct lora_adapter *lora) {
    struct adapter *adapter = calloc(1, sizeof(*adapter));
    char *copy = strdup(name);
    if (adapter == NULL || copy == NULL) {
        free(adapter);
        free(copy);
        lora_adapter_close(lora);
        return NULL;
    }
    adapter->name = copy;
    adapter->lora = lora;
    adapter->slot = -1;
    atomic_init(&adapter->state, ADAPTER_NEW);
    atomic_init(&adapter->references, 1);
    return adapter;
}

struct adapter *adapter_ref(struct adapter *adapter) {
    atomic_fetch_add_explicit(&adapter->references, 1, memory_order_relaxed);
    return adapter;
}

void adapter_unref(struct adapter *adapter) {
    if (adapter == NULL)
        return;
    int before = atomic_fetch_sub_explicit(&adapter->references, 1, memory_order_acq_rel);
    CHECK(before >= 1);
    if (before > 1)
        return;
    lora_adapter_close(adapter->lora);
    free(adapter->name);
    free(adapter);
}

bool adapter_change(struct adapter *adapter, enum adapter_state from, enum adapter_state to) {
    return atomic_compare_exchange_strong(&adapter->state, &from, to);
}
