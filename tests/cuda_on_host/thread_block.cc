#include "tests/cuda_on_host/thread_block.h"

#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "base/dtype.h"
#include "tests/cuda_on_host/fail.h"
#include "tests/cuda_on_host/warpgroup.h"

namespace longhaul::cuda_on_host {
namespace {

constexpr std::size_t kStackBytes = 64U << 10U;
// Stacks begin in different sets of the first cache, or threads would push each other's frames out.
constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kStackShifts = 61;
constexpr std::size_t kLanes = 32;
constexpr std::size_t kGuardWords = 256;  // behind shared memory

constexpr std::size_t kWarpgroupThreads = 128;

constexpr int kNumbers = 16;  // of barriers that have one; 0 is sync_block's

enum class State : unsigned char {
  kReady,
  kAtBarrier,
  kAtWarpInstruction,
  kAtMbarrier,
  kAtNumber,
  kAtWarpgroup,
  kEnded
};

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

// A product of a warpgroup, as one thread sees it.
struct Product {
  float* d;
  int columns;
  const std::uint32_t* a_at;
  std::uint32_t a[4];  // as it was then
  std::uint64_t b;
  bool accumulates;
};

struct Thread {
  Place place;
  bool started = false;
  void* jump[5] = {};  // where it goes on
  std::unique_ptr<ucontext_t> context;
  std::unique_ptr<std::byte[]> stack;
  std::vector<Copy> open_copies;
  std::deque<std::vector<Copy>> groups;
  bool is_fenced = false;
  std::vector<Product> products;
  std::deque<std::size_t> product_groups;        // that have ended: how many products each has
  std::map<float*, std::vector<float>> outputs;  // of products under way, before them
  int number = 0;                                // of the barrier that it waits at
};

struct Mbarrier {
  int count = 0;
  int n_awaited = 0;
  std::int64_t n_bytes = 0;
  std::int64_t n_phases = 0;  // that have ended
};

struct NumberedBarrier {
  unsigned n_threads = 0;
  unsigned n_here = 0;
};

struct BulkCopy {
  Copy copy;
  std::uint64_t* barrier;
};

struct Warp {
  std::size_t n_here = 0;
  const void* in[kLanes] = {};
  void* out[kLanes] = {};
};

struct Block {
  std::vector<Thread> threads;  // of the largest block so far; keeps their stacks
  std::vector<State> states;    // of the threads, side by side: looked at again and again
  std::size_t n_threads = 0;
  std::vector<Warp> warps;
  std::vector<std::size_t> n_at_warpgroup;
  std::map<std::uint64_t*, Mbarrier> mbarriers;
  NumberedBarrier numbered[kNumbers];
  std::deque<BulkCopy> bulk_copies;
  std::vector<std::uint32_t> shared;
  std::size_t n_alive = 0;
  std::size_t n_at_barrier = 0;
  std::size_t running = 0;
  const std::function<void()>* body = nullptr;
  ucontext_t scheduler_context = {};
  void* scheduler_jump[5] = {};
};

Block block;  // kernels run one after another: launches have a DeviceMemoryAccess

Thread& running() { return block.threads[block.running]; }
void become(State state) { block.states[block.running] = state; }

void release(State waiting) {
  std::replace(block.states.begin(), block.states.end(), waiting, State::kReady);
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

// Runs a thread of one block after the other, all on one stack: making a context calls the system.
void thread_main() {
  for (;;) {
    (*block.body)();
    become(State::kEnded);
    --block.n_alive;
    release_barrier_if_full();
    give_way();  // until the next block
  }
}

__attribute__((noinline)) void resume(std::size_t index) {
  block.running = index;
  Thread& thread = block.threads[index];
  if (__builtin_setjmp(block.scheduler_jump) != 0) return;
  if (thread.started) jump_to_thread(thread);
  thread.started = true;
  setcontext(thread.context.get());
  fail("a thread did not start");
}

void make_stack(Thread& thread, std::size_t number) {
  const std::size_t shift = number % kStackShifts * kLineBytes;
  thread.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes + shift);
  thread.context = std::make_unique<ucontext_t>();
  getcontext(thread.context.get());
  thread.context->uc_stack.ss_sp = thread.stack.get() + shift;
  thread.context->uc_stack.ss_size = kStackBytes;
  thread.context->uc_link = nullptr;
  makecontext(thread.context.get(), thread_main, 0);
}

void prepare(Thread& thread, const Place& place) {
  if (!thread.stack) make_stack(thread, place.thread.x);
  thread.place = place;
  thread.open_copies.clear();
  thread.groups.clear();
  thread.is_fenced = false;
  thread.products.clear();
  thread.product_groups.clear();
  thread.outputs.clear();
}

Mbarrier& mbarrier(std::uint64_t* at) {
  const auto found = block.mbarriers.find(at);
  if (found == block.mbarriers.end()) fail("a barrier in shared memory that was not made");
  return found->second;
}

void end_phase_if_complete(Mbarrier& barrier) {
  if (barrier.n_awaited > 0 || barrier.n_bytes > 0) return;
  barrier.n_awaited = barrier.count;
  ++barrier.n_phases;
  release(State::kAtMbarrier);
}

// The latest moment for a bulk copy: nobody can go on. In either order, for they have none.
bool make_bulk_copy(bool newest) {
  if (block.bulk_copies.empty()) return false;
  const BulkCopy bulk = newest ? block.bulk_copies.back() : block.bulk_copies.front();
  newest ? block.bulk_copies.pop_back() : block.bulk_copies.pop_front();
  std::memcpy(bulk.copy.to, bulk.copy.from, bulk.copy.bytes);
  Mbarrier& barrier = mbarrier(bulk.barrier);
  barrier.n_bytes -= static_cast<std::int64_t>(bulk.copy.bytes);
  if (barrier.n_bytes < 0) fail("a copy of more bytes than its barrier expects");
  end_phase_if_complete(barrier);
  return true;
}

// Bytes of the right side that a descriptor names, from which row `k` of column `column` is read.
const std::byte* right_at(std::uint64_t descriptor, int k, int column) {
  if (descriptor >> 46U != 0) fail("a descriptor with swizzling or an offset");
  const auto field = [&](unsigned at) { return (descriptor >> at & 0x3fffU) << 4U; };
  const std::uint64_t offset = field(0) + field(16) * static_cast<unsigned>(k / 8) +
                               field(32) * static_cast<unsigned>(column / 8) +
                               static_cast<unsigned>(column % 8 * 16 + k % 8 * 2);
  return reinterpret_cast<const std::byte*>(block.shared.data()) + offset;
}

float bf16_at(const void* at) {
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return to_float(BFloat16{bits});
}

// Product number `index` of the warpgroup that begins with thread `first`.
void compute_product(std::size_t first, std::size_t index) {
  const Product& shape = block.threads[first].products[index];
  float left[64][16];
  for (std::size_t i = 0; i < kWarpgroupThreads; ++i) {
    const Product& own = block.threads[first + i].products[index];
    if (own.columns != shape.columns || own.b != shape.b || own.accumulates != shape.accumulates) {
      fail("threads of a warpgroup begin different products");
    }
    if (!std::equal(own.a, own.a + 4, own.a_at)) {
      fail("an input of a product was written before the product was done");
    }
    const std::size_t row = i / kLanes * 16 + i % kLanes / 4;
    for (std::size_t e = 0; e < 8; ++e) {
      const auto half = static_cast<std::uint16_t>(own.a[e / 2] >> (e % 2 * 16));
      left[row + e / 2 % 2 * 8][i % 4 * 2 + e / 4 * 8 + e % 2] = to_float(BFloat16{half});
    }
  }
  std::vector<float> right(static_cast<std::size_t>(16 * shape.columns));
  for (int k = 0; k < 16; ++k) {
    for (int c = 0; c < shape.columns; ++c) {
      right[static_cast<std::size_t>(k * shape.columns + c)] = bf16_at(right_at(shape.b, k, c));
    }
  }
  for (std::size_t i = 0; i < kWarpgroupThreads; ++i) {
    const Product& own = block.threads[first + i].products[index];
    for (std::size_t e = 0; e < static_cast<std::size_t>(own.columns / 2); ++e) {
      const std::size_t row = i / kLanes * 16 + i % kLanes / 4 + e / 2 % 2 * 8;
      const std::size_t column = e / 4 * 8 + i % 4 * 2 + e % 2;
      float sum = own.accumulates ? own.d[e] : 0.0F;
      for (std::size_t k = 0; k < 16; ++k) {
        sum += left[row][k] * right[k * static_cast<std::size_t>(shape.columns) + column];
      }
      own.d[e] = sum;
    }
  }
}

// How many products a thread has in the groups that are to be done.
std::size_t n_products_to_finish(const Thread& thread, std::size_t n_pending_groups) {
  std::size_t n = 0;
  for (std::size_t i = 0; i + n_pending_groups < thread.product_groups.size(); ++i) {
    n += thread.product_groups[i];
  }
  return n;
}

// What products under way will write holds NaN.
void hide_output(Thread& thread, float* d, int columns) {
  const std::size_t n = static_cast<std::size_t>(columns) / 2;
  if (!thread.outputs.try_emplace(d, d, d + n).second) return;
  std::fill(d, d + n, std::numeric_limits<float>::quiet_NaN());
}
void show_outputs(Thread& thread) {
  for (const auto& [d, before] : thread.outputs) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (d[i] == d[i]) fail("an output of a product was written before the product was done");
    }
    std::copy(before.begin(), before.end(), d);
  }
  thread.outputs.clear();
}

// Those that have been computed are no longer the thread's.
void forget_products(Thread& thread, std::size_t n_done, std::size_t n_pending_groups) {
  thread.products.erase(thread.products.begin(),
                        thread.products.begin() + static_cast<std::ptrdiff_t>(n_done));
  while (thread.product_groups.size() > n_pending_groups) thread.product_groups.pop_front();
  for (const Product& product : thread.products) hide_output(thread, product.d, product.columns);
}

NumberedBarrier& come_to_number(int number, unsigned n_threads) {
  if (number <= 0 || number >= kNumbers) fail("no such barrier");
  NumberedBarrier& barrier = block.numbered[number];
  if (n_threads == 0 || n_threads % kLanes != 0) fail("a barrier for threads that are no warps");
  if (barrier.n_here > 0 && barrier.n_threads != n_threads) {
    fail("threads come to a barrier for different numbers of them");
  }
  barrier.n_threads = n_threads;
  ++barrier.n_here;
  return barrier;
}

// True: nobody has to wait any more.
bool release_number_if_full(NumberedBarrier& barrier, int number) {
  if (barrier.n_here < barrier.n_threads) return false;
  barrier.n_here = 0;
  for (std::size_t i = 0; i < block.n_threads; ++i) {
    if (block.states[i] == State::kAtNumber && block.threads[i].number == number) {
      block.states[i] = State::kReady;
    }
  }
  return true;
}

}  // namespace

void wait_at_number(int number, unsigned n_threads) {
  NumberedBarrier& barrier = come_to_number(number, n_threads);
  become(State::kAtNumber);
  running().number = number;
  release_number_if_full(barrier, number);
  give_way();
}

void arrive_at_number(int number, unsigned n_threads) {
  release_number_if_full(come_to_number(number, n_threads), number);
}

void init_mbarrier(std::uint64_t* barrier, int count) {
  block.mbarriers[barrier] = {.count = count, .n_awaited = count};
}

void arrive_at(std::uint64_t* at, int bytes) {
  Mbarrier& barrier = mbarrier(at);
  barrier.n_bytes += bytes;
  if (--barrier.n_awaited < 0) fail("more arrivals than a barrier awaits");
  end_phase_if_complete(barrier);
}

void wait_at(std::uint64_t* at, int parity) {
  while (mbarrier(at).n_phases % 2 == parity) {
    become(State::kAtMbarrier);
    give_way();
  }
}

void copy_bulk(void* to, const void* from, std::size_t bytes, std::uint64_t* barrier) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from) | bytes;
  if (address % 16 != 0) fail("a bulk copy that is not aligned");
  block.bulk_copies.push_back({{to, from, bytes}, barrier});
}

std::uint32_t shared_offset(const void* at) {
  return static_cast<std::uint32_t>(static_cast<const std::byte*>(at) - shared_memory());
}

void fence_products() { running().is_fenced = true; }

void begin_product(float* d, int columns, const std::uint32_t* a, std::uint64_t b,
                   bool accumulates) {
  Thread& thread = running();
  if (!thread.is_fenced) fail("a warpgroup's product without a fence before it");
  thread.products.push_back({d, columns, a, {a[0], a[1], a[2], a[3]}, b, accumulates});
  hide_output(thread, d, columns);
}

void commit_products() {
  Thread& own = running();
  std::size_t n = own.products.size();
  for (const std::size_t before : own.product_groups) n -= before;
  own.product_groups.push_back(n);
}

void finish_products(std::size_t n_pending_groups) {
  Thread& own = running();
  show_outputs(own);
  own.is_fenced = false;
  const std::size_t first = block.running / kWarpgroupThreads * kWarpgroupThreads;
  if (first + kWarpgroupThreads > block.n_threads) fail("a product outside of a warpgroup");
  std::size_t& n_here = block.n_at_warpgroup[first / kWarpgroupThreads];
  become(State::kAtWarpgroup);
  if (++n_here < kWarpgroupThreads) return give_way();
  n_here = 0;
  const std::size_t n_done = n_products_to_finish(own, n_pending_groups);
  for (std::size_t i = first; i < first + kWarpgroupThreads; ++i) {
    const Thread& thread = block.threads[i];
    if (thread.products.size() != own.products.size() ||
        n_products_to_finish(thread, n_pending_groups) != n_done) {
      fail("threads of a warpgroup begin different products");
    }
  }
  for (std::size_t i = 0; i < n_done; ++i) compute_product(first, i);
  for (std::size_t i = first; i < first + kWarpgroupThreads; ++i) {
    forget_products(block.threads[i], n_done, n_pending_groups);
    block.states[i] = State::kReady;
  }
}

const Place& this_thread() { return running().place; }
std::byte* shared_memory() { return reinterpret_cast<std::byte*>(block.shared.data()); }

void run_block(Index grid, Index index, unsigned n_threads, std::size_t shared_bytes,
               const std::function<void()>& body) {
  if (n_threads % kLanes != 0) fail("a thread block that is not whole warps");
  if (block.threads.size() < n_threads) block.threads = std::vector<Thread>(n_threads);
  block.n_threads = block.n_alive = n_threads;
  block.n_at_barrier = 0;
  block.states.assign(n_threads, State::kReady);
  block.warps.assign(n_threads / kLanes, {});
  block.n_at_warpgroup.assign(n_threads / kWarpgroupThreads + 1, 0);
  block.mbarriers.clear();
  std::ranges::fill(block.numbered, NumberedBarrier{});
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
      if (block.states[at] != State::kReady) continue;
      any = true;
      resume(at);
    }
    if (!any && !make_bulk_copy(backwards)) fail("threads wait at different places");
  }
  if (!block.bulk_copies.empty()) fail("a bulk copy that nobody waited for");
  for (const NumberedBarrier& barrier : block.numbered) {
    if (barrier.n_here > 0) fail("threads came to a barrier that nobody waited for");
  }
  for (std::size_t i = shared_words; i < block.shared.size(); ++i) {
    if (block.shared[i] != 0xffffffffU) fail("a kernel wrote behind its shared memory");
  }
}

void sync_block() {
  become(State::kAtBarrier);
  ++block.n_at_barrier;
  release_barrier_if_full();
  give_way();
}

void warp_instruction(const void* in, void* out, WarpBody all) {
  const std::size_t first = block.running / kLanes * kLanes;
  Warp& warp = block.warps[block.running / kLanes];
  warp.in[block.running - first] = in;
  warp.out[block.running - first] = out;
  become(State::kAtWarpInstruction);
  if (++warp.n_here == kLanes) {
    warp.n_here = 0;
    all(warp.in, warp.out);
    std::fill_n(block.states.begin() + static_cast<std::ptrdiff_t>(first), kLanes, State::kReady);
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
