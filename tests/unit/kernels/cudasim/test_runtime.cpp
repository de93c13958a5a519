/* The runtime API: what it refuses, and that streams run as late as they may. */
#include "sim_test.h"

#include <math.h>
#include <thread>

__global__ static void scale(float *x, int n, float by) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        x[i] *= by;
}

__global__ static void use_shared(float *out) {
    DYNAMIC_SHARED(float, shared);
    shared[0] = 1.0f;
    *out = shared[0];
}

static void test_device(void **) {
    int value;
    ASSERT_CUDA(cudaGetDeviceCount(&value));
    assert_int_equal(value, 1);
    ASSERT_CUDA(cudaSetDevice(0));
    assert_int_equal(cudaSetDevice(1), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidDevice);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ASSERT_CUDA(cudaGetDevice(&value));
    assert_int_equal(value, 0);
    cudaDeviceProp prop;
    ASSERT_CUDA(cudaGetDeviceProperties(&prop, 0));
    assert_true(prop.major * 10 + prop.minor >= 80 && prop.warpSize == 32);
    ASSERT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
    assert_int_equal(value, prop.multiProcessorCount);
    ASSERT_CUDA(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    assert_int_equal(value, prop.sharedMemPerBlockOptin);
    assert_int_equal(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)100, 0), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaRuntimeGetVersion(&value));
    assert_int_equal(value, CUDART_VERSION);
    cudaGetLastError();
    assert_string_equal(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

static void test_memory(void **) {
    size_t before, after, total;
    ASSERT_CUDA(cudaMemGetInfo(&before, &total));
    char *big;
    assert_int_equal(cudaMalloc(&big, total + 1), cudaErrorMemoryAllocation);
    ASSERT_CUDA(cudaMalloc(&big, (size_t)40 << 20));
    ASSERT_CUDA(cudaMemGetInfo(&after, &total));
    assert_int_equal(before - after, (size_t)40 << 20);
    std::vector<char> host(100);
    for (size_t offset : {(size_t)0, ((size_t)20 << 20) + 3, ((size_t)40 << 20) - 100}) {
        ASSERT_CUDA(cudaMemcpy(host.data(), big + offset, 100, cudaMemcpyDeviceToHost));
        for (char byte : host)
            assert_int_equal(byte, (char)0xff);
        ASSERT_CUDA(cudaMemset(big + offset, 7, 100));
        ASSERT_CUDA(cudaMemcpy(host.data(), big + offset, 100, cudaMemcpyDeviceToHost));
        assert_int_equal(host[99], 7);
    }
    assert_int_equal(cudaFree(big + 16), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaFree(big));
    assert_int_equal(cudaFree(big), cudaErrorInvalidValue);
    assert_int_equal(cudaFreeHost(host.data()), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaFree(nullptr));
    ASSERT_CUDA(cudaMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    cudaGetLastError();
}

static void test_bad_copies(void **) {
    device_array<char> device(100);
    char host[200] = {};
    assert_int_equal(cudaMemcpy(device.get(), host, 101, cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(device.get() + 50, host, 51, cudaMemcpyHostToDevice),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(host, host + 100, 10, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(device.get(), host, 10, cudaMemcpyDeviceToHost),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaMemcpy(device.get(), host, 10, (cudaMemcpyKind)7),
                     cudaErrorInvalidMemcpyDirection);
    assert_int_equal(cudaMemset(device.get(), 0, 101), cudaErrorInvalidValue);
    assert_int_equal(cudaMemset(host, 0, 10), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaMemcpy(device.get(), host, 100, cudaMemcpyDefault));
    cudaGetLastError();
}

static cudaError_t try_launch(dim3 grid, dim3 block, size_t shared_bytes) {
    device_array<float> out(1);
    LAUNCH(use_shared, grid, block, shared_bytes, nullptr, out.get());
    return cudaGetLastError();
}

static void test_launch_limits(void **) {
    assert_int_equal(try_launch(1, 1024, 48 << 10), cudaSuccess);
    assert_int_equal(try_launch(1, dim3(512, 3), 16), cudaErrorInvalidConfiguration);
    assert_int_equal(try_launch(0, 32, 16), cudaErrorInvalidConfiguration);
    assert_int_equal(try_launch(dim3(1, 65536), 32, 16), cudaErrorInvalidConfiguration);
    assert_int_equal(try_launch(1, 1, (48 << 10) + 1), cudaErrorInvalidValue);
    int most;
    ASSERT_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
    assert_int_equal(cudaFuncSetAttribute(use_shared, attribute, most + 1), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaFuncSetAttribute(use_shared, attribute, most));
    cudaGetLastError();
    assert_int_equal(try_launch(1, 1, (size_t)most), cudaSuccess);
    assert_int_equal(try_launch(1, 1, (size_t)most + 1), cudaErrorInvalidValue);
    int num_blocks;
    auto carveout = cudaFuncAttributePreferredSharedMemoryCarveout;
    assert_int_equal(cudaFuncSetAttribute(use_shared, carveout, 101), cudaErrorInvalidValue);
    ASSERT_CUDA(cudaFuncSetAttribute(use_shared, carveout, cudaSharedmemCarveoutMaxShared));
    ASSERT_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, use_shared, 128, 1024));
    assert_true(num_blocks > 0);
}

/* A stream, pinned memory and an array for 64 floats. */
struct pipe_line {
    cudaStream_t stream;
    float *pinned;
    device_array<float> array;

    explicit pipe_line(unsigned flags) : array(64) {
        ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, flags));
        ASSERT_CUDA(cudaMallocHost(&pinned, 64 * sizeof(float)));
    }
    ~pipe_line() {
        cudaFreeHost(pinned);
        cudaStreamDestroy(stream);
    }
    void fill(float value) {
        for (int i = 0; i < 64; i++)
            pinned[i] = value;
    }
    void upload() {
        ASSERT_CUDA(cudaMemcpyAsync(array.get(), pinned, 256, cudaMemcpyHostToDevice, stream));
    }
    void download() {
        ASSERT_CUDA(cudaMemcpyAsync(pinned, array.get(), 256, cudaMemcpyDeviceToHost, stream));
    }
};

static void test_pinned_memory_changed_too_early(void **) {
    pipe_line line(cudaStreamNonBlocking);
    line.fill(1.0f);
    line.upload();
    line.fill(2.0f);
    LAUNCH(scale, 2, 32, 0, line.stream, line.array.get(), 64, 10.0f);
    line.download();
    assert_true(line.pinned[0] == 2.0f);
    ASSERT_CUDA(cudaStreamSynchronize(line.stream));
    assert_true(line.pinned[0] == 20.0f && line.pinned[63] == 20.0f);
}

static void test_pageable_memory(void **) {
    pipe_line line(cudaStreamNonBlocking);
    float host[64];
    for (float &x : host)
        x = 1.0f;
    ASSERT_CUDA(cudaMemcpyAsync(line.array.get(), host, 256, cudaMemcpyHostToDevice, line.stream));
    host[0] = 5.0f;
    LAUNCH(scale, 2, 32, 0, line.stream, line.array.get(), 64, 3.0f);
    ASSERT_CUDA(cudaMemcpyAsync(host, line.array.get(), 256, cudaMemcpyDeviceToHost, line.stream));
    assert_true(host[0] == 3.0f && host[63] == 3.0f);
}

static void test_default_stream(void **) {
    pipe_line apart(cudaStreamNonBlocking), together(cudaStreamDefault);
    float host[64] = {};
    for (pipe_line *line : {&apart, &together}) {
        line->fill(4.0f);
        line->upload();
    }
    ASSERT_CUDA(cudaMemcpy(host, apart.array.get(), 256, cudaMemcpyDeviceToHost));
    assert_true(isnan(host[0]));
    ASSERT_CUDA(cudaMemcpy(host, together.array.get(), 256, cudaMemcpyDeviceToHost));
    assert_true(host[0] == 4.0f);
    ASSERT_CUDA(cudaDeviceSynchronize());
    ASSERT_CUDA(cudaMemcpy(host, apart.array.get(), 256, cudaMemcpyDeviceToHost));
    assert_true(host[0] == 4.0f);
}

static void test_events(void **) {
    pipe_line line(cudaStreamNonBlocking);
    cudaEvent_t before, after;
    ASSERT_CUDA(cudaEventCreate(&before));
    ASSERT_CUDA(cudaEventCreateWithFlags(&after, cudaEventDefault));
    ASSERT_CUDA(cudaEventQuery(after));
    line.fill(1.0f);
    ASSERT_CUDA(cudaEventRecord(before, line.stream));
    line.upload();
    ASSERT_CUDA(cudaEventRecord(after, line.stream));
    LAUNCH(scale, 2, 32, 0, line.stream, line.array.get(), 64, 3.0f);
    float ms;
    assert_int_equal(cudaEventElapsedTime(&ms, before, after), cudaErrorNotReady);
    assert_int_equal(cudaEventQuery(after), cudaErrorNotReady);
    ASSERT_CUDA(cudaEventSynchronize(after));
    ASSERT_CUDA(cudaEventQuery(after));
    ASSERT_CUDA(cudaEventElapsedTime(&ms, before, after));
    assert_true(ms >= 0);
    assert_int_equal(cudaStreamQuery(line.stream), cudaErrorNotReady);
    ASSERT_CUDA(cudaStreamQuery(line.stream));
    ASSERT_CUDA(cudaEventRecord(after, line.stream));
    int num_polls = 0;
    while (cudaEventQuery(after) == cudaErrorNotReady)
        num_polls++;
    assert_int_equal(num_polls, 1);
    ASSERT_CUDA(cudaEventDestroy(before));
    ASSERT_CUDA(cudaEventDestroy(after));
    cudaGetLastError();
}

static void test_destroyed_stream(void **) {
    cudaStream_t stream;
    ASSERT_CUDA(cudaStreamCreate(&stream));
    ASSERT_CUDA(cudaStreamDestroy(stream));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

static void test_queued_host_work(void **) {
    pipe_line line(cudaStreamNonBlocking);
    line.fill(1.0f);
    line.upload();
    float *array = line.array.get();
    cudasim::enqueue_work(line.stream, [array] { array[0] += 1.0f; });
    line.download();
    ASSERT_CUDA(cudaStreamSynchronize(line.stream));
    assert_true(line.pinned[0] == 2.0f && line.pinned[1] == 1.0f);
}

static void scale_often(float *result) {
    pipe_line line(cudaStreamNonBlocking);
    line.fill(1.0f);
    line.upload();
    for (int i = 0; i < 20; i++) {
        LAUNCH(scale, 2, 32, 0, line.stream, line.array.get(), 64, 2.0f);
        if (i % 4 == 0)
            cudaStreamSynchronize(line.stream);
    }
    line.download();
    cudaStreamSynchronize(line.stream);
    *result = line.pinned[63];
}

static void test_two_host_threads(void **) {
    float results[2] = {};
    std::thread first(scale_often, &results[0]), second(scale_often, &results[1]);
    first.join();
    second.join();
    assert_true(results[0] == 0x1p20f && results[1] == 0x1p20f);
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_bad_copies),
        cmocka_unit_test(test_launch_limits),
        cmocka_unit_test(test_pinned_memory_changed_too_early),
        cmocka_unit_test(test_pageable_memory),
        cmocka_unit_test(test_default_stream),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_destroyed_stream),
        cmocka_unit_test(test_queued_host_work),
        cmocka_unit_test(test_two_host_threads),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
