#include "scripts/bench/cluster_sim/virtual_executor.h"

#include "config/base/check.h"
#include "config/base/numbers.h"
#include "engine/batch/step.h"
#include "scripts/bench/cluster_sim/replica.h"

#include <math.h>
#include <stddef.h>

/* Whose each row is stands in the step, not in the batch. */
static void sample(const struct batch *batch, struct step_result *result) {
    const struct step *step =
        (const struct step *)((const char *)batch - offsetof(struct step, batch));
    result->num_sample_rows = batch->num_sample_rows;
    for (int32_t i = 0; i < batch->num_sample_rows; i++) {
        const struct call *call = step->rows[i].sequence->group->request->user;
        struct sample_output *row = &result->rows[i];
        row->token = conversation_token(&call->conversation, step->rows[i].position);
        row->logprob = NAN;
        row->rank = 0;
        row->num_top = 0;
    }
}

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct virtual_executor *self = (struct virtual_executor *)executor;
    CHECK(self->num_submitted < EXECUTOR_MAX_STEPS);
    CHECK(batch->swap_in.count == 0 && batch->swap_out.count == 0 && !batch->has_late_inputs);
    const struct step_size size = step_size_of(batch);
    int64_t duration_ns = cost_model_ns(self->cost, &size);
    self->last_end_ns = max_int64(self->now_ns, self->last_end_ns) + duration_ns;
    self->ends_ns[self->num_submitted++] = self->last_end_ns;
    self->num_steps++;
    self->num_tokens += (uint64_t)size.tokens;
    self->busy_ns += duration_ns;
    sample(batch, result);
}

static int wait_for_step(struct executor *executor, struct error *err) {
    struct virtual_executor *self = (struct virtual_executor *)executor;
    CHECK(self->num_submitted > 0);
    self->now_ns = max_int64(self->now_ns, self->ends_ns[0]);
    self->ends_ns[0] = self->ends_ns[--self->num_submitted];
    return 0;
}

/* No batch has late inputs. */
static void supply(struct executor *executor) {
    CHECK(false);
}

static void destroy(struct executor *executor) {
}

void virtual_executor_init(struct virtual_executor *executor, const struct cost_model *cost) {
    static const struct executor_ops ops = {.submit = submit,
                                            .supply = supply,
                                            .wait = wait_for_step,
                                            .destroy = destroy,
                                            EXECUTOR_RUNS_STEPS};
    *executor = (struct virtual_executor){.base.ops = &ops, .cost = cost};
}
