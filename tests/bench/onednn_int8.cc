#include "tests/bench/onednn_int8.h"

#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

namespace longhaul::bench {
namespace {

using dnnl::memory;

// Small values, not all equal.
void fill(const memory& m) {
  auto* bytes = static_cast<unsigned char*>(m.get_data_handle());
  const std::size_t n = m.get_desc().get_size();
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<unsigned char>(i * 7 % 100);
}

}  // namespace

std::function<void()> onednn_int8_product(std::int64_t n_tokens, std::int64_t n_in,
                                          std::int64_t n_out) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  using type = memory::data_type;
  const memory::desc x({n_tokens, n_in}, type::u8, memory::format_tag::ab);
  const memory::desc weight({n_in, n_out}, type::s8, memory::format_tag::any);
  const memory::desc out({n_tokens, n_out}, type::s32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, weight, out), engine);
  std::unordered_map<int, memory> memories = {
      {DNNL_ARG_SRC, memory(desc.src_desc(), engine)},
      {DNNL_ARG_WEIGHTS, memory(desc.weights_desc(), engine)},
      {DNNL_ARG_DST, memory(desc.dst_desc(), engine)}};
  for (auto& [argument, m] : memories) fill(m);
  return [matmul = dnnl::matmul(desc), stream = dnnl::stream(engine), memories]() mutable {
    matmul.execute(stream, memories);
    stream.wait();
  };
}

}  // namespace longhaul::bench
