#include "kernels/embedding.h"

#include "kernels/operators.h"
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

}  // namespace

void embedding(StreamRef stream, const EmbeddingArgs& args) {
  check(args);
  run_on(stream, cpu::embedding, cuda::embedding, args);
}

}  // namespace longhaul
