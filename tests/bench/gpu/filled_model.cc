#include "tests/bench/gpu/filled_model.h"

#include "base/device/gpu_memory.h"
#include "base/error.h"

namespace longhaul::bench {
namespace {

constexpr DeviceId kFilledGpu{Device::kCuda, 0};
constexpr std::uint64_t kWeightSeed = 1;

}  // namespace

HeadTable every_other_streaming(const ModelSpec& spec) {
  HeadRoles roles = HeadRoles::all_retrieval(spec.n_layers, spec.n_kv_heads);
  for (std::size_t i = 1; i < roles.roles.size(); i += 2) roles.roles[i] = HeadRole::kStreaming;
  roles.sink = 128;
  roles.recent = 256;
  return duo_attention_heads(spec, roles);
}

std::vector<std::int32_t> some_tokens(std::int64_t n, std::int64_t vocab_size) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(vocab_size));
  }
  return tokens;
}

FilledModel::FilledModel(const FilledModelConfig& config)
    : stream_(kFilledGpu.ordinal),
      n_free_(static_cast<std::int64_t>(stream_.device().free_bytes)),
      weights_(Weights::synthetic(config.spec, config.weights, kWeightSeed, kFilledGpu)),
      weight_type_(config.weights),
      layout_(config.heads, {0, config.spec.n_layers}, config.blocks),
      pool_(layout_.shape(), config.cache_limit_bytes, stream_.ref()),
      compute_(weights_, stream_.ref()),
      transformer_(compute_, layout_),
      own_blocks_(layout_),
      reader_(compute_),
      cache_(layout_, pool_) {
  forward(some_tokens(config.chunk_len, config.spec.vocab_size));  // makes the largest buffers
  compute_.times().end_step();
  stream_.synchronise();
}

bool FilledModel::append(std::int64_t n) {
  compute_.set_rows(n);
  const StepBuffers& b = compute_.buffers();
  const std::vector<std::int32_t> tokens(static_cast<std::size_t>(n));
  const BatchSegment segment = {&cache_, {0, n}, {n_tokens_}};
  try {
    for (const LayerId layer : layout_.layer_ids()) {
      own_blocks_.append(
          stream_.ref(), layer, {.tokens = tokens, .segments = {&segment, 1}},
          compute_.attention_begin(weights_.layer(layer), LayerCompute::Heads::kKeysValues), b.v);
      cache_.trim(layer, {n_tokens_ + n});
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    return false;
  }
  n_tokens_ += n;
  return true;
}

void FilledModel::decode() {
  std::optional<PhaseTimer> whole(std::in_place, compute_.times(), Phase::kWhole);
  std::optional<NotedStep> noted(std::in_place, stream_.ref());
  const TensorView<const float, 2> hidden = forward({1});
  const SamplingParams greedy;
  const LogitsQuestion question = {
      .sequence = SequenceId{0}, .sampling = &greedy, .position = {n_tokens_}};
  std::vector<PickedToken> picked;
  reader_.answer(hidden, {&question, 1}, picked);
  noted.reset();
  whole.reset();
  compute_.times().end_step();
}

void FilledModel::queue_decode() {
  const PhaseTimer whole(compute_.times(), Phase::kWhole);
  const NotedStep noted(stream_.ref());
  compute_.logits(forward({1}));
  submit_noted(stream_.ref());
}

void FilledModel::reserve_scratch() {
  stream_.scratch(static_cast<std::size_t>(kConvertedKeysBytes));
}

ModelWorkArgs FilledModel::work_args() const {
  return {weights_.spec(),
          layout_.heads(),
          weight_type_,
          {layout_.shape().k_type, layout_.shape().v_type, layout_.shape().block_size,
           layout_.shape().head_dim}};
}

TensorView<const float, 2> FilledModel::forward(const std::vector<std::int32_t>& tokens) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  const BatchSegment segment = {&cache_, {0, n}, {n_tokens_}};
  const auto hidden = transformer_.forward(
      {.tokens = tokens, .segments = {&segment, 1}, .wanted = Extent{n - 1, n}});
  n_tokens_ += n;
  return hidden;
}

}  // namespace longhaul::bench
