// A limit to what has none of its own, such as a call of MPI, or the last word of a rank that is
// stopped.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

namespace longhaul {

class LastWait {
 public:
  // `leave` ends the process, on a thread of its own.
  LastWait(std::chrono::milliseconds limit, std::function<void()> leave);
  ~LastWait() { call_off(); }
  LastWait(const LastWait&) = delete;
  LastWait& operator=(const LastWait&) = delete;

  // Any thread; does not block. Throws std::system_error where no thread is left for it.
  void begin();
  // What was waited for has come. Any thread.
  void call_off();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace longhaul
