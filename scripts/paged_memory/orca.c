#include "scripts/paged_memory/orca.h"

#include "config/base/check.h"
#include "scripts/paged_memory/buddy.h"
#include "scripts/paged_memory/gpu_model.h"

#include <stdbool.h>

#define MAX_RUNNING 1024

struct running_request {
    const struct traced_request *request;
    int32_t num_generated;
    int32_t first, num_slots; /* its run */
};

struct orca {
    enum orca_policy policy;
    const struct trace *trace;
    int32_t next_arrival;
    double now_s;
    struct buddy buddy;
    struct running_request running[MAX_RUNNING];
    int32_t num_running;
};

static int32_t slots_for(enum orca_policy policy, const struct traced_request *request) {
    int32_t output = request->num_output_tokens;
    if (policy == ORCA_POW2)
        output = buddy_round_up(output);
    int32_t slots = request->num_prompt_tokens + output;
    return policy == ORCA_MAX || slots > TRACE_MAX_LENGTH ? TRACE_MAX_LENGTH : slots;
}

/* Starts who has arrived, in order, while there is a run for the first. Returns their tokens. */
static int64_t admit(struct orca *orca) {
    int64_t num_prompt_tokens = 0;
    while (orca->next_arrival < orca->trace->num_requests && orca->num_running < MAX_RUNNING) {
        const struct traced_request *request = &orca->trace->requests[orca->next_arrival];
        if (request->arrival_s > orca->now_s)
            break;
        int32_t num_slots = slots_for(orca->policy, request);
        int32_t first = buddy_alloc(&orca->buddy, num_slots);
        if (first < 0)
            break;
        orca->running[orca->num_running++] = (struct running_request){request, 0, first, num_slots};
        orca->next_arrival++;
        num_prompt_tokens += request->num_prompt_tokens;
    }
    return num_prompt_tokens;
}

static struct memory_use measure(const struct orca *orca) {
    struct memory_use use = {.num_requests = orca->num_running};
    for (int32_t i = 0; i < orca->num_running; i++) {
        const struct running_request *run = &orca->running[i];
        const struct traced_request *request = run->request;
        use.token_slots += request->num_prompt_tokens + run->num_generated;
        use.reserved_slots += request->num_output_tokens - run->num_generated;
        use.internal_slots +=
            run->num_slots - request->num_prompt_tokens - request->num_output_tokens;
        use.given_slots += run->num_slots;
    }
    use.unshared_slots = use.given_slots;
    return use;
}

/* Every running request gets a token. Returns how many ended. */
static int32_t generate(struct orca *orca) {
    int32_t num_left = 0;
    for (int32_t i = 0; i < orca->num_running; i++) {
        struct running_request *run = &orca->running[i];
        if (++run->num_generated == run->request->num_output_tokens)
            buddy_free(&orca->buddy, run->first, run->num_slots);
        else
            orca->running[num_left++] = *run;
    }
    int32_t num_ended = orca->num_running - num_left;
    orca->num_running = num_left;
    return num_ended;
}

/* False when nothing runs and nobody comes any more. */
static bool step(struct orca *orca, struct memory_account *account) {
    int64_t num_prompt_tokens = admit(orca);
    if (orca->num_running == 0) {
        if (orca->next_arrival == orca->trace->num_requests)
            return false;
        orca->now_s = orca->trace->requests[orca->next_arrival].arrival_s;
        return true;
    }
    struct memory_use use = measure(orca);
    double seconds = gpu_step_seconds(&(struct step_load){
        .num_sequences = orca->num_running,
        .num_context_tokens = use.token_slots,
        .num_prompt_tokens = num_prompt_tokens,
    });
    memory_account_add(account, &use, seconds);
    orca->now_s += seconds;
    account->num_finished += (uint64_t)generate(orca);
    return true;
}

void orca_run(enum orca_policy policy, const struct trace *trace, struct memory_account *out) {
    struct orca orca = {.policy = policy, .trace = trace};
    *out = (struct memory_account){.num_slots = GPU_NUM_SLOTS};
    buddy_init(&orca.buddy, GPU_NUM_SLOTS);
    while (orca.now_s < trace->duration_s && step(&orca, out))
        ;
}
