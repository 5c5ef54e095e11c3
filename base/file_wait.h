// Words and an end for waits that have none: a disk or a server that does not answer holds whoever
// opens, reads, maps or writes a file of it, and no signal is heard meanwhile. For calls whose
// thread cannot be left behind; base/patient_read.h is for those that can.
#pragma once
#include <chrono>
#include <exception>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace longhaul {

// Of any file, where nobody says otherwise.
inline constexpr std::chrono::seconds kSayWaitingEvery{30};
inline constexpr std::chrono::hours kLongestFileWait{24};

struct FileWaitRules {
  bool speaks = true;  // false: another process tells people
  std::chrono::milliseconds say_every = kSayWaitingEvery;
  std::chrono::milliseconds limit = kLongestFileWait;
  std::string limit_name;  // the flag that sets it
  // How much longer a file may take once a stop was asked for.
  std::chrono::milliseconds before_work_after_stop = std::chrono::seconds(5);
  std::chrono::milliseconds at_work_after_stop = std::chrono::minutes(1);
  std::function<bool()> stop_requested = {};
  std::function<std::string()> where = {};  // " on rank 3"; empty: nothing is said of that
  // Ends the process, called on a thread of its own while the waiting one is still in its call:
  // with kTimeout at the limit, with kCancelled after a stop. Empty: waits have no end.
  std::function<void(std::exception_ptr)> end = {};
};

// What holds for all waits of this process while the object lives, instead of what held before;
// what is made later ends earlier.
class FileWaitPolicy {
 public:
  explicit FileWaitPolicy(FileWaitRules rules);
  ~FileWaitPolicy();  // waits for the return of whichever function of the rules is being called
  FileWaitPolicy(const FileWaitPolicy&) = delete;
  FileWaitPolicy& operator=(const FileWaitPolicy&) = delete;

 private:
  FileWaitRules before_;
};

enum class FileUse {
  kReadingBeforeWork,
  kReadingAtWork,  // a stop lets what is under way end, which is worth a wait
  kWriting,        // at work, too
  kStream,         // whose reader takes its time: at work, too, but not spoken of, and no limit
};

// A wait of one thread, while the object lives. One within another is part of it.
class FileWait {
 public:
  // `name`: of a file, or of what several files are together.
  FileWait(FileUse use, const std::filesystem::path& name);
  ~FileWait();
  FileWait(const FileWait&) = delete;
  FileWait& operator=(const FileWait&) = delete;

 private:
  friend class FileWatcher;
  FileUse use_;
  std::string name_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point said_ = begin_;  // last
  std::optional<Clock::time_point> stop_seen_;
  bool is_ended_ = false;  // the process was to end because of it
};

// Between two looks at times and stops, and what is longer than that for another reason: the
// process stood still itself (stopped, suspended with its machine), which is no wait for a file.
inline constexpr std::chrono::milliseconds kFileWaitLook{200};
inline constexpr std::chrono::seconds kStandstill{2};

// "archive.txt on rank 3 has not been read for 30 s (--step-timeout): its disk or server does not
// answer". `done`: read, written.
std::string why_not_awaited(const std::string& name, const std::string& where,
                            std::string_view done, Clock::duration since,
                            const std::string& limit_name);

// "longhaul: still waiting for archive.txt on rank 3 (30 s)", on stderr.
void say_waiting(const std::string& name, const std::string& where, Clock::duration since);

}  // namespace longhaul
