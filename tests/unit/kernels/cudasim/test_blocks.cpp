/* Blocks in flight together: each keeps its own, and sees of the others what a GPU promises. */
#include "sim_test.h"

static const unsigned THREADS = 64, BLOCKS = 6;

/* What a kernel below leaves out or does in the wrong place. */
enum fault { NONE, NO_RELEASE, NO_ACQUIRE, COUNTS_FIRST, PLAIN_COUNT };

__global__ static void merge(int *parts, int *num_done, int *out, fault f) {
    __shared__ bool is_last;
    auto count = [&] {
        if (f == PLAIN_COUNT)
            return (*num_done)++;
        return atomicAdd(num_done, 1);
    };
    unsigned own = blockIdx.x * THREADS + threadIdx.x;
    int early = f == COUNTS_FIRST && threadIdx.x == 0 ? count() : 0;
    __syncthreads();
    parts[own] = (int)own;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (f != NO_RELEASE)
            __threadfence();
        is_last = (f == COUNTS_FIRST ? early : count()) + 1 == (int)gridDim.x;
        if (f != NO_ACQUIRE)
            __threadfence();
    }
    __syncthreads();
    if (!is_last)
        return;
    int sum = 0;
    for (unsigned b = 0; b < gridDim.x; b++)
        sum += parts[b * THREADS + threadIdx.x];
    out[threadIdx.x] = sum;
}

/* Of the last block that was done, summed once and completely. */
static bool merges(fault f) {
    const unsigned n = BLOCKS * THREADS;
    device_array<int> parts(std::vector<int>(n, -1)), num_done(std::vector<int>{0});
    device_array<int> out(std::vector<int>(THREADS, -1));
    LAUNCH(merge, BLOCKS, THREADS, 0, nullptr, parts.get(), num_done.get(), out.get(), f);
    std::vector<int> sums = out.download();
    bool right = num_done.download()[0] == (int)BLOCKS;
    for (unsigned i = 0; i < THREADS; i++)
        right = right && sums[i] == (int)(BLOCKS * i + THREADS * BLOCKS * (BLOCKS - 1) / 2);
    return right;
}

static void test_merge(void **) {
    in_every_order([] { assert_true(merges(NONE)); });
}

/* A plain count is not seen in reverse order, where a block would wait at its first atomic. */
static void test_faults_of_a_merge(void **) {
    for (fault f : {NO_RELEASE, NO_ACQUIRE, COUNTS_FIRST, PLAIN_COUNT})
        assert_false(merges(f));
    assert_int_equal(cudasim_set_order("reverse"), 0);
    for (fault f : {NO_RELEASE, NO_ACQUIRE, COUNTS_FIRST})
        assert_false(merges(f));
    assert_int_equal(cudasim_set_order("forward"), 0);
}

/* One after another they see whatever was stored before. */
static void test_sequential_blocks_hide_faults(void **) {
    assert_int_equal(cudasim_set_blocks("sequential"), 0);
    for (fault f : {NONE, NO_RELEASE, NO_ACQUIRE, COUNTS_FIRST, PLAIN_COUNT})
        assert_true(merges(f));
    assert_int_equal(cudasim_set_blocks("interleaved"), 0);
}

/* Each point is passed by one thread, while the others of the block wait. */
__global__ static void keep_own_memory(int *counter, int *out) {
    __shared__ int fixed[THREADS];
    DYNAMIC_SHARED(int, dynamic);
    int own = (int)(blockIdx.x * THREADS + threadIdx.x), kept = own;
    fixed[threadIdx.x] = dynamic[threadIdx.x] = own;
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x == 5)
            atomicAdd(counter, 1);
        if (threadIdx.x == 9)
            __threadfence();
        __syncthreads();
    }
    unsigned other = (threadIdx.x + 7) % THREADS;
    bool right =
        fixed[other] == (int)(blockIdx.x * THREADS + other) && dynamic[other] == fixed[other];
    out[own] = right ? kept : -1;
}

static void test_memory_of_a_block(void **) {
    in_every_order([] {
        device_array<int> counter(std::vector<int>{0}), out(BLOCKS * THREADS);
        LAUNCH(keep_own_memory, BLOCKS, THREADS, THREADS * sizeof(int), nullptr, counter.get(),
               out.get());
        std::vector<int> got = out.download();
        for (size_t i = 0; i < got.size(); i++)
            assert_int_equal(got[i], i);
        assert_int_equal(counter.download()[0], 3 * BLOCKS);
    });
}

/* A block sees its own stores, an atomic those of its block to the same place before it. */
__global__ static void take_tickets(unsigned *next, unsigned *tickets, unsigned *sums) {
    tickets[blockIdx.x * THREADS + threadIdx.x] = atomicAdd(next, 1u);
    sums[blockIdx.x] = 10;
    __syncthreads();
    atomicAdd(&sums[blockIdx.x], tickets[blockIdx.x * THREADS + (threadIdx.x + 1) % THREADS]);
}

static void test_atomics(void **) {
    in_every_order([] {
        device_array<unsigned> next(std::vector<unsigned>{0}), tickets(BLOCKS * THREADS),
            sums(BLOCKS);
        LAUNCH(take_tickets, BLOCKS, THREADS, 0, nullptr, next.get(), tickets.get(), sums.get());
        std::vector<unsigned> taken = tickets.download(), got = sums.download();
        std::vector<bool> seen(BLOCKS * THREADS);
        for (unsigned b = 0; b < BLOCKS; b++) {
            unsigned sum = 10;
            for (unsigned i = 0; i < THREADS; i++) {
                unsigned ticket = taken[b * THREADS + i];
                assert_true(ticket < seen.size() && !seen[ticket]);
                seen[ticket] = true;
                sum += ticket;
            }
            assert_int_equal(got[b], sum);
        }
    });
}

/* Bytes of one page by all blocks; what is never fenced is there when the grid has ended. */
__global__ static void store_bytes(unsigned char *out) {
    for (unsigned i = blockIdx.x; i < 1000; i += gridDim.x) {
        out[i] = (unsigned char)i;
        if (i % 50 == 0)
            __threadfence();
    }
}

static void test_pages_of_several_blocks(void **) {
    in_every_order([] {
        device_array<unsigned char> out(1000);
        LAUNCH(store_bytes, BLOCKS, 1, 0, nullptr, out.get());
        std::vector<unsigned char> got = out.download();
        for (size_t i = 0; i < got.size(); i++)
            assert_int_equal(got[i], i % 256);
    });
}

__global__ static void store_at(char *address) {
    *address = 1;
}

/* Faults that are none of the mode's. */
static void test_wild_stores(void **) {
    assert_dies(
        [] {
            device_array<char> array(100);
            LAUNCH(store_at, 2, 1, 0, nullptr, array.get() + 0);
            cudaDeviceSynchronize();
            *array.get() = 1;
        },
        {});
    assert_dies(
        [] {
            char *array;
            ASSERT_CUDA(cudaMalloc(&array, 100));
            ASSERT_CUDA(cudaFree(array));
            LAUNCH(store_at, 2, 1, 0, nullptr, array);
            cudaDeviceSynchronize();
        },
        {});
}

int main() {
    assert_int_equal(cudasim_set_blocks("at once"), -1);
    assert_int_equal(cudasim_set_blocks("interleaved"), 0);
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_merge),
        cmocka_unit_test(test_faults_of_a_merge),
        cmocka_unit_test(test_sequential_blocks_hide_faults),
        cmocka_unit_test(test_memory_of_a_block),
        cmocka_unit_test(test_atomics),
        cmocka_unit_test(test_pages_of_several_blocks),
        cmocka_unit_test(test_wild_stores),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
