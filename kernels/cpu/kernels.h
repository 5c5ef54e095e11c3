// The CPU kernels of one instruction set, as a table of functions over plain structs of raw
// pointers and sizes. Each runs on the calling thread: operators (kernels/*.cc) check shapes and
// split the work over threads. Pointers are to floats unless said otherwise; strides count
// elements.
#pragma once
#include "kernels/cpu/attention.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/rows.h"

namespace longhaul::cpu {

struct Kernels {
  void (*rms_norm)(const RmsNormTask&);
  void (*swiglu)(const SwigluTask&);
  void (*rope)(const RopeTask&);
  void (*widen_bf16)(const std::uint16_t* in, std::int64_t n, float* out);
  // out = a * x (+ b * y unless y is null); out may be x.
  void (*combine)(const CombineTask&);
  RowStatistics (*row_statistics)(const float* x, std::int64_t n);
  // The first index whose element is `value`; n without one.
  std::int64_t (*find_first)(const float* x, std::int64_t n, float value);
  void (*kv_append)(const KvAppendTask&);
  // Bytes of scratch that `attend` needs for a task of at most kAttentionTileRows rows.
  std::size_t (*attend_scratch_bytes)(std::int64_t head_dim);
  void (*attend)(const AttentionTask&);
  void (*few_rows_linear)(const FewRowsLinearTask&);
  void (*tiled_linear)(const TiledLinearTask&);
  // Words (32 bit) of a row of x as the linear kernels read it, for a padded row of n_in elements.
  std::int64_t (*few_rows_x_words)(std::int64_t n_in, bool weights_are_bf16);
  std::int64_t (*tiled_x_words)(std::int64_t n_in, bool weights_are_bf16);
  void (*pack_few_rows_x)(const PackTask&);
  void (*pack_tiled_x)(const PackTask&);
  std::size_t (*tiled_linear_scratch_bytes)();
};

const Kernels& kernels();  // of active_isa()

namespace baseline {
extern const Kernels kernels;
}
namespace avx2 {  // on x86-64 only; likewise avx512
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

}  // namespace longhaul::cpu
