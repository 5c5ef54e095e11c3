// The program as its users run it: started as a process, fed flags and files, watched, killed.
#pragma once
#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace longhaul::test {

using Words = std::vector<std::string>;
Words joined(Words words, const Words& more);

struct Ended {
  int status = -1;  // 128 + signal when a signal ended it
  std::string output;
  std::string errors;
};

class ChildProcess {
 public:
  // Starts `longhaul` with these arguments; stdout and stderr go to files in `folder`. Variables
  // are "NAME=value", added to the environment. `launcher` are words to stand before the program,
  // such as mpirun -n 3.
  ChildProcess(const std::filesystem::path& folder, const Words& arguments,
               const Words& variables = {}, const Words& launcher = {});
  ~ChildProcess();  // kills it if it still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool running();           // false once it ended
  void signal(int number);  // does nothing once it ended
  int wait();               // exit status; 128 + signal when a signal ended it. Blocks
  Ended end();              // waits, and gives what it wrote as well. Blocks
  std::string output() const;
  std::string errors() const;

 private:
  void collect(int flags);
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = -1;
};

}  // namespace longhaul::test
