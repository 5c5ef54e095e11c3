#include "worker/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/split_mix.h"

namespace longhaul {
namespace {

bool is_likelier(const Candidate& a, const Candidate& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

bool is_unlikelier(const Candidate& a, const Candidate& b) { return is_likelier(b, a); }

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.probability;
  return sum;
}

void keep_top_k(std::vector<Candidate>& candidates, std::int64_t k) {
  if (k <= 0 || k >= static_cast<std::int64_t>(candidates.size())) return;
  std::partial_sort(candidates.begin(), candidates.begin() + k, candidates.end(), is_likelier);
  candidates.resize(static_cast<std::size_t>(k));
}

// Takes the likeliest from a heap until they reach top_p: most of the vocabulary is never sorted.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;
  const double enough = top_p * sum_of(candidates);
  std::make_heap(candidates.begin(), candidates.end(), is_unlikelier);
  auto end = candidates.end();
  double sum = 0;
  do {
    std::pop_heap(candidates.begin(), end, is_unlikelier);
    --end;
    sum += end->probability;
  } while (sum < enough && end != candidates.begin());
  std::reverse(end, candidates.end());
  candidates.erase(candidates.begin(), end);
}

void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  if (min_p <= 0.0) return;
  const double least =
      min_p * std::max_element(candidates.begin(), candidates.end(), is_unlikelier)->probability;
  std::erase_if(candidates, [&](const Candidate& c) { return c.probability < least; });
}

}  // namespace

double uniform_draw(std::uint64_t seed, TokenPos position) {
  const auto offset = static_cast<std::uint64_t>(position.value);
  return static_cast<double>(split_mix(split_mix(seed) + offset) >> 11) * 0x1p-53;
}

std::span<const Candidate> Sampler::candidates(std::span<const float> logits,
                                               const SamplingParams& params, const IdSet* allowed) {
  const double max = allowed == nullptr
                         ? *std::max_element(logits.begin(), logits.end())
                         : logits[static_cast<std::size_t>(likeliest(logits, *allowed))];
  candidates_.clear();
  const auto add = [&](std::int64_t id) {
    const double logit = logits[static_cast<std::size_t>(id)];
    candidates_.push_back({.token = static_cast<std::int32_t>(id),
                           .probability = std::exp((logit - max) / params.temperature)});
  };
  if (allowed == nullptr) {
    for (std::size_t i = 0; i < logits.size(); ++i) add(static_cast<std::int64_t>(i));
  } else {
    allowed->for_each(add);
  }
  keep_top_k(candidates_, params.top_k);
  keep_top_p(candidates_, params.top_p);
  keep_min_p(candidates_, params.min_p);
  const double sum = sum_of(candidates_);
  for (Candidate& c : candidates_) c.probability /= sum;
  return candidates_;
}

std::int32_t Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                             TokenPos position, const IdSet* allowed) {
  double left = uniform_draw(params.seed, {params.first_position + position.value});
  const std::span<const Candidate> from = candidates(logits, params, allowed);
  std::int32_t token = -1;
  for (const Candidate& c : from) {
    if (c.probability <= 0) continue;
    token = c.token;  // the last one with a probability, when rounding leaves a rest
    if (left < c.probability) break;
    left -= c.probability;
  }
  return token;
}

std::int32_t likeliest(std::span<const float> logits, const IdSet& allowed) {
  std::int64_t best = -1;
  allowed.for_each([&](std::int64_t id) {
    if (best < 0 || logits[static_cast<std::size_t>(id)] > logits[static_cast<std::size_t>(best)]) {
      best = id;
    }
  });
  return static_cast<std::int32_t>(best);
}

void check_sampling(const SamplingParams& params) {
  const auto check = [](bool is_good, std::string_view field, double value, std::string_view want) {
    require(is_good, fmt::format("sampling: {} is {}, it must be {}", field, value, want));
  };
  check(std::isfinite(params.temperature), "temperature", params.temperature, "finite");
  check(params.top_k >= 0, "top_k", static_cast<double>(params.top_k), "0 (off) or more");
  check(params.top_p >= 0 && params.top_p <= 1, "top_p", params.top_p, "between 0 and 1");
  check(params.min_p >= 0 && params.min_p <= 1, "min_p", params.min_p, "between 0 and 1");
}

}  // namespace longhaul
