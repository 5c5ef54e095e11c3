// Bad inputs made from good ones, and the check that every reader refuses them by name. A reader is
// a row of a table: good inputs, a parse function, the mutations that fit its format. Everything is
// deterministic (tests/support/random.h).
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::test {

struct BadInput {
  std::string what;  // for messages: "truncated to 17 bytes"
  std::string bytes;
  // Refused for certain; otherwise the damage may leave a valid input, which must then be read
  // without fault.
  bool must_be_refused = true;
};

struct Reader {
  std::string name;
  std::string source;  // what parse() calls its input; must be in every error
  std::vector<std::string> good = {};
  std::function<void(std::string_view)> parse;  // reads, and uses what it read
  // Adds the bad inputs of the format that follow from one good input.
  std::function<void(std::string_view good, std::vector<BadInput>&)> targeted = {};
  std::size_t n_random = 150;  // damaged copies of each good input
};

struct BadInputCounts {
  std::size_t refused = 0;
  std::size_t harmless = 0;
};

// Checks one reader under GoogleTest: good inputs are read; targeted mutations are refused with
// longhaul::Error that names the source; damaged copies are refused so or read without fault.
// Prints and returns the counts.
BadInputCounts check_reader(const Reader& reader);

// Bits flipped, bytes changed, cut out, doubled or moved: not certain to be refused.
std::vector<BadInput> damaged_copies(std::string_view good, std::size_t n);

// Cut off after some of its bytes (all of them when there are few), except where `may_end` says
// that an input may end.
void add_truncations(std::string_view good, const std::function<bool(std::size_t)>& may_end,
                     std::vector<BadInput>& bad);

}  // namespace longhaul::test
