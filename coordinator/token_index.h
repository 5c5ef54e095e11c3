// Finds where the last tokens of a text stood before, in a text that may grow: what followed them
// there is a guess of what follows here (prompt lookup; Saxena 2023, "Prompt Lookup Decoding"). A
// chain of places for every few tokens, newest first, as LZ77 compressors have it. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace longhaul {

// 12 to 20 bytes a token.
class TokenIndex {
 public:
  // Of places where at least `least` tokens agree.
  explicit TokenIndex(std::int64_t least) : least_(least) {}

  void append(std::span<const std::int32_t> tokens);
  std::span<const std::int32_t> tokens() const { return tokens_; }

  struct Match {
    std::int64_t length = 0;  // of what agrees
    std::int64_t next = 0;    // the place of what follows it
  };
  // Of the places where the end of `text` stands and which something follows, one where most of it
  // agrees, the newest of such. Of long chains only the newest places are looked at, and of long
  // agreement only its end.
  std::optional<Match> find(std::span<const std::int32_t> text) const;

 private:
  static constexpr std::int32_t kNone = -1;
  std::size_t chain_of(const std::int32_t* first) const;
  void add_place(std::int64_t begin);
  void widen();

  std::int64_t least_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::int32_t> before_;  // of each place: the one before it in its chain
  std::vector<std::int32_t> newest_;  // of each chain; a power of two of them
};

}  // namespace longhaul
