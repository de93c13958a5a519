/* Kernels with a fault each: the simulator must show it. */
#include "sim_test.h"

#include <math.h>

static const unsigned FULL = 0xffffffffu;
static const bool WITH_ASAN =
#ifdef __SANITIZE_ADDRESS__
    true;
#elif defined(__has_feature)
    __has_feature(address_sanitizer);
#else
    false;
#endif

/* Waits for what was launched in the child that runs this. */
static void finish() {
    cudaDeviceSynchronize();
}

/* What a kernel of one block wrote, by order. */
template <class... P>
static std::vector<float> run_in(const char *order, void (*kernel)(float *, P...), unsigned threads,
                                 P... arguments) {
    assert_int_equal(cudasim_set_order(order), 0);
    device_array<float> out(threads);
    LAUNCH(kernel, 1, threads, threads * sizeof(float), nullptr, out.get(), arguments...);
    std::vector<float> got = out.download();
    assert_int_equal(cudasim_set_order("forward"), 0);
    return got;
}

static bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/* Reads what a thread of the other warp writes. The warp barriers are no help. */
__global__ static void race_before_read(float *out, bool with_barrier) {
    DYNAMIC_SHARED(float, shared);
    shared[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier)
        __syncthreads();
    __syncwarp();
    float value = shared[(threadIdx.x + 32) % blockDim.x];
    __syncwarp();
    out[threadIdx.x] = value;
}

/* Writes the next round's value while the other warp may still read this one's. */
__global__ static void race_before_write(float *out, bool with_barrier) {
    __shared__ float shared[64];
    float sum = 0;
    for (int round = 0; round < 3; round++) {
        shared[threadIdx.x] = (float)(threadIdx.x + 100 * (unsigned)round);
        __syncthreads();
        sum += shared[(threadIdx.x + 32) % blockDim.x];
        if (with_barrier)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

/* Lanes of a warp do not run in step. */
__global__ static void race_in_warp(float *out, bool with_barrier) {
    DYNAMIC_SHARED(float, shared);
    shared[threadIdx.x] = (float)threadIdx.x;
    if (with_barrier)
        __syncwarp();
    out[threadIdx.x] = shared[threadIdx.x ^ 1];
}

static void check_race(void (*kernel)(float *, bool)) {
    std::vector<float> right = run_in(("forward"), kernel, 64, true);
    for (const char *order : {"reverse", "random:1", "random:2"})
        assert_true(same_bits(run_in(order, kernel, 64, true), right));
    assert_false(
        same_bits(run_in("forward", kernel, 64, false), run_in("reverse", kernel, 64, false)));
}

static void test_missing_barriers(void **) {
    check_race(race_before_read);
    check_race(race_before_write);
    check_race(race_in_warp);
}

/* The prefetch of the next tile lands on the one that others still read. */
__global__ static void prefetch_too_early(float *out, const float *source, bool with_barrier) {
    DYNAMIC_SHARED(float, tile);
    tile[threadIdx.x] = 1.0f;
    __syncthreads();
    float sum = tile[(threadIdx.x + 32) % 64];
    if (with_barrier)
        __syncthreads();
    if (threadIdx.x % 4 == 0)
        copy_async_16(&tile[threadIdx.x], &source[threadIdx.x], true);
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = sum + tile[threadIdx.x];
}

static void test_prefetch_too_early(void **) {
    device_array<float> source(std::vector<float>(64, 2.0f));
    const float *data = source.get();
    std::vector<float> right = run_in("forward", prefetch_too_early, 64, data, true);
    assert_true(right[0] == 3.0f && right[63] == 3.0f);
    assert_true(same_bits(run_in("reverse", prefetch_too_early, 64, data, true), right));
    for (const char *order : {"forward", "reverse"})
        assert_false(same_bits(run_in(order, prefetch_too_early, 64, data, false), right));
}

__global__ static void forget_wait(float *out, const float *source, bool with_wait) {
    DYNAMIC_SHARED(float, tile);
    if (threadIdx.x % 4 == 0)
        copy_async_16(&tile[threadIdx.x], &source[threadIdx.x], true);
    copy_async_commit();
    if (with_wait)
        copy_async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x];
}

static void test_missing_copy_wait(void **) {
    device_array<float> source(std::vector<float>(32, 2.0f));
    const float *data = source.get();
    assert_true(run_in("forward", forget_wait, 32, data, true)[5] == 2.0f);
    assert_true(isnan(run_in("forward", forget_wait, 32, data, false)[5]));
}

/* The first block writes all of it; the second one must not find that. */
template <class T> __global__ static void read_unwritten(T *out) {
    DYNAMIC_SHARED(T, dynamic);
    __shared__ T fixed[8];
    if (blockIdx.x == 0) {
        dynamic[threadIdx.x] = (T)1;
        fixed[threadIdx.x] = (T)1;
    }
    T *block_out = out + blockIdx.x * 16;
    block_out[threadIdx.x] = dynamic[threadIdx.x];
    block_out[8 + threadIdx.x] = fixed[threadIdx.x];
}

static void test_unwritten_shared_memory_is_nan(void **) {
    device_array<float> out(32);
    LAUNCH(read_unwritten<float>, 2, 8, 32, nullptr, out.get());
    std::vector<float> got = out.download();
    for (size_t i = 0; i < 16; i++) {
        assert_true(got[i] == 1.0f);
        assert_true(isnan(got[16 + i]));
    }
}

__global__ static void write_at(float *array, long index) {
    array[index] = 1.0f;
}
__global__ static void read_at(const float *array, long index, float *out) {
    *out = array[index];
}
__global__ static void write_dynamic_at(long index) {
    DYNAMIC_SHARED(float, shared);
    shared[index] = 1.0f;
}
__global__ static void write_static_at(long index, float *out) {
    __shared__ float shared[5];
    shared[index] = 1.0f;
    *out = shared[0];
}

/* Without AddressSanitizer an access must leave the page to be seen. */
static void test_global_out_of_bounds(void **) {
    std::vector<std::string> any;
    for (long index : {-2000l, 2000l})
        assert_dies(
            [index] {
                device_array<float> array(100);
                LAUNCH(write_at, 1, 1, 0, nullptr, array.get(), index);
                finish();
            },
            any);
    assert_dies(
        [] {
            device_array<float> array(100), out(1);
            LAUNCH(read_at, 1, 1, 0, nullptr, array.get(), 2000l, out.get());
            finish();
        },
        any);
    assert_dies(
        [] {
            float *array;
            ASSERT_CUDA(cudaMalloc(&array, 400));
            ASSERT_CUDA(cudaFree(array));
            LAUNCH(write_at, 1, 1, 0, nullptr, array, 0l);
            finish();
        },
        any);
}

static void test_near_out_of_bounds(void **) {
    if (!WITH_ASAN)
        return;
    std::vector<std::string> message = {"AddressSanitizer"};
    for (long index : {-1l, 100l})
        assert_dies(
            [index] {
                device_array<float> array(100);
                LAUNCH(write_at, 1, 1, 0, nullptr, array.get(), index);
                finish();
            },
            message);
    for (long index : {-1l, 5l})
        assert_dies(
            [index] {
                LAUNCH(write_dynamic_at, 1, 1, 5 * sizeof(float), nullptr, index);
                finish();
            },
            message);
    assert_dies(
        [] {
            device_array<float> out(1);
            LAUNCH(write_static_at, 1, 1, 0, nullptr, 5l, out.get());
            finish();
        },
        message);
}

static void test_dynamic_shared_out_of_bounds(void **) {
    assert_dies(
        [] {
            LAUNCH(write_dynamic_at, 1, 1, 64, nullptr, 16l);
            finish();
        },
        {});
}

static void test_host_touches_device_memory(void **) {
    assert_dies(
        [] {
            device_array<float> array(100);
            *array.get() = 1.0f;
        },
        {});
    assert_dies(
        [] {
            device_array<float> array(100);
            LAUNCH(write_at, 1, 1, 0, nullptr, array.get(), 1l);
            finish();
            volatile float value = array.get()[1];
            (void)value;
        },
        {});
}

static void test_host_memory_as_argument(void **) {
    static float host[4];
    assert_dies([] { LAUNCH(write_at, 1, 1, 0, nullptr, &host[0], 1l); },
                {"write_at is launched with"});
    float *pinned;
    ASSERT_CUDA(cudaMallocHost(&pinned, 2 * sizeof *pinned));
    LAUNCH(write_at, 1, 1, 0, nullptr, pinned, 1l);
    finish();
    ASSERT_CUDA(cudaFreeHost(pinned));
}

__global__ static void load_vector(const float *array, float *out) {
    float4 v = *reinterpret_cast<const float4 *>(array);
    *out = v.x + v.w;
}

static void test_misaligned_vector(void **) {
    if (!SEES_ALIGNMENT)
        return;
    bool survived;
    std::string text = run_child(
        [] {
            device_array<float> array(100), out(1);
            LAUNCH(load_vector, 1, 1, 0, nullptr, array.get() + 1, out.get());
            finish();
        },
        &survived);
    assert_true(text.find("misaligned address") != std::string::npos);
}

__global__ static void misuse_ldmatrix(int offset) {
    DYNAMIC_SHARED(unsigned char, shared);
    uint32_t tiles[4];
    ldmatrix_x4(tiles, shared + offset);
}
__global__ static void misuse_copy(const char *global, int global_offset, int shared_offset) {
    DYNAMIC_SHARED(unsigned char, shared);
    copy_async_16(shared + shared_offset, global + global_offset, true);
}
__global__ static void misuse_small_copy(const char *global, int global_offset, int shared_offset) {
    DYNAMIC_SHARED(unsigned char, shared);
    copy_async_4(shared + shared_offset, global + global_offset, true);
}
__global__ static void ldmatrix_of_global(const char *global) {
    uint32_t tiles[4];
    ldmatrix_x4(tiles, global);
}

static void check_misuse(void (*kernel)(const char *, int, int), int global_offset,
                         int shared_offset, const char *message) {
    assert_dies(
        [kernel, global_offset, shared_offset] {
            device_array<char> global(256);
            LAUNCH(kernel, 1, 1, 64, nullptr, global.get(), global_offset, shared_offset);
            finish();
        },
        {message});
}

static void test_misused_addresses(void **) {
    check_misuse(misuse_copy, 8, 0, "global address");
    check_misuse(misuse_copy, 0, 8, "is not 16-byte aligned");
    check_misuse(misuse_copy, 0, 64, "no 16 bytes of shared memory");
    check_misuse(misuse_small_copy, 2, 0, "global address");
    check_misuse(misuse_small_copy, 0, 2, "is not 4-byte aligned");
    check_misuse(misuse_small_copy, 0, 64, "no 4 bytes of shared memory");
    assert_dies(
        [] {
            LAUNCH(misuse_ldmatrix, 1, 32, 64, nullptr, 2);
            finish();
        },
        {"misuse_ldmatrix, block (0, 0, 0), thread (0, 0, 0): ldmatrix_x4 ("});
    assert_dies(
        [] {
            device_array<char> global(256);
            LAUNCH(ldmatrix_of_global, 1, 32, 64, nullptr, global.get());
            finish();
        },
        {"no 16 bytes of shared memory"});
}

__global__ static void wait_in_two_places() {
    if (threadIdx.x == 3)
        __syncthreads();
    else
        __syncthreads();
}
__global__ static void wait_for_block_and_warp() {
    if (threadIdx.x % 32 == 3)
        __syncthreads();
    else
        __syncwarp();
}
__global__ static void wait_in_different_shuffles(int *out) {
    int value = (int)threadIdx.x;
    if (value % 2)
        value = __shfl_xor_sync(FULL, value, 2);
    else
        value = __shfl_sync(FULL, value, 0);
    out[threadIdx.x] = value;
}
__global__ static void shuffle_some(int *out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(0xffffu, 1, 1);
}
__global__ static void multiply_with_some() {
    if (threadIdx.x >= 16)
        return;
    float acc[4] = {};
    uint32_t a[4] = {}, b[2] = {};
    mma_m16n8k16<__half>(acc, a, b);
}

static void test_divergence(void **) {
    assert_dies(
        [] {
            LAUNCH(wait_in_two_places, 1, 64, 0, nullptr);
            finish();
        },
        {"wait_in_two_places, block (0, 0, 0), thread (3, 0, 0): is at __syncthreads ("});
    assert_dies(
        [] {
            LAUNCH(wait_for_block_and_warp, 2, 64, 0, nullptr);
            finish();
        },
        {"the threads wait for one another and none can run"});
    assert_dies(
        [] {
            device_array<int> out(32);
            LAUNCH(wait_in_different_shuffles, 1, 32, 0, nullptr, out.get());
            finish();
        },
        {"is at __shfl_xor_sync ("});
    assert_dies(
        [] {
            device_array<int> out(32);
            LAUNCH(shuffle_some, 1, 32, 0, nullptr, out.get());
            finish();
        },
        {"with mask 0x0000ffff"});
    assert_dies(
        [] {
            LAUNCH(multiply_with_some, 1, 32, 0, nullptr);
            finish();
        },
        {"by lanes 0x0000ffff only"});
}

__global__ static void use_shared(int *) {
    DYNAMIC_SHARED(int, shared);
    shared[0] = 1;
}

/* A kernel that prefers nothing, or the L1 cache. */
static void test_blocks_counted_without_carveout(void **) {
    const std::vector<std::string> messages = {"largest carve-out"};
    int num_blocks = 0;
    assert_dies(
        [&] { cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, use_shared, 32, 1024); },
        messages);
    assert_dies(
        [&] {
            cudaFuncSetAttribute(use_shared, cudaFuncAttributePreferredSharedMemoryCarveout,
                                 cudaSharedmemCarveoutMaxL1);
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&num_blocks, use_shared, 32, 1024);
        },
        messages);
}

/* Launched early: `faults` is 0, or which one it has. */
static __global__ void early_kernel(const uint32_t *weights, const uint32_t *x, uint32_t *out,
                                    int faults) {
    uint32_t sum = load_weights(weights + threadIdx.x);
    if (faults == 1)
        sum += load_global(x + threadIdx.x);
    if (faults == 2 && threadIdx.x == 3)
        return;
    wait_for_earlier_work();
    let_next_begin();
    out[threadIdx.x] = sum + load_global(x + threadIdx.x);
}

static void run_early(bool is_early, int faults) {
    device_array<uint32_t> weights(std::vector<uint32_t>(32, 1)), x(std::vector<uint32_t>(32, 2)),
        out(32);
    LAUNCH_EARLY(is_early, early_kernel, 1, 32, 0, nullptr, weights.get(), x.get(), out.get(),
                 faults);
    for (uint32_t sum : out.download())
        assert_int_equal(sum, 3);
}

static void test_early_kernels(void **) {
    in_every_order([&] { run_early(true, 0); });
    run_early(false, 0);
    assert_dies(
        [] { run_early(true, 1); },
        {"early_kernel, block (0, 0, 0), thread (0, 0, 0): reads other data than weights before"});
    assert_dies([] { run_early(true, 2); },
                {"thread (3, 0, 0): ends without wait_for_earlier_work"});
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_barriers),
        cmocka_unit_test(test_prefetch_too_early),
        cmocka_unit_test(test_missing_copy_wait),
        cmocka_unit_test(test_unwritten_shared_memory_is_nan),
        cmocka_unit_test(test_global_out_of_bounds),
        cmocka_unit_test(test_near_out_of_bounds),
        cmocka_unit_test(test_dynamic_shared_out_of_bounds),
        cmocka_unit_test(test_host_touches_device_memory),
        cmocka_unit_test(test_host_memory_as_argument),
        cmocka_unit_test(test_misaligned_vector),
        cmocka_unit_test(test_misused_addresses),
        cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_blocks_counted_without_carveout),
        cmocka_unit_test(test_early_kernels),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
