// Tasks of the backward operators. See kernels/cpu/isa/kernels.h.
#pragma once
#include <cstddef>
#include <cstdint>

namespace longhaul::cpu {

struct TransposeTask {
  const float* from;  // [n_rows, from_stride]
  std::int64_t from_stride;
  std::int64_t n_rows;
  std::int64_t n_columns;
  float* to;  // [n_columns, to_stride]
  std::int64_t to_stride;
};

// One row.
struct RmsNormBackwardTask {
  const float* x;       // [width]
  const float* weight;  // [width]
  float eps;
  const float* d_out;  // [width]
  float* d_x;          // [width]
  std::int64_t width;
  bool adds;
};

struct SwigluBackwardTask {
  const float* gate;   // [n]
  const float* up;     // [n]
  const float* d_out;  // [n]
  float* d_gate;       // [n]
  float* d_up;         // [n]
  std::int64_t n;
};

// Keys of one KV head that stand one after the other.
struct KeyRun {
  const float* k;  // [n, key_stride]
  const float* v;
  float* d_k;  // [n, head_dim], added to
  float* d_v;
  std::int64_t n;
};

// A query sees the keys [0, gap_begin) and [gap_end, end), counted through both runs.
struct SeenKeys {
  std::int64_t gap_begin;
  std::int64_t gap_end;
  std::int64_t end;
};

// Some queries of one KV head's group against all keys that any of them sees.
struct AttentionBackwardTask {
  const float* q;    // [n_queries, gqa_group, head_dim], tokens `token_stride` apart
  const float* d_o;  // the same; may be d_q
  float* o;
  float* d_q;
  std::int64_t token_stride;
  std::int64_t n_queries;
  std::int64_t gqa_group;
  std::int64_t head_dim;
  float sm_scale;
  const float* sink_logits;  // [gqa_group] or null
  const SeenKeys* seen;      // [n_queries]
  KeyRun runs[2];
  std::int64_t key_stride;
  float* scratch;  // attention_backward_scratch floats, aligned to 64 bytes
};

}  // namespace longhaul::cpu
