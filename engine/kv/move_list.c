#include "engine/kv/move_list.h"

#include "config/base/check.h"

#include <stdlib.h>
#include <string.h>

/* Adds one: an empty array may be NULL. */
static size_t array_bytes(int32_t num_destinations) {
    return ((size_t)num_destinations + 1) * sizeof(int32_t);
}

size_t move_list_bytes(int32_t num_destinations) {
    return 3 * array_bytes(num_destinations);
}

int move_list_init(struct move_list *moves, int32_t num_destinations) {
    CHECK(num_destinations >= 0);
    size_t bytes = array_bytes(num_destinations);
    struct move_list made = {.from = malloc(bytes), .to = malloc(bytes), .place = malloc(bytes)};
    if (made.from == NULL || made.to == NULL || made.place == NULL) {
        move_list_finish(&made);
        return -1;
    }
    for (int32_t i = 0; i < num_destinations; i++)
        made.place[i] = -1;
    *moves = made;
    return 0;
}

void move_list_finish(struct move_list *moves) {
    free(moves->from);
    free(moves->to);
    free(moves->place);
    memset(moves, 0, sizeof(*moves));
}

void move_list_add(struct move_list *moves, int32_t from, int32_t to) {
    CHECK(moves->place[to] < 0);
    moves->from[moves->count] = from;
    moves->to[moves->count] = to;
    moves->place[to] = moves->count++;
}

int32_t move_list_source(const struct move_list *moves, int32_t to) {
    int32_t place = moves->place[to];
    return place < 0 ? -1 : moves->from[place];
}

void move_list_remove(struct move_list *moves, int32_t to) {
    int32_t place = moves->place[to];
    CHECK(place >= 0);
    int32_t last = --moves->count;
    moves->from[place] = moves->from[last];
    moves->to[place] = moves->to[last];
    moves->place[moves->to[last]] = place;
    moves->place[to] = -1;
}

void move_list_clear(struct move_list *moves) {
    for (int32_t i = 0; i < moves->count; i++)
        moves->place[moves->to[i]] = -1;
    moves->count = 0;
}
