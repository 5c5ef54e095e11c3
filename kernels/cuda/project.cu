// project: the rows in one launch (product_rows.cuh), then as few products as the weights allow.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/product_rows.cuh"
#include "kernels/operators.h"

namespace longhaul::cuda {
namespace {

NormedRows source_of(const NormedInput& input) {
  return {.x = input.x.data(),
          .stride = input.x.stride(0),
          .weight = input.weight.data(),
          .width = input.x.dim(1),
          .eps = input.eps};
}
ActivatedRows source_of(const ActivatedInput& input) {
  return {.gate = input.gate.data(),
          .gate_stride = input.gate.stride(0),
          .up = input.up.data(),
          .up_stride = input.up.stride(0)};
}
AttendedRows source_of(const AttendedInput& input) {
  return {.state = state_ref(input.state),
          .sink_logits = input.sink_logits.empty() ? nullptr : input.sink_logits.data(),
          .head_dim = input.state.o.dim(2)};
}
PlainRows source_of(const StoredInput&, const TensorView<float, 2>& rows) {
  return {.x = rows.data(), .stride = rows.stride(0)};
}
template <typename Input>
auto source_of(const Input& input, const TensorView<float, 2>&) {
  return source_of(input);
}
constexpr bool is_stored(const PlainRows&) { return true; }
template <typename Source>
constexpr bool is_stored(const Source&) {
  return false;
}

// Whether b can be done with a as one product: it lies behind it in memory, and its outputs beside.
bool continues(const ProjectedPart& a, const ProjectedPart& b) {
  const bool biases_do = a.bias.empty() == b.bias.empty() &&
                         (a.bias.empty() || a.bias.data() + a.bias.size() == b.bias.data());
  const bool outs_do = a.out.data() + a.out.dim(1) == b.out.data() &&
                       (a.out.dim(0) == 1 || a.out.stride(0) == b.out.stride(0));
  return b.weight.data == a.weight.at(a.weight.n_out * a.weight.stride()) &&
         b.weight.stride() == a.weight.stride() && b.output == a.output && biases_do && outs_do;
}

// Distances in elements.
std::int64_t weight_distance(const FloatProduct& a, const FloatProduct& b) {
  const auto from = reinterpret_cast<std::intptr_t>(a.weight.data);
  return (reinterpret_cast<std::intptr_t>(b.weight.data) - from) /
         static_cast<std::int64_t>(size_of(a.weight.dtype));
}
std::int64_t out_distance(const FloatProduct& a, const FloatProduct& b) {
  const auto from = reinterpret_cast<std::intptr_t>(a.out);
  return (reinterpret_cast<std::intptr_t>(b.out) - from) / static_cast<std::int64_t>(sizeof(float));
}

// Whether b, which comes after `last` in a, can be done with a: all are of one shape, and as far
// apart as a's are.
bool repeats(const FloatProduct& a, const FloatProduct& last, const FloatProduct& b) {
  const std::int64_t weight_step = weight_distance(last, b);
  const std::int64_t out_step = out_distance(last, b);
  const bool is_alike = a.bias == nullptr && b.bias == nullptr && a.output == b.output &&
                        a.weight.n_out == b.weight.n_out &&
                        a.weight.stride() == b.weight.stride() && a.out_stride == b.out_stride;
  const bool is_first = a.n_products == 1;
  return is_alike && weight_step >= 0 && out_step >= a.weight.n_out &&
         (is_first || (weight_step == a.weight_step && out_step == a.out_step));
}

// Parts that are one as one.
std::vector<FloatProduct> products_of(const FloatProduct& rows,
                                      std::span<const ProjectedPart> parts) {
  std::vector<FloatProduct> products;
  for (std::size_t begin = 0; begin < parts.size();) {
    std::size_t end = begin + 1;
    while (end < parts.size() && continues(parts[end - 1], parts[end])) ++end;
    const ProjectedPart& first = parts[begin];
    FloatProduct product = rows;
    product.weight = first.weight;
    product.weight.row_stride = first.weight.stride();
    for (std::size_t i = begin + 1; i < end; ++i) product.weight.n_out += parts[i].weight.n_out;
    product.bias = first.bias.empty() ? nullptr : first.bias.data();
    product.out = first.out.data();
    product.out_stride = std::max(first.out.stride(0), product.weight.n_out);
    product.output = first.output;
    if (product.weight.n_out > 0) products.push_back(product);
    begin = end;
  }
  return products;
}

void multiply_all(Stream& stream, const FloatProduct& rows, std::span<const ProjectedPart> parts) {
  const std::vector<FloatProduct> products = products_of(rows, parts);
  for (std::size_t begin = 0; begin < products.size();) {
    FloatProduct all = products[begin];
    std::size_t end = begin + 1;
    for (; end < products.size() && repeats(all, products[end - 1], products[end]); ++end) {
      all.weight_step = weight_distance(products[end - 1], products[end]);
      all.out_step = out_distance(products[end - 1], products[end]);
      ++all.n_products;
    }
    multiply_floats(stream, all);
    begin = end;
  }
}

// Of types whose products take rows as linear has them.
void multiply_each(Stream& stream, const ProjectArgs& args) {
  for (const ProjectedPart& part : args.parts) {
    linear(stream, {.x = args.rows,
                    .weight = part.weight,
                    .bias = part.bias,
                    .out = part.out,
                    .output = part.output,
                    .order = args.order});
  }
}

template <typename Source>
void run(Stream& stream, const ProjectArgs& args, const Source& source) {
  const std::int64_t n_rows = args.rows.dim(0);
  const std::int64_t n_in = args.rows.dim(1);
  const WeightView& weight = args.parts.front().weight;
  if (is_integer(weight.dtype)) {
    const Int8Rows rows = integer_rows(stream, n_rows, weight);
    quantise(stream, rows, source);
    return integer_products(stream, rows, args.parts);
  }
  if (weight.dtype != DType::kBf16 && !is_stored(source)) {
    store_rows<float>(stream, source, n_rows, n_in, args.rows.data(), args.rows.stride(0));
  }
  if (!may_lie_by_side(weight.dtype)) return multiply_each(stream, args);
  FloatProduct product = {.x = args.rows.data(), .x_stride = args.rows.stride(0), .n_rows = n_rows};
  if (weight.dtype == DType::kBf16) {
    auto* rounded = reinterpret_cast<std::uint16_t*>(
        stream.scratch(static_cast<std::size_t>(2 * n_rows * n_in)));
    store_rows<std::uint16_t>(stream, source, n_rows, n_in, rounded, n_in);
    product.x = rounded;
    product.x_stride = n_in;
  }
  multiply_all(stream, product, args.parts);
}

}  // namespace

void project(Stream& stream, const ProjectArgs& args) {
  if (args.rows.size() == 0) return;
  std::visit([&](const auto& input) { run(stream, args, source_of(input, args.rows)); },
             args.input);
}

}  // namespace longhaul::cuda
