/* The table. After a change, `migrating.py LIST_OPTIONS docs/migrating.md --write` (config/manual)
 * makes the page. Flags that older versions had are here too. */
#include "config/peer_flags.h"

#include <string.h>

#define V PEER_VLLM
#define L PEER_LLAMA
#define SWITCH PEER_NOTHING
#define MAYBE PEER_MAYBE
#define VALUE PEER_VALUE
#define MANY PEER_MANY
#define SAME PEER_SAME
#define TAKEN PEER_TAKEN
#define NEEDLESS PEER_NEEDLESS
#define NONE PEER_NONE

static const char no_experts[] =
    "experts are divided among --tensor-parallel-size ranks as their shapes allow";
static const char no_lora[] = "see --lora-modules";
static const char text_only[] = "text only";
static const char of_request[] = "set it in each request; --generation-config has the defaults";
static const char one_process[] = "one process serves all clients";
static const char no_mamba[] = "no models with Mamba layers";
static const char draft_methods[] =
    "`\"method\": \"ngram\"`, `\"mtp\"`, or `\"draft_model\"` with a `\"model\"`";
static const char draft_model[] = "`{\"model\": \"DRAFT\", \"num_speculative_tokens\": 5}`";
static const char draft_size[] = "`\"num_speculative_tokens\": N`: as many as pay, at most N";
static const char draft_options[] = "a draft model has the device and options of the model itself";
static const char draft_ngrams[] = "`\"prompt_lookup_max\"` and `\"prompt_lookup_min\"`";
static const char draft_accepted[] = "a draft is accepted if it is the token that is sampled";
static const char whole_model[] = "the whole model is on one device";
static const char no_requests_logged[] = "requests are logged only with --access-log";

static const struct peer_flag table[] = {
    /* --- vLLM: the model --- */
    {"MODEL --model", V, VALUE, SAME, "model", NULL,
     "a GGUF file, a folder, or ORG/NAME of a hub; `quire pull` fetches beforehand"},
    {"--revision", V, VALUE, NONE, "model", "main=", "ORG/NAME@REVISION"},
    {"--code-revision --tokenizer-revision", V, VALUE, NONE, NULL,
     "main=", "one revision for all files: --model ORG/NAME@REVISION"},
    {"--download-dir", V, VALUE, NONE, NULL, NULL, "set HF_HUB_CACHE in the environment"},
    {"--hf-token", V | L, VALUE, NONE, NULL, NULL,
     "set HF_TOKEN in the environment; a token is never an argument"},
    {"HF_TOKEN HF_HOME HF_ENDPOINT HF_HUB_OFFLINE", V | L, SWITCH, TAKEN, NULL, NULL,
     "the same variables"},
    {"--served-model-name", V, MANY, SAME, "served-model-name", NULL, NULL},
    {"--config", V, VALUE, SAME, "config", NULL, "YAML, names as the flags"},
    {"--tokenizer", V, VALUE, NONE, NULL, NULL, "the model's own is used"},
    {"--tokenizer-mode", V, VALUE, NONE, NULL, "auto= hf= slow=", "the model's own is used"},
    {"--skip-tokenizer-init --enable-prompt-embeds", V, SWITCH, NONE, NULL, NULL,
     "prompts are texts or token ids"},
    {"--trust-remote-code", V, MAYBE, TAKEN, NULL, "*=", "code of a model is never run"},
    {"--load-format", V, VALUE, TAKEN, NULL,
     "auto= safetensors= gguf= hf=", "the files say it: safetensors or GGUF"},
    {"--config-format", V, VALUE, TAKEN, NULL, "auto= hf=", "the files say it"},
    {"--hf-overrides", V, VALUE, NONE, "classifier-from-token", NULL,
     "of rerankers: classifier_from_token [\"no\", \"yes\"] is no,yes; otherwise as the model's "
     "files "
     "say"},
    {"--hf-config-path --model-class-overrides --rope-scaling --rope-theta "
     "--model-loader-extra-config --pt-load-map-location --quantization-param-path",
     V, VALUE, NONE, NULL, NULL, "as the model's files say"},
    {"--ignore-patterns", V, MANY, NONE, NULL, NULL, "only the files that are needed are fetched"},
    {"--safetensors-load-strategy --safetensors-prefetch-num-threads "
     "--safetensors-prefetch-block-size --max-parallel-loading-workers",
     V, VALUE, NEEDLESS, NULL, NULL, "files are read once, by several threads"},
    {"--use-tqdm-on-load", V, MAYBE, TAKEN, NULL, NULL, "progress is shown on a terminal"},
    {"--model-impl", V, VALUE, TAKEN, NULL, "auto= vllm=", "there is one implementation"},
    {"--runner --task", V, VALUE, TAKEN, NULL,
     "auto= generate= pooling= embed= embedding= classify= score=",
     "the model's files say it; generation and embeddings together"},
    {"--convert", V, VALUE, TAKEN, NULL, "auto= none= embed= classify=",
     "the model's files say it; generation and embeddings together"},
    {"--generation-config", V, VALUE, SAME, "generation-config", "vllm=none",
     "none is vLLM's vllm"},
    {"--override-generation-config", V, VALUE, NONE, NULL, NULL, "set the fields in each request"},
    {"--logits-processors", V, MANY, NONE, NULL, NULL, NULL},
    {"--io-processor-plugin --logits-processor-pattern --renderer-num-workers", V, VALUE, NONE,
     NULL, NULL, NULL},
    {"--dtype", V, VALUE, SAME, "dtype", "half=float16", "auto, bfloat16, float16"},
    {"-q --quantization", V, VALUE, SAME, "quantization", "gguf=none",
     "only int8, of float weights; how a checkpoint is quantised its config.json says"},
    {"--quantization-config --allow-deprecated-quantization", V, MAYBE, NONE, "quantization", NULL,
     NULL},
    {"--max-model-len", V, VALUE, SAME, "max-model-len", "-1=auto",
     "auto, the default: the model's, or what the KV cache has room for"},
    {"--max-logprobs", V, VALUE, SAME, "max-logprobs", NULL, NULL},
    {"--logprobs-mode", V, VALUE, NONE, NULL, NULL, NULL},
    {"--seed", V, VALUE, SAME, "seed",
     "-1=", "of requests without one, which differ in any case: -1 needs nothing"},
    {"--pooler-config --override-pooler-config", V, VALUE, NONE, "pooling", NULL,
     "auto, last or mean"},
    {"--disable-sliding-window --disable-cascade-attn --use-fp64-gumbel --enable-trace-replay "
     "--enable-return-routed-experts --return-sampling-mask --enable-cumem-allocator "
     "--enable-nccl-comm-suspend",
     V, SWITCH, NONE, NULL, NULL, NULL},
    /* --- vLLM: the front end --- */
    {"--host --port --uds", V, VALUE, SAME, NULL, NULL, "the default host is loopback"},
    {"--root-path", V, VALUE, SAME, "root-path", NULL, NULL},
    {"--api-key", V, MANY, SAME, "api-key", NULL,
     "it guards all but health checks, the chat page and `/openapi.json`; also --api-key-file"},
    {"--ssl-certfile --ssl-keyfile", V, VALUE, SAME, NULL, NULL, "read again on SIGHUP"},
    {"--ssl-ca-certs", V, VALUE, SAME, "ssl-ca-certs", NULL,
     "clients then must show a certificate"},
    {"--ssl-cert-reqs", V, VALUE, NONE, "ssl-ca-certs", "0=", "it requires a client's certificate"},
    {"--ssl-ciphers", V, VALUE, NONE, NULL, NULL, "the system's choice for TLS 1.2 and 1.3"},
    {"--enable-ssl-refresh", V, MAYBE, NONE, NULL, NULL, "files are read again on SIGHUP"},
    {"--allowed-origins --allowed-methods --allowed-headers", V, VALUE, SAME, NULL, NULL,
     "no site by default; vLLM allows all"},
    {"--allow-credentials", V, MAYBE, SAME, "allow-credentials", NULL, NULL},
    {"--chat-template", V, VALUE, SAME, "chat-template", NULL, "a file"},
    {"--trust-request-chat-template", V, MAYBE, SAME, "trust-request-chat-template", NULL,
     "bounded in size and work"},
    {"--default-chat-template-kwargs", V, VALUE, NONE, NULL, NULL,
     "`chat_template_kwargs` of a request"},
    {"--chat-template-content-format", V, VALUE, TAKEN, NULL,
     "auto=", "found in the template itself"},
    {"--response-role", V, VALUE, TAKEN, NULL, "assistant=", "the role is assistant"},
    {"--enable-auto-tool-choice", V, MAYBE, TAKEN, NULL, NULL, "always on"},
    {"--enable-reasoning", V, MAYBE, TAKEN, NULL, NULL, "always on"},
    {"--tool-call-parser", V, VALUE, SAME, "tool-call-parser", NULL,
     "auto, none, hermes, llama3_json, mistral, qwen3_coder, glm45, deepseek_v3, deepseek_v31, "
     "kimi_k2, granite, granite-20b-fc, cohere, openai, pythonic (llama4_pythonic)"},
    {"--tool-parser-plugin --reasoning-parser-plugin --tool-server", V, VALUE, NONE, NULL, NULL,
     NULL},
    {"--exclude-tools-when-tool-choice-none", V, MAYBE, NONE, NULL, NULL, NULL},
    {"--reasoning-parser", V, VALUE, SAME, "reasoning-parser", NULL,
     "auto, none, think (deepseek_r1, deepseek_v3, qwen3, glm45, kimi_k2), granite, granite33, "
     "cohere, openai_gptoss"},
    {"--reasoning-config --diffusion-config -dc", V, VALUE, NONE, NULL, NULL, NULL},
    {"--return-tokens-as-token-ids", V, MAYBE, NONE, NULL, NULL,
     "the request's field of that name"},
    {"--enable-prompt-tokens-details", V, MAYBE, TAKEN, NULL, NULL,
     "`cached_tokens` is always there"},
    {"--enable-force-include-usage", V, MAYBE, NONE, NULL, NULL,
     "`stream_options.include_usage` of a request"},
    {"--enable-request-id-headers", V, MAYBE, TAKEN, NULL, NULL, "`X-Request-Id` is always there"},
    {"--disable-log-requests --disable-uvicorn-access-log", V, MAYBE, TAKEN, NULL, NULL,
     no_requests_logged},
    {"--enable-log-requests", V, MAYBE, NONE, "access-log", NULL,
     "a line of JSON for each, without prompts"},
    {"--enable-log-outputs --enable-log-deltas", V, MAYBE, NONE, NULL, NULL,
     "generated text is never logged"},
    {"--max-log-len", V, VALUE, NONE, "log-prompts", NULL, "the first 2048 bytes of each body"},
    {"--disable-access-log-for-endpoints --log-config-file", V, VALUE, NONE, "access-log", NULL,
     no_requests_logged},
    {"--disable-log-stats", V, MAYBE, NONE, "log-level", NULL,
     "warning; `/metrics` costs nothing when nobody asks"},
    {"--uvicorn-log-level", V, VALUE, SAME, "log-level", "critical=error trace=debug", NULL},
    {"--log-error-stack --enable-per-request-metrics --enable-server-load-tracking "
     "--enable-tokenizer-info-endpoint --tokens-only --aggregate-engine-logging",
     V, MAYBE, NONE, NULL, NULL, NULL},
    {"--disable-fastapi-docs --enable-offline-docs", V, MAYBE, NONE, NULL, NULL,
     "`/openapi.json` is always there, pages for it are not"},
    {"--middleware", V, VALUE, NONE, NULL, NULL, "use a proxy in front"},
    {"--h11-max-incomplete-event-size", V, VALUE, NONE, "max-body-bytes", NULL, NULL},
    {"--h11-max-header-count --fingerprint-mode --fingerprint-value --cohere-format", V, VALUE,
     NONE, NULL, NULL, NULL},
    {"--cohere-is-reasoning-model --enable-flash-late-interaction "
     "--disable-frontend-multiprocessing --fail-on-environ-validation",
     V, MAYBE, NONE, NULL, NULL, NULL},
    {"--shutdown-timeout", V, VALUE, SAME, "shutdown-timeout", NULL,
     "30 seconds by default; vLLM's default is 0"},
    {"-asc --api-server-count", V, VALUE, NONE, NULL, "1=", one_process},
    {"--headless", V, SWITCH, NONE, NULL, NULL, one_process},
    /* --- vLLM: memory and scheduling --- */
    {"--gpu-memory-utilization", V, VALUE, SAME, "gpu-memory-utilization", NULL, "0.9 or 90%"},
    {"--kv-cache-memory-bytes", V, VALUE, SAME, "kv-cache-memory-bytes", NULL, NULL},
    {"--num-gpu-blocks-override", V, VALUE, NONE, "kv-cache-memory-bytes", NULL, "in bytes"},
    {"--kv-cache-dtype", V, VALUE, SAME, "kv-cache-dtype", NULL, "fp8 is e4m3; no e5m2"},
    {"--kv-cache-dtype-skip-layers", V, MANY, NONE, "kv-cache-dtype", NULL, "one type for all"},
    {"--calculate-kv-scales", V, MAYBE, TAKEN, NULL, NULL,
     "int8 and fp8 have a scale for each token and head"},
    {"--block-size", V, VALUE, SAME, "block-size", NULL, "16, 32, 64"},
    {"--swap-space", V, VALUE, SAME, "swap-space", NULL, "GiB"},
    {"--cpu-offload-gb", V, VALUE, NONE, NULL, "0=", whole_model},
    {"--offload-backend --cpu-offload-params --offload-group-size --offload-num-in-group "
     "--offload-prefetch-step --offload-params",
     V, MANY, NONE, NULL, NULL, whole_model},
    {"--kv-offloading-size --kv-offloading-backend", V, VALUE, NONE, "kv-host-bytes", NULL, NULL},
    {"--kv-sharing-fast-prefill", V, MAYBE, NONE, NULL, NULL, NULL},
    {"--max-num-seqs", V, VALUE, SAME, "max-num-seqs", NULL, NULL},
    {"--max-num-batched-tokens", V, VALUE, SAME, "max-num-batched-tokens", NULL, NULL},
    {"--max-num-scheduled-tokens", V, VALUE, NONE, "max-num-batched-tokens", NULL, NULL},
    {"--max-num-queued-reqs", V, VALUE, SAME, "max-queued-requests", NULL, NULL},
    {"--max-num-queued-tokens", V, VALUE, SAME, "max-queued-tokens", NULL, "of one client"},
    {"--max-num-partial-prefills --max-long-partial-prefills --long-prefill-token-threshold "
     "--prefill-schedule-interval",
     V, VALUE, NONE, NULL, NULL, "--max-inter-token-ms bounds what prompts delay"},
    {"--scheduler-reserve-full-isl --disable-chunked-mm-input --disable-hybrid-kv-cache-manager "
     "--disable-async-output-proc --multi-step-stream-outputs --use-v2-block-manager",
     V, MAYBE, NONE, NULL, NULL, NULL},
    {"--watermark --num-lookahead-slots --num-scheduler-steps --scheduler-delay-factor "
     "--preemption-mode --scheduler-cls",
     V, VALUE, NONE, NULL, NULL, NULL},
    {"--stream-interval", V, VALUE, NONE, NULL, "1=", "each token is sent at once"},
    {"--enable-chunked-prefill", V, MAYBE, TAKEN, NULL, NULL, "always on"},
    {"--enable-prefix-caching", V, MAYBE, SAME, "enable-prefix-caching", NULL,
     "on by default; separate for each API key"},
    {"--prefix-caching-hash-algo --prefix-cache-retention-interval --prefix-match-unit", V, VALUE,
     NONE, NULL, NULL, NULL},
    {"--scheduling-policy", V, VALUE, TAKEN, NULL,
     "fcfs= priority=", "`priority` always acts; --trust-client-priority across clients"},
    {"--async-scheduling", V, MAYBE, SAME, "async-scheduling", NULL, "on by default"},
    {"-sc --speculative-config", V, VALUE, SAME, "speculative-config", NULL, draft_methods},
    {"--spec-method", V, VALUE, NONE, "speculative-config", NULL, draft_methods},
    {"--spec-model --speculative-model", V, VALUE, NONE, "speculative-config", NULL, draft_model},
    {"--spec-tokens --num-speculative-tokens", V, VALUE, NONE, "speculative-config", NULL,
     draft_size},
    {"--ngram-prompt-lookup-max --ngram-prompt-lookup-min", V, VALUE, NONE, "speculative-config",
     NULL, draft_ngrams},
    {"--speculative-model-quantization --speculative-draft-tensor-parallel-size -spec-draft-tp "
     "--speculative-max-model-len",
     V, VALUE, NONE, NULL, NULL, draft_options},
    {"--speculative-disable-by-batch-size", V, VALUE, NEEDLESS, NULL, NULL,
     "drafts end where they cost more than they save"},
    {"--spec-decoding-acceptance-method --typical-acceptance-sampler-posterior-threshold "
     "--typical-acceptance-sampler-posterior-alpha",
     V, VALUE, NONE, NULL, NULL, draft_accepted},
    {"--speculative-disable-mqa-scorer --disable-logprobs-during-spec-decoding", V, MAYBE, NONE,
     NULL, NULL, NULL},
    {"--structured-outputs-config --guided-decoding-backend", V, VALUE, TAKEN, NULL, NULL,
     "built in"},
    {"--enforce-eager", V, MAYBE, SAME, "enforce-eager", NULL, "no CUDA graphs; on a GPU only"},
    {"-O --compilation-config -cc --optimization-level --performance-mode "
     "--max-cudagraph-capture-size --max-seq-len-to-capture --attention-backend "
     "--attention-config -ac --kernel-config --ir-op-priority --moe-backend --linear-backend "
     "--gdn-prefill-backend --kda-prefill-backend --jit-monitor-mode",
     V, VALUE, NONE, NULL, NULL, "nothing is compiled at the start; kernels are built in"},
    {"--cudagraph-capture-sizes --cuda-graph-sizes", V, MANY, NONE, NULL, NULL,
     "steps are recorded as they come"},
    {"--enable-flashinfer-autotune --enable-bf16x3-router-gemm --jit-monitor-verbose", V, MAYBE,
     NONE, NULL, NULL, NULL},
    /* --- vLLM: several devices --- */
    {"-tp --tensor-parallel-size", V, VALUE, SAME, "tensor-parallel-size", NULL,
     "ranks of the CPU, or a GPU each"},
    {"-pp --pipeline-parallel-size", V, VALUE, SAME, "pipeline-parallel-size", NULL,
     "stages of the CPU, or a GPU each"},
    {"-dp --data-parallel-size", V, VALUE, NONE, NULL, "1=", "run several servers behind a proxy"},
    {"-dpn --data-parallel-rank -dpr --data-parallel-start-rank -dpl --data-parallel-size-local "
     "-dpa --data-parallel-address -dpp --data-parallel-rpc-port -dpb --data-parallel-backend "
     "--data-parallel-supervisor-port --dp-supervisor-probe-interval-s "
     "--dp-supervisor-probe-timeout-s --dp-supervisor-probe-failure-threshold --dp-sync-interval",
     V, VALUE, NONE, NULL, NULL, "run several servers behind a proxy"},
    {"-dph --data-parallel-hybrid-lb -dpe --data-parallel-external-lb -dpm "
     "--data-parallel-multi-port-external-lb --disable-nccl-for-dp-synchronization",
     V, MAYBE, NONE, NULL, NULL, "run several servers behind a proxy"},
    {"--distributed-executor-backend", V, VALUE, NONE, NULL,
     "mp= uni=", "threads, or processes that mpirun starts"},
    {"--master-addr --master-port --nnodes --node-rank --distributed-timeout-seconds "
     "--cpu-distributed-timeout-seconds --worker-cls --worker-extension-cls",
     V, VALUE, NONE, NULL, NULL, "mpirun starts ranks on several machines"},
    {"--numa-bind --numa-bind-nodes --numa-bind-cpus", V, MAYBE, NONE, "tensor-parallel-size", NULL,
     "a rank for each node"},
    {"--device-ids", V, VALUE, NONE, NULL, NULL, "set CUDA_VISIBLE_DEVICES in the environment"},
    {"--device", V | L, VALUE, SAME, "device", "none=cpu CUDA0=cuda", "auto, cuda, cpu"},
    {"-dcp --decode-context-parallel-size --dcp-comm-backend --dcp-q-replicate "
     "--dcp-kv-cache-interleave-size --cp-kv-cache-interleave-size -pcp "
     "--prefill-context-parallel-size",
     V, VALUE, NONE, NULL, "1=", NULL},
    {"-ep --enable-expert-parallel --enable-ep-weight-filter --enable-elastic-ep --enable-eplb "
     "--enable-dbo --eplb-log-balancedness",
     V, MAYBE, NONE, NULL, NULL, no_experts},
    {"--all2all-backend --dbo-decode-token-threshold --dbo-prefill-token-threshold --eplb-config "
     "--expert-placement-strategy --num-redundant-experts --eplb-window-size "
     "--eplb-step-interval",
     V, VALUE, NONE, NULL, NULL, no_experts},
    {"--ray-workers-use-nsight --disable-custom-all-reduce --enable-batch-sharded-sampling "
     "--enable-fault-tolerance --worker-use-ray --engine-use-ray",
     V, MAYBE, NONE, NULL, NULL, NULL},
    {"--fault-tolerance-config", V, VALUE, NONE, "rank-process", NULL,
     "a crash of the device's process is a pause"},
    /* --- vLLM: the rest --- */
    {"--enable-lora", V, MAYBE, TAKEN, "max-loras", "*=", "room for as many as --max-loras says"},
    {"--lora-modules", V, MANY, SAME, "lora-modules", NULL, NULL},
    {"--max-loras", V, VALUE, SAME, "max-loras", NULL, NULL},
    {"--max-lora-rank", V, VALUE, SAME, "max-lora-rank", NULL, NULL},
    {"--lora-dtype", V, VALUE, SAME, "lora-dtype", NULL, NULL},
    {"--max-cpu-loras", V, VALUE, TAKEN, "max-loras", NULL,
     "every loaded adapter is in its place: --max-loras"},
    {"--enable-lora-bias --fully-sharded-loras --enable-tower-connector-lora "
     "--specialize-active-lora --enable-mixed-moe-lora-format --enable-moe-shared-loras "
     "--enable-prompt-adapter",
     V, MAYBE, NONE, NULL, NULL, no_lora},
    {"--lora-target-modules --prompt-adapters --long-lora-scaling-factors", V, MANY, NONE, NULL,
     NULL, no_lora},
    {"--default-mm-loras "
     "--lora-extra-vocab-size --qlora-adapter-name-or-path --max-prompt-adapters "
     "--max-prompt-adapter-token",
     V, VALUE, NONE, NULL, NULL, no_lora},
    {"--language-model-only", V, MAYBE, TAKEN, NULL, NULL, text_only},
    {"--limit-mm-per-prompt --media-io-kwargs --mm-processor-kwargs --mm-processor-cache-gb "
     "--mm-processor-cache-type --mm-hasher-algorithm --mm-shm-cache-max-object-size-mb "
     "--mm-encoder-tp-mode --mm-encoder-attn-backend --mm-encoder-attn-dtype "
     "--mm-encoder-fp8-scale-path --mm-encoder-fp8-scale-save-path "
     "--mm-encoder-fp8-scale-save-margin --video-pruning-rate --video-pruning-method "
     "--mm-tensor-ipc --mm-processor-device --mm-ipc-gpu-memory-gb --allowed-local-media-path "
     "--ec-transfer-config --ec-manager-config",
     V, VALUE, NONE, NULL, NULL, text_only},
    {"--allowed-media-domains", V, MANY, NONE, NULL, NULL, text_only},
    {"--enable-mm-embeds --mm-encoder-only --interleave-mm-strings --skip-mm-profiling "
     "--mm-device-do-normalize --disable-mm-preprocessor-cache "
     "--enable-multimodal-encoder-data-parallel",
     V, MAYBE, NONE, NULL, NULL, text_only},
    {"--mamba-backend --mamba-ssu-algorithm --mamba-cache-philox-rounds --mamba-cache-dtype "
     "--mamba-ssm-cache-dtype --mamba-block-size --mamba-cache-mode --replayssm-buffer-len",
     V, VALUE, NONE, NULL, NULL, no_mamba},
    {"--enable-mamba-cache-stochastic-rounding --use-replayssm", V, MAYBE, NONE, NULL, NULL,
     no_mamba},
    {"--otlp-traces-endpoint", V, VALUE, SAME, "otlp-traces-endpoint", NULL,
     "HTTP or HTTPS with JSON, not gRPC"},
    {"--collect-detailed-traces --show-hidden-metrics-for-version --kv-cache-metrics-sample "
     "--profiler-config",
     V, VALUE, NONE, NULL, NULL, NULL},
    {"--kv-cache-metrics --cudagraph-metrics --enable-layerwise-nvtx-tracing --enable-mfu-metrics "
     "--enable-logging-iteration-details --per-request-spec-decode-metrics",
     V, MAYBE, NONE, NULL, NULL, "`/metrics` has what is measured"},
    {"--kv-events-config", V, VALUE, SAME, "kv-events-config", NULL,
     "the same JSON; `hwm` is 1000 by default; `bind` is new"},
    {"--kv-transfer-config", V, VALUE, SAME, "kv-role", NULL,
     "of the JSON `kv_role` counts; what is handed over goes through --kv-store, whatever the "
     "connector's name"},
    {"--weight-transfer-config --additional-config --override-neuron-config "
     "--tokenizer-pool-size --tokenizer-pool-type --tokenizer-pool-extra-config",
     V, VALUE, NONE, NULL, NULL, NULL},
    {"VLLM_API_KEY", V, SWITCH, NONE, "api-key", NULL,
     "or QUIRE_API_KEY; every option has such a variable"},
    {"VLLM_SERVER_DEV_MODE --enable-sleep-mode", V, MAYBE, NONE, "enable-admin", NULL,
     "`/sleep` waits for what is in flight unless `mode=abort`; for administrators"},
    {"VLLM_BATCH_INVARIANT", V, SWITCH, NONE, "batch-invariant", NULL, "always so on the CPU"},

    /* --- llama-server: the model --- */
    {"-m --model", L, VALUE, SAME, "model", NULL, NULL},
    {"-a --alias", L, VALUE, SAME, "served-model-name", NULL,
     "another name in a request is a 404; with a second --served-model-name '*' any name is taken"},
    {"-hf -hfr --hf-repo", L, VALUE, SAME, "model", NULL,
     "`ORG/NAME:Q4_K_M`, `ORG/NAME:FILE.gguf`; the same cache as Python's"},
    {"-hff --hf-file", L, VALUE, NONE, "model", NULL, "ORG/NAME:FILE.gguf"},
    {"-hft", L, VALUE, NONE, NULL, NULL, "set HF_TOKEN in the environment"},
    {"--offline", L, SWITCH, NONE, NULL, NULL, "set HF_HUB_OFFLINE=1 in the environment"},
    {"-mu --model-url", L, VALUE, SAME, "model", NULL, "the address of a file of the hub"},
    {"-dr --docker-repo", L, VALUE, NONE, "model", NULL, "ORG/NAME of a hub, not of Docker's"},
    {"--check-tensors", L, SWITCH, NONE, "verify-weights", NULL, "by their SHA-256"},
    {"--override-kv", L, VALUE, NONE, NULL, NULL, "as the model's file says"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     L, VALUE, NONE, NULL, NULL, "as the model's file says"},
    {"--no-mmap", L, SWITCH, TAKEN, NULL, NULL, "files are read once and never mapped"},
    {"--mmap --direct-io -dio", L, SWITCH, NONE, NULL, NULL,
     "files are read once and never mapped"},
    {"-lm --load-mode", L, VALUE, NONE, NULL,
     "auto= none=", "files are read once and never mapped"},
    {"-lzm --lazy-mode", L, VALUE, NONE, NULL, "auto= off=", "weights are in memory"},
    {"--mlock", L, SWITCH, NONE, NULL, NULL,
     "weights are in memory but not locked: turn swapping off for the service"},
    {"--repack", L, SWITCH, TAKEN, NULL, NULL, "always so on the CPU"},
    {"-nr --no-host", L, SWITCH, NONE, NULL, NULL, NULL},
    {"--lora --lora-scaled", L, VALUE, NONE, NULL, NULL, no_lora},
    {"--lora-init-without-apply", L, SWITCH, NONE, NULL, NULL, no_lora},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", L, MANY, NONE, NULL,
     NULL, NULL},
    {"-mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device --image-min-tokens --image-max-tokens "
     "--mtmd-batch-max-tokens --video-fps --video-timestamp-interval --video-ffmpeg-dir "
     "--media-path",
     L, VALUE, NONE, NULL, NULL, text_only},
    {"--no-mmproj --no-mmproj-auto --no-mmproj-offload", L, SWITCH, TAKEN, NULL, NULL, text_only},
    {"--mmproj-auto --mmproj-offload", L, SWITCH, NONE, NULL, NULL, text_only},
    /* --- llama-server: context, slots and batches --- */
    {"-c --ctx-size", L, VALUE, SAME, "max-model-len", NULL,
     "of each sequence, not divided by slots"},
    {"--kv-unified-per-slot", L, VALUE, SAME, "max-model-len", NULL, NULL},
    {"-np --parallel", L, VALUE, SAME, "max-num-seqs", "-1=0",
     "a limit that costs little, not a division"},
    {"-b --batch-size", L, VALUE, SAME, "max-num-batched-tokens", NULL, NULL},
    {"-ub --ubatch-size", L, VALUE, NEEDLESS, NULL, NULL, "--max-num-batched-tokens bounds a step"},
    {"-n --predict --n-predict", L, VALUE, NONE, NULL, "-1=", "`max_tokens` of a request"},
    {"--keep", L, VALUE, NONE, NULL, "0=", "prompts are never cut"},
    {"--swa-full", L, SWITCH, TAKEN, NULL, NULL,
     "windowed layers keep their window; what left it stays in the prefix cache while there is "
     "room"},
    {"-cb --cont-batching", L, SWITCH, TAKEN, NULL, NULL, "always on"},
    {"-nocb --no-cont-batching", L, SWITCH, NONE, NULL, NULL, "continuous batching is always on"},
    {"-fa --flash-attn", L, MAYBE, TAKEN, NULL, NULL,
     "attention never writes the matrix of scores out"},
    {"-ctk -ctv --cache-type-k --cache-type-v", L, VALUE, SAME, "kv-cache-dtype", "q8_0=int8",
     "one type for both: f32, f16, bf16, int8 (q8_0), fp8"},
    {"-kvu --kv-unified", L, SWITCH, TAKEN, NULL, NULL, "sequences share one pool"},
    {"-no-kvu --no-kv-unified", L, SWITCH, NONE, NULL, NULL, "sequences share one pool"},
    {"--cache-prompt", L, SWITCH, SAME, "enable-prefix-caching", NULL,
     "whole blocks of equal prefixes"},
    {"--cache-reuse", L, VALUE, NONE, "enable-prefix-caching",
     "0=", "whole blocks of equal prefixes; nothing is shifted"},
    {"-cram --cache-ram", L, VALUE, NONE, "enable-prefix-caching", NULL,
     "in the KV cache itself: --kv-cache-memory-bytes"},
    {"--cache-idle-slots", L, SWITCH, TAKEN, NULL, NULL, "freed blocks can be found again"},
    {"-ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step -sps "
     "--slot-prompt-similarity -dt --defrag-thold",
     L, VALUE, NEEDLESS, NULL, NULL, "the KV cache is made of blocks"},
    {"--context-shift", L, SWITCH, NONE, NULL, NULL, "the output ends with `length`"},
    {"--slots", L, SWITCH, TAKEN, NULL, NULL, "`/slots` says how many sequences run"},
    {"--slot-save-path", L, VALUE, NONE, "kv-store", NULL,
     "`POST /slots/{id}?action=save` then works, with --enable-admin"},
    {"-lcs --lookup-cache-static -lcd --lookup-cache-dynamic", L, VALUE, NONE, "speculative-config",
     NULL, "n-grams are those of the text itself"},
    {"--warmup", L, SWITCH, TAKEN, NULL, NULL, "one token is computed before the first request"},
    /* --- llama-server: processors --- */
    {"-t --threads", L, VALUE, SAME, "threads", "-1=0", NULL},
    {"-tb --threads-batch", L, VALUE, NEEDLESS, NULL, NULL,
     "--threads is for prompts and output alike"},
    {"--threads-http", L, VALUE, NEEDLESS, NULL, NULL, "one thread serves all connections"},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb "
     "--cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch",
     L, VALUE, NONE, NULL, NULL, "use taskset, or CPUAffinity= and Nice= of the systemd unit"},
    {"--numa", L, VALUE, NONE, "tensor-parallel-size", NULL, "a rank for each node"},
    {"-ngl --gpu-layers --n-gpu-layers", L, VALUE, SAME, "device",
     "0=cpu *=", "all layers are on one device: the GPU if there is one; 0 is --device cpu"},
    {"-sm --split-mode -ts --tensor-split -mg --main-gpu", L, VALUE, NONE, "tensor-parallel-size",
     "none= layer= 0=", "a GPU for each rank, in equal parts"},
    {"-dev", L, VALUE, SAME, "device", "none=cpu CUDA0=cuda", "auto, cuda, cpu"},
    {"--list-devices", L, SWITCH, NONE, NULL, NULL, "`quire --version` and nvidia-smi"},
    {"-ot --override-tensor -ncmoe --n-cpu-moe --moe-cache-mib -ncffn --n-cpu-ffn --rpc", L, VALUE,
     NONE, NULL, NULL, whole_model},
    {"-cmoe --cpu-moe", L, SWITCH, NONE, NULL, NULL, whole_model},
    {"-kvo --kv-offload --op-offload", L, SWITCH, TAKEN, NULL, NULL,
     "everything is computed on the device"},
    {"-nkvo --no-kv-offload --no-op-offload", L, SWITCH, NONE, NULL, NULL,
     "everything is computed on the device"},
    {"-fit --fit", L, MAYBE, TAKEN, NULL, NULL, "--max-model-len auto: as long as fits"},
    {"-fitt --fit-target", L, VALUE, NONE, "gpu-memory-utilization", NULL, NULL},
    {"-fitc --fit-ctx", L, VALUE, NONE, "max-model-len", NULL, NULL},
    {"-bs --backend-sampling --perf", L, SWITCH, NONE, NULL, NULL, NULL},
    /* --- llama-server: sampling and grammars --- */
    {"--temp --temperature --top-k --top-p --min-p", L, VALUE, NONE, NULL, NULL, of_request},
    {"--repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty -l --logit-bias "
     "-r --reverse-prompt",
     L, VALUE, NONE, NULL, NULL, of_request},
    {"--ignore-eos -sp --special", L, SWITCH, NONE, NULL, NULL, of_request},
    {"--mirostat --mirostat-lr --mirostat-ent --dry-multiplier --dry-base --dry-allowed-length "
     "--dry-penalty-last-n --dry-sequence-breaker --xtc-probability --xtc-threshold --typical "
     "--typical-p --top-nsigma --top-n-sigma --dynatemp-range --dynatemp-exp",
     L, VALUE, NONE, NULL, NULL,
     "fields of a request with the names of llama.cpp's server; defaults from "
     "--generation-config"},
    {"--adaptive-target --adaptive-decay", L, VALUE, NONE, NULL, NULL, NULL},
    {"--samplers --sampler-seq --sampling-seq", L, VALUE, NONE, NULL, NULL,
     "the order is one: DRY, penalties, top-nσ, temperature, `min_p`, `top_k`, `top_p`, "
     "`typical_p`, XTC; `samplers` with another one is a 400"},
    {"-s --seed", L, VALUE, SAME, "seed",
     "-1=", "of requests without one, which differ in any case: -1 needs nothing"},
    {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", L, VALUE, NONE, NULL, NULL,
     "`grammar`, `json_schema`, `response_format` or `structured_outputs` of a request"},
    {"-e --escape", L, SWITCH, NONE, NULL, NULL, "prompts are taken as they are"},
    {"-md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf", L, VALUE,
     NONE, "speculative-config", NULL, draft_model},
    {"--spec-type", L, VALUE, NONE, "speculative-config", NULL, draft_methods},
    {"--spec-draft-n-max --draft --draft-n --draft-max", L, VALUE, NONE, "speculative-config", NULL,
     draft_size},
    {"--spec-draft-n-min --draft-min --draft-n-min", L, VALUE, NEEDLESS, NULL, NULL,
     "what a draft costs is measured, and as many are made as pay"},
    {"--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match "
     "--spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits "
     "--spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits "
     "--spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits "
     "--spec-ngram-size-n --spec-ngram-size-m --spec-ngram-min-hits",
     L, VALUE, NONE, "speculative-config", NULL, draft_ngrams},
    {"--spec-default", L, SWITCH, NONE, "speculative-config", NULL, draft_methods},
    {"--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd "
     "--threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd "
     "--cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft "
     "--spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft "
     "--spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch "
     "--prio-batch-draft --spec-draft-poll-batch --poll-batch-draft --spec-draft-override-tensor "
     "-otd --override-tensor-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed "
     "--n-cpu-moe-draft --spec-draft-device -devd "
     "--device-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft "
     "--spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd "
     "--cache-type-v-draft",
     L, VALUE, NONE, NULL, NULL, draft_options},
    {"--spec-draft-cpu-moe -cmoed --cpu-moe-draft", L, SWITCH, NONE, NULL, NULL, draft_options},
    {"--spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split --spec-draft-p-min "
     "--draft-p-min --spec-draft-sampling",
     L, VALUE, NONE, NULL, NULL, draft_accepted},
    {"--spec-draft-backend-sampling", L, SWITCH, NONE, NULL, NULL, draft_accepted},
    /* --- llama-server: the front end --- */
    {"--host --port", L, VALUE, SAME, NULL, NULL, "a path ending in .sock is --uds"},
    {"--reuse-port", L, SWITCH, NONE, NULL, NULL, NULL},
    {"--api-prefix", L, VALUE, SAME, "root-path", NULL, NULL},
    {"--api-key --api-key-file", L, VALUE, SAME, NULL, NULL,
     "--api-key is repeated, not separated by commas"},
    {"--ssl-key-file", L, VALUE, SAME, "ssl-keyfile", NULL, NULL},
    {"--ssl-cert-file", L, VALUE, SAME, "ssl-certfile", NULL, NULL},
    {"--cors-origins", L, VALUE, SAME, "allowed-origins", NULL, "no site by default"},
    {"--cors-methods", L, VALUE, SAME, "allowed-methods", NULL, NULL},
    {"--cors-headers", L, VALUE, SAME, "allowed-headers", NULL, NULL},
    {"--cors-credentials", L, SWITCH, SAME, "allow-credentials", NULL, "off by default"},
    {"-to --timeout", L, VALUE, NONE, "queue-timeout", NULL, "and `timeout_ms` of a request"},
    {"--sse-ping-interval", L, VALUE, SAME, "sse-ping-interval", NULL, "10 by default, not 30"},
    {"--metrics", L, SWITCH, TAKEN, NULL, NULL, "always there, with vLLM's names"},
    {"--props", L, SWITCH, NONE, NULL, NULL,
     "`/props` can be read, `POST` is a 501; --admin-socket for what can be changed"},
    {"--embedding --embeddings", L, SWITCH, TAKEN, NULL, NULL, "in addition to generation"},
    {"--pooling", L, VALUE, SAME, "pooling", NULL, "auto, last, mean"},
    {"--embd-normalize", L, VALUE, NONE, NULL, "2=", "embeddings have length 1"},
    {"--rerank --reranking", L, SWITCH, TAKEN, NULL, NULL,
     "`/v1/rerank`: with a reranker its scores, else similarity of embeddings"},
    {"--spm-infill", L, SWITCH, NONE, NULL, NULL, "`/infill` writes prefix, suffix, middle"},
    {"--jinja", L, SWITCH, TAKEN, NULL, NULL, "always on"},
    {"--chat-template --chat-template-file", L, VALUE, SAME, "chat-template", NULL,
     "a file, not a name as chatml; by default the model's own"},
    {"--chat-template-kwargs", L, VALUE, NONE, NULL, NULL, "`chat_template_kwargs` of a request"},
    {"--skip-chat-parsing", L, SWITCH, NONE, "tool-call-parser", NULL,
     "none, and --reasoning-parser none"},
    {"--prefill-assistant", L, SWITCH, NONE, NULL, NULL, "`continue_final_message` of a request"},
    {"--reasoning-format", L, VALUE, SAME, "reasoning-parser", "none=none auto=auto deepseek=auto",
     "none or auto"},
    {"-rea --reasoning", L, MAYBE, NONE, NULL,
     "auto=", "`enable_thinking` in `chat_template_kwargs` of a request"},
    {"--reasoning-effort", L, VALUE, NONE, NULL, "default=", "`reasoning_effort` of a request"},
    {"--reasoning-budget", L, VALUE, NONE, NULL, "-1=", "`thinking_token_budget` of a request"},
    {"--reasoning-budget-message", L, VALUE, NONE, NULL, NULL, NULL},
    {"--reasoning-preserve", L, SWITCH, NONE, NULL, NULL, "as the chat template does"},
    {"--ui --webui", L, SWITCH, TAKEN, NULL, NULL, "the chat page is always at `/`"},
    {"--path --ui-config --webui-config --ui-config-file --webui-config-file", L, VALUE, NONE, NULL,
     NULL, "the chat page is always at `/`"},
    {"--tools --tools-runtime --mcp-servers-config --mcp-servers-json", L, VALUE, NONE, NULL, NULL,
     "tools are run by the client, never by the server"},
    {"-ag --agent --ui-mcp-proxy --webui-mcp-proxy", L, SWITCH, NONE, NULL, NULL,
     "tools are run by the client, never by the server"},
    {"--log-file", L, VALUE, NONE, "access-log", NULL, "the log itself goes to stderr"},
    {"--log-jsonl", L, SWITCH, NONE, "access-log", NULL, "the log itself goes to stderr"},
    {"--log-prompts-dir", L, VALUE, NONE, "log-prompts", NULL, NULL},
    {"--log-colors", L, VALUE, NONE, NULL, "auto= off=", "the log has no colours"},
    {"--log-prefix --log-timestamps", L, SWITCH, TAKEN, NULL, NULL, "lines have time and level"},
    {"--log-disable", L, SWITCH, NONE, "log-level", NULL, "error"},
    {"-v --verbose --log-verbose", L, SWITCH, NONE, "log-level", NULL, "debug"},
    {"-lv --verbosity --log-verbosity", L, VALUE, SAME, "log-level",
     "0=error 1=error 2=warning 3=info 4=debug 5=debug", NULL},
    {"--tags", L, VALUE, NONE, NULL, NULL, "models have names and aliases only"},
    {"--models-dir", L, VALUE, SAME, "models-dir", NULL, NULL},
    {"--models-max", L, VALUE, SAME, "models-max", NULL, "0 is the default, there 4"},
    {"--models-preset", L, VALUE, NONE, "config", NULL, "`models:` of the YAML file"},
    {"--models-autoload", L, SWITCH, TAKEN, NULL, NULL, "a model is loaded when it is requested"},
    {"--sleep-idle-seconds", L, VALUE, SAME, "sleep-idle-seconds", "-1=0",
     "only the KV cache, not the weights; off is 0, there -1"},
    {"--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default "
     "--fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default "
     "--gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default",
     L, SWITCH, NONE, "model", NULL, "ORG/NAME of a hub"},
    {"-cl --cache-list", L, SWITCH, NONE, NULL, NULL, "`quire list`"},
    {"--completion-bash", L, SWITCH, NONE, NULL, NULL, "installed with the package"},

    /* --- Names of other programs, only to be explained --- */
    {"--context-length --context-size --context --ctx --num-ctx --max-total-tokens "
     "--max-input-tokens --max-seq-len --max-context-length",
     PEER_OTHER, VALUE, NONE, "max-model-len", NULL, NULL},
    {"--model-path --model-id --model-name --path-to-model --hf", PEER_OTHER, VALUE, NONE, "model",
     NULL, NULL},
    {"--mem-fraction-static --cuda-memory-fraction --gpu-memory", PEER_OTHER, VALUE, NONE,
     "gpu-memory-utilization", NULL, NULL},
    {"--max-running-requests --max-concurrent-requests --num-parallel --slots-count "
     "--max-batch-size --concurrency",
     PEER_OTHER, VALUE, NONE, "max-num-seqs", NULL, NULL},
    {"--chunked-prefill-size --max-batch-prefill-tokens --max-prefill-tokens", PEER_OTHER, VALUE,
     NONE, "max-num-batched-tokens", NULL, NULL},
    {"--tp --tp-size --num-shard", PEER_OTHER, VALUE, NONE, "tensor-parallel-size", NULL, NULL},
    {"--listen --bind --address --hostname", PEER_OTHER, VALUE, NONE, "host", NULL, NULL},
    {"--keys-file --key-file --keys", PEER_OTHER, VALUE, NONE, "api-key-file", NULL, NULL},
    {"--cert --certificate --tls-cert", PEER_OTHER, VALUE, NONE, "ssl-certfile", NULL, NULL},
    {"--tls-key --private-key", PEER_OTHER, VALUE, NONE, "ssl-keyfile", NULL, NULL},
    {"--kv-cache-type --kv-type --cache-type", PEER_OTHER, VALUE, NONE, "kv-cache-dtype", NULL,
     NULL},
    {"--cache-size --kv-cache-size --kv-cache-memory", PEER_OTHER, VALUE, NONE,
     "kv-cache-memory-bytes", NULL, NULL},
    {"--num-threads --cpu-threads --n-threads --workers", PEER_OTHER, VALUE, NONE, "threads", NULL,
     NULL},
    {"--disable-radix-cache --disable-prefix-caching", PEER_OTHER, SWITCH, NONE,
     "no-enable-prefix-caching", NULL, NULL},
    {"--max-tokens --max-new-tokens --num-predict --stop --system", PEER_OTHER, VALUE, NONE, NULL,
     NULL, of_request},
};

#define NUM_FLAGS (sizeof(table) / sizeof(table[0]))

const struct peer_flag *peer_flags(size_t *out_count) {
    *out_count = NUM_FLAGS;
    return table;
}

static char normalised(char c) {
    return c == '_' ? '-' : c;
}

static bool has_name(const char *names, const char *name, size_t length) {
    while (*names != '\0') {
        size_t count = strcspn(names, " "), same = 0;
        while (same < length && same < count && normalised(name[same]) == names[same])
            same++;
        if (same == length && same == count)
            return true;
        names += count + (names[count] == ' ');
    }
    return false;
}

const struct peer_flag *peer_flag_find(const char *name, size_t length) {
    for (size_t i = 0; i < NUM_FLAGS && name[0] == '-'; i++)
        if (has_name(table[i].names, name, length))
            return &table[i];
    return NULL;
}

const char *peer_flag_owner(const struct peer_flag *flag) {
    switch (flag->peers) {
    case PEER_VLLM:
        return "vLLM";
    case PEER_LLAMA:
        return "llama-server";
    case PEER_VLLM | PEER_LLAMA:
        return "vLLM and llama-server";
    default:
        return "another server";
    }
}

bool peer_flag_map(const struct peer_flag *flag, const char *value, const char **out,
                   size_t *out_length) {
    size_t wanted = strlen(value);
    for (const char *pair = flag->values; pair != NULL && *pair != '\0';) {
        size_t given = strcspn(pair, "="), ours = strcspn(pair + given + 1, " ");
        if ((given == wanted && memcmp(pair, value, given) == 0) ||
            (given == 1 && pair[0] == '*')) {
            *out = pair + given + 1;
            *out_length = ours;
            return true;
        }
        pair += given + 1 + ours;
        pair += *pair == ' ';
    }
    return false;
}
