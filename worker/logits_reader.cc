#include "worker/logits_reader.h"

#include <algorithm>
#include <utility>

#include "kernels/top_k.h"

namespace longhaul {
namespace {

// Logits of one tile: at most so many bytes, yet enough rows for the matrix product to be busy.
constexpr std::int64_t kTileBytes = std::int64_t{32} << 20;
constexpr std::int64_t kMinTileRows = 16;

}  // namespace

void LogitsReader::answer(const TensorView<const float, 2>& hidden,
                          std::span<const LogitsQuestion> questions,
                          std::vector<PickedToken>& answers) {
  const std::int64_t row_bytes =
      compute_.spec().vocab_size * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t tile = std::max(kMinTileRows, kTileBytes / row_bytes);
  for (std::int64_t begin = 0; begin < hidden.dim(0); begin += tile) {
    const Extent rows{begin, std::min(hidden.dim(0), begin + tile)};
    read(compute_.logits(hidden.slice(0, rows)),
         questions.subspan(static_cast<std::size_t>(rows.begin),
                           static_cast<std::size_t>(rows.size())),
         answers);
  }
}

void LogitsReader::read(const TensorView<const float, 2>& logits,
                        std::span<const LogitsQuestion> questions,
                        std::vector<PickedToken>& answers) {
  const PhaseTimer timer(compute_.times(), Phase::kPick);
  const std::int64_t n_rows = logits.dim(0);
  const std::int64_t vocab_size = logits.dim(1);
  std::int64_t k = 1;
  for (const LogitsQuestion& q : questions) k = std::max(k, std::min(q.n_logprobs, vocab_size));
  ids_.resize(static_cast<std::size_t>(n_rows * k));
  values_.resize(ids_.size());
  log_sum_exp_.resize(static_cast<std::size_t>(n_rows));
  top_k(StreamRef::cpu(), {.logits = logits,
                           .ids = {ids_.data(), {n_rows, k}},
                           .values = {values_.data(), {n_rows, k}},
                           .log_sum_exp = log_sum_exp_});

  for (std::int64_t row = 0; row < n_rows; ++row) {
    const LogitsQuestion& q = questions[static_cast<std::size_t>(row)];
    const auto first = static_cast<std::size_t>(row * k);
    const std::span<const float> row_logits(logits.data() + row * logits.stride(0),
                                            static_cast<std::size_t>(vocab_size));
    PickedToken answer;
    answer.sequence = q.sequence;
    if (q.token != LogitsQuestion::kPick) {
      answer.token = q.token;
    } else if (q.sampling->temperature > 0) {
      answer.token = sampler_.sample(row_logits, *q.sampling, q.position);
    } else {
      answer.token = ids_[first];
    }
    if (q.n_logprobs >= 0) {
      const float norm = log_sum_exp_[static_cast<std::size_t>(row)];
      answer.logprob = row_logits[static_cast<std::size_t>(answer.token)] - norm;
      const auto n_top = static_cast<std::size_t>(std::min(q.n_logprobs, vocab_size));
      answer.top.reserve(n_top);
      for (std::size_t i = first; i < first + n_top; ++i) {
        answer.top.push_back({.token = ids_[i], .logprob = values_[i] - norm});
      }
    }
    answers.push_back(std::move(answer));
  }
}

}  // namespace longhaul
