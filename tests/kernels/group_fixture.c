#include "tests/kernels/group_fixture.h"

#include "tests/kernels/fake_transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define EXIT_WRONG_ARGUMENTS 2

static int32_t count_possible(const char *device) {
    struct backend_group *group;
    struct error err = {0};
    int32_t num_ranks = 0;
    while (num_ranks < GROUP_MAX_RANKS &&
           backend_group_create(device, num_ranks + 1, &group, &err) == 0) {
        backend_group_destroy(group);
        num_ranks++;
    }
    if (num_ranks < GROUP_MAX_RANKS)
        fprintf(stderr, "%s: %s\n", device, err.message);
    return num_ranks;
}

struct group_kind group_fixture_choose_device(int argc, char **argv, int32_t *out_max_ranks) {
    if (argc > 4 || argc < 3 || (strcmp(argv[2], "bf16") != 0 && strcmp(argv[2], "f16") != 0)) {
        fprintf(stderr, "usage: %s [cuda|cuda-sim bf16|f16 [RANKS]]\n", argv[0]);
        exit(EXIT_WRONG_ARGUMENTS);
    }
    *out_max_ranks = count_possible(argv[1]);
    if (*out_max_ranks < (argc == 4 ? atoi(argv[3]) : 1))
        exit(argc == 4 ? EXIT_FAILURE : GROUP_EXIT_SKIPPED);
    return (struct group_kind){.device = argv[1],
                               .num_threads = 1,
                               .dtype = strcmp(argv[2], "bf16") == 0 ? DTYPE_BF16 : DTYPE_F16};
}

static void *run_member(void *argument) {
    struct group_member *member = argument;
    const struct backend_config config = {.num_threads = member->kind->num_threads,
                                          .isa = member->kind->isa,
                                          .limits.max_num_batched_tokens = GROUP_MAX_ROWS,
                                          .limits.max_num_seqs = GROUP_MAX_ROWS,
                                          .limits.max_logit_rows = GROUP_MAX_ROWS,
                                          .limits.vocab_size = GROUP_MAX_RANKS * GROUP_MAX_COLUMNS,
                                          .limits.hidden_size = GROUP_MAX_WIDTH,
                                          .limits.max_model_len = GROUP_MAX_ROWS,
                                          .limits.block_size = 16,
                                          .activation_dtype = member->kind->dtype,
                                          .fast_sums = member->kind->fast_sums,
                                          .group = member->group,
                                          .rank = member->rank};
    member->backend = backend_open(member->kind->device, &config, NULL);
    if (member->backend == NULL)
        abort();
    member->body(member, member->context);
    backend_close(member->backend);
    return NULL;
}

/* Every rank of a group by messages has a group of its own, as it has in another process. */
static void create_groups(const struct group_form *form, struct fake_network *network,
                          struct group_member *members) {
    struct backend_group *group = NULL;
    if (network == NULL)
        assert_int_equal(backend_group_create(form->kind->device, form->num_ranks, &group, NULL),
                         0);
    for (int32_t r = 0; r < form->num_ranks; r++) {
        members[r].group = group;
        if (network != NULL)
            assert_int_equal(backend_group_create_remote(
                                 form->kind->device,
                                 fake_network_transport(network, GROUP_FIRST_RANK + r),
                                 GROUP_FIRST_RANK, form->num_ranks, &members[r].group, NULL),
                             0);
    }
}

static void destroy_groups(const struct group_form *form, struct fake_network *network,
                           struct group_member *members) {
    for (int32_t r = 0; r < (network == NULL ? 1 : form->num_ranks); r++)
        backend_group_destroy(members[r].group);
    if (network != NULL)
        fake_network_destroy(network);
}

void group_fixture_run(const struct group_form *form,
                       void (*body)(struct group_member *member, void *context), void *context) {
    struct group_member members[GROUP_MAX_RANKS] = {{0}};
    struct fake_network *network = NULL;
    if (form->way == BY_MESSAGES) {
        network = fake_network_create(GROUP_FIRST_RANK + form->num_ranks, form->timeout_ns);
        fake_network_delay(network, form->max_delay_ns);
    }
    create_groups(form, network, members);
    for (int32_t r = 0; r < form->num_ranks; r++) {
        members[r].rank = r;
        members[r].kind = form->kind;
        members[r].body = body;
        members[r].context = context;
        assert_int_equal(pthread_create(&members[r].thread, NULL, run_member, &members[r]), 0);
    }
    for (int32_t r = 0; r < form->num_ranks; r++)
        assert_int_equal(pthread_join(members[r].thread, NULL), 0);
    destroy_groups(form, network, members);
}
