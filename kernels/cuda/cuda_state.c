#include "kernels/cuda/cuda_check.h"

/* A backend may be called by another thread than the one that opened it. */
struct cuda_backend *cuda_state_of(struct backend *base) {
    static _Thread_local int current; /* the runtime's own begins with 0 */
    struct cuda_backend *b = (struct cuda_backend *)base;
    if (current != b->device && CUDA_RELEASE(b, cudaSetDevice(b->device)))
        current = b->device;
    return b;
}

bool cuda_graph_destroy(struct cuda_backend *b, struct cuda_graph *graph) {
    struct cuda_graph **at = &b->graphs;
    if (graph->exec == NULL)
        return true;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    bool are_destroyed = CUDA_RELEASE(b, cudaGraphExecDestroy(graph->exec));
    are_destroyed &= CUDA_RELEASE(b, cudaGraphDestroy(graph->source));
    graph->exec = NULL;
    return are_destroyed;
}
