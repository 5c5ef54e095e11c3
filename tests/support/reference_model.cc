#include "tests/support/reference_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/error.h"
#include "model/rope_frequencies.h"

namespace longhaul::test {
namespace {

template <typename T>
T element(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double element(const TensorBytes& tensor, std::size_t i) {
  switch (tensor.dtype) {
    case DType::kF32:
      return static_cast<double>(element<float>(tensor.bytes, i));
    case DType::kF16:
      return static_cast<double>(to_float(element<Float16>(tensor.bytes, i)));
    case DType::kBf16:
      return static_cast<double>(to_float(element<BFloat16>(tensor.bytes, i)));
    case DType::kF64:
      return element<double>(tensor.bytes, i);
    case DType::kF8E4m3:
      return static_cast<double>(to_float(element<Float8E4m3>(tensor.bytes, i)));
    case DType::kI8:
    case DType::kI4:
      break;
  }
  throw Error(ErrorCode::kUnsupported, "the reference model reads floating-point weights only");
}

// Codes of fp8 [n_out, n_in], times the scale of their block.
void apply_scales(const ModelFolder& folder, const std::string& name,
                  const std::vector<std::int64_t>& shape, std::vector<double>& values) {
  const Fp8Files form = folder.config().fp8.value();
  const std::int64_t n_in = shape.at(1);
  const std::int64_t block_out = form.block_out == 0 ? shape.at(0) : form.block_out;
  const std::int64_t block_in = form.block_in == 0 ? n_in : form.block_in;
  const std::string inverse = name + "_scale_inv";
  const TensorBytes scales = folder.tensor(folder.has_tensor(inverse) ? inverse : name + "_scale");
  const std::int64_t n_blocks_in = (n_in + block_in - 1) / block_in;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()); ++i) {
    const std::int64_t block = i / n_in / block_out * n_blocks_in + i % n_in / block_in;
    values[static_cast<std::size_t>(i)] *= element(scales, static_cast<std::size_t>(block));
  }
}

double rounded_to_bf16(double value) {
  return static_cast<double>(to_float(to_bf16(static_cast<float>(value))));
}

// As integers of [-127, 127] times the largest magnitude / 127.
void quantise_together(std::span<double> x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  if (largest == 0) return;
  for (double& value : x) value = std::nearbyint(value * 127 / largest) * largest / 127;
}

// As multiples of a step of f16, by integers of [-8, 7]: of the three steps by which the largest of
// them is about -7, -8 or -9, each fitted to its integers, the one with the smallest error.
void quantise_to_4_bits(std::span<double> x) {
  const auto by_magnitude = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const double largest = *std::max_element(x.begin(), x.end(), by_magnitude);
  if (largest == 0) return;
  std::vector<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (const double end : {-7.0, -8.0, -9.0}) {
    std::vector<double> tried;
    double product = 0, square = 0, error = 0;
    for (const double value : x) {
      tried.push_back(std::clamp(std::nearbyint(value * end / largest), -8.0, 7.0));
      product += tried.back() * value;
      square += tried.back() * tried.back();
    }
    const auto step = static_cast<double>(to_float(to_f16(static_cast<float>(product / square))));
    for (std::size_t i = 0; i < x.size(); ++i) {
      tried[i] *= step;
      error += (x[i] - tried[i]) * (x[i] - tried[i]);
    }
    if (error < least) best = tried;
    least = std::min(least, error);
  }
  std::copy(best.begin(), best.end(), x.begin());
}

// kKiviGroup values at this distance from each other.
constexpr std::int64_t kKiviGroup = 32;
void quantise_kivi(double* x, std::int64_t stride, int bits) {
  const auto as_f16 = [](double value) {
    return static_cast<double>(to_float(to_f16(static_cast<float>(value))));
  };
  double smallest = *x;
  double largest = *x;
  for (std::int64_t i = 0; i < kKiviGroup; ++i) {
    smallest = std::min(smallest, x[i * stride]);
    largest = std::max(largest, x[i * stride]);
  }
  const double most = (1 << bits) - 1;
  const double scale = as_f16((largest - smallest) / most);
  const double minimum = as_f16(smallest);
  for (std::int64_t i = 0; i < kKiviGroup; ++i) {
    double& value = x[i * stride];
    const double code = scale == 0 ? 0 : std::clamp((value - minimum) / scale, 0.0, most);
    value = std::nearbyint(code) * scale + minimum;
  }
}

double dot(const double* a, const double* b, std::int64_t n) {
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* out, double scale, const double* x, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] += scale * x[i];
}

}  // namespace

bool KeyMask::sees(std::int64_t query, std::int64_t key, std::int64_t head) const {
  if (key > query) return false;
  if (forgotten != nullptr && forgotten->contains(key)) return false;
  if (query >= n_cut && key < n_cut) {
    const auto& here = kept_apart.empty() ? kept : kept_apart.at(static_cast<std::size_t>(head));
    return std::binary_search(here.begin(), here.end(), key);
  }
  if (slide == 1) return key < sink || query - key < recent;
  std::int64_t n_here = 0;
  std::int64_t first_here = sink;
  for (std::int64_t token = 0; token <= query; ++token, ++n_here) {
    if (n_here < sink + recent) continue;
    n_here -= slide;
    first_here += slide;
  }
  return key < sink || key >= first_here;
}

std::vector<KeyMask> key_masks(const ModelSpec& spec, const HeadRoles& roles) {
  require(roles.n_layers == spec.n_layers && roles.n_kv_heads == spec.n_kv_heads,
          "key_masks: roles and model differ in layers or KV heads");
  std::vector<KeyMask> masks;
  for (std::int64_t layer = 0; layer < spec.n_layers; ++layer) {
    const std::int64_t window = spec.attention_window.at(static_cast<std::size_t>(layer));
    for (std::int64_t head = 0; head < spec.n_kv_heads; ++head) {
      const bool streams =
          window == ModelSpec::kNoWindow && roles.role({layer}, {head}) == HeadRole::kStreaming;
      const bool in_cache = roles.sink_positions == SinkPositions::kInCache;
      masks.push_back(streams ? KeyMask{roles.sink, roles.recent, in_cache}
                              : KeyMask{.sink = 0, .recent = window});
    }
  }
  return masks;
}

std::vector<KeyMask> compensated_masks(const ModelSpec& spec, const HeadRoles& roles) {
  std::vector<KeyMask> masks = key_masks(spec, roles);
  for (std::size_t i = 0; i < masks.size(); ++i) {
    const auto layer = i / static_cast<std::size_t>(spec.n_kv_heads);
    masks[i].adds_mean_of_gone = roles.roles[i] == HeadRole::kStreaming &&
                                 spec.attention_window[layer] == ModelSpec::kNoWindow;
  }
  return masks;
}

ReferenceModel::ReferenceModel(const ModelFolder& folder)
    : ReferenceModel(folder, folder.config().spec) {}

ReferenceModel::ReferenceModel(const ModelFolder& folder, Inputs inputs)
    : ReferenceModel(folder, folder.config().spec) {
  inputs_ = inputs;
  if (inputs == Inputs::kInt8 || inputs == Inputs::kInt4) make_integers();
}

// int8: weights of each output as multiples of their largest magnitude / 127. int4: each group of
// 32 as multiples of its own step.
void ReferenceModel::quantise(Linear& linear, std::int64_t group) const {
  Matrix& w = linear.transposed;
  std::vector<double> output(static_cast<std::size_t>(w.n_rows));
  for (std::int64_t out = 0; out < w.n_columns; ++out) {
    for (std::int64_t in = 0; in < w.n_rows; ++in)
      output[static_cast<std::size_t>(in)] = w.row(in)[out];
    if (inputs_ == Inputs::kInt8) {
      quantise_together(output);
    } else {
      for (std::size_t begin = 0; begin < output.size(); begin += 32)
        quantise_to_4_bits(std::span(output).subspan(begin).first(
            std::min<std::size_t>(32, output.size() - begin)));
    }
    for (std::int64_t in = 0; in < w.n_rows; ++in)
      w.row(in)[out] = output[static_cast<std::size_t>(in)];
  }
  linear.group = group;
}

void ReferenceModel::make_integers() {
  constexpr std::int64_t kGroup = 128;
  for (Layer& layer : layers_) {
    for (Linear* linear : {&layer.q, &layer.k, &layer.v, &layer.gate, &layer.up, &layer.down})
      quantise(*linear, kGroup);
    quantise(layer.o, spec_.gqa_group() * spec_.head_dim);
  }
  for (double& value : embedding_.values) value = rounded_to_bf16(value);
  if (!spec_.tied_embeddings) return quantise(head_, kGroup);
  for (double& value : head_.transposed.values) value = rounded_to_bf16(value);
  head_.has_bf16_weight = true;
}

ReferenceModel::ReferenceModel(const ModelFolder& folder, const ModelSpec& spec) : spec_(spec) {
  RopeFrequencies rope = rope_frequencies(spec);
  inverse_frequencies_ = std::move(rope.inverse_frequencies);
  rope_scale_ = rope.attention_scale;
  embedding_ = Matrix(spec.vocab_size, spec.d_model);
  embedding_.values = read(folder, "model.embed_tokens.weight", {spec.vocab_size, spec.d_model});
  for (std::int64_t i = 0; i < spec.n_layers; ++i) layers_.push_back(read_layer(folder, i));
  final_norm_ = read(folder, "model.norm.weight", {spec.d_model});
  head_ = read_linear(folder, spec.tied_embeddings ? "model.embed_tokens" : "lm_head",
                      spec.vocab_size, spec.d_model, /*has_bias=*/false);
}

std::vector<double> ReferenceModel::read(const ModelFolder& folder, const std::string& name,
                                         const std::vector<std::int64_t>& shape) {
  const TensorBytes tensor = folder.tensor(name);
  require(tensor.shape == shape, fmt::format("{}: shape is not the one of config.json", name));
  std::vector<double> values(tensor.bytes.size() / size_of(tensor.dtype));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = element(tensor, i);
  if (tensor.dtype == DType::kF8E4m3) apply_scales(folder, name, shape, values);
  return values;
}

ReferenceModel::Linear ReferenceModel::read_linear(const ModelFolder& folder,
                                                   const std::string& name, std::int64_t n_out,
                                                   std::int64_t n_in, bool has_bias) {
  const std::vector<double> weight = read(folder, name + ".weight", {n_out, n_in});
  Linear linear{.transposed = Matrix(n_in, n_out),
                .bias = {},
                .has_bf16_weight = folder.tensor(name + ".weight").dtype == DType::kBf16};
  for (std::int64_t out = 0; out < n_out; ++out) {
    for (std::int64_t in = 0; in < n_in; ++in) {
      linear.transposed.row(in)[out] = weight[static_cast<std::size_t>(out * n_in + in)];
    }
  }
  if (has_bias) linear.bias = read(folder, name + ".bias", {n_out});
  return linear;
}

ReferenceModel::Layer ReferenceModel::read_layer(const ModelFolder& folder,
                                                 std::int64_t index) const {
  const std::string layer = fmt::format("model.layers.{}.", index);
  const std::int64_t d_model = spec_.d_model;
  const std::int64_t q_size = spec_.n_heads * spec_.head_dim;
  const std::int64_t kv_size = spec_.n_kv_heads * spec_.head_dim;
  const auto linear = [&](const char* name, std::int64_t n_out, std::int64_t n_in, bool bias) {
    return read_linear(folder, layer + name, n_out, n_in, bias);
  };
  Layer out;
  out.attention_norm = read(folder, layer + "input_layernorm.weight", {d_model});
  out.ffn_norm = read(folder, layer + "post_attention_layernorm.weight", {d_model});
  if (spec_.qk_norm) {
    out.q_norm = read(folder, layer + "self_attn.q_norm.weight", {spec_.head_dim});
    out.k_norm = read(folder, layer + "self_attn.k_norm.weight", {spec_.head_dim});
  }
  if (spec_.sink_logits == SinkLogits::kLearned)
    out.sink_logits = read(folder, layer + "self_attn.sinks", {spec_.n_heads});
  if (spec_.sink_logits == SinkLogits::kZero)
    out.sink_logits.assign(static_cast<std::size_t>(spec_.n_heads), 0.0);
  out.q = linear("self_attn.q_proj", q_size, d_model, spec_.qkv_bias);
  out.k = linear("self_attn.k_proj", kv_size, d_model, spec_.qkv_bias);
  out.v = linear("self_attn.v_proj", kv_size, d_model, spec_.qkv_bias);
  out.o = linear("self_attn.o_proj", d_model, q_size, spec_.attention_output_bias);
  out.gate = linear("mlp.gate_proj", spec_.d_ff, d_model, spec_.mlp_bias);
  out.up = linear("mlp.up_proj", spec_.d_ff, d_model, spec_.mlp_bias);
  out.down = linear("mlp.down_proj", d_model, spec_.d_ff, spec_.mlp_bias);
  return out;
}

ReferenceModel::Matrix ReferenceModel::apply(const Linear& linear, const Matrix& x) const {
  const bool rounds = inputs_ != Inputs::kExact && linear.has_bf16_weight && linear.group == 0;
  const std::int64_t n_out = linear.transposed.n_columns;
  Matrix inputs = x;
  if (linear.group > 0) {
    for (std::int64_t i = 0; i < x.n_rows; ++i) {
      for (std::int64_t begin = 0; begin < x.n_columns; begin += linear.group) {
        const std::int64_t n = std::min(linear.group, x.n_columns - begin);
        quantise_together({inputs.row(i) + begin, static_cast<std::size_t>(n)});
      }
    }
  }
  Matrix out(x.n_rows, n_out);
  for (std::int64_t i = 0; i < x.n_rows; ++i) {
    std::copy(linear.bias.begin(), linear.bias.end(), out.row(i));
    for (std::int64_t in = 0; in < x.n_columns; ++in) {
      const double input = rounds ? rounded_to_bf16(inputs.row(i)[in]) : inputs.row(i)[in];
      add_scaled(out.row(i), input, linear.transposed.row(in), n_out);
    }
  }
  return out;
}

void ReferenceModel::normalize(std::span<double> x, std::span<const double> weight) const {
  const auto n = static_cast<std::int64_t>(x.size());
  const double mean_square = dot(x.data(), x.data(), n) / static_cast<double>(n);
  const double scale = 1 / std::sqrt(mean_square + spec_.norm_eps);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight[i];
}

ReferenceModel::Matrix ReferenceModel::normalized(const Matrix& x,
                                                  std::span<const double> weight) const {
  Matrix out = x;
  for (std::int64_t i = 0; i < x.n_rows; ++i) normalize({out.row(i), weight.size()}, weight);
  return out;
}

void ReferenceModel::normalize_heads(Matrix& x, std::span<const double> norm) const {
  if (norm.empty()) return;
  for (std::int64_t position = 0; position < x.n_rows; ++position) {
    for (std::int64_t begin = 0; begin < x.n_columns; begin += spec_.head_dim)
      normalize({x.row(position) + begin, static_cast<std::size_t>(spec_.head_dim)}, norm);
  }
}

void ReferenceModel::rotate(double* head, std::int64_t position) const {
  const std::int64_t half = spec_.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * inverse_frequencies_[static_cast<std::size_t>(i)];
    const double cosine = rope_scale_ * std::cos(angle);
    const double sine = rope_scale_ * std::sin(angle);
    const double a = head[i];
    const double b = head[i + half];
    head[i] = a * cosine - b * sine;
    head[i + half] = b * cosine + a * sine;
  }
}

// Every head of every row at the row's position.
ReferenceModel::Matrix ReferenceModel::rotated(Matrix x) const {
  for (std::int64_t position = 0; position < x.n_rows; ++position) {
    for (std::int64_t begin = 0; begin < x.n_columns; begin += spec_.head_dim)
      rotate(x.row(position) + begin, position);
  }
  return x;
}

// Of the keys that are seen, those of the pages that the query reads.
std::vector<std::int64_t> ReferenceModel::in_chosen_pages(
    const HeadView& head, std::span<const double> q, std::span<const std::int64_t> keys) const {
  const std::int64_t last = keys.back() / head.mask.page_tokens;
  std::vector<std::pair<double, std::int64_t>> pages;  // by falling bound, then by number
  for (std::int64_t page = 0; page < last; ++page) {
    double bound = 0;
    for (std::int64_t d = 0; d < spec_.head_dim; ++d) {
      double most = -std::numeric_limits<double>::infinity();
      for (std::int64_t i = 0; i < head.mask.page_tokens; ++i) {
        const double k = head.k[(page * head.mask.page_tokens + i) * head.stride + d];
        most = std::max(most, q[static_cast<std::size_t>(d)] * k);
      }
      bound += most;
    }
    pages.emplace_back(-bound, page);
  }
  std::sort(pages.begin(), pages.end());
  const auto n = static_cast<std::size_t>(head.mask.n_pages - 1);
  if (n > 0 && n < pages.size() && head.mask.page_margin != nullptr) {
    const double margin = (pages[n].first - pages[n - 1].first) / std::abs(pages[n - 1].first);
    *head.mask.page_margin = std::min(*head.mask.page_margin, margin);
  }
  pages.resize(std::min(pages.size(), n));
  std::vector<std::int64_t> kept;
  for (const std::int64_t key : keys) {
    const std::int64_t page = key / head.mask.page_tokens;
    const bool is_chosen = std::any_of(pages.begin(), pages.end(),
                                       [&](const auto& chosen) { return chosen.second == page; });
    if (is_chosen || page == last) kept.push_back(key);
  }
  return kept;
}

// Of the keys up to the query that are not among those seen.
ReferenceModel::MeanOfGone ReferenceModel::mean_of_gone(const HeadView& head, std::int64_t position,
                                                        std::span<const std::int64_t> seen) const {
  MeanOfGone gone;
  if (!head.mask.adds_mean_of_gone) return gone;
  const auto head_dim = static_cast<std::size_t>(spec_.head_dim);
  gone = {.n = position + 1 - std::ssize(seen),
          .k = std::vector<double>(head_dim),
          .v = std::vector<double>(head_dim)};
  for (std::int64_t key = 0; key <= position; ++key) {
    if (std::ranges::binary_search(seen, key)) continue;
    add_scaled(gone.k.data(), 1 / static_cast<double>(gone.n), head.key(position, key),
               spec_.head_dim);
    add_scaled(gone.v.data(), 1 / static_cast<double>(gone.n), head.value(position, key),
               spec_.head_dim);
  }
  return gone;
}

// Softmax over the keys that the mask shows of (q k / sqrt(head_dim)), times v.
void ReferenceModel::attend(const HeadView& head, std::span<const double> q, std::int64_t position,
                            double* out) const {
  const std::int64_t head_dim = spec_.head_dim;
  std::vector<std::int64_t> keys;
  for (std::int64_t key = 0; key <= position; ++key) {
    if (head.mask.sees(position, key, head.head % spec_.gqa_group())) keys.push_back(key);
  }
  if (position >= head.mask.pages_from) keys = in_chosen_pages(head, q, keys);
  std::vector<double> turned_q(q.begin(), q.end());
  // The last key that is seen is the query's own.
  if (head.mask.counts_kept_keys) {
    rotate(turned_q.data(), static_cast<std::int64_t>(keys.size()) - 1);
  }
  std::vector<double> scores;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const double* k = head.key(position, keys[i]);
    std::vector<double> turned_k(k, k + head_dim);
    if (head.mask.counts_kept_keys) rotate(turned_k.data(), static_cast<std::int64_t>(i));
    scores.push_back(dot(turned_q.data(), turned_k.data(), head_dim) /
                     std::sqrt(static_cast<double>(head_dim)));
  }
  const MeanOfGone gone = mean_of_gone(head, position, keys);
  if (gone.n > 0) {
    scores.push_back(dot(turned_q.data(), gone.k.data(), head_dim) /
                         std::sqrt(static_cast<double>(head_dim)) +
                     std::log(static_cast<double>(gone.n)));
  }
  double largest = *std::max_element(scores.begin(), scores.end());
  if (head.sink_logit) largest = std::max(largest, *head.sink_logit);
  double sum = head.sink_logit ? std::exp(*head.sink_logit - largest) : 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  if (gone.n > 0) {
    add_scaled(out, scores.back(), gone.v.data(), head_dim);
    scores.pop_back();
  }
  if (head.on_attention) {
    head.on_attention(
        {.layer = head.layer,
         .head = head.head,
         .query = position,
         .keys = keys,
         .weights = scores,
         .own_key = {head.key(position, position), static_cast<std::size_t>(head_dim)}});
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    add_scaled(out, scores[i], head.value(position, keys[i]), head_dim);
  }
}

// What is left of the last tokens is never asked for.
ReferenceModel::Matrix ReferenceModel::kivi_keys(Matrix keys, int bits) const {
  for (std::int64_t begin = 0; begin + kKiviGroup <= keys.n_rows; begin += kKiviGroup) {
    for (std::int64_t channel = 0; channel < keys.n_columns; ++channel)
      quantise_kivi(keys.row(begin) + channel, keys.n_columns, bits);
  }
  return keys;
}

ReferenceModel::Matrix ReferenceModel::kivi_values(Matrix values, int bits) const {
  for (std::int64_t token = 0; token < values.n_rows; ++token) {
    for (std::int64_t channel = 0; channel < values.n_columns; channel += kKiviGroup)
      quantise_kivi(values.row(token) + channel, 1, bits);
  }
  return values;
}

ReferenceModel::Matrix ReferenceModel::attention(std::int64_t number, const Matrix& x,
                                                 std::span<const KeyMask> masks,
                                                 const OnAttention& on_attention,
                                                 Merged* merged) const {
  const Layer& layer = layers_[static_cast<std::size_t>(number)];
  Matrix q = apply(layer.q, x);
  Matrix k = apply(layer.k, x);
  const Matrix v = apply(layer.v, x);
  normalize_heads(q, layer.q_norm);
  normalize_heads(k, layer.k_norm);
  if (spec_.token_merging) return merged_attention(layer, std::move(q), std::move(k), v, merged);
  const Matrix turned_q = rotated(q);
  const Matrix turned_k = rotated(k);
  // Of all heads of the layer alike.
  const int bits = masks.front().kivi_bits;
  const Matrix kivi_k = bits > 0 ? kivi_keys(turned_k, bits) : Matrix();
  const Matrix kivi_v = bits > 0 ? kivi_values(v, bits) : Matrix();
  Matrix out(q.n_rows, q.n_columns);
  for (std::int64_t position = 0; position < x.n_rows; ++position) {
    for (std::int64_t head = 0; head < spec_.n_heads; ++head) {
      const std::int64_t kv_head = head / spec_.gqa_group();
      const KeyMask& mask = masks[static_cast<std::size_t>(kv_head)];
      const Matrix& queries = mask.counts_kept_keys ? q : turned_q;
      const Matrix& keys = mask.counts_kept_keys ? k : turned_k;
      const HeadView view{
          .k = keys.row(0) + kv_head * spec_.head_dim,
          .v = v.row(0) + kv_head * spec_.head_dim,
          .quantised_k = bits > 0 ? kivi_k.row(0) + kv_head * spec_.head_dim : nullptr,
          .quantised_v = bits > 0 ? kivi_v.row(0) + kv_head * spec_.head_dim : nullptr,
          .stride = k.n_columns,
          .mask = mask,
          .layer = number,
          .head = head,
          .sink_logit = layer.sink_logits.empty()
                            ? std::nullopt
                            : std::optional(layer.sink_logits[static_cast<std::size_t>(head)]),
          .on_attention = on_attention};
      const std::int64_t begin = head * spec_.head_dim;
      attend(view, {queries.row(position) + begin, static_cast<std::size_t>(spec_.head_dim)},
             position, out.row(position) + begin);
    }
  }
  return apply(layer.o, out);
}

ReferenceModel::Matrix ReferenceModel::feed_forward(const Layer& layer, const Matrix& x) const {
  Matrix hidden = apply(layer.gate, x);
  const Matrix up = apply(layer.up, x);
  for (std::size_t i = 0; i < hidden.values.size(); ++i) {
    const double gate = hidden.values[i];
    hidden.values[i] = gate / (1 + std::exp(-gate)) * up.values[i];  // SwiGLU
  }
  return apply(layer.down, hidden);
}

std::vector<double> ReferenceModel::logits(std::span<const std::int32_t> tokens) const {
  return logits(tokens,
                key_masks(spec_, HeadRoles::all_retrieval(spec_.n_layers, spec_.n_kv_heads)));
}

std::vector<double> ReferenceModel::logits(std::span<const std::int32_t> tokens,
                                           std::span<const KeyMask> masks) const {
  return logits(tokens, masks, {});
}

std::vector<double> ReferenceModel::logits(std::span<const std::int32_t> tokens,
                                           std::span<const KeyMask> masks,
                                           const OnAttention& on_attention) const {
  return logits(tokens, masks, on_attention, nullptr);
}

std::vector<double> ReferenceModel::logits(std::span<const std::int32_t> tokens,
                                           Merged& merged) const {
  merged = {};
  return logits(tokens,
                key_masks(spec_, HeadRoles::all_retrieval(spec_.n_layers, spec_.n_kv_heads)), {},
                &merged);
}

std::vector<double> ReferenceModel::logits(std::span<const std::int32_t> tokens,
                                           std::span<const KeyMask> masks,
                                           const OnAttention& on_attention, Merged* merged) const {
  const auto n_kv_heads = static_cast<std::size_t>(spec_.n_kv_heads);
  require(!tokens.empty(), "reference model: no tokens");
  require(masks.size() == layers_.size() * n_kv_heads,
          "reference model: one mask for each layer and KV head is needed");
  for (const KeyMask& mask : masks) {
    require(mask.recent >= 1, "reference model: a query must see its own token");
  }
  Matrix x(static_cast<std::int64_t>(tokens.size()), spec_.d_model);
  for (std::int64_t i = 0; i < x.n_rows; ++i) {
    const std::int32_t token = tokens[static_cast<std::size_t>(i)];
    require(token >= 0 && token < spec_.vocab_size,
            "reference model: token outside the vocabulary");
    std::copy_n(embedding_.row(token), spec_.d_model, x.row(i));
  }
  const auto add = [&x](const Matrix& y) {
    add_scaled(x.values.data(), 1.0, y.values.data(), static_cast<std::int64_t>(y.values.size()));
  };
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    add(attention(static_cast<std::int64_t>(i), normalized(x, layer.attention_norm),
                  masks.subspan(i * n_kv_heads, n_kv_heads), on_attention, merged));
    add(feed_forward(layer, normalized(x, layer.ffn_norm)));
  }
  return apply(head_, normalized(x, final_norm_)).values;
}

}  // namespace longhaul::test
