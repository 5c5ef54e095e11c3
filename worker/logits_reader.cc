#include "worker/logits_reader.h"

#include <algorithm>
#include <utility>

#include "kernels/top_k.h"

namespace longhaul {
namespace {

// Logits of one tile: at most so many bytes, yet enough rows for the matrix product to be busy.
constexpr std::int64_t kTileBytes = std::int64_t{32} << 20;
constexpr std::int64_t kMinTileRows = 16;

bool has_rules(const LogitsQuestion& q) { return q.rules != nullptr && q.rules->is_active(); }

// More than the most likely tokens is looked at.
bool needs_row(const LogitsQuestion& q) {
  return q.token == LogitsQuestion::kPick &&
         (q.sampling->temperature > 0 || q.allowed != nullptr || has_rules(q));
}

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
  is_reading_ = true;
  const std::int64_t n_rows = logits.dim(0);
  const std::int64_t vocab_size = logits.dim(1);
  std::int64_t k = 1;
  for (const LogitsQuestion& q : questions) k = std::max(k, std::min(q.n_logprobs, vocab_size));
  ids_.resize(static_cast<std::size_t>(n_rows * k));
  values_.resize(ids_.size());
  log_sum_exp_.resize(static_cast<std::size_t>(n_rows));
  top_k(compute_.stream(), {.logits = logits,
                            .ids = {ids_.data(), {n_rows, k}},
                            .values = {values_.data(), {n_rows, k}},
                            .log_sum_exp = log_sum_exp_});
  fetch(logits, questions);

  for (std::int64_t row = 0; row < n_rows; ++row) {
    const LogitsQuestion& q = questions[static_cast<std::size_t>(row)];
    const auto first = static_cast<std::size_t>(row * k);
    const float* row_logits = rows_[static_cast<std::size_t>(row)];
    PickedToken answer;
    answer.sequence = q.sequence;
    if (q.token != LogitsQuestion::kPick) {
      answer.token = q.token;
    } else if (needs_row(q)) {
      answer.token = pick(q, {row_logits, static_cast<std::size_t>(vocab_size)});
    } else {
      answer.token = ids_[first];
    }
    if (q.n_logprobs >= 0) {
      const float norm = log_sum_exp_[static_cast<std::size_t>(row)];
      float logit = values_[first];
      if (row_logits != nullptr) {
        logit = row_logits[answer.token];
      } else if (q.token != LogitsQuestion::kPick) {
        logit = scored_[static_cast<std::size_t>(row)];
      }
      answer.logprob = logit - norm;
      const auto n_top = static_cast<std::size_t>(std::min(q.n_logprobs, vocab_size));
      answer.top.reserve(n_top);
      for (std::size_t i = first; i < first + n_top; ++i) {
        answer.top.push_back({.token = ids_[i], .logprob = values_[i] - norm});
      }
    }
    answers.push_back(std::move(answer));
  }
  is_reading_ = false;
}

std::int32_t LogitsReader::pick(const LogitsQuestion& q, std::span<const float> logits) {
  if (has_rules(q)) logits = q.rules->apply(logits, adjusted_);
  if (q.sampling->temperature > 0) {
    return sampler_.sample(logits, *q.sampling, q.position, q.allowed);
  }
  if (q.allowed != nullptr) return likeliest(logits, *q.allowed);
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void LogitsReader::fetch(const TensorView<const float, 2>& logits,
                         std::span<const LogitsQuestion> questions) {
  const auto vocab_size = static_cast<std::size_t>(logits.dim(1));
  rows_.assign(questions.size(), nullptr);
  const auto row_there = [&](std::size_t i) {
    return logits.data() + static_cast<std::int64_t>(i) * logits.stride(0);
  };
  if (compute_.stream().device() == Device::kCpu) {
    for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i] = row_there(i);
    return;
  }
  const auto n_rows_wanted =
      static_cast<std::size_t>(std::count_if(questions.begin(), questions.end(), needs_row));
  row_memory_.resize(n_rows_wanted * vocab_size);
  scored_.resize(questions.size());
  copies_.clear();
  float* next = row_memory_.data();
  for (std::size_t i = 0; i < questions.size(); ++i) {
    const LogitsQuestion& q = questions[i];
    if (needs_row(q)) {
      copies_.push_back({std::as_writable_bytes(std::span(next, vocab_size)),
                         reinterpret_cast<const std::byte*>(row_there(i))});
      rows_[i] = next;
      next += vocab_size;
    } else if (q.token != LogitsQuestion::kPick && q.n_logprobs >= 0) {
      copies_.push_back({std::as_writable_bytes(std::span(scored_).subspan(i, 1)),
                         reinterpret_cast<const std::byte*>(row_there(i) + q.token)});
    }
  }
  if (!copies_.empty()) copy_to_host(compute_.stream(), copies_);
}

}  // namespace longhaul
