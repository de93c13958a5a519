/* LAUNCH for the host: the arguments are copied, the kernel runs when its stream is waited for. */
#ifndef CUDASIM_LAUNCH_H
#define CUDASIM_LAUNCH_H

#include "cuda_runtime_api.h"
#include "cudasim/vector_types.h"

#include <functional>
#include <tuple>
#include <type_traits>

namespace cudasim {

struct launch_config {
    const char *kernel_name;
    const void *kernel;
    dim3 grid_dim;
    dim3 block_dim;
    size_t shared_bytes;
    cudaStream_t stream;
    bool is_early; /* its threads say themselves when they wait for what is before it */
};

/* Checks the limits of a GPU, which cudaGetLastError reports, and queues the grid. `body` is run
 * once by every thread. */
void enqueue_grid(const launch_config &config, std::function<void()> body);

/* Ends the program when a pointer is not usable by a GPU. It may point to the end of an array. */
void check_pointer(const char *kernel_name, const void *pointer);

template <class P> void check_argument(const char *kernel_name, const P &argument) {
    if constexpr (std::is_pointer_v<P>)
        check_pointer(kernel_name, argument);
}

/* Queues a library's own work, such as a matrix product, after what the stream has, like a kernel
 * of the library. It runs on the host as device work: it may touch device memory. */
void enqueue_work(cudaStream_t stream, std::function<void()> work);

template <class... P, class... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, bool is_early, const A &...arguments) {
    static_assert(sizeof...(P) == sizeof...(A), "a kernel takes all its arguments");
    std::tuple<P...> copied(arguments...);
    std::apply([&](const P &...p) { (check_argument(name, p), ...); }, copied);
    enqueue_grid(
        {name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream, is_early},
        [kernel, copied] { std::apply(kernel, copied); });
}

} // namespace cudasim

#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    cudasim::launch(#kernel, kernel, grid, block, shared_bytes, stream, false, ##__VA_ARGS__)
#define LAUNCH_EARLY(is_early, kernel, grid, block, shared_bytes, stream, ...)                     \
    cudasim::launch(#kernel, kernel, grid, block, shared_bytes, stream, is_early, ##__VA_ARGS__)

#endif
