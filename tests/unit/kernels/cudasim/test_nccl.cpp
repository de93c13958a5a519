/* Several simulated devices, and NCCL between them: each rank's operations from a thread of its
 * own. */
#include "sim_test.h"

#include <nccl.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#define NUM_RANKS 3
#define COUNT 5

#define ASSERT_NCCL(call) assert_int_equal(call, ncclSuccess)

/* A rank: its device is its thread's while it does something. */
struct rank {
    int number;
    ncclComm_t comm;
    cudaStream_t stream;
    float *x, *all; /* [COUNT] and [NUM_RANKS][COUNT] on the device */

    void use() const {
        ASSERT_CUDA(cudaSetDevice(number));
    }
    void open(int rank_number, const ncclUniqueId &id) {
        number = rank_number;
        use();
        ASSERT_NCCL(ncclCommInitRank(&comm, NUM_RANKS, id, number));
        ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        ASSERT_CUDA(cudaMalloc(&x, COUNT * sizeof(float)));
        ASSERT_CUDA(cudaMalloc(&all, NUM_RANKS * COUNT * sizeof(float)));
        fill(1.0f);
    }
    void fill(float by) const {
        float values[COUNT];
        for (int i = 0; i < COUNT; i++)
            values[i] = by * (float)(10 * number + i);
        use();
        ASSERT_CUDA(cudaMemcpy(x, values, sizeof values, cudaMemcpyHostToDevice));
    }
    void gather() const {
        use();
        ASSERT_NCCL(ncclAllGather(x, all, COUNT * sizeof(float), ncclUint8, comm, stream));
    }
    std::vector<float> wait(int count = NUM_RANKS * COUNT) const {
        std::vector<float> host((size_t)count);
        use();
        ASSERT_CUDA(cudaStreamSynchronize(stream));
        ASSERT_CUDA(
            cudaMemcpy(host.data(), all, host.size() * sizeof(float), cudaMemcpyDeviceToHost));
        return host;
    }
    void close() const {
        use();
        ASSERT_CUDA(cudaFree(x));
        ASSERT_CUDA(cudaFree(all));
        ASSERT_CUDA(cudaStreamDestroy(stream));
        if (comm != nullptr) /* not aborted */
            ASSERT_NCCL(ncclCommDestroy(comm));
    }
};

struct ranks {
    rank each[NUM_RANKS];

    ranks() {
        ncclUniqueId id;
        std::vector<std::thread> threads;
        ASSERT_NCCL(ncclGetUniqueId(&id));
        for (int r = 0; r < NUM_RANKS; r++)
            threads.emplace_back([this, r, id] { each[r].open(r, id); });
        for (std::thread &thread : threads)
            thread.join();
    }
    ~ranks() {
        for (const rank &r : each)
            r.close();
        ASSERT_CUDA(cudaSetDevice(0));
    }
};

static void assert_gathered(const std::vector<float> &all, float by) {
    for (int r = 0; r < NUM_RANKS; r++)
        for (int i = 0; i < COUNT; i++)
            assert_true(all[(size_t)(r * COUNT + i)] == by * (float)(10 * r + i));
}

/* One host waits at a time: the others' devices go on as far as it needs them. */
static void test_all_gather(void **) {
    in_every_order([] {
        ranks group;
        for (const rank &r : group.each)
            r.gather();
        for (const rank &r : group.each)
            assert_gathered(r.wait(), 1.0f);
    });
}

static void test_hosts_that_wait_at_once(void **) {
    ranks group;
    std::vector<std::thread> threads;
    std::vector<float> results[NUM_RANKS];
    for (int r = 0; r < NUM_RANKS; r++)
        threads.emplace_back([&group, &results, r] {
            for (int i = 0; i < 20; i++)
                group.each[r].gather();
            results[r] = group.each[r].wait();
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::vector<float> &result : results)
        assert_gathered(result, 1.0f);
}

static void test_broadcast(void **) {
    in_every_order([] {
        ranks group;
        for (const rank &r : group.each) {
            r.use();
            ASSERT_NCCL(
                ncclBroadcast(r.x, r.all, COUNT * sizeof(float), ncclUint8, 2, r.comm, r.stream));
        }
        for (const rank &r : group.each)
            for (int i = 0; i < COUNT; i++)
                assert_true(r.wait(COUNT)[(size_t)i] == (float)(20 + i));
    });
}

/* Rank 0 has the smallest number that a 1 does not change, which only two of them do: the piece of
 * the numbers that is added up from rank 1 on has another sum than the others. In place, too. */
static void test_all_reduce(void **) {
    static const struct {
        ncclDataType_t type;
        uint16_t large, one;
    } cases[] = {{ncclBfloat16, 0x4380, 0x3f80}, {ncclFloat16, 0x6800, 0x3c00}};
    in_every_order([] {
        ranks group;
        for (const auto &c : cases) {
            for (const rank &r : group.each) {
                const std::vector<uint16_t> x(3, r.number == 0 ? c.large : c.one);
                r.use();
                ASSERT_CUDA(cudaMemcpy(r.x, x.data(), 6, cudaMemcpyHostToDevice));
                ASSERT_NCCL(ncclAllReduce(r.x, r.all, 3, c.type, ncclSum, r.comm, r.stream));
                ASSERT_NCCL(ncclAllReduce(r.x, r.x, 1, c.type, ncclSum, r.comm, r.stream));
            }
            for (const rank &r : group.each) {
                uint16_t sums[3], alone;
                r.wait();
                ASSERT_CUDA(cudaMemcpy(sums, r.all, 6, cudaMemcpyDeviceToHost));
                ASSERT_CUDA(cudaMemcpy(&alone, r.x, 2, cudaMemcpyDeviceToHost));
                assert_int_equal(sums[0], c.large + 1);
                assert_int_equal(sums[1], c.large);
                assert_int_equal(sums[2], c.large);
                assert_int_equal(alone, c.large + 1);
            }
        }
    });
}

/* To rank 0, of another size from each; then all meet in another operation. */
static void test_messages(void **) {
    in_every_order([] {
        ranks group;
        for (int r = NUM_RANKS - 1; r >= 0; r--) {
            const rank &self = group.each[r];
            self.use();
            ASSERT_NCCL(ncclGroupStart());
            for (int peer = 1; r == 0 && peer < NUM_RANKS; peer++)
                ASSERT_NCCL(ncclRecv(self.all + peer * COUNT, (size_t)peer * sizeof(float),
                                     ncclUint8, peer, self.comm, self.stream));
            if (r > 0)
                ASSERT_NCCL(ncclSend(self.x, (size_t)r * sizeof(float), ncclUint8, 0, self.comm,
                                     self.stream));
            ASSERT_NCCL(ncclGroupEnd());
        }
        std::vector<float> all = group.each[0].wait();
        for (int peer = 1; peer < NUM_RANKS; peer++)
            for (int i = 0; i < COUNT; i++) {
                float got = all[(size_t)(peer * COUNT + i)];
                assert_true(i < peer ? got == (float)(10 * peer + i) : got != got);
            }
        for (const rank &r : group.each)
            r.gather();
        assert_gathered(group.each[2].wait(), 1.0f);
    });
}

static cudaGraphExec_t capture(const rank &r) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    r.use();
    ASSERT_CUDA(cudaStreamBeginCapture(r.stream, cudaStreamCaptureModeThreadLocal));
    r.gather();
    ASSERT_CUDA(cudaStreamEndCapture(r.stream, &graph));
    ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    ASSERT_CUDA(cudaGraphDestroy(graph));
    return exec;
}

static void test_in_a_graph(void **) {
    ranks group;
    cudaGraphExec_t execs[NUM_RANKS];
    for (const rank &r : group.each)
        execs[r.number] = capture(r);
    for (float by : {1.0f, 2.0f, 3.0f}) {
        for (const rank &r : group.each) {
            r.fill(by);
            ASSERT_CUDA(cudaGraphLaunch(execs[r.number], r.stream));
        }
        for (const rank &r : group.each)
            assert_gathered(r.wait(), by);
    }
    for (const rank &r : group.each) {
        r.use();
        ASSERT_CUDA(cudaGraphExecDestroy(execs[r.number]));
    }
}

/* A rank that never comes: the others ask, and go on once they have aborted. */
static void test_abort(void **) {
    ncclResult_t error = ncclInternalError;
    ranks group;
    for (const rank &r : group.each)
        if (r.number > 0)
            r.gather();
    for (rank &r : group.each) {
        r.use();
        for (int i = 0; r.number > 0 && i < 50; i++)
            assert_int_equal(cudaStreamQuery(r.stream), cudaErrorNotReady);
        ASSERT_NCCL(ncclCommGetAsyncError(r.comm, &error));
        assert_int_equal(error, ncclSuccess);
        ASSERT_NCCL(ncclCommAbort(r.comm));
        r.comm = nullptr;
        ASSERT_CUDA(cudaStreamSynchronize(r.stream));
    }
    cudaGetLastError();
}

/* The last rank to abort waits for the graphs of all: here of rank 1 one that was launched, and of
 * rank 0 one that lives on. */
static void test_abort_waits_for_graphs(void **) {
    ranks group;
    cudaGraphExec_t living = capture(group.each[0]), launched = capture(group.each[1]);
    ASSERT_CUDA(cudaGraphLaunch(launched, group.each[1].stream));
    ASSERT_CUDA(cudaGraphExecDestroy(launched));
    for (int r = 0; r < NUM_RANKS - 1; r++) {
        group.each[r].use();
        ASSERT_NCCL(ncclCommAbort(group.each[r].comm));
    }
    std::atomic_bool has_ended(false);
    std::thread last([&] {
        group.each[NUM_RANKS - 1].use();
        ASSERT_NCCL(ncclCommAbort(group.each[NUM_RANKS - 1].comm));
        has_ended = true;
    });
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        assert_false(has_ended);
    }
    group.each[0].use();
    ASSERT_CUDA(cudaGraphExecDestroy(living));
    last.join();
    for (rank &r : group.each)
        r.comm = nullptr;
}

static void test_refused(void **) {
    ncclUniqueId id;
    ncclComm_t comm;
    ASSERT_NCCL(ncclGetUniqueId(&id));
    ASSERT_CUDA(cudaSetDevice(0));
    assert_int_equal(ncclCommInitRank(&comm, 1, id, 1), ncclInvalidUsage);
    ASSERT_NCCL(ncclGetUniqueId(&id));
    ASSERT_NCCL(ncclCommInitRank(&comm, 1, id, 0));
    device_array<float> x(1);
    float host = 0;
    assert_int_equal(ncclAllGather(&host, x.get(), 4, ncclUint8, comm, nullptr),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllGather(x.get(), x.get(), 8, ncclUint8, comm, nullptr),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(x.get(), &host, 1, ncclFloat16, ncclSum, comm, nullptr),
                     ncclInvalidArgument);
    assert_int_equal(ncclAllReduce(x.get(), x.get(), 1, ncclUint8, ncclSum, comm, nullptr),
                     ncclInvalidArgument);
    ASSERT_CUDA(cudaSetDevice(1));
    assert_int_equal(ncclAllGather(x.get(), x.get(), 4, ncclUint8, comm, nullptr),
                     ncclInvalidArgument);
    ASSERT_CUDA(cudaSetDevice(0));
    ASSERT_NCCL(ncclCommDestroy(comm));
    int count;
    ASSERT_CUDA(cudaGetDeviceCount(&count));
    assert_int_equal(count, NUM_RANKS);
    assert_int_equal(cudaSetDevice(NUM_RANKS), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(-1), cudaErrorInvalidDevice);
    cudaGetLastError();
}

/* --- Faults that it catches --- */

struct hidden_pointer {
    float *to;
};

__global__ static void write_through(hidden_pointer pointer) {
    *pointer.to = 1.0f;
}

static void test_memory_of_another_device(void **) {
    assert_dies(
        [] {
            float *elsewhere;
            ASSERT_CUDA(cudaSetDevice(1));
            ASSERT_CUDA(cudaMalloc(&elsewhere, 4));
            ASSERT_CUDA(cudaSetDevice(0));
            LAUNCH(write_through, 1, 1, 0, nullptr, hidden_pointer{elsewhere});
            cudaDeviceSynchronize();
        },
        {});
}

static void test_stream_of_another_device(void **) {
    cudaStream_t stream;
    ASSERT_CUDA(cudaSetDevice(1));
    ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ASSERT_CUDA(cudaSetDevice(0));
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
    ASSERT_CUDA(cudaSetDevice(1));
    ASSERT_CUDA(cudaStreamDestroy(stream));
    ASSERT_CUDA(cudaSetDevice(0));
    cudaGetLastError();
}

static void test_attribute_of_another_device(void **) {
    assert_dies(
        [] {
            int value;
            ASSERT_CUDA(cudaSetDevice(1));
            cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0);
        },
        {"attribute 10 of device 0"});
}

static void test_ranks_that_do_not_agree(void **) {
    assert_dies(
        [] {
            ranks group;
            for (const rank &r : group.each) {
                r.use();
                ASSERT_NCCL(
                    ncclAllGather(r.x, r.all, r.number == 1 ? 8 : 4, ncclUint8, r.comm, r.stream));
            }
            group.each[0].wait();
        },
        {"ncclAllGather of 8 bytes"});
    assert_dies(
        [] {
            ranks group;
            for (const rank &r : group.each) {
                r.use();
                if (r.number == 1)
                    ASSERT_NCCL(ncclBroadcast(r.x, r.all, 4, ncclUint8, 0, r.comm, r.stream));
                else
                    ASSERT_NCCL(ncclAllGather(r.x, r.all, 4, ncclUint8, r.comm, r.stream));
            }
            group.each[0].wait();
        },
        {"ncclBroadcast of 4 bytes"});
}

int main() {
    setenv("QUIRE_CUDASIM_DEVICES", std::to_string(NUM_RANKS).c_str(), 1);
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_hosts_that_wait_at_once),
        cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_all_reduce),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_in_a_graph),
        cmocka_unit_test(test_abort),
        cmocka_unit_test(test_abort_waits_for_graphs),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_of_another_device),
        cmocka_unit_test(test_stream_of_another_device),
        cmocka_unit_test(test_attribute_of_another_device),
        cmocka_unit_test(test_ranks_that_do_not_agree),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
