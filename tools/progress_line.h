// One line on stderr that says how far an evaluation is: rewritten on a terminal, else printed now
// and then.
#pragma once
#include <optional>
#include <string_view>

#include "base/clock.h"

namespace longhaul {

class ProgressLine {
 public:
  explicit ProgressLine(bool is_shown);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(std::string_view text);  // at most a few times a second
  void print(std::string_view text);   // a line that stays
  void clear();                        // before others write to the same terminal

 private:
  bool is_shown_;
  bool is_terminal_;
  bool has_line_ = false;
  std::optional<Clock::time_point> last_;
};

}  // namespace longhaul
