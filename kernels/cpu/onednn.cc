#include "kernels/cpu/onednn.h"

#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/threads.h"

namespace longhaul::onednn {
namespace {

using dnnl::memory;

// What a primitive is compiled for; the number of threads is baked in too.
struct Key {
  std::int64_t n_tokens;
  std::int64_t n_in;
  std::int64_t n_out;
  std::int64_t weight_stride;
  DType dtype;
  bool bias;
  bool accumulate;
  int n_threads;
  auto operator<=>(const Key&) const = default;
};

memory::data_type type_of(DType dtype) {
  return dtype == DType::kBf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc x_desc(const Key& key) {
  return {{key.n_tokens, key.n_in}, type_of(key.dtype), memory::format_tag::ab};
}
memory::desc weight_desc(const Key& key) {  // W is [n_out, n_in]: its transpose, without moving it
  return {{key.n_in, key.n_out}, type_of(key.dtype), memory::dims{1, key.weight_stride}};
}
memory::desc bias_desc(const Key& key) {
  return {{1, key.n_out}, memory::data_type::f32, memory::format_tag::ab};
}
memory::desc out_desc(const Key& key) {
  return {{key.n_tokens, key.n_out}, memory::data_type::f32, memory::format_tag::ab};
}

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::matmul make_matmul(const Key& key) {
  dnnl::primitive_attr attributes;
  if (key.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0F);
    attributes.set_post_ops(ops);
  }
  const auto desc =
      key.bias ? dnnl::matmul::desc(x_desc(key), weight_desc(key), bias_desc(key), out_desc(key))
               : dnnl::matmul::desc(x_desc(key), weight_desc(key), out_desc(key));
  return dnnl::matmul(dnnl::matmul::primitive_desc(desc, attributes, cpu_engine()));
}

// Compiled primitives of this thread. A run uses few shapes; when a stream of ever new ones comes,
// forgetting all is enough (oneDNN keeps the compiled code of the last thousand).
const dnnl::matmul& matmul_for(const Key& key) {
  constexpr std::size_t kMost = 128;
  thread_local std::map<Key, dnnl::matmul> cache;
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  if (cache.size() >= kMost) cache.clear();
  return cache.emplace(key, make_matmul(key)).first->second;
}

// x as the primitive reads it: itself, or rounded to bf16.
void* input_of(const LinearArgs& args) {
  if (args.weight.dtype == DType::kF32) return const_cast<float*>(args.x.data());
  const std::int64_t n = args.x.size();
  thread_local Scratch scratch;
  auto* out = reinterpret_cast<BFloat16*>(scratch.bytes(static_cast<std::size_t>(n) * 2));
  parallel_rows(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) out[i] = to_bf16(args.x.data()[i]);
  });
  return out;
}

}  // namespace

bool in_build() { return true; }

void linear(const LinearArgs& args) {
  const Key key = {.n_tokens = args.x.dim(0),
                   .n_in = args.weight.n_in,
                   .n_out = args.weight.n_out,
                   .weight_stride = args.weight.stride(),
                   .dtype = args.weight.dtype,
                   .bias = !args.bias.empty(),
                   .accumulate = args.output == LinearOutput::kAccumulate,
                   .n_threads = kernel_threads()};
  try {
    const dnnl::matmul& matmul = matmul_for(key);
    dnnl::stream stream(cpu_engine());
    // oneDNN takes void* for what it only reads.
    std::unordered_map<int, memory> memories = {
        {DNNL_ARG_SRC, memory(x_desc(key), cpu_engine(), input_of(args))},
        {DNNL_ARG_WEIGHTS,
         memory(weight_desc(key), cpu_engine(), const_cast<void*>(args.weight.data))},
        {DNNL_ARG_DST, memory(out_desc(key), cpu_engine(), args.out.data())}};
    if (key.bias) {
      memories.emplace(DNNL_ARG_BIAS,
                       memory(bias_desc(key), cpu_engine(), const_cast<float*>(args.bias.data())));
    }
    matmul.execute(stream, memories);
    stream.wait();
  } catch (const dnnl::error& error) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("linear: oneDNN says '{}' for x [{}, {}] and {} weights [{}, {}]", error.what(),
                    key.n_tokens, key.n_in, name_of(key.dtype), key.n_out, key.n_in));
  }
}

}  // namespace longhaul::onednn
