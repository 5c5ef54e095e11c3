#include "base/spelling.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace longhaul {
namespace {

// Without what people mix up: case, hyphens, underscores.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (c != '_' && c != '-')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return text;
}

}  // namespace

std::size_t spelling_distance(std::string_view a, std::string_view b) {
  const std::size_t n = b.size() + 1;
  std::vector<std::size_t> before(n), last(n), now(n);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j < n; ++j) {
      const std::size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[n - 1];
}

std::string nearly(std::string_view word, const std::vector<std::string_view>& known) {
  constexpr std::size_t kShort = 6;
  std::string best;
  std::size_t least = (word.size() <= kShort ? 1 : 2) + 1;
  for (const std::string_view name : known) {
    const std::size_t distance = plain(word) == plain(name) ? 0 : spelling_distance(word, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

}  // namespace longhaul
