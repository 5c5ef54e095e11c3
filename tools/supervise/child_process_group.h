// A command in a process group of its own, which is never waited for without an end: one that the
// kernel holds in a disk or a network may outlive even SIGKILL.
#pragma once
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace longhaul {

class ChildProcessGroup {
 public:
  enum class Output : bool { kOurs, kNone };
  // Finds words[0] on PATH. `variable` is "NAME=value" for its environment, or empty. Throws kIo.
  ChildProcessGroup(const std::vector<std::string>& words, const std::string& variable,
                    Output output);
  // Kills what is left of it, and waits for that some seconds.
  ~ChildProcessGroup();
  ChildProcessGroup(const ChildProcessGroup&) = delete;
  ChildProcessGroup& operator=(const ChildProcessGroup&) = delete;

  // Its exit status as a shell says it (128 + signal), once it has ended.
  std::optional<int> poll();
  std::optional<int> wait(std::chrono::milliseconds limit);
  // To the command alone, which hands it on as it does; to all of its group.
  void signal(int number);
  void signal_group(int number);
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// Processes of this host whose environment has `variable` ("NAME=value") and that run a program of
// this name. Reads /proc.
std::vector<pid_t> processes_with(const std::string& variable, const std::string& program_name);

}  // namespace longhaul
