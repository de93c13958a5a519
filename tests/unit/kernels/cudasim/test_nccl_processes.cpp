/* NCCL between simulated devices of several processes. Each test's processes are children: a device
 * of the parent would be in all of them. */
#include "sim_test.h"

#include <nccl.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NUM_RANKS 3
#define COUNT 5
#define BYTES (COUNT * sizeof(float))

/* In the child of a rank: what is not as it should be ends it, with the number of the line. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

struct rank_process {
    int rank;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    float *x = nullptr, *all = nullptr; /* [COUNT] and [NUM_RANKS][COUNT] on the device */

    ncclResult_t join(const ncclUniqueId &id, int device) {
        REQUIRE(cudaSetDevice(device) == cudaSuccess);
        return ncclCommInitRank(&comm, NUM_RANKS, id, rank);
    }
    void open() {
        float values[COUNT];
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)(10 * rank + i);
        REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
        REQUIRE(cudaMalloc(&x, BYTES) == cudaSuccess);
        REQUIRE(cudaMalloc(&all, NUM_RANKS * BYTES) == cudaSuccess);
        REQUIRE(cudaMemcpy(x, values, BYTES, cudaMemcpyHostToDevice) == cudaSuccess);
    }
    void gather() const {
        REQUIRE(ncclAllGather(x, all, BYTES, ncclUint8, comm, stream) == ncclSuccess);
    }
    std::vector<float> wait() const {
        std::vector<float> host(NUM_RANKS * COUNT);
        REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
        REQUIRE(cudaMemcpy(host.data(), all, NUM_RANKS * BYTES, cudaMemcpyDeviceToHost) ==
                cudaSuccess);
        return host;
    }
    void require_gathered() const {
        std::vector<float> got = wait();
        for (int r = 0; r < NUM_RANKS; r++)
            for (int i = 0; i < COUNT; i++)
                REQUIRE(got[(size_t)(r * COUNT + i)] == (float)(10 * r + i));
    }
    /* Polls until the communicator reports an error. */
    ncclResult_t error_of_queries() const {
        ncclResult_t error = ncclSuccess;
        for (int i = 0; i < 20000 && error == ncclSuccess; i++) {
            REQUIRE(cudaStreamQuery(stream) == cudaErrorNotReady);
            cudaGetLastError();
            REQUIRE(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
            usleep(100);
        }
        return error;
    }
};

struct processes {
    pid_t pids[NUM_RANKS];

    /* Rank 0 makes the id. */
    explicit processes(const std::function<void(rank_process &, const ncclUniqueId &)> &body) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        fflush(nullptr);
        for (int rank = 0; rank < NUM_RANKS; rank++) {
            pids[rank] = fork();
            if (pids[rank] == 0)
                run(rank, ends, body);
        }
        close(ends[0]);
        close(ends[1]);
    }
    int wait(int rank) const {
        int status;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        return status;
    }

  private:
    [[noreturn]] static void
    run(int rank, const int *ends,
        const std::function<void(rank_process &, const ncclUniqueId &)> &body) {
        rank_process self;
        ncclUniqueId id;
        self.rank = rank;
        signal(SIGABRT, SIG_DFL);
        if (rank == 0)
            REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        for (int other = 1; rank == 0 && other < NUM_RANKS; other++)
            REQUIRE(write(ends[1], &id, sizeof id) == sizeof id);
        if (rank > 0)
            REQUIRE(read(ends[0], &id, sizeof id) == sizeof id);
        body(self, id);
        _exit(0);
    }
};

static void assert_all_succeed(const processes &all) {
    for (int rank = 0; rank < NUM_RANKS; rank++)
        assert_int_equal(all.wait(rank), 0);
}

static void open(rank_process &self, const ncclUniqueId &id) {
    int rank = self.rank;
    REQUIRE(self.join(id, rank) == ncclSuccess);
    self.open();
}

/* As in test_nccl.cpp: a piece of the numbers is added up in another order than the others. */
static void add_up(const rank_process &self) {
    int rank = self.rank;
    const uint16_t large = 0x4380, one = 0x3f80;
    const std::vector<uint16_t> x(3, rank == 0 ? large : one);
    uint16_t sums[3];
    REQUIRE(cudaMemcpy(self.all, x.data(), 6, cudaMemcpyHostToDevice) == cudaSuccess);
    REQUIRE(ncclAllReduce(self.all, self.all, 3, ncclBfloat16, ncclSum, self.comm, self.stream) ==
            ncclSuccess);
    self.wait();
    REQUIRE(cudaMemcpy(sums, self.all, 6, cudaMemcpyDeviceToHost) == cudaSuccess);
    REQUIRE(sums[0] == large + 1 && sums[1] == large && sums[2] == large);
}

/* Gathers, a broadcast, sums, and messages to rank 0 of another size from each, in a graph too. */
static void run_operations(rank_process &self, const ncclUniqueId &id) {
    int rank = self.rank;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    open(self, id);
    for (int i = 0; i < 20; i++)
        self.gather();
    self.require_gathered();
    REQUIRE(ncclBroadcast(self.x, self.all, BYTES, ncclUint8, 2, self.comm, self.stream) ==
            ncclSuccess);
    REQUIRE(self.wait()[1] == 21);
    add_up(self);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int peer = 1; rank == 0 && peer < NUM_RANKS; peer++)
        REQUIRE(ncclRecv(self.all + peer * COUNT, (size_t)peer * sizeof(float), ncclUint8, peer,
                         self.comm, self.stream) == ncclSuccess);
    if (rank > 0)
        REQUIRE(ncclSend(self.x, (size_t)rank * sizeof(float), ncclUint8, 0, self.comm,
                         self.stream) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    std::vector<float> got = self.wait();
    REQUIRE(rank > 0 || (got[COUNT] == 10 && got[2 * COUNT] == 20 && got[2 * COUNT + 1] == 21));
    REQUIRE(cudaStreamBeginCapture(self.stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    self.gather();
    REQUIRE(cudaStreamEndCapture(self.stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    for (int i = 0; i < 3; i++)
        REQUIRE(cudaGraphLaunch(exec, self.stream) == cudaSuccess);
    self.require_gathered();
    REQUIRE(cudaGraphExecDestroy(exec) == cudaSuccess && cudaGraphDestroy(graph) == cudaSuccess);
    REQUIRE(ncclCommDestroy(self.comm) == ncclSuccess);
}

static void test_operations(void **) {
    assert_all_succeed(processes(run_operations));
}

/* Of a megabyte, which no socket holds. */
static void test_large(void **) {
    assert_all_succeed(processes([](rank_process &self, const ncclUniqueId &id) {
        int rank = self.rank;
        const size_t bytes = (size_t)1 << 20;
        std::vector<char> own(bytes, (char)rank), host(NUM_RANKS * bytes);
        char *x, *all;
        open(self, id);
        REQUIRE(cudaMalloc(&x, bytes) == cudaSuccess);
        REQUIRE(cudaMalloc(&all, NUM_RANKS * bytes) == cudaSuccess);
        REQUIRE(cudaMemcpy(x, own.data(), bytes, cudaMemcpyHostToDevice) == cudaSuccess);
        for (int i = 0; i < 4; i++)
            REQUIRE(ncclAllGather(x, all, bytes, ncclUint8, self.comm, self.stream) == ncclSuccess);
        REQUIRE(cudaStreamSynchronize(self.stream) == cudaSuccess);
        REQUIRE(cudaMemcpy(host.data(), all, host.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
        for (int r = 0; r < NUM_RANKS; r++)
            REQUIRE(host[(size_t)r * bytes] == r && host[(size_t)(r + 1) * bytes - 1] == r);
    }));
}

/* One that is killed, and one that aborts, is an error of the others'. */
static void test_lost(void **) {
    for (bool is_killed : {true, false})
        assert_all_succeed(processes([is_killed](rank_process &self, const ncclUniqueId &id) {
            int rank = self.rank;
            open(self, id);
            self.gather();
            self.require_gathered();
            if (rank == 2 && is_killed)
                _exit(0);
            if (rank < 2) {
                self.gather();
                REQUIRE(self.error_of_queries() == ncclRemoteError);
            }
            REQUIRE(ncclCommAbort(self.comm) == ncclSuccess);
            REQUIRE(cudaStreamSynchronize(self.stream) == cudaSuccess);
        }));
}

/* For one that is stopped the others wait, until they abort. */
static void test_stopped(void **) {
    processes all([](rank_process &self, const ncclUniqueId &id) {
        int rank = self.rank;
        ncclResult_t error;
        open(self, id);
        if (rank == 2)
            raise(SIGSTOP);
        self.gather();
        for (int i = 0; i < 200; i++) {
            REQUIRE(cudaStreamQuery(self.stream) == cudaErrorNotReady);
            REQUIRE(ncclCommGetAsyncError(self.comm, &error) == ncclSuccess);
            REQUIRE(error == ncclSuccess || rank == 1);
            usleep(100);
        }
        REQUIRE(ncclCommAbort(self.comm) == ncclSuccess);
        REQUIRE(cudaStreamSynchronize(self.stream) == cudaSuccess);
    });
    assert_int_equal(all.wait(0), 0);
    assert_int_equal(all.wait(1), 0);
    kill(all.pids[2], SIGKILL);
    all.wait(2);
}

static void test_same_device(void **) {
    assert_all_succeed(processes([](rank_process &self, const ncclUniqueId &id) {
        int rank = self.rank;
        REQUIRE(self.join(id, rank / 2) == ncclInvalidUsage);
    }));
}

/* Of other sizes, which at least the first to see it says. */
static void test_ranks_that_do_not_agree(void **) {
    processes all([](rank_process &self, const ncclUniqueId &id) {
        open(self, id);
        ncclAllGather(self.x, self.all, self.rank == 1 ? 8 : 4, ncclUint8, self.comm, self.stream);
        cudaStreamQuery(self.stream);
        ncclResult_t error = ncclSuccess;
        while (error == ncclSuccess) {
            cudaStreamQuery(self.stream);
            ncclCommGetAsyncError(self.comm, &error);
        }
    });
    int num_aborted = 0;
    for (int rank = 0; rank < NUM_RANKS; rank++) {
        int status = all.wait(rank);
        num_aborted += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    }
    assert_true(num_aborted > 0);
}

int main() {
    setenv("QUIRE_CUDASIM_DEVICES", std::to_string(NUM_RANKS).c_str(), 1);
    const CMUnitTest tests[] = {
        cmocka_unit_test(test_operations),  cmocka_unit_test(test_large),
        cmocka_unit_test(test_lost),        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_same_device), cmocka_unit_test(test_ranks_that_do_not_agree),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
