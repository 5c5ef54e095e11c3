// Stands in for kernels/cuda/ in a build without CUDA, so that nobody else needs an #ifdef: every
// operator throws kUnsupported.
#include <string_view>

#include <fmt/format.h>
#include "base/error.h"
#include "kernels/copy_rows.h"
#include "kernels/cuda/operators.h"
#include "kernels/read_all.h"
#include "kernels/residual_add.h"
#include "kernels/sum_rows.h"

namespace longhaul::cuda {
namespace {

[[noreturn]] void absent(std::string_view name) {
  throw Error(ErrorCode::kUnsupported,
              fmt::format("kernels: {} on CUDA is not in this build; run on the CPU", name));
}

}  // namespace

void attention(Stream&, const AttentionArgs&) { absent("attention"); }
void clear(Stream&, const SoftmaxStateView&) { absent("clear"); }
void copy_rows(Stream&, std::span<const CopyRowsItem>) { absent("copy_rows"); }
void embedding(Stream&, const EmbeddingArgs&) { absent("embedding"); }
void finish_attention(Stream&, const FinishAttentionArgs&) { absent("finish_attention"); }
void kv_append(Stream&, const KvAppendArgs&) { absent("kv_append"); }
void kv_copy(Stream&, const KvCopyArgs&) { absent("kv_copy"); }
void linear(Stream&, const LinearArgs&) { absent("linear"); }
void merge(Stream&, const SoftmaxStateView&, const SoftmaxStateView&) { absent("merge"); }
void read_all(Stream&, const std::byte*, std::size_t, std::byte*) { absent("read_all"); }
void residual_add(Stream&, const ResidualAddArgs&) { absent("residual_add"); }
void rms_norm(Stream&, const RmsNormArgs&) { absent("rms_norm"); }
void rope(Stream&, const RopeArgs&) { absent("rope"); }
void rope_angles(Stream&, const RopeAnglesArgs&) { absent("rope_angles"); }
void sum_rows(Stream&, float*, const float*, std::int64_t, std::int64_t) { absent("sum_rows"); }
void swiglu(Stream&, const SwigluArgs&) { absent("swiglu"); }
void top_k(Stream&, const TopKArgs&) { absent("top_k"); }

}  // namespace longhaul::cuda
