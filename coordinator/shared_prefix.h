// The longest common beginning of lists of ids that come one after the other. Keeps it once, and of
// each list only the rest, so that a hundred questions on one long document need little memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace longhaul {

class SharedPrefix {
 public:
  // At most `most` ids of this list are shared; one id is always left to the list itself. Not
  // empty.
  void add(std::vector<std::int32_t> ids, std::size_t most);
  // What all lists share, and their rests in order. Rests may be taken once, after the prefix; they
  // are whole lists where that is not to be shared after all.
  std::vector<std::int32_t> take_prefix();
  void share_nothing() { length_ = 0; }
  std::vector<std::vector<std::int32_t>> take_rests();

 private:
  struct Rest {
    std::size_t begin = 0;  // in its list
    std::vector<std::int32_t> ids;
  };
  std::optional<std::vector<std::int32_t>> first_;  // up to what was shared at first
  std::size_t length_ = 0;                          // of what is shared
  std::vector<Rest> rests_;
};

}  // namespace longhaul
