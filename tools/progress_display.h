// Shows progress on stderr: on a terminal one line that is rewritten, elsewhere a line now and
// then. Log lines and notes are kept apart from it. One thread; one object at a time.
#pragma once
#include <string_view>

#include "base/clock.h"
#include "coordinator/progress.h"
#include "tools/flags/log_flags.h"

namespace longhaul {

class ProgressDisplay {
 public:
  // Log lines are taken over when they go to the same terminal.
  explicit ProgressDisplay(const LogFlags& flags);
  ~ProgressDisplay();  // clears the line
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void update(const Progress& progress);  // shows it when it is time to
  void finish(const Progress& progress);  // shows the end state, with a line break
  void clear();
  // Whole lines for people that stay, beside the progress; silent where the display was made quiet.
  void tell(std::string_view lines);
  // The same for one sentence, which begins as everything that the program says.
  void note(std::string_view text);
  void warn(std::string_view text);  // also where the display was made quiet
  void stop() { enabled_ = false; }  // clear first

 private:
  void show_on_terminal(std::string_view line);

  bool enabled_;
  bool tells_;
  bool is_terminal_;
  Clock::time_point next_;
};

}  // namespace longhaul
