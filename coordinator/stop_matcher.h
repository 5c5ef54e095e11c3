// Finds stop strings in text that arrives in pieces, and holds back what may become one. The result
// does not depend on how the text is cut into pieces. Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace longhaul {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // The text that is certain now. The stop string that ends first counts (of several that end
  // together, the longest); it and what follows are cut off.
  std::string push(std::string_view piece);
  // The same, but stop strings that end in this piece do not count.
  std::string pass(std::string_view piece);
  bool stopped() const { return stopped_; }
  const std::string& found() const { return found_; }  // the stop string, once stopped
  // What was held back, when no more text follows.
  std::string finish();

 private:
  std::size_t length_of_match_at_end() const;
  std::string take_certain();
  std::size_t length_to_hold() const;

  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
  std::string found_;
};

}  // namespace longhaul
