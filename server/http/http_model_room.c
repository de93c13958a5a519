#include "server/http/http_model_room.h"

#include "config/base/numbers.h"

static size_t held_bytes(const struct http_model *model) {
    const struct http_model_memory *memory = &model->memory;
    switch (model->state) {
    case HTTP_MODEL_UNLOADED:
    case HTTP_MODEL_PLANNING:
        return 0;
    case HTTP_MODEL_ASLEEP:
        return memory->bytes - (model->has_weights ? memory->kv_bytes : memory->rank_bytes);
    default:
        return memory->bytes;
    }
}

static double held_share(const struct http_model *model) {
    bool holds = held_bytes(model) > model->memory.bytes - model->memory.rank_bytes;
    return holds ? model->memory.gpu_share : 0;
}

bool http_model_room_is_awake(const struct http_model *model) {
    return model->state == HTTP_MODEL_AWAKE || model->state == HTTP_MODEL_LOADING ||
           model->state == HTTP_MODEL_WAKING || model->state == HTTP_MODEL_FALLING_ASLEEP;
}

size_t http_models_used_bytes(const struct http_models *models) {
    size_t bytes = 0;
    for (int i = 0; i < models->count; i++)
        bytes += held_bytes(models->items[i]);
    return bytes;
}

/* What is missing for a model next to the others; zeros: nothing. */
struct shortage {
    size_t bytes;
    double gpu_share;
    int num_awake;
};

static bool is_short(const struct shortage *shortage) {
    return shortage->bytes > 0 || shortage->gpu_share > 0 || shortage->num_awake > 0;
}

static struct shortage find_shortage(const struct http_models *models,
                                     const struct http_model *wanted) {
    size_t bytes = wanted->memory.bytes;
    double share = wanted->memory.gpu_share;
    int num_awake = 1;
    for (int i = 0; i < models->count; i++) {
        if (models->items[i] == wanted)
            continue;
        bytes += held_bytes(models->items[i]);
        share += held_share(models->items[i]);
        num_awake += http_model_room_is_awake(models->items[i]);
    }
    const double spare = 1e-6; /* sums of shares are not exact */
    return (struct shortage){
        .bytes = bytes > models->memory_bytes ? bytes - models->memory_bytes : 0,
        .gpu_share = share > models->gpu_share + spare ? share - models->gpu_share : 0,
        .num_awake = models->max_awake > 0 ? (int)max_int64(num_awake - models->max_awake, 0) : 0,
    };
}

static bool is_idle(const struct http_model *model, int64_t now_ms) {
    return model->state == HTTP_MODEL_AWAKE && model->num_calls == 0 && !model->is_pinned &&
           now_ms >= model->keeps_ms;
}

bool http_model_room_has_weights(const struct http_model *model) {
    return model->state == HTTP_MODEL_ASLEEP && model->has_weights;
}

/* What could be had if all slept, and were closed, that may; busy ones too if they may be waited
 * for. */
static struct shortage find_yield(const struct http_models *models, const struct http_model *wanted,
                                  bool counts_busy, int64_t now_ms) {
    struct shortage yield = {0};
    for (int i = 0; i < models->count; i++) {
        const struct http_model *model = models->items[i];
        bool is_busy = model->state == HTTP_MODEL_AWAKE && !model->is_pinned;
        if (model == wanted || !(is_idle(model, now_ms) || model->state == HTTP_MODEL_ASLEEP ||
                                 (counts_busy && is_busy)))
            continue;
        yield.bytes += held_bytes(model);
        yield.gpu_share += held_share(model);
        yield.num_awake += model->state == HTTP_MODEL_AWAKE;
    }
    return yield;
}

static bool covers(const struct shortage *yield, const struct shortage *shortage) {
    return yield->bytes >= shortage->bytes && yield->gpu_share >= shortage->gpu_share &&
           yield->num_awake >= shortage->num_awake;
}

/* Whether it is enough that those without calls give their KV blocks back. */
static bool is_kv_enough(const struct http_models *models, const struct shortage *shortage,
                         int64_t now_ms) {
    size_t bytes = 0;
    int count = 0;
    for (int i = 0; i < models->count; i++) {
        bytes += is_idle(models->items[i], now_ms) ? models->items[i]->memory.kv_bytes : 0;
        count += is_idle(models->items[i], now_ms);
    }
    return bytes >= shortage->bytes && shortage->gpu_share == 0 && count >= shortage->num_awake;
}

enum victims { VICTIMS_WITH_WEIGHTS /* asleep */, VICTIMS_IDLE, VICTIMS_WITHOUT_WEIGHTS };

static bool is_victim(const struct http_model *model, enum victims which, int64_t now_ms) {
    if (which == VICTIMS_IDLE)
        return is_idle(model, now_ms);
    return model->state == HTTP_MODEL_ASLEEP && model->num_calls == 0 &&
           model->has_weights == (which == VICTIMS_WITH_WEIGHTS);
}

/* Returns the least recently used of these, or NULL. */
static struct http_model *find_victim(const struct http_models *models,
                                      const struct http_model *wanted, enum victims which,
                                      int64_t now_ms) {
    struct http_model *oldest = NULL;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        if (model != wanted && is_victim(model, which, now_ms) &&
            (oldest == NULL || model->used_ms < oldest->used_ms))
            oldest = model;
    }
    return oldest;
}

/* The one that has been awake longest, and for a turn; NULL: none, or one drains already. */
static struct http_model *find_drained(const struct http_models *models, int64_t now_ms) {
    struct http_model *longest = NULL;
    for (int i = 0; i < models->count; i++) {
        struct http_model *model = models->items[i];
        if (model->is_door_closed)
            return NULL;
        if (model->state == HTTP_MODEL_AWAKE && !model->is_pinned &&
            now_ms - model->awake_ms >= models->turn_ms &&
            (longest == NULL || model->awake_ms < longest->awake_ms))
            longest = model;
    }
    return longest;
}

enum http_model_room http_model_room_find(const struct http_models *models,
                                          const struct http_model *wanted, int64_t now_ms,
                                          struct http_model **victim, bool *with_weights) {
    const struct shortage shortage = find_shortage(models, wanted);
    const struct shortage most = find_yield(models, wanted, true, now_ms);
    const struct shortage now = find_yield(models, wanted, false, now_ms);
    bool is_memory_short = shortage.bytes > 0 || shortage.gpu_share > 0;
    *victim = NULL;
    *with_weights = is_kv_enough(models, &shortage, now_ms);
    if (!is_short(&shortage))
        return HTTP_ROOM_ENOUGH;
    if (!covers(&most, &shortage))
        return HTTP_ROOM_NEVER;
    if (!covers(&now, &shortage)) {
        *victim = find_drained(models, now_ms);
        return *victim != NULL ? HTTP_ROOM_DRAINS : HTTP_ROOM_LATER;
    }
    if (is_memory_short && !*with_weights)
        *victim = find_victim(models, wanted, VICTIMS_WITH_WEIGHTS, now_ms);
    if (*victim == NULL)
        *victim = find_victim(models, wanted, VICTIMS_IDLE, now_ms);
    if (*victim != NULL)
        return HTTP_ROOM_SLEEPS;
    *victim = find_victim(models, wanted, VICTIMS_WITHOUT_WEIGHTS, now_ms);
    return *victim != NULL ? HTTP_ROOM_CLOSES : HTTP_ROOM_LATER;
}

const char *http_model_room_explain(const struct http_models *models,
                                    const struct http_model *wanted) {
    const struct shortage shortage = find_shortage(models, wanted);
    if (wanted->memory.bytes > models->memory_bytes)
        return "which is more than all models may have together";
    if (shortage.num_awake > 0)
        return "and pinned models are as many as may be loaded at a time (--models-max)";
    return shortage.gpu_share > 0 ? "and pinned models have the GPU"
                                  : "and pinned models have too much of it";
}
