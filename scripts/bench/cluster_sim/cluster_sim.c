/* Many replicas behind a router, simulated in virtual time: the engine's scheduler, block manager
 * and prefix cache as they are in the server, steps that cost what a model of a device says,
 * conversations that follow from a seed.
 *
 *   cluster_sim [OPTION VALUE]...
 *
 *   device              h100-8b, cpu-135m: costs of steps, and limits (cost_model.c)
 *   replicas            1 to 1024
 *   router              round-robin, least, affinity, prefix (router.h)
 *   requests            in all, turns of conversations; then no more are sent, and what runs ends
 *   rate                requests a second for each replica, once conversations begin as they end
 *   turns, think-s      of a conversation in the mean; 1: single requests
 *   system-prompts      so many different ones, 0: none; system-tokens: of one in the mean
 *   prefix-caching      1 or 0
 *   blocks              of a replica's KV cache; 0: the device's
 *   ttft-ms, tpot-ms    of a good request: to the first token, and for each after it in the mean
 *   warmup-s            requests that are sent before count nowhere but in windows
 *   window-s            figures of every such stretch; 0: none
 *   kill-s, drain-s     when replica 0 is killed, or gets no more requests; -1: never
 *   return-s            when it is there again, with an empty cache; -1: never
 *   retry-s             after which a client repeats what a killed replica had; -1: it gives up
 *   seed                of all
 *
 * Prints one line of JSON, the same for the same options, and what the program itself took as
 * another to stderr. */
#include "config/base/clock.h"
#include "config/base/numbers.h"
#include "scripts/bench/cluster_sim/settings.h"

#include <err.h>
#include <stdio.h>
#include <sys/resource.h>

static void print_summary(const struct cluster *cluster, const struct cluster_settings *settings,
                          int64_t from_ns, int64_t to_ns) {
    struct summary summary;
    if (results_summarise(&cluster->results, &settings->limits, cluster->config.num_replicas,
                          from_ns, to_ns, &summary) != 0)
        errx(1, "memory is short");
    summary_print(&summary, stdout);
}

static void print_windows(const struct cluster *cluster, const struct cluster_settings *settings) {
    int64_t from_ns = CLUSTER_START_NS, window_ns = settings->window_ns;
    printf(", \"windows\": [");
    for (; window_ns > 0 && from_ns + window_ns <= cluster->last_sent_ns; from_ns += window_ns) {
        printf("%s{\"from_s\": %.3f, ", from_ns > CLUSTER_START_NS ? ", " : "",
               (double)(from_ns - CLUSTER_START_NS) / (double)CLOCK_NS_PER_S);
        print_summary(cluster, settings, from_ns, from_ns + window_ns);
        printf("}");
    }
    printf("]");
}

static void print_results(const struct cluster *cluster, const struct cluster_settings *settings) {
    const struct cluster_config *config = &cluster->config;
    int64_t duration_ns = cluster->now_ns - CLUSTER_START_NS;
    double steps = (double)(cluster->num_steps > 0 ? cluster->num_steps : 1);
    printf("{\"op\": \"cluster_sim\", \"device\": \"%s\", \"router\": \"%s\", \"replicas\": %d, "
           "\"conversations\": %llu, \"virtual_s\": %.3f, \"steps\": %llu, \"step_tokens\": %.2f, "
           "\"busy\": %.4f, \"preemptions\": %llu, ",
           settings->device.name, router_name(config->router), config->num_replicas,
           (unsigned long long)cluster->trace.num_conversations, (double)duration_ns * 1e-9,
           (unsigned long long)cluster->num_steps, (double)cluster->num_step_tokens / steps,
           (double)cluster->busy_ns / (double)duration_ns / config->num_replicas,
           (unsigned long long)cluster->num_preemptions);
    print_summary(cluster, settings, CLUSTER_START_NS + settings->warmup_ns,
                  max_int64(cluster->last_sent_ns, CLUSTER_START_NS + settings->warmup_ns) + 1);
    print_windows(cluster, settings);
    printf("}\n");
}

static void print_cost(int64_t start_ns) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "{\"wall_s\": %.2f, \"cpu_s\": %.2f, \"max_rss_mib\": %.0f}\n",
            (double)(clock_now_ns() - start_ns) / (double)CLOCK_NS_PER_S,
            (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec * 1e-6,
            (double)usage.ru_maxrss / 1024.0);
}

int main(int argc, char **argv) {
    int64_t start_ns = clock_now_ns();
    struct cluster_settings settings;
    struct cluster cluster;
    cluster_settings_read(argc, argv, &settings);
    if (cluster_init(&cluster, &settings.cluster) != 0)
        errx(1, "memory is short");
    cluster_run(&cluster);
    print_results(&cluster, &settings);
    cluster_finish(&cluster);
    print_cost(start_ns);
    return 0;
}
