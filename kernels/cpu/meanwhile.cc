#include "kernels/cpu/meanwhile.h"

#include <utility>

namespace longhaul {
namespace {

// Of the thread that calls operators. Threads that help it have none.
thread_local Meanwhile* current = nullptr;

}  // namespace

Meanwhile::Meanwhile(std::function<void()> work)
    : work_(std::move(work)), next_(Clock::now()), outer_(std::exchange(current, this)) {}

Meanwhile::~Meanwhile() { current = outer_; }

void Meanwhile::look() {
  if (current == nullptr || Clock::now() < current->next_) return;
  current->work_();
  current->next_ = Clock::now() + kInterval;
}

}  // namespace longhaul
