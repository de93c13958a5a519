/* A list of requests, linked through request.next; each entry holds a reference. */
#ifndef QUIRE_ENGINE_REQUEST_REQUEST_LIST_H
#define QUIRE_ENGINE_REQUEST_REQUEST_LIST_H

#include "engine/request/request.h"

#include <string.h>

struct request_list {
    struct request *first, *last;
    int32_t num_choices;
};

static inline void request_list_push(struct request_list *list, struct request *request) {
    request->next = NULL;
    *(list->last != NULL ? &list->last->next : &list->first) = request;
    list->last = request;
    list->num_choices += request->params.num_choices;
}

static inline struct request *request_list_pop(struct request_list *list) {
    struct request *request = list->first;
    if (request == NULL)
        return NULL;
    list->first = request->next;
    if (list->first == NULL)
        list->last = NULL;
    request->next = NULL;
    list->num_choices -= request->params.num_choices;
    return request;
}

static inline void request_list_clear(struct request_list *list) {
    struct request *request;
    while ((request = request_list_pop(list)) != NULL)
        request_unref(request);
}

static inline struct request_list request_list_take(struct request_list *list) {
    struct request_list taken = *list;
    memset(list, 0, sizeof(*list));
    return taken;
}

#endif
