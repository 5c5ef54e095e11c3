#include "kernels/embedding.h"

#include <cstring>

#include "kernels/cpu/kernels.h"
#include "kernels/cuda/operators.h"
#include "kernels/parallel.h"
#include "kernels/shape_check.h"

namespace longhaul {
namespace {

void check(const EmbeddingArgs& args) {
  require_float_weight("embedding", args.table);
  require_equal("embedding", "n_tokens of out", args.out.dim(0),
                static_cast<std::int64_t>(args.tokens.size()));
  require_equal("embedding", "d_model of out", args.out.dim(1), args.table.n_in);
  for (std::size_t i = 0; i < args.tokens.size(); ++i) {
    if (args.tokens[i] < 0 || args.tokens[i] >= args.table.n_out) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("embedding: token {} is {}, outside the vocabulary of {}", i,
                              args.tokens[i], args.table.n_out));
    }
  }
}

void embedding_cpu(const EmbeddingArgs& args) {
  const std::int64_t d_model = args.table.n_in;
  const auto n_tokens = static_cast<std::int64_t>(args.tokens.size());
  parallel_rows(n_tokens, d_model, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = args.tokens[static_cast<std::size_t>(i)] * args.table.stride();
      float* out = args.out[i].data();
      if (args.table.dtype == DType::kF32) {
        std::memcpy(out, static_cast<const float*>(args.table.data) + at,
                    static_cast<std::size_t>(d_model) * sizeof(float));
      } else {
        cpu::kernels().widen_bf16(static_cast<const std::uint16_t*>(args.table.data) + at, d_model,
                                  out);
      }
    }
  });
}

}  // namespace

void embedding(StreamRef stream, const EmbeddingArgs& args) {
  check(args);
  switch (stream.device()) {
    case Device::kCpu:
      return embedding_cpu(args);
    case Device::kCuda:
      return cuda::embedding(stream.cuda_stream(), args);
  }
}

}  // namespace longhaul
