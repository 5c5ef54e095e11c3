#include "tests/cuda_on_host/thread_block.h"

#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

namespace longhaul::cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = 64U << 10U;
constexpr std::size_t kLanes = 32;
constexpr std::size_t kGuardWords = 256;  // behind shared memory

enum class State { kReady, kAtBarrier, kAtWarpInstruction, kEnded };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Thread {
  Place place;
  State state = State::kReady;
  bool started = false;
  void* jump[5] = {};  // where it goes on
  ucontext_t context = {};
  std::unique_ptr<std::byte[]> stack;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  std::size_t n_here = 0;
  const void* in[kLanes] = {};
  void* out[kLanes] = {};
};

struct Block {
  std::vector<Thread> threads;  // of the largest block so far; keeps their stacks
  std::size_t n_threads = 0;
  std::vector<Warp> warps;
  std::vector<std::uint32_t> shared;
  std::size_t n_alive = 0;
  std::size_t n_at_barrier = 0;
  std::size_t running = 0;
  const std::function<void()>* body = nullptr;
  ucontext_t scheduler_context = {};
  void* scheduler_jump[5] = {};
};

Block block;  // kernels run one after another, on the tests' one thread

Thread& running() { return block.threads[block.running]; }

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "cuda_on_host: %s\n", what);
  std::abort();
}

void release(State waiting) {
  for (std::size_t i = 0; i < block.n_threads; ++i) {
    if (block.threads[i].state == waiting) block.threads[i].state = State::kReady;
  }
}

void release_barrier_if_full() {
  if (block.n_alive == 0 || block.n_at_barrier < block.n_alive) return;
  block.n_at_barrier = 0;
  release(State::kAtBarrier);
}

// From a thread to the scheduler, which comes back when the thread is ready. Jumps, not
// swapcontext, which would call the system each time.
__attribute__((noinline)) void jump_to_scheduler() { __builtin_longjmp(block.scheduler_jump, 1); }
__attribute__((noinline)) void jump_to_thread(Thread& thread) { __builtin_longjmp(thread.jump, 1); }

__attribute__((noinline)) void give_way() {
  if (__builtin_setjmp(running().jump) == 0) jump_to_scheduler();
}

void thread_main() {
  (*block.body)();
  running().state = State::kEnded;
  --block.n_alive;
  release_barrier_if_full();
  jump_to_scheduler();
}

__attribute__((noinline)) void resume(std::size_t index) {
  block.running = index;
  Thread& thread = block.threads[index];
  if (__builtin_setjmp(block.scheduler_jump) != 0) return;
  if (thread.started) jump_to_thread(thread);
  thread.started = true;
  setcontext(&thread.context);
  fail("a thread did not start");
}

void prepare(Thread& thread, const Place& place) {
  if (!thread.stack) thread.stack = std::make_unique<std::byte[]>(kStackBytes);
  thread.place = place;
  thread.state = State::kReady;
  thread.started = false;
  thread.open_copies.clear();
  thread.groups.clear();
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack.get();
  thread.context.uc_stack.ss_size = kStackBytes;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, thread_main, 0);
}

}  // namespace

const Place& this_thread() { return running().place; }
std::byte* shared_memory() { return reinterpret_cast<std::byte*>(block.shared.data()); }

void run_block(Index grid, Index index, unsigned n_threads, std::size_t shared_bytes,
               const std::function<void()>& body) {
  if (n_threads % kLanes != 0) fail("a thread block that is not whole warps");
  if (block.threads.size() < n_threads) block.threads = std::vector<Thread>(n_threads);
  block.n_threads = block.n_alive = n_threads;
  block.n_at_barrier = 0;
  block.warps.assign(n_threads / kLanes, {});
  const std::size_t shared_words = (shared_bytes + 3) / 4;
  block.shared.assign(shared_words + kGuardWords, 0xffffffffU);
  block.body = &body;
  for (unsigned i = 0; i < n_threads; ++i) {
    prepare(block.threads[i], {{i, 0}, index, grid, {n_threads, 1}});
  }
  // Every other block from its last thread to its first: an order that no kernel may count on.
  const bool backwards = (index.x + index.y) % 2 == 1;
  while (block.n_alive > 0) {
    bool any = false;
    for (std::size_t i = 0; i < n_threads; ++i) {
      const std::size_t at = backwards ? n_threads - 1 - i : i;
      if (block.threads[at].state != State::kReady) continue;
      any = true;
      resume(at);
    }
    if (!any) fail("threads wait at different places");
  }
  for (std::size_t i = shared_words; i < block.shared.size(); ++i) {
    if (block.shared[i] != 0xffffffffU) fail("a kernel wrote behind its shared memory");
  }
}

void sync_block() {
  running().state = State::kAtBarrier;
  ++block.n_at_barrier;
  release_barrier_if_full();
  give_way();
}

void warp_instruction(const void* in, void* out, WarpBody all) {
  const std::size_t first = block.running / kLanes * kLanes;
  Warp& warp = block.warps[block.running / kLanes];
  warp.in[block.running - first] = in;
  warp.out[block.running - first] = out;
  running().state = State::kAtWarpInstruction;
  if (++warp.n_here == kLanes) {
    warp.n_here = 0;
    all(warp.in, warp.out);
    for (std::size_t i = first; i < first + kLanes; ++i) block.threads[i].state = State::kReady;
    return;
  }
  give_way();
}

void defer_copy(void* to, const void* from, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 ||
      reinterpret_cast<std::uintptr_t>(from) % bytes != 0) {
    fail("an asynchronous copy that is not aligned");
  }
  running().open_copies.push_back({to, from, bytes});
}

void commit_copies() {
  running().groups.push_back(std::move(running().open_copies));
  running().open_copies.clear();
}

void finish_copies(std::size_t n_pending_groups) {
  auto& groups = running().groups;
  for (; groups.size() > n_pending_groups; groups.pop_front()) {
    for (const Copy& copy : groups.front()) {
      if (copy.from != nullptr) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
  }
}

}  // namespace longhaul::cuda_on_host
