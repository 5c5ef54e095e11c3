#include "partition/workload.h"

#include <fmt/format.h>

#include "base/error.h"

namespace longhaul {

void Workload::validate() const {
  const auto check = [](const char* name, std::int64_t value, std::int64_t min, std::int64_t max) {
    require(min <= value && value <= max,
            fmt::format("workload: {} is {}, must be {} to {}", name, value, min, max));
  };
  check("document_tokens", document_tokens, 0, kMaxTokens);
  check("tail_tokens", tail_tokens, 0, kMaxTokens);
  check("n_guesses", n_guesses, 0, kRowsWithGuesses);
  check("document_tokens + tail_tokens", document_tokens + tail_tokens, 1, kMaxTokens);
  check("n_sequences", n_sequences, 1, std::int64_t{1} << 20);
  check("chunk_len", chunk_len, 1, std::int64_t{1} << 26);
  check("block_size", block_size, 1, std::int64_t{1} << 16);
}

}  // namespace longhaul
