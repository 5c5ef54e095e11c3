// How often a rank looks whether what it waits for has come. Local.
//
//   WaitPace pace;
//   while (!has_come()) {
//     if (!pace.looks_around()) continue;
//     ... look at peers, aborts, the deadline ...
//     pace.rest();
//   }
//
// At first without a pause, for most messages come within microseconds; then other threads get the
// core between looks; after kAwake the rank sleeps between them, for what it waits for may need
// this core. Messages move only while MPI is called, and without shared mappings (containers) by 96
// KiB a call: sleeps are the shortest that there are, some 60 us in Linux, and begin only after
// what the largest transfers take.
#pragma once
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace longhaul {

class WaitPace {
 public:
  // After each look: whether to look around as well, which costs more.
  bool looks_around() {
    ++looks_;
    return looks_ > kEagerLooks || looks_ % 32 == 0;
  }

  void rest() const {
    if (looks_ <= kEagerLooks) return;
    if (Clock::now() - start_ < kAwake) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(1));
    }
  }

 private:
  static constexpr int kEagerLooks = 1000;
  static constexpr std::chrono::milliseconds kAwake{50};

  int looks_ = 0;
  Clock::time_point start_ = Clock::now();
};

}  // namespace longhaul
