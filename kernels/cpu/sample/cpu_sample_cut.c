/* Where a row is cut: by a histogram over the candidates' logits and a heap of the bin in which the
 * limit is reached. */
#include "kernels/cpu/sample/cpu_sample_private.h"

#include <string.h>

#define NUM_BINS 512

/* Is a more probable than b, or first among equals? */
static bool goes_before(const struct sample_candidate *a, const struct sample_candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static void sift_down(struct sample_candidate *heap, int32_t n, int32_t i) {
    struct sample_candidate moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && goes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_before(&heap[child], &moved))
            break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

static bool reached(const struct cpu_sample_cut *so_far, const struct cpu_sample_cut *limit) {
    return so_far->count >= limit->count || so_far->mass >= limit->mass;
}

struct bins {
    float top;
    double scale; /* bins per unit of logit */
    struct cpu_sample_cut bins[NUM_BINS];
};

static int bin_of(const struct bins *bins, float logit) {
    return (int)(((double)bins->top - logit) * bins->scale);
}

static void fill_bins(struct bins *bins, const struct sample_candidate *c, int32_t n) {
    float lowest = bins->top;
    for (int32_t i = 0; i < n; i++)
        lowest = c[i].logit < lowest ? c[i].logit : lowest;
    double span = (double)bins->top - lowest;
    bins->scale = span > 0 ? (NUM_BINS - 1) / span : 0;
    memset(bins->bins, 0, sizeof(bins->bins));
    for (int32_t i = 0; i < n; i++) {
        struct cpu_sample_cut *bin = &bins->bins[bin_of(bins, c[i].logit)];
        bin->count++;
        bin->mass += c[i].weight;
    }
}

/* The last candidate to keep, of those in bin `boundary`; `so_far` is what the bins above hold. */
static struct sample_candidate last_kept(const struct cpu_sampler *s, const struct bins *bins,
                                         int boundary, int32_t n, struct cpu_sample_cut so_far,
                                         const struct cpu_sample_cut *limit) {
    int32_t size = 0;
    for (int32_t i = 0; i < n; i++)
        if (bin_of(bins, s->candidates[i].logit) == boundary)
            s->heap[size++] = s->candidates[i];
    for (int32_t i = size / 2 - 1; i >= 0; i--)
        sift_down(s->heap, size, i);
    for (;;) {
        so_far.count++;
        so_far.mass += s->heap[0].weight;
        if (size == 1 || reached(&so_far, limit))
            return s->heap[0];
        s->heap[0] = s->heap[--size];
        sift_down(s->heap, size, 0);
    }
}

bool cpu_sample_find_last(const struct cpu_sampler *s, int32_t n, float top,
                          struct cpu_sample_cut limit, struct sample_candidate *out) {
    struct bins bins = {.top = top};
    struct cpu_sample_cut so_far = {0};
    fill_bins(&bins, s->candidates, n);
    for (int b = 0; b < NUM_BINS; b++) {
        struct cpu_sample_cut next = {so_far.count + bins.bins[b].count,
                                      so_far.mass + bins.bins[b].mass};
        if (bins.bins[b].count > 0 && reached(&next, &limit)) {
            *out = last_kept(s, &bins, b, n, so_far, &limit);
            return true;
        }
        so_far = next;
    }
    return false;
}

int32_t cpu_sample_keep_top(const struct cpu_sampler *s, int32_t n, struct cpu_sample_cut limit) {
    struct sample_candidate last;
    int32_t kept = 0;
    if (!cpu_sample_find_last(s, n, s->scale.max, limit, &last))
        return n;
    for (int32_t i = 0; i < n; i++)
        if (!goes_before(&last, &s->candidates[i]))
            s->candidates[kept++] = s->candidates[i];
    return kept;
}

double cpu_sample_mass(const struct sample_candidate *c, int32_t n) {
    double mass = 0;
    for (int32_t i = 0; i < n; i++)
        mass += c[i].weight;
    return mass;
}

int32_t cpu_sample_collect(const struct cpu_sampler *s, float lowest) {
    return s->op->collect(s->logits, s->first_token, s->num_tokens, s->scale, lowest,
                          s->candidates);
}
