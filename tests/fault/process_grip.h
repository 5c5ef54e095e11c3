// Doing to another process what its network and its kernel might do. Both need the right to trace
// it (its ancestors and root have that); without it nothing happens.
#pragma once
#include <sys/types.h>

namespace longhaul::test {

enum class Grip { kDone, kNoRight, kFoundNone };

// Shuts down the first TCP connection between two processes of this host: both ends see it closed.
Grip close_connection(pid_t client, pid_t server);

// Stops the main thread of a process; its other threads go on.
class HeldThread {
 public:
  explicit HeldThread(pid_t process);
  ~HeldThread();  // lets it go
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;
  bool held() const { return held_; }
  // Call now and then: the process' parent hears of its death only after this one.
  void look_for_death();

 private:
  pid_t process_;
  bool held_ = false;
};

}  // namespace longhaul::test
