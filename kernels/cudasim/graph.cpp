/* Streams that are captured, and graphs: lists of queued work that are queued again by each launch.
 * */
#include "activity.h"

#include <vector>

using namespace cudasim;

struct CUgraph_st {
    work_queue nodes;
    std::shared_ptr<bool> exists = std::make_shared<bool>(true);
};

struct CUgraphExec_st {
    work_queue nodes;
    std::vector<bool> is_disabled;
    std::shared_ptr<bool> source_exists;
    uint32_t number;
    bool is_uploaded;
};

/* A node is its place in the graph, counted from 1. */
static cudaGraphNode_t node_of(size_t place) {
    return reinterpret_cast<cudaGraphNode_t>(place + 1);
}
static size_t place_of(cudaGraphNode_t node) {
    return reinterpret_cast<size_t>(node) - 1;
}

namespace cudasim {

std::shared_ptr<work_queue> target_of(device &dev, cudaStream_t stream, cudaError_t *out_error) {
    std::shared_ptr<work_queue> queue = queue_of(dev, stream);
    *out_error = queue == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
    auto found = dev.captures.find(stream);
    if (queue == nullptr || found == dev.captures.end())
        return queue;
    if (!found->second.invalid)
        return found->second.nodes;
    *out_error = cudaErrorStreamCaptureInvalidated;
    return nullptr;
}

bool is_capturing(const device &dev, cudaStream_t stream) {
    return dev.captures.count(stream) > 0;
}

cudaError_t refuse_captured(device &dev, cudaStream_t stream) {
    auto found = dev.captures.find(stream);
    if (found == dev.captures.end())
        return cudaSuccess;
    found->second.invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

cudaError_t refuse_while_capturing(device &dev) {
    cudaError_t error = cudaSuccess;
    for (auto &entry : dev.captures)
        if (entry.second.thread == std::this_thread::get_id()) {
            entry.second.invalid = true;
            error = cudaErrorStreamCaptureUnsupported;
        }
    return error;
}

} // namespace cudasim

/* The default stream cannot be captured. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    api_call call;
    if (mode != cudaStreamCaptureModeThreadLocal)
        return call.end(cudaErrorInvalidValue);
    if (stream == nullptr)
        return call.end(cudaErrorStreamCaptureUnsupported);
    if (queue_of(call.dev, stream) == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (is_capturing(call.dev, stream))
        return call.end(cudaErrorIllegalState);
    if (!call.dev.failed)
        call.dev.captures[stream] = {std::make_shared<work_queue>(), std::this_thread::get_id(),
                                     false};
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    api_call call;
    *graph = nullptr;
    auto found = call.dev.captures.find(stream);
    if (found == call.dev.captures.end())
        return call.end(cudaErrorIllegalState);
    if (found->second.thread != std::this_thread::get_id())
        return call.end(cudaErrorStreamCaptureWrongThread);
    stream_capture capture = found->second;
    call.dev.captures.erase(found);
    if (capture.invalid)
        return call.end(cudaErrorStreamCaptureInvalidated);
    if (!call.dev.failed)
        *graph = new CUgraph_st{*capture.nodes};
    return call.end(cudaSuccess);
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *num_dependencies) {
    static thread_local cudaGraphNode_t last;
    api_call call;
    auto found = call.dev.captures.find(stream);
    if (id != nullptr || graph != nullptr || edges != nullptr)
        return call.end(cudaErrorInvalidValue);
    *status = cudaStreamCaptureStatusNone;
    *num_dependencies = 0;
    if (found == call.dev.captures.end())
        return call.end(cudaSuccess);
    *status =
        found->second.invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    *num_dependencies = !found->second.nodes->empty();
    last = node_of(found->second.nodes->size() - 1);
    *dependencies = &last;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph,
                                 unsigned long long flags) {
    api_call call;
    *exec = nullptr;
    if (graph == nullptr || flags != 0)
        return call.end(cudaErrorInvalidValue);
    if (!call.dev.failed)
        *exec = new CUgraphExec_st{graph->nodes, std::vector<bool>(graph->nodes.size()),
                                   graph->exists, call.correlation, false};
    return call.end(cudaSuccess);
}

static std::function<void()> in_graph(device &dev, const std::function<void()> &node) {
    return [&dev, node] {
        dev.in_graph = true;
        node();
        dev.in_graph = false;
    };
}

static void take_upload_time() {
    simulated_duration duration(std::chrono::seconds(CUDASIM_GRAPH_UPLOAD_SECONDS));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    api_call call;
    std::shared_ptr<work_queue> queue = queue_of(call.dev, stream);
    if (queue == nullptr)
        return call.end(cudaErrorInvalidResourceHandle);
    if (exec == nullptr)
        return call.end(cudaErrorInvalidValue);
    if (refuse_captured(call.dev, stream) != cudaSuccess)
        return call.end(cudaErrorStreamCaptureUnsupported);
    if (is_skipped(call.dev, "cudaGraphUpload"))
        return call.end(cudaSuccess);
    if (!exec->is_uploaded)
        queue->push_back(take_upload_time);
    exec->is_uploaded = true;
    return call.end(cudaSuccess);
}

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node,
                                    unsigned int enabled) {
    api_call call;
    if (exec == nullptr || !*exec->source_exists || place_of(node) >= exec->nodes.size())
        return call.end(cudaErrorInvalidValue);
    exec->is_disabled[place_of(node)] = enabled == 0;
    return call.end(cudaSuccess);
}

/* Into another capture too: its nodes follow there. */
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    api_call call;
    cudaError_t error;
    std::shared_ptr<work_queue> queue = target_of(call.dev, stream, &error);
    if (exec == nullptr)
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess && !exec->is_uploaded && !is_capturing(call.dev, stream)) {
        queue->push_back(take_upload_time);
        exec->is_uploaded = true;
    }
    for (size_t i = 0; error == cudaSuccess && i < exec->nodes.size(); i++)
        if (!exec->is_disabled[i])
            queue->push_back(replayed(call, exec->number, in_graph(call.dev, exec->nodes[i])));
    return call.end(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    static auto *const kept = new std::vector<cudaGraphExec_t>();
    api_call call;
    if (call.dev.failed || is_skipped(call.dev, "cudaGraphExecDestroy"))
        kept->push_back(exec);
    else
        delete exec;
    return call.end(exec != nullptr ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    api_call call;
    if (graph != nullptr)
        *graph->exists = false;
    delete graph;
    return call.end(graph != nullptr ? cudaSuccess : cudaErrorInvalidValue);
}
