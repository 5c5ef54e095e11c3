// Picks a token from one row of logits under SamplingParams. The order of the filters is that of
// llama.cpp and Hugging Face: temperature, top_k, top_p, min_p. Pure: the draw is a function of
// (seed, position), so batching, ranks and restarts do not change it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/id_set.h"
#include "base/ids.h"
#include "cluster/wire/step.h"

namespace longhaul {

// Uniform in [0, 1), with 53 bits: splitmix64 of seed and position.
double uniform_draw(std::uint64_t seed, TokenPos position);

struct Candidate {
  std::int32_t token = -1;
  double probability = 0.0;  // sums to 1 over the candidates
};

// Used by one thread; keeps its list between calls.
class Sampler {
 public:
  // Of the `allowed` tokens (null: of all) those that pass the filters of `params` (temperature >
  // 0), with their probabilities.
  //   top_k   the k largest logits; equal logits: the lower ids
  //   top_p   of those, the fewest most likely ones whose probabilities reach top_p together
  //   min_p   of those, the ones at least min_p times as likely as the most likely
  // Never empty. By descending probability when top_k or top_p filters, else by ascending id. Valid
  // until the next call.
  std::span<const Candidate> candidates(std::span<const float> logits, const SamplingParams& params,
                                        const IdSet* allowed = nullptr);

  // The token at `position` of its sequence; temperature > 0.
  std::int32_t sample(std::span<const float> logits, const SamplingParams& params,
                      TokenPos position, const IdSet* allowed = nullptr);

 private:
  std::vector<Candidate> candidates_;
};

// The allowed token with the largest logit, of equal ones the lowest id.
std::int32_t likeliest(std::span<const float> logits, const IdSet& allowed);

// Throws kInvalidArgument naming the field: NaN, infinite or negative where that makes no sense.
void check_sampling(const SamplingParams& params);

}  // namespace longhaul
