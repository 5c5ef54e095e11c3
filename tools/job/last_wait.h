// A limit to the wait for a last word that may never come.
#pragma once
#include <chrono>
#include <functional>
#include <memory>

namespace longhaul {

// Rank 0 has let this rank go and left. What it said last does not come where it passes through a
// rank that is stopped: then this one leaves by itself.
class LastWait {
 public:
  // `leave` ends the process, on a thread of its own.
  LastWait(std::chrono::milliseconds limit, std::function<void()> leave);
  ~LastWait() { call_off(); }
  LastWait(const LastWait&) = delete;
  LastWait& operator=(const LastWait&) = delete;

  // Any thread; does not block. Without a thread for it, leaves at once.
  void begin();
  // The last word has come. Any thread.
  void call_off();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace longhaul
