#include "base/patient_read.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"

namespace longhaul {
namespace {

// Of the two threads; lives as long as one of them uses it.
struct Shared {
  std::atomic<bool> is_left = false;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  bool is_over = false;
  std::string text;
  std::exception_ptr failure;
};

void read_for(Shared& shared, const LeavableRead& read) {
  std::string text;
  std::exception_ptr failure;
  try {
    text = read([&shared] { return shared.is_left.load(); });
  } catch (...) {
    failure = std::current_exception();
  }
  const std::lock_guard lock(shared.mutex);
  shared.text = std::move(text);
  shared.failure = failure;
  shared.is_over = true;
  shared.changed.notify_all();
}

[[noreturn]] void throw_stopped(const std::string& name) {
  throw Error(ErrorCode::kCancelled, "stopped while reading " + name);
}

void throw_if_over(const std::string& name, Clock::duration waited, const ReadPatience& patience) {
  if (patience.stop_requested && patience.stop_requested()) throw_stopped(name);
  if (waited < patience.limit) return;
  throw Error(ErrorCode::kTimeout, why_not_awaited(name, "", "read", waited, patience.limit_name));
}

}  // namespace

std::string read_patiently(const std::string& name, LeavableRead read,
                           const ReadPatience& patience) {
  throw_if_over(name, {}, patience);
  if (patience.stop_requested && patience.stop_requested()) throw_stopped(name);
  const auto shared = std::make_shared<Shared>();
  const auto body = std::make_shared<const LeavableRead>(std::move(read));
  try {
    std::thread([shared, body] { read_for(*shared, *body); }).detach();
  } catch (const std::system_error&) {  // no thread is left: it is read without an end
    return (*body)(patience.stop_requested);
  }
  Clock::duration waited{};
  Clock::duration said{};  // at the last words
  Clock::time_point before = Clock::now();
  std::unique_lock lock(shared->mutex);
  while (!shared->changed.wait_for(lock, kFileWaitLook, [&] { return shared->is_over; })) {
    const Clock::time_point now = Clock::now();
    const Clock::duration more = now - std::exchange(before, now);
    if (more < kStandstill) waited += more;
    if (waited - said >= patience.say_every) {
      said = waited;
      say_waiting(name, "", waited);
    }
    try {
      throw_if_over(name, waited, patience);
    } catch (...) {
      shared->is_left = true;
      throw;
    }
  }
  if (shared->failure) std::rethrow_exception(shared->failure);
  return std::move(shared->text);
}

std::string read_file_patiently(const std::filesystem::path& path, std::size_t max_bytes,
                                const ReadPatience& patience) {
  return read_patiently(
      path.string(),
      [path, max_bytes](const std::function<bool()>& is_left) {
        return read_file(path, max_bytes, is_left);
      },
      patience);
}

}  // namespace longhaul
