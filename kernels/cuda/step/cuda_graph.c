/* What a recording was captured as. */
#include "kernels/cuda/state/cuda_check.h"

#include <stdlib.h>

bool cuda_graph_destroy(struct cuda_backend *b, struct cuda_graph *graph) {
    struct cuda_graph **at = &b->graphs;
    free(graph->wide_tiles);
    graph->wide_tiles = NULL;
    graph->num_wide_tiles = 0;
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

void cuda_graph_add_wide_tiles(struct cuda_backend *b) {
    struct cuda_graph *graph = b->captured;
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t *last = NULL;
    size_t num_last = 0, num = (size_t)graph->num_wide_tiles + 1;
    CUDA_TRY(b, cudaStreamGetCaptureInfo(b->stream, &status, NULL, NULL, &last, NULL, &num_last));
    if (!CUDA_OK(b) || num_last != 1)
        return;
    cudaGraphNode_t *nodes = realloc(graph->wide_tiles, num * sizeof(cudaGraphNode_t));
    if (nodes == NULL) {
        error_set(&b->failure, ERROR_MEMORY, "out of memory for a recording");
        return;
    }
    graph->wide_tiles = nodes;
    nodes[graph->num_wide_tiles++] = *last;
}

/* An empty launch is a few microseconds, which a small model has in each of its layers. */
void cuda_graph_choose_wide_tiles(struct cuda_backend *b, struct cuda_graph *graph) {
    bool has_none = !b->step.has_wide_tiles;
    if (graph->num_wide_tiles == 0 || has_none == graph->are_left_out)
        return;
    for (int i = 0; i < graph->num_wide_tiles; i++)
        CUDA_TRY(b, cudaGraphNodeSetEnabled(graph->exec, graph->wide_tiles[i], !has_none));
    graph->are_left_out = has_none;
}
