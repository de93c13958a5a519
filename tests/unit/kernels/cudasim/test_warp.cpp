/* Threads, barriers and warp functions against their definitions, in every order. */
#include "sim_test.h"

static const unsigned FULL = 0xffffffffu;

__global__ static void write_places(uint3 *threads, uint3 *blocks) {
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned i = block * blockDim.x * blockDim.y * blockDim.z + thread;
    threads[i] = threadIdx;
    blocks[i] = blockIdx;
}

static void test_every_thread_runs_once(void **) {
    in_every_order([] {
        device_array<uint3> threads(24 * 12), blocks(24 * 12);
        LAUNCH(write_places, dim3(2, 3, 2), dim3(4, 3, 2), 0, nullptr, threads.get(), blocks.get());
        std::vector<uint3> t = threads.download(), b = blocks.download();
        for (unsigned i = 0; i < t.size(); i++) {
            unsigned thread = i % 24, block = i / 24;
            assert_int_equal(t[i].x, thread % 4);
            assert_int_equal(t[i].y, thread / 4 % 3);
            assert_int_equal(t[i].z, thread / 12);
            assert_int_equal(b[i].x, block % 2);
            assert_int_equal(b[i].y, block / 2 % 3);
            assert_int_equal(b[i].z, block / 6);
        }
    });
}

__global__ static void take_turn(int *counter, int *turns) {
    turns[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(counter, 1);
}

static std::vector<int> turns_in(const char *order) {
    assert_int_equal(cudasim_set_order(order), 0);
    device_array<int> counter(std::vector<int>{0}), turns(5 * 80);
    LAUNCH(take_turn, 5, 80, 0, nullptr, counter.get(), turns.get());
    std::vector<int> got = turns.download();
    assert_int_equal(cudasim_set_order("forward"), 0);
    return got;
}

static void test_orders(void **) {
    std::vector<int> forward = turns_in("forward"), reverse = turns_in("reverse");
    std::vector<int> first = turns_in("random:1"), second = turns_in("random:2");
    for (int i = 0; i < 400; i++) {
        assert_int_equal(forward[(size_t)i], i);
        assert_int_equal(reverse[(size_t)i], 399 - i);
    }
    assert_true(first != forward && first != second && first == turns_in("random:1"));
    std::vector<bool> taken(400);
    for (int turn : first)
        taken[(size_t)turn] = true;
    assert_true(taken == std::vector<bool>(400, true));
}

struct shuffles {
    int direct, exchanged, up, down;
};

/* Lane l brings 100 + l. */
__global__ static void shuffle(shuffles *out, int width, int by) {
    int lane = (int)threadIdx.x % 32, value = 100 + lane;
    shuffles result;
    result.direct = __shfl_sync(FULL, value, lane * 7 + by, width);
    result.exchanged = __shfl_xor_sync(FULL, value, by, width);
    result.up = __shfl_up_sync(FULL, value, (unsigned)by, width);
    result.down = __shfl_down_sync(FULL, value, (unsigned)by, width);
    out[threadIdx.x] = result;
}

static void check_shuffles(const shuffles &got, int lane, int width, int by) {
    int segment = lane / width * width, place = lane % width;
    assert_int_equal(got.direct, 100 + segment + (lane * 7 + by) % width);
    int other = lane ^ by;
    assert_int_equal(got.exchanged, 100 + (other < segment + width ? other : lane));
    assert_int_equal(got.up, 100 + (place >= by ? lane - by : lane));
    assert_int_equal(got.down, 100 + (place + by < width ? lane + by : lane));
}

static void test_shuffles(void **) {
    in_every_order([] {
        for (int width : {32, 16, 4, 1})
            for (int by : {0, 1, 3, 16}) {
                device_array<shuffles> out(64);
                LAUNCH(shuffle, 1, 64, 0, nullptr, out.get(), width, by);
                std::vector<shuffles> got = out.download();
                for (int i = 0; i < 64; i++)
                    check_shuffles(got[(size_t)i], i % 32, width, by);
            }
    });
}

__global__ static void shuffle_wide(double *out) {
    double value = 1.0 / (threadIdx.x + 1);
    for (int i = 0; i < 5; i++)
        value = __shfl_sync(FULL, value, ((int)threadIdx.x + 1) % 32);
    out[threadIdx.x] = value;
}

static void test_meetings_in_a_row(void **) {
    in_every_order([] {
        device_array<double> out(32);
        LAUNCH(shuffle_wide, 1, 32, 0, nullptr, out.get());
        std::vector<double> got = out.download();
        for (size_t i = 0; i < 32; i++)
            assert_true(got[i] == 1.0 / (double)((i + 5) % 32 + 1));
    });
}

struct votes {
    unsigned ballot;
    int any, all, block_any, block_all, block_count;
};

/* Thread t votes bit t % 64 of `pattern`. */
__global__ static void take_votes(votes *out, unsigned long long pattern) {
    int mine = (int)(pattern >> (threadIdx.x % 64) & 1) * 5;
    votes result;
    result.ballot = __ballot_sync(FULL, mine);
    result.any = __any_sync(FULL, mine);
    result.all = __all_sync(FULL, mine);
    result.block_any = __syncthreads_or(mine);
    result.block_all = __syncthreads_and(mine);
    result.block_count = __syncthreads_count(mine);
    out[threadIdx.x] = result;
}

static void test_votes(void **) {
    in_every_order([] {
        for (unsigned long long pattern :
             {0ull, ~0ull, 1ull << 63, 0xffffffff00000000ull, 0x5ull}) {
            device_array<votes> out(64);
            LAUNCH(take_votes, 1, 64, 0, nullptr, out.get(), pattern);
            std::vector<votes> got = out.download();
            for (int i = 0; i < 64; i++) {
                unsigned half = (unsigned)(pattern >> (i / 32 * 32));
                const votes &v = got[(size_t)i];
                assert_int_equal(v.ballot, half);
                assert_int_equal(v.any, half != 0);
                assert_int_equal(v.all, half == FULL);
                assert_int_equal(v.block_any, pattern != 0);
                assert_int_equal(v.block_all, pattern == ~0ull);
                assert_int_equal(v.block_count, __popcll(pattern));
            }
        }
    });
}

/* Threads past `num_live` return; the others count one another and ask the lane after theirs. */
__global__ static void outlive(int *counts, unsigned *next_lane, int num_live) {
    if ((int)threadIdx.x >= num_live)
        return;
    next_lane[threadIdx.x] = __shfl_sync(FULL, threadIdx.x, ((int)threadIdx.x + 1) % 32);
    counts[threadIdx.x] = __syncthreads_count(1);
}

static void test_returned_threads_are_not_waited_for(void **) {
    in_every_order([] {
        for (int num_live : {1, 31, 33, 80}) {
            device_array<int> counts(96);
            device_array<unsigned> next(96);
            LAUNCH(outlive, 1, 96, 0, nullptr, counts.get(), next.get(), num_live);
            std::vector<int> count = counts.download();
            std::vector<unsigned> lane = next.download();
            for (int i = 0; i < num_live; i++) {
                int source = i / 32 * 32 + (i + 1) % 32;
                assert_int_equal(count[(size_t)i], num_live);
                assert_int_equal(lane[(size_t)i], source < num_live ? (unsigned)source : FULL);
            }
        }
    });
}

/* Neighbours in the block and in the warp exchange through shared memory, again and again. */
template <class T> __global__ static void pass_around(T *out, int num_rounds) {
    DYNAMIC_SHARED(T, dynamic);
    __shared__ T fixed[128];
    T value = (T)threadIdx.x;
    unsigned next = (threadIdx.x + 1) % blockDim.x;
    for (int i = 0; i < num_rounds; i++) {
        fixed[threadIdx.x] = value;
        __syncthreads();
        value = fixed[next];
        dynamic[threadIdx.x] = value;
        __syncwarp();
        value = dynamic[threadIdx.x ^ 1];
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

static void test_barriers_order_shared_memory(void **) {
    std::vector<int> expected;
    in_every_order([&expected] {
        device_array<int> out(3 * 128);
        LAUNCH(pass_around<int>, 3, 128, 128 * sizeof(int), nullptr, out.get(), 9);
        std::vector<int> got = out.download();
        if (expected.empty())
            expected = got;
        assert_true(got == expected);
    });
    for (size_t i = 0; i < 128; i++) {
        unsigned thread = (unsigned)i;
        for (int round = 0; round < 9; round++)
            thread = ((thread ^ 1) + 1) % 128;
        assert_int_equal(expected[i], thread);
        assert_int_equal(expected[2 * 128 + i], thread);
    }
}

/* The last block to finish sums what all wrote: one of the ways to merge partial results. */
__global__ static void merge_last(const int *parts, int *num_done, int *sums, int *out) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = parts[blockIdx.x];
        __threadfence();
        is_last = atomicAdd(num_done, 1) == (int)gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0)
        for (unsigned i = 0; i < gridDim.x; i++)
            *out += sums[i];
}

static void test_last_block_merges(void **) {
    in_every_order([] {
        device_array<int> parts(std::vector<int>{1, 2, 3, 4, 5}), sums(5);
        device_array<int> num_done(std::vector<int>{0}), out(std::vector<int>{0});
        LAUNCH(merge_last, 5, 64, 0, nullptr, parts.get(), num_done.get(), sums.get(), out.get());
        assert_int_equal(out.download()[0], 15);
    });
}

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_every_thread_runs_once),
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_shuffles),
        cmocka_unit_test(test_meetings_in_a_row),
        cmocka_unit_test(test_votes),
        cmocka_unit_test(test_returned_threads_are_not_waited_for),
        cmocka_unit_test(test_barriers_order_shared_memory),
        cmocka_unit_test(test_last_block_merges),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
