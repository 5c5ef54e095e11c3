// Rows of one head out of those of all heads.
#pragma once
#include "base/ids.h"
#include "kernels/tensor.h"

namespace longhaul {

// [rows, head_dim], strided, of x [n_rows, n_kv_heads, head_dim].
inline TensorView<const float, 2> head_rows(const TensorView<const float, 3>& x, Extent rows,
                                            KvHeadId head) {
  return {x.data() + rows.begin * x.stride(0) + head.value * x.stride(1),
          {rows.size(), x.dim(2)},
          {x.stride(0), 1}};
}

}  // namespace longhaul
