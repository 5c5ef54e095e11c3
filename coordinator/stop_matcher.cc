#include "coordinator/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace longhaul {

std::string StopMatcher::push(std::string_view piece) {
  if (stopped_) return {};
  if (stops_.empty()) return std::string(piece);
  for (const char c : piece) {
    held_ += c;
    if (const std::size_t length = length_of_match_at_end(); length > 0) {
      stopped_ = true;
      found_ = held_.substr(held_.size() - length);
      held_.resize(held_.size() - length);
      return std::exchange(held_, {});
    }
  }
  return take_certain();
}

std::string StopMatcher::pass(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  return take_certain();
}

std::string StopMatcher::take_certain() {
  const std::size_t n_certain = held_.size() - length_to_hold();
  std::string certain = held_.substr(0, n_certain);
  held_.erase(0, n_certain);
  return certain;
}

std::string StopMatcher::finish() { return std::exchange(held_, {}); }

std::size_t StopMatcher::length_of_match_at_end() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    if (held_.ends_with(stop)) longest = std::max(longest, stop.size());
  }
  return longest;
}

// Of the longest end of the text that is the beginning of a stop string.
std::size_t StopMatcher::length_to_hold() const {
  std::size_t longest = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
    }
  }
  return longest;
}

}  // namespace longhaul
