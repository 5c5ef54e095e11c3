#include "tests/fuzz/bad_inputs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "tests/support/random.h"

namespace longhaul::test {
namespace {

enum class Outcome { kRefused, kAccepted, kWrong };

Outcome try_parse(const Reader& reader, const BadInput& input) {
  try {
    reader.parse(input.bytes);
    return Outcome::kAccepted;
  } catch (const Error& error) {
    const std::string_view message = error.what();
    if (message.find(reader.source) != std::string_view::npos) return Outcome::kRefused;
    ADD_FAILURE() << reader.name << ", " << input.what << ": the error does not name "
                  << reader.source << ": " << message;
  } catch (const std::exception& error) {
    ADD_FAILURE() << reader.name << ", " << input.what
                  << ": another exception than longhaul::Error: " << error.what();
  }
  return Outcome::kWrong;
}

// Enough of the input to see in a failure what was wrong.
std::string excerpt(std::string_view bytes) {
  constexpr std::size_t kLongest = 400;
  return testing::PrintToString(std::string(bytes.substr(0, kLongest))) +
         (bytes.size() > kLongest ? "..." : "");
}

}  // namespace

BadInputCounts check_reader(const Reader& reader) {
  BadInputCounts counts;
  double slowest_ms = 0;
  for (const std::string& good : reader.good) {
    EXPECT_NO_THROW(reader.parse(good)) << reader.name << ": " << excerpt(good);
    std::vector<BadInput> bad = damaged_copies(good, reader.n_random);
    reader.targeted(good, bad);
    for (const BadInput& input : bad) {
      const Stopwatch watch;
      const Outcome outcome = try_parse(reader, input);
      slowest_ms = std::max(slowest_ms, watch.milliseconds());
      counts.refused += outcome == Outcome::kRefused ? 1 : 0;
      counts.harmless += outcome == Outcome::kAccepted ? 1 : 0;
      if (outcome == Outcome::kAccepted && input.must_be_refused) {
        ADD_FAILURE() << reader.name << ", " << input.what
                      << ": accepted: " << excerpt(input.bytes);
      }
    }
  }
  std::printf("%-24s %6zu refused, %6zu harmless, slowest %.1f ms\n", reader.name.c_str(),
              counts.refused, counts.harmless, slowest_ms);
  return counts;
}

std::vector<BadInput> damaged_copies(std::string_view good, std::size_t n) {
  Random random(base_seed() + good.size());
  const auto place = [&](std::size_t size) {
    return static_cast<std::size_t>(random.integer(0, static_cast<std::int64_t>(size) - 1));
  };
  std::vector<BadInput> bad;
  while (bad.size() < n && !good.empty()) {
    BadInput input{.what = {}, .bytes = std::string(good), .must_be_refused = false};
    std::string& bytes = input.bytes;
    const std::size_t at = place(bytes.size());
    switch (bad.size() % 5) {
      case 0: {
        const auto bit = random.integer(0, 7);
        bytes[at] = static_cast<char>(bytes[at] ^ static_cast<char>(1 << bit));
        input.what = fmt::format("bit {} of byte {} flipped", bit, at);
        break;
      }
      case 1: {
        const auto value = random.integer(0, 255);
        bytes[at] = static_cast<char>(value);
        input.what = fmt::format("byte {} set to {}", at, value);
        break;
      }
      case 2: {
        const std::size_t length = std::min(bytes.size() - at, place(16) + 1);
        bytes.erase(at, length);
        input.what = fmt::format("{} bytes cut out at {}", length, at);
        break;
      }
      case 3: {
        const std::string piece = bytes.substr(at, place(64) + 1);
        const std::size_t to = place(bytes.size());
        bytes.insert(to, piece);
        input.what = fmt::format("{} bytes from {} doubled at {}", piece.size(), at, to);
        break;
      }
      default:
        std::swap(bytes[at], bytes[place(bytes.size())]);
        input.what = fmt::format("byte {} swapped with another", at);
    }
    bad.push_back(std::move(input));
  }
  return bad;
}

void add_truncations(std::string_view good, const std::function<bool(std::size_t)>& may_end,
                     std::vector<BadInput>& bad) {
  constexpr std::size_t kMost = 120;
  const std::size_t step = std::max<std::size_t>(1, good.size() / kMost);
  for (std::size_t length = 0; length < good.size(); length += step) {
    if (may_end(length)) continue;
    bad.push_back({.what = fmt::format("truncated to {} bytes", length),
                   .bytes = std::string(good.substr(0, length))});
  }
}

}  // namespace longhaul::test
