// How often a rank looks whether what it waits for has come. Local.
//
//   WaitPace pace;
//   while (!has_come()) {
//     if (!pace.looks_around()) continue;
//     ... look at peers, aborts, the deadline ...
//     pace.rest();
//   }
//
// At first without a pause, for most messages come within microseconds. Then other threads get the
// core between looks. After kAwake the rank sleeps between them, for what it waits for may need
// this core; but as shortly as can be (some 60 us in Linux), and only after what all but the
// largest transfers take: messages move only while MPI is called, where it copies them (containers
// that forbid process_vm_readv) by 96 KiB a call.
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
