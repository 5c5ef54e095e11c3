#include "tools/identify/two_way_pass.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/backward/mix_heads.h"
#include "kernels/backward/rows_backward.h"
#include "kernels/rms_norm.h"
#include "tools/identify/device_rows.h"

namespace longhaul {
namespace {

using Matrix = DeviceTensor<float, 2>;
using Heads = DeviceTensor<float, 3>;
constexpr TokenSet kWholeText{0, 0};

// Of a pass' time, for progress: the teacher reads the whole text.
constexpr double kTeacherShare = 0.7;
constexpr double kStudentShare = 0.1;

std::span<const std::int64_t> part_of(const std::vector<std::int64_t>& all, Extent rows) {
  return std::span(all).subspan(static_cast<std::size_t>(rows.begin),
                                static_cast<std::size_t>(rows.size()));
}

// Rows [n] in tiles of `tile`: body(rows).
template <typename Body>
void for_tiles(std::int64_t n, std::int64_t tile, const Body& body) {
  for (std::int64_t begin = 0; begin < n; begin += tile)
    body(Extent{begin, std::min(n, begin + tile)});
}

template <typename T>
std::size_t bytes_of(const std::vector<T>& tensors) {
  std::size_t sum = 0;
  for (const T& tensor : tensors) sum += static_cast<std::size_t>(tensor.size()) * sizeof(float);
  return sum;
}

KvBlockShape shape_of(const ModelSpec& spec, const TwoWayConfig& config) {
  return {.block_size = config.block_size,
          .head_dim = spec.head_dim,
          .k_type = config.kv_type,
          .v_type = config.kv_type};
}

}  // namespace

std::vector<std::uint8_t> trained_gates(const ModelSpec& spec) {
  std::vector<std::uint8_t> out;
  for (const std::int64_t window : spec.attention_window)
    out.insert(out.end(), static_cast<std::size_t>(spec.n_kv_heads),
               window == ModelSpec::kNoWindow ? 1 : 0);
  return out;
}

// The text, and which of its tokens are whose.
struct TwoWayPass::Text {
  std::span<const std::int32_t> tokens;
  std::int64_t n_answer = 0;
  TokenDeal deal;
  std::vector<TokenSet> sets;                        // [n_layers + 1] of the student
  std::vector<std::vector<std::int64_t>> positions;  // the same, of this rank
  std::int64_t n_own_answers = 0;                    // the last rows of the last set
};

// What the forward passes leave to the backward pass, of this rank's rows.
struct TwoWayPass::Kept {
  std::vector<Heads> teacher;  // [n_layers] attention outputs of the rows that a layer writes
  Matrix teacher_hidden;       // [answers, d_model], before the final norm
  std::vector<Matrix> input;   // [n_layers + 1] the student's
  std::vector<Matrix> middle;  // [n_layers]
};

TwoWayPass::TwoWayPass(const Weights& weights, const TwoWayConfig& config, Communicator& comm)
    : weights_(weights),
      spec_(weights.spec()),
      config_(config),
      stream_(config.stream),
      comm_(comm),
      shape_(shape_of(spec_, config)),
      dense_(dense_heads(spec_), {0, spec_.n_layers}, shape_),
      streaming_(streaming_heads(spec_, {.sink = config.window.sink,
                                         .recent = config.window.recent,
                                         .positions = SinkPositions::kAbsolute}),
                 {0, spec_.n_layers}, shape_),
      compute_(weights, stream_),
      dense_work_(spec_, dense_, stream_),
      streaming_work_(spec_, streaming_, stream_),
      keys_(stream_, comm, shape_, spec_.n_kv_heads),
      backward_(spec_, comm, stream_),
      sm_scale_(spec_.sm_scale()) {
  require(config.tile_rows >= 1, "TwoWayPass: tiles without rows");
  config_.tile_rows = ceil_div(config.tile_rows, config.block_size) * config.block_size;
  const DType type = weights.layer({0}).q.dtype;
  if (type != DType::kF32 && type != DType::kBf16) {
    throw Error(ErrorCode::kInvalidArgument,
                "heads are looked for with weights of f32 or bf16: others have no gradients; "
                "give --weights bf16");
  }
}

bool TwoWayPass::has_gates(LayerId number) const {
  return spec_.attention_window[static_cast<std::size_t>(number.value)] == ModelSpec::kNoWindow;
}

void TwoWayPass::note(const Kept& kept) {
  const std::size_t bytes = bytes_of(kept.teacher) + bytes_of(kept.input) + bytes_of(kept.middle) +
                            keys_.bytes() + compute_.buffer_bytes();
  peak_bytes_ = std::max(peak_bytes_, bytes);
}

void TwoWayPass::progressed(double share) const {
  if (config_.on_progress) config_.on_progress(share);
}

void TwoWayPass::embed(const Text& text, const std::vector<std::int64_t>& positions,
                       const TensorView<float, 2>& to) {
  std::vector<std::int32_t> tokens;
  for (const std::int64_t position : positions)
    tokens.push_back(text.tokens[static_cast<std::size_t>(position)]);
  for_tiles(to.dim(0), config_.tile_rows, [&](Extent rows) {
    take(to.slice(0, rows), part_of(positions, rows));
    compute_.embed(std::span(tokens).subspan(static_cast<std::size_t>(rows.begin),
                                             static_cast<std::size_t>(rows.size())));
  });
}

void TwoWayPass::take(const TensorView<float, 2>& hidden, std::span<const std::int64_t> positions) {
  compute_.set_rows(hidden.dim(0));
  std::copy(positions.begin(), positions.end(), compute_.buffers().positions.begin());
  compute_.set_angles();
  compute_.buffers().hidden = hidden;
}

// Keys and values of a layer from what its tokens read, on every rank.
void TwoWayPass::fill_keys(LayerId number, const Text& text, const TokenSet& set,
                           const TensorView<float, 2>& hidden,
                           const std::vector<std::int64_t>& positions) {
  const LayerWeights& layer = weights_.layer(number);
  StepBuffers& b = compute_.buffers();
  keys_.begin(text.deal, set);
  observed_keys_ = {};  // frees those of the layer before
  Heads own_keys;
  if (observe_ != nullptr)
    own_keys = Heads(stream_, {hidden.dim(0), spec_.n_kv_heads, spec_.head_dim});
  for_tiles(hidden.dim(0), config_.tile_rows, [&](Extent rows) {
    take(hidden.slice(0, rows), part_of(positions, rows));
    compute_.norm_for_attention(layer);
    compute_.project_keys_values(layer, b.k, b.v);
    keys_.append(b.k, b.v);
    if (observe_ != nullptr)
      copy_floats(stream_, own_keys.view()[rows.begin].data(), b.k.data(), b.k.size());
  });
  keys_.gather();
  if (observe_ != nullptr)
    observed_keys_ = gather_rows(stream_, comm_, text.deal, set, std::move(own_keys));
}

// Outputs of the rows' heads, in compute_'s state.
void TwoWayPass::attend(LayerId number, AttentionWork& work) {
  const LayerWeights& layer = weights_.layer(number);
  StepBuffers& b = compute_.buffers();
  compute_.norm_for_attention(layer);
  compute_.project_queries(layer, b.q);
  clear(stream_, b.state);
  const QueryRows queries{
      .kv_heads = {0, spec_.n_kv_heads}, .positions = b.positions, .q = b.q, .state = b.state};
  work.begin(number);
  for (const KvHeadId head : IdRange<KvHeadId>(spec_.n_kv_heads))
    work.add(queries, head, {0, b.q.dim(0)}, {.closed = keys_.blocks(head.value)});
  work.run(compute_.order());
  compute_.finish_states(layer, b.state);
}

void TwoWayPass::run_teacher_layer(LayerId number, const Text& text,
                                   const TensorView<float, 2>& hidden,
                                   const std::vector<std::int64_t>& positions, Kept& kept) {
  const LayerWeights& layer = weights_.layer(number);
  const auto at = static_cast<std::size_t>(number.value);
  fill_keys(number, text, kWholeText, hidden, positions);
  const TokenSet& wanted = text.sets[at + 1];
  const std::int64_t width = spec_.n_heads * spec_.head_dim;
  Heads& outputs = kept.teacher[at];
  const bool keeps = has_gates(number) && observe_ == nullptr;
  if (keeps) {
    outputs = Heads(stream_, {static_cast<std::int64_t>(text.positions[at + 1].size()),
                              spec_.n_heads, spec_.head_dim});
  }
  // Of the last layer only the answers are computed: they end the text, and so this rank's rows.
  const bool is_last = number.value + 1 == spec_.n_layers;
  const std::int64_t n_rows = hidden.dim(0);
  const std::int64_t first =
      is_last ? n_rows - static_cast<std::int64_t>(text.positions[at + 1].size()) : 0;
  std::int64_t n_kept = 0;
  for_tiles(n_rows - first, config_.tile_rows, [&](Extent tile) {
    const Extent rows{first + tile.begin, first + tile.end};
    take(hidden.slice(0, rows), part_of(positions, rows));
    attend(number, dense_work_);
    const StepBuffers& b = compute_.buffers();
    if (observe_ != nullptr && has_gates(number)) {
      (*observe_)({.layer = number,
                   .positions = b.positions,
                   .q = b.q,
                   .m = b.state.m,
                   .l = b.state.l,
                   .k = observed_keys_.view(),
                   .sm_scale = sm_scale_});
    }
    if (keeps) {
      const RowParts parts = rows_in(b.positions, wanted);
      copy_parts(stream_, outputs.data() + n_kept * width, b.state.o.data(), width, parts);
      n_kept += parts.size();
    }
    compute_.project_outputs(layer, b.state.o, compute_.residual());
    compute_.feed_forward(layer, compute_.residual());
    progressed((observe_ != nullptr ? 1 : kTeacherShare) *
               (static_cast<double>(number.value) +
                static_cast<double>(tile.end) / static_cast<double>(n_rows - first)) /
               static_cast<double>(spec_.n_layers));
  });
}

void TwoWayPass::run_teacher(const Text& text, Kept& kept) {
  const std::vector<std::int64_t> positions = text.deal.positions(kWholeText, comm_.rank());
  const auto n_rows = static_cast<std::int64_t>(positions.size());
  const Matrix hidden(stream_, {n_rows, spec_.d_model});
  embed(text, positions, hidden.view());
  kept.teacher.resize(static_cast<std::size_t>(spec_.n_layers));
  for (const LayerId number : IdRange<LayerId>(spec_.n_layers))
    run_teacher_layer(number, text, hidden.view(), positions, kept);
  if (observe_ != nullptr) return;
  kept.teacher_hidden = Matrix(stream_, {text.n_own_answers, spec_.d_model});
  copy_floats(stream_, kept.teacher_hidden.data(),
              hidden.data() + (n_rows - text.n_own_answers) * spec_.d_model,
              text.n_own_answers * spec_.d_model);
  note(kept);
  peak_bytes_ = std::max(peak_bytes_, bytes_of(kept.teacher) +
                                          static_cast<std::size_t>(hidden.size()) * sizeof(float) +
                                          keys_.bytes() + compute_.buffer_bytes());
}

// What each head gives: the teacher's output by its gate, the rest its own.
void TwoWayPass::mix(LayerId number, std::span<const double> gates, const Kept& kept,
                     std::int64_t first) {
  const TensorView<float, 3>& own = compute_.buffers().state.o;
  mix_heads(stream_, {.gates = gates_of_layer(gates, number),
                      .other = kept.teacher[static_cast<std::size_t>(number.value)].view().slice(
                          0, {first, first + own.dim(0)}),
                      .own = own,
                      .out = own});
}

// As the kernels take them.
std::vector<float> TwoWayPass::gates_of_layer(std::span<const double> gates, LayerId number) const {
  const auto n_heads = static_cast<std::size_t>(spec_.n_kv_heads);
  std::vector<float> out;
  for (const double gate : gates.subspan(static_cast<std::size_t>(number.value) * n_heads, n_heads))
    out.push_back(static_cast<float>(gate));
  return out;
}

void TwoWayPass::run_student_layer(LayerId number, const Text& text, std::span<const double> gates,
                                   Kept& kept) {
  const LayerWeights& layer = weights_.layer(number);
  const auto at = static_cast<std::size_t>(number.value);
  Matrix& input = kept.input[at];
  fill_keys(number, text, text.sets[at], input.view(), text.positions[at]);
  const std::vector<std::int64_t>& positions = text.positions[at + 1];
  const auto n_rows = static_cast<std::int64_t>(positions.size());
  Matrix& middle = kept.middle[at] = Matrix(stream_, {n_rows, spec_.d_model});
  Matrix& output = kept.input[at + 1] = Matrix(stream_, {n_rows, spec_.d_model});
  copy_parts(stream_, middle.data(), input.data(), spec_.d_model,
             rows_in(text.positions[at], text.sets[at + 1]));
  for_tiles(n_rows, config_.tile_rows, [&](Extent rows) {
    take(middle.view().slice(0, rows), part_of(positions, rows));
    attend(number, streaming_work_);
    if (has_gates(number)) mix(number, gates, kept, rows.begin);
    compute_.project_outputs(layer, compute_.buffers().state.o, compute_.residual());
    const TensorView<float, 2> after = output.view().slice(0, rows);
    copy_floats(stream_, after.data(), compute_.buffers().hidden.data(), after.size());
    compute_.buffers().hidden = after;
    compute_.feed_forward(layer, compute_.residual());
  });
}

void TwoWayPass::run_student(const Text& text, std::span<const double> gates, Kept& kept) {
  const auto n_layers = static_cast<std::size_t>(spec_.n_layers);
  kept.input.resize(n_layers + 1);
  kept.middle.resize(n_layers);
  kept.input[0] =
      Matrix(stream_, {static_cast<std::int64_t>(text.positions[0].size()), spec_.d_model});
  embed(text, text.positions[0], kept.input[0].view());
  for (const LayerId number : IdRange<LayerId>(spec_.n_layers)) {
    run_student_layer(number, text, gates, kept);
    progressed(kTeacherShare + kStudentShare * static_cast<double>(number.value + 1) /
                                   static_cast<double>(spec_.n_layers));
  }
  note(kept);
}

Tensor<float, 2> TwoWayPass::normed_answers(const TensorView<const float, 2>& hidden) const {
  const Matrix normed(stream_, {hidden.dim(0), spec_.d_model});
  rms_norm(stream_, {.x = hidden,
                     .weight = weights_.final_norm(),
                     .eps = static_cast<float>(spec_.norm_eps),
                     .out = normed.view()});
  return on_host<2>(stream_, normed.view());
}

std::vector<double> TwoWayPass::run_back(const Text& text, std::span<const double> gates,
                                         const Kept& kept, DeviceTensor<float, 2> d_hidden) {
  std::vector<double> d_gates(gates.size());
  const auto n_heads = static_cast<std::size_t>(spec_.n_kv_heads);
  for (std::int64_t i = spec_.n_layers - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const LayerId number{i};
    const std::vector<float> own_gates =
        has_gates(number) ? gates_of_layer(gates, number) : std::vector<float>{};
    LayerGradient gradient = backward_.run({.layer = weights_.layer(number),
                                            .deal = text.deal,
                                            .read = text.sets[at],
                                            .written = text.sets[at + 1],
                                            .input = kept.input[at].view(),
                                            .middle = kept.middle[at].view(),
                                            .mask = streaming_.mask(number, {0}),
                                            .gates = own_gates,
                                            .teacher = kept.teacher[at].view(),
                                            .d_output = d_hidden.view(),
                                            .wants_input = i > 0});
    std::copy(gradient.d_gates.begin(), gradient.d_gates.end(),
              d_gates.begin() + static_cast<std::ptrdiff_t>(at * n_heads));
    d_hidden = std::move(gradient.d_input);
    progressed(1.0 - (1.0 - kTeacherShare - kStudentShare) * static_cast<double>(i) /
                         static_cast<double>(spec_.n_layers));
  }
  comm_.all_reduce_sum(std::span(d_gates));
  return d_gates;
}

TwoWayPass::Text TwoWayPass::text_of(std::span<const std::int32_t> tokens,
                                     std::int64_t n_answer) const {
  const auto n_tokens = static_cast<std::int64_t>(tokens.size());
  Text text{
      .tokens = tokens,
      .n_answer = n_answer,
      .deal = {.n_tokens = n_tokens, .block_size = config_.block_size, .n_ranks = comm_.size()},
      .sets = student_rows(spec_, config_.window, n_tokens, n_answer, config_.block_size),
      .positions = {}};
  for (const TokenSet& set : text.sets)
    text.positions.push_back(text.deal.positions(set, comm_.rank()));
  const std::vector<std::int64_t>& last = text.positions.back();
  text.n_own_answers = last.end() - std::lower_bound(last.begin(), last.end(), n_tokens - n_answer);
  return text;
}

void TwoWayPass::observe_dense(std::span<const std::int32_t> tokens,
                               const std::function<void(const DenseRows&)>& observe) {
  // All tokens are "answers", so that the last layer shows all rows, too.
  const Text text = text_of(tokens, static_cast<std::int64_t>(tokens.size()));
  Kept kept;
  observe_ = &observe;
  try {
    run_teacher(text, kept);
  } catch (...) {
    observe_ = nullptr;
    throw;
  }
  observe_ = nullptr;
  observed_keys_ = {};
}

TwoWayResult TwoWayPass::run(std::span<const std::int32_t> tokens, std::int64_t n_answer,
                             std::span<const double> gates, Wants wants) {
  require(gates.size() == static_cast<std::size_t>(spec_.n_layers * spec_.n_kv_heads),
          "TwoWayPass: one gate for each layer and KV head is needed");
  const Text text = text_of(tokens, n_answer);
  const std::vector<std::int64_t>& last = text.positions.back();
  Kept kept;
  run_teacher(text, kept);
  run_student(text, gates, kept);
  const std::int64_t n_other = static_cast<std::int64_t>(last.size()) - text.n_own_answers;
  const TensorView<const float, 2> own =
      kept.input.back().view().slice(0, {n_other, static_cast<std::int64_t>(last.size())});
  const Tensor<float, 2> want = normed_answers(kept.teacher_hidden.view());
  Tensor<float, 2> difference = normed_answers(own);
  TwoWayResult result;
  const double share = 1.0 / static_cast<double>(n_answer * spec_.d_model);
  for (std::int64_t i = 0; i < difference.size(); ++i) {
    const double d =
        static_cast<double>(difference.data()[i]) - static_cast<double>(want.data()[i]);
    result.distance += d * d * share;
    result.size +=
        share * static_cast<double>(want.data()[i]) * static_cast<double>(want.data()[i]);
    difference.data()[i] = static_cast<float>(2 * share * d);
  }
  std::array<double, 2> sums = {result.distance, result.size};
  comm_.all_reduce_sum(std::span<double>(sums));
  result.distance = sums[0];
  result.size = sums[1];
  if (wants == Wants::kDistance) return result;
  Matrix d_hidden(stream_, {static_cast<std::int64_t>(last.size()), spec_.d_model});
  set_to_zero(stream_, reinterpret_cast<std::byte*>(d_hidden.data()), d_hidden.bytes());
  const Matrix d_normed = on_device<2>(stream_, difference.view());
  rms_norm_backward(stream_, {.x = own,
                              .weight = weights_.final_norm(),
                              .eps = static_cast<float>(spec_.norm_eps),
                              .d_out = d_normed.view(),
                              .d_x = d_hidden.view().slice(
                                  0, {n_other, static_cast<std::int64_t>(last.size())})});
  result.d_gates = run_back(text, gates, kept, std::move(d_hidden));
  return result;
}

}  // namespace longhaul
