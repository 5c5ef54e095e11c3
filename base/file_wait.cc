#include "base/file_wait.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/print_stderr.h"

namespace longhaul {
namespace {

thread_local int n_waits_here = 0;  // of this thread, one within the other

std::int64_t whole_seconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

}  // namespace

// One per process. From the first wait on, a thread looks at those that there are. It takes no
// memory until one is due.
class FileWatcher {
 public:
  static FileWatcher& instance() {
    static auto* const watcher = new FileWatcher;  // its thread may outlive main()
    return *watcher;
  }

  FileWaitRules exchange(FileWaitRules rules) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !is_calling_; });
    if (!has_thread_) start();
    return std::exchange(rules_, std::move(rules));
  }

  void add(FileWait& wait) {
    const std::lock_guard lock(mutex_);
    waits_.push_back(&wait);
    if (!has_thread_) start();
    if (is_idle_) changed_.notify_all();
  }

  void remove(FileWait& wait) {
    const std::lock_guard lock(mutex_);
    std::erase(waits_, &wait);
  }

 private:
  // Of one wait: to be spoken of, or, with a code, the end of the process.
  struct Due {
    std::string name;
    FileUse use;
    Clock::duration since;
    std::optional<ErrorCode> end;
  };

  void start() {
    try {
      std::thread([this] { run(); }).detach();
      has_thread_ = true;
    } catch (const std::exception&) {  // no thread is left: waits are as the system has them
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (waits_.empty()) {
        is_idle_ = true;
        changed_.wait(lock, [this] { return !waits_.empty(); });
        is_idle_ = false;
      }
      const Clock::time_point before = Clock::now();
      changed_.wait_for(lock, kFileWaitLook);
      leave_out(Clock::now() - before);
      try {
        while (const std::optional<Due> due = next_due()) {
          is_calling_ = true;
          lock.unlock();
          call_for(*due);
          lock.lock();
          is_calling_ = false;
          changed_.notify_all();
        }
      } catch (const std::exception&) {  // no memory is left to say it
        if (!lock.owns_lock()) lock.lock();
        is_calling_ = false;
        changed_.notify_all();
      }
    }
  }

  void leave_out(Clock::duration between_looks) {
    if (between_looks < kStandstill) return;
    for (FileWait* wait : waits_) {
      wait->begin_ += between_looks;
      wait->said_ += between_looks;
      if (wait->stop_seen_) *wait->stop_seen_ += between_looks;
    }
  }

  std::optional<Due> next_due() {
    const Clock::time_point now = Clock::now();
    const bool is_stopped = rules_.stop_requested && rules_.stop_requested();
    for (FileWait* wait : waits_) {
      if (is_stopped && !wait->stop_seen_) wait->stop_seen_ = now;
      const std::optional<ErrorCode> end = end_of(*wait, now);
      const bool is_said =
          rules_.speaks && wait->use_ != FileUse::kStream && now - wait->said_ >= rules_.say_every;
      if (!end && !is_said) continue;
      wait->is_ended_ = wait->is_ended_ || end;
      for (FileWait* other : waits_)  // ranks that are threads wait for the same files
        if (other->name_ == wait->name_) other->said_ = now;
      return Due{wait->name_, wait->use_, now - wait->begin_, end};
    }
    return std::nullopt;
  }

  std::optional<ErrorCode> end_of(const FileWait& wait, Clock::time_point now) const {
    if (!rules_.end || wait.is_ended_) return std::nullopt;
    if (wait.use_ != FileUse::kStream && now - wait.begin_ >= rules_.limit)
      return ErrorCode::kTimeout;
    const auto after_stop = wait.use_ == FileUse::kReadingBeforeWork ? rules_.before_work_after_stop
                                                                     : rules_.at_work_after_stop;
    if (wait.stop_seen_ && now - *wait.stop_seen_ >= after_stop) return ErrorCode::kCancelled;
    return std::nullopt;
  }

  // Without the lock; the rules stay while `is_calling_`.
  void call_for(const Due& due) const {
    const std::string where = rules_.where ? rules_.where() : "";
    if (!due.end) return say_waiting(due.name, where, due.since);
    const bool is_written = due.use == FileUse::kWriting || due.use == FileUse::kStream;
    const std::string_view done = is_written ? "written" : "read";
    const std::int64_t seconds = whole_seconds(due.since);
    const std::string text =
        *due.end == ErrorCode::kCancelled
            ? fmt::format("stopped before {}{} was {} ({} s)", due.name, where, done, seconds)
            : why_not_awaited(due.name, where, done, due.since, rules_.limit_name);
    rules_.end(std::make_exception_ptr(Error(*due.end, text)));
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  FileWaitRules rules_;
  std::vector<FileWait*> waits_;
  bool has_thread_ = false;
  bool is_idle_ = false;     // sleeps until there is a wait
  bool is_calling_ = false;  // functions of the rules
};

FileWaitPolicy::FileWaitPolicy(FileWaitRules rules)
    : before_(FileWatcher::instance().exchange(std::move(rules))) {}
FileWaitPolicy::~FileWaitPolicy() { FileWatcher::instance().exchange(std::move(before_)); }

FileWait::FileWait(FileUse use, const std::filesystem::path& name)
    : use_(use), name_(name.string()) {
  if (n_waits_here++ == 0) FileWatcher::instance().add(*this);
}

FileWait::~FileWait() {
  if (--n_waits_here == 0) FileWatcher::instance().remove(*this);
}

std::string why_not_awaited(const std::string& name, const std::string& where,
                            std::string_view done, Clock::duration since,
                            const std::string& limit_name) {
  return fmt::format("{}{} has not been {} for {} s{}: its disk or server does not answer", name,
                     where, done, whole_seconds(since),
                     limit_name.empty() ? "" : fmt::format(" ({})", limit_name));
}

void say_waiting(const std::string& name, const std::string& where, Clock::duration since) {
  print_stderr("longhaul: still waiting for {}{} ({} s)\n", name, where, whole_seconds(since));
}

}  // namespace longhaul
