#include "scripts/bench/watched_executor.h"

#include "config/base/clock.h"
#include "config/base/numbers.h"

static struct watched_executor *self(struct executor *executor) {
    return (struct watched_executor *)executor;
}

static void submit(struct executor *executor, const struct batch *batch,
                   struct step_result *result) {
    struct watched_executor *w = self(executor);
    if (w->num_steps++ == 0) {
        int64_t since = max_int64(w->empty_since_ns, atomic_load(&w->from_ns));
        atomic_fetch_add(&w->empty_ns, clock_now_ns() - since);
    }
    w->inner->ops->submit(w->inner, batch, result);
}

static void supply(struct executor *executor) {
    struct watched_executor *w = self(executor);
    w->inner->ops->supply(w->inner);
}

static int wait_for_step(struct executor *executor, struct error *err) {
    struct watched_executor *w = self(executor);
    int64_t start = clock_now_ns();
    int status = w->inner->ops->wait(w->inner, err);
    int64_t end = clock_now_ns();
    atomic_fetch_add(&w->wait_ns, end - start);
    if (--w->num_steps == 0)
        w->empty_since_ns = end;
    return status;
}

static void destroy(struct executor *executor) {
}

static const struct executor_ops watched_ops = {
    .submit = submit,
    .supply = supply,
    .wait = wait_for_step,
    .destroy = destroy,
    EXECUTOR_RUNS_STEPS,
};

void watched_executor_init(struct watched_executor *out, struct executor *inner) {
    *out = (struct watched_executor){.base.ops = &watched_ops, .inner = inner};
}
