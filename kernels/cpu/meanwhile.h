// What the calling thread does now and then while an operator computes, so that other things do not
// stand still for as long as a kernel runs: messages of MPI advance only inside MPI's calls.
#pragma once
#include <chrono>
#include <functional>

#include "base/clock.h"

namespace longhaul {

// From its construction to its destruction the work is done between the tasks of CPU operators that
// this thread calls, by this thread, at most once in kInterval. It must be short, must not call
// operators, and what it throws the operator throws. One inside another replaces it.
class Meanwhile {
 public:
  static constexpr std::chrono::microseconds kInterval{100};

  explicit Meanwhile(std::function<void()> work);
  ~Meanwhile();
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

  // For operators, between two tasks. Does nothing on a thread that has no Meanwhile.
  static void look();

 private:
  std::function<void()> work_;
  Deadline next_;
  Meanwhile* outer_;
};

}  // namespace longhaul
