#include "coordinator/checkpoint_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace longhaul {
namespace {

// What a slow disk writes in a second: a guess until something was written.
constexpr double kBytesPerSecond = 200e6;
// Documents that are read in less are not worth a file.
constexpr double kShortestSeconds = 30;

}  // namespace

CheckpointEvery checkpoint_every(const std::string& text) {
  using Unit = CheckpointEvery::Unit;
  if (text == "never") return {.unit = Unit::kNever, .n = 0};
  char* end = nullptr;
  const double n = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  require(end != text.c_str() && std::isfinite(n) && n > 0,
          fmt::format("\"{}\" is no interval: give chunks (16), a time (90s, 10m, 2h), a share of "
                      "the time (2%) or never",
                      text));
  if (unit == "%" && n < 100) return {.unit = Unit::kCost, .n = n / 100};
  if (unit == "s") return {.unit = Unit::kSeconds, .n = n};
  if (unit == "m") return {.unit = Unit::kSeconds, .n = 60 * n};
  if (unit == "h") return {.unit = Unit::kSeconds, .n = 3600 * n};
  require(unit.empty() && n == std::floor(n),
          fmt::format("\"{}\": an interval ends in s, m, h or %, or is a whole number of chunks",
                      text));
  return {.unit = Unit::kChunks, .n = n};
}

void CheckpointClock::chunk_done(double seconds, std::size_t kv_bytes, std::int64_t n_under_way) {
  ++n_chunks_;
  n_under_way_ = n_under_way;
  seconds_ += seconds;
  guessed_cost_ = static_cast<double>(kv_bytes) / kBytesPerSecond;
}

// What is written beside other work slows it down by as much as a slow disk takes, or less, and
// never by more than it took.
void CheckpointClock::checkpoint_done(double seconds, double beside_seconds) {
  last_cost_ = seconds + std::min(beside_seconds, guessed_cost_);
}

bool CheckpointClock::take_due() {
  bool is_due = false;
  switch (every_.unit) {
    case CheckpointEvery::Unit::kNever:
      return false;
    case CheckpointEvery::Unit::kChunks:
      // One more is computed before it is whole: that is of the interval, too.
      is_due = static_cast<double>(n_chunks_ + n_under_way_) >= std::max(1.0, every_.n - 1);
      break;
    case CheckpointEvery::Unit::kSeconds:
      is_due = seconds_ >= every_.n;
      break;
    case CheckpointEvery::Unit::kCost: {
      const double cost = last_cost_ >= 0 ? last_cost_ : guessed_cost_;
      is_due = seconds_ >= std::max(kShortestSeconds, cost * (1 - every_.n) / every_.n);
      break;
    }
  }
  if (!is_due) return false;
  n_chunks_ = -n_under_way_;
  seconds_ = 0;
  return true;
}

}  // namespace longhaul
