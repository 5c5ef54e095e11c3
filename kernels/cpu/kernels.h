// The CPU kernels of one instruction set, as a table of functions over plain structs of raw
// pointers and sizes. Each runs on the calling thread: operators (kernels/*.cc) check shapes and
// split the work over threads. Pointers are to floats unless said otherwise; strides count
// elements.
#pragma once
#include "kernels/cpu/amx_linear.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/int8_linear.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/pair_linear.h"
#include "kernels/cpu/probe.h"
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
  // The same by AMX, for caches of bf16 or codes whose head_dim and block_size are multiples of
  // kAmxUnit; null without it.
  std::size_t (*amx_attend_scratch_bytes)(std::int64_t head_dim);
  void (*amx_attend)(const AttentionTask&);
  void (*few_rows_linear)(const FewRowsLinearTask&);
  void (*tiled_linear)(const TiledLinearTask&);
  std::int64_t (*few_rows_x_floats)(std::int64_t n_in, bool weights_are_bf16);
  void (*pack_few_rows_x)(const PackTask&);
  void (*round_x_to_bf16)(const float* x, std::int64_t n, float* out);
  std::size_t (*tiled_linear_scratch_bytes)();
  void (*pack_pair_x)(const PairXTask&);  // null without VDPBF16PS; likewise the next two
  void (*pair_linear)(const PairLinearTask&);
  void (*pair_few_rows)(const PairLinearTask&);
  void (*amx_pack_x)(const AmxXTask&);  // null without AMX; likewise the next three
  std::size_t (*amx_linear_scratch_bytes)();
  void (*amx_linear)(const AmxLinearTask&);
  void (*amx_few_rows)(const AmxLinearTask&);
  std::int64_t (*int8_x_bytes)(std::int64_t group);  // of one row's group of integers
  void (*quantise_int8_x)(const Int8XTask&);
  void (*int8_linear)(const Int8LinearTask&);
  // The same by AMX, with the same bits and scratch of its own; null without it. For integers as
  // VPDPBUSD reads them, with readable memory behind them (kAmxInt8MoreRows).
  std::size_t (*amx_int8_scratch_bytes)(std::int64_t group);
  void (*amx_int8_linear)(const Int8LinearTask&);
  ProbeResult (*probe_float_products)(std::int64_t n_rounds, float x);
  ProbeResult (*probe_bf16_products)(std::int64_t n_rounds, float x);
  ProbeResult (*probe_int8_products)(std::int64_t n_rounds, float x);
  ProbeResult (*probe_read)(const float* x, std::int64_t n);
};

const Kernels& kernels();  // of active_isa()

namespace baseline {
extern const Kernels kernels;
}
namespace avx2 {  // on x86-64 only; likewise the next ones
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
namespace avx512_vnni {
extern const Kernels kernels;
}
namespace avx512_bf16 {
extern const Kernels kernels;
}
namespace amx {
Kernels with_amx(const Kernels& others);  // `others` where AMX has no kernel of its own
}

}  // namespace longhaul::cpu
