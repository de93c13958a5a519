/* A replica's step is computed when it begins, in one call of the core, but what came of it is
 * looked at in the event of its end: a router that chooses in between does not know it yet. Then
 * the next step begins, with what was sent meanwhile. */
#include "scripts/bench/cluster_sim/cluster.h"

#include "config/base/check.h"
#include "config/base/clock.h"

#include <stdlib.h>

static void add_event(struct cluster *cluster, struct event event) {
    CHECK(event_queue_add(&cluster->events, event) == 0);
}

/* --- Sending --- */

/* Fills in how many of the prompt's tokens each replica has cached. */
static void look_up_prefixes(struct cluster *cluster, const struct call *call) {
    int32_t block_size = cluster->config.replica.device->limits.block_size;
    int32_t count = call->turn.num_prompt_tokens, num_blocks = count / block_size;
    conversation_write(&call->conversation, count, cluster->prompt);
    cluster->keys[0] = cluster->root;
    for (int32_t i = 0; i < num_blocks; i++)
        cluster->keys[i + 1] = block_key_next(&cluster->config.replica.secret, &cluster->keys[i],
                                              cluster->prompt + i * block_size, block_size);
    for (int32_t i = 0; i < cluster->config.num_replicas; i++)
        cluster->cached[i] = cluster->replicas[i] == NULL
                                 ? 0
                                 : replica_cached_tokens(cluster->replicas[i], cluster->prompt,
                                                         cluster->keys, num_blocks);
}

static void wake_replica(struct cluster *cluster, int32_t replica) {
    if (cluster->is_stepping[replica])
        return;
    cluster->is_stepping[replica] = true;
    add_event(cluster, (struct event){.time_ns = cluster->now_ns,
                                      .kind = EVENT_STEP,
                                      .replica = replica,
                                      .life = cluster->lives[replica]});
}

static void end_call(struct cluster *cluster, struct call *call, bool is_lost) {
    int32_t after_first = call->turn.num_output_tokens - 1;
    struct outcome outcome = {
        .sent_ns = call->sent_ns,
        .num_prompt_tokens = call->turn.num_prompt_tokens,
        .num_cached_tokens = is_lost ? 0 : call->num_cached_tokens,
        .num_output_tokens = is_lost ? 0 : call->num_tokens,
        .replica = call->replica,
        .num_sent = call->num_sent,
        .is_lost = is_lost,
    };
    if (!is_lost)
        outcome.ttft_s = (float)((double)(call->first_token_ns - call->sent_ns) * 1e-9);
    if (!is_lost && after_first > 0)
        outcome.tpot_s =
            (float)((double)(call->last_token_ns - call->first_token_ns) * 1e-9 / after_first);
    CHECK(results_add(&cluster->results, &outcome) == 0);
}

/* Sends the call again later, or ends it. */
static void lose_call(struct cluster *cluster, struct call *call) {
    int64_t retry_ns = cluster->config.faults.retry_ns;
    if (retry_ns >= 0) {
        add_event(cluster, (struct event){.time_ns = cluster->now_ns + retry_ns,
                                          .kind = EVENT_TURN,
                                          .call = call});
        return;
    }
    end_call(cluster, call, true);
    free(call);
}

/* Notes a request that is sent for the first time. Returns false when enough were. */
static bool count_call(struct cluster *cluster, struct call *call) {
    if (cluster->num_sent == cluster->config.num_requests)
        return false;
    cluster->num_sent++;
    cluster->last_sent_ns = call->sent_ns = cluster->now_ns;
    return true;
}

static void send_call(struct cluster *cluster, struct call *call) {
    if (call->num_sent == 0 && !count_call(cluster, call)) {
        free(call);
        return;
    }
    if (cluster->router.kind == ROUTER_PREFIX)
        look_up_prefixes(cluster, call);
    int32_t replica = router_choose(&cluster->router, call->conversation.id, cluster->cached);
    call->num_sent++;
    if (replica < 0) {
        lose_call(cluster, call);
        return;
    }
    call->replica = replica;
    CHECK(replica_send(cluster->replicas[replica], call, cluster->now_ns) == 0);
    router_sent(&cluster->router, replica);
    wake_replica(cluster, replica);
}

/* --- Conversations --- */

/* Has the conversation's next turn sent after the time to think, or ends it. */
static void go_on(struct cluster *cluster, struct call *call) {
    call->num_sent = 0;
    if (!trace_next_turn(&cluster->trace, &call->conversation, &call->turn)) {
        free(call);
        return;
    }
    add_event(cluster, (struct event){.time_ns = cluster->now_ns + call->turn.think_ns,
                                      .kind = EVENT_TURN,
                                      .call = call});
}

static void expect_conversation(struct cluster *cluster) {
    if (cluster->num_sent == cluster->config.num_requests)
        return;
    struct call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    trace_next_conversation(&cluster->trace, &call->conversation);
    add_event(cluster, (struct event){.time_ns = call->conversation.arrival_ns,
                                      .kind = EVENT_ARRIVAL,
                                      .call = call});
}

/* --- Replicas --- */

static void take_ended(struct cluster *cluster, int32_t replica) {
    struct call *call = replica_take_ended(cluster->replicas[replica]), *next;
    for (; call != NULL; call = next) {
        next = call->next;
        call->next = NULL;
        router_ended(&cluster->router, replica);
        end_call(cluster, call, false);
        go_on(cluster, call);
    }
}

static void step_replica(struct cluster *cluster, int32_t replica) {
    int64_t end_ns;
    take_ended(cluster, replica);
    cluster->is_stepping[replica] =
        replica_step(cluster->replicas[replica], cluster->now_ns, &end_ns);
    if (cluster->is_stepping[replica])
        add_event(cluster, (struct event){.time_ns = end_ns,
                                          .kind = EVENT_STEP,
                                          .replica = replica,
                                          .life = cluster->lives[replica]});
}

static void add_counts(struct cluster *cluster, const struct replica *replica) {
    cluster->num_steps += replica->executor.num_steps;
    cluster->num_step_tokens += replica->executor.num_tokens;
    cluster->busy_ns += replica->executor.busy_ns;
    cluster->num_preemptions += replica->core.stats.preemptions;
}

/* Its calls are lost with it, or sent again. */
static void stop_replica(struct cluster *cluster, int32_t index) {
    add_counts(cluster, cluster->replicas[index]);
    struct call *call = replica_destroy(cluster->replicas[index]), *next;
    cluster->replicas[index] = NULL;
    cluster->lives[index]++;
    cluster->is_stepping[index] = false;
    for (; call != NULL; call = next) {
        next = call->next;
        call->next = NULL;
        router_ended(&cluster->router, index);
        lose_call(cluster, call);
    }
}

static void kill_replica(struct cluster *cluster, int32_t index) {
    router_set_open(&cluster->router, index, false);
    stop_replica(cluster, index);
}

static void start_replica(struct cluster *cluster, int32_t index) {
    cluster->replicas[index] = replica_create(&cluster->config.replica);
    CHECK(cluster->replicas[index] != NULL);
}

/* One that was drained is stopped first, with what it may still have. */
static void return_replica(struct cluster *cluster, int32_t index) {
    if (cluster->replicas[index] != NULL)
        stop_replica(cluster, index);
    start_replica(cluster, index);
    router_set_open(&cluster->router, index, true);
}

/* --- Events --- */

static void plan_faults(struct cluster *cluster) {
    const struct cluster_faults *faults = &cluster->config.faults;
    const struct event planned[] = {
        {.kind = EVENT_KILL, .time_ns = faults->kill_ns},
        {.kind = EVENT_DRAIN, .time_ns = faults->drain_ns},
        {.kind = EVENT_RETURN, .time_ns = faults->return_ns},
    };
    for (size_t i = 0; i < sizeof(planned) / sizeof(*planned); i++) {
        struct event event = planned[i];
        if (event.time_ns < 0)
            continue;
        event.time_ns += CLUSTER_START_NS;
        add_event(cluster, event);
    }
}

static void handle(struct cluster *cluster, const struct event *event) {
    switch (event->kind) {
    case EVENT_ARRIVAL:
        go_on(cluster, event->call);
        expect_conversation(cluster);
        break;
    case EVENT_TURN:
        send_call(cluster, event->call);
        break;
    case EVENT_STEP:
        if (event->life == cluster->lives[event->replica])
            step_replica(cluster, event->replica);
        break;
    case EVENT_KILL:
        kill_replica(cluster, event->replica);
        break;
    case EVENT_DRAIN:
        router_set_open(&cluster->router, event->replica, false);
        break;
    case EVENT_RETURN:
        return_replica(cluster, event->replica);
        break;
    }
}

void cluster_run(struct cluster *cluster) {
    struct event event;
    plan_faults(cluster);
    expect_conversation(cluster);
    while (event_queue_take(&cluster->events, &event)) {
        CHECK(event.time_ns >= cluster->now_ns);
        cluster->now_ns = event.time_ns;
        handle(cluster, &event);
    }
    for (int32_t i = 0; i < cluster->config.num_replicas; i++)
        if (cluster->replicas[i] != NULL)
            stop_replica(cluster, i);
}

/* --- Its life --- */

static void *allocate(size_t count, size_t bytes) {
    return calloc(count + 1, bytes);
}

static bool has_all(const struct cluster *cluster) {
    return cluster->replicas != NULL && cluster->lives != NULL && cluster->is_stepping != NULL &&
           cluster->prompt != NULL && cluster->cached != NULL && cluster->keys != NULL;
}

int cluster_init(struct cluster *cluster, const struct cluster_config *config) {
    size_t count = (size_t)config->num_replicas;
    const struct serving_limits *limits = &config->replica.device->limits;
    *cluster = (struct cluster){
        .config = *config,
        .now_ns = CLUSTER_START_NS,
        .replicas = allocate(count, sizeof(*cluster->replicas)),
        .lives = allocate(count, sizeof(*cluster->lives)),
        .is_stepping = allocate(count, sizeof(*cluster->is_stepping)),
        .prompt = allocate((size_t)limits->max_model_len, sizeof(*cluster->prompt)),
        .cached = allocate(count, sizeof(*cluster->cached)),
        .keys = allocate((size_t)serving_limits_max_blocks(limits), sizeof(*cluster->keys)),
    };
    cluster->root = replica_prefix_root(&config->replica);
    if (!has_all(cluster) || trace_init(&cluster->trace, &config->trace, CLUSTER_START_NS) != 0 ||
        router_init(&cluster->router, config->router, config->num_replicas) != 0) {
        cluster_finish(cluster);
        return -1;
    }
    for (int32_t i = 0; i < config->num_replicas; i++)
        start_replica(cluster, i);
    return 0;
}

void cluster_finish(struct cluster *cluster) {
    for (int32_t i = 0; cluster->replicas != NULL && i < cluster->config.num_replicas; i++)
        replica_destroy(cluster->replicas[i]);
    free(cluster->replicas);
    free(cluster->lives);
    free(cluster->is_stepping);
    free(cluster->prompt);
    free(cluster->cached);
    free(cluster->keys);
    trace_finish(&cluster->trace);
    router_finish(&cluster->router);
    event_queue_finish(&cluster->events);
    results_finish(&cluster->results);
}
