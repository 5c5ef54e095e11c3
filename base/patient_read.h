// Reading that can be given up: a file whose disk or server does not answer holds the thread that
// reads it, so that is a thread of its own, which is left behind where it must be.
#pragma once
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

#include "base/file_wait.h"

namespace longhaul {

struct ReadPatience {
  std::function<bool()> stop_requested = {};  // asked now and then: true throws kCancelled
  std::chrono::milliseconds say_every = kSayWaitingEvery;  // what is waited for, on stderr
  std::chrono::milliseconds limit = kLongestFileWait;      // then kTimeout is thrown
  std::string limit_name = {};                             // the flag that sets it
};

// As read_file (base/file.h), which blocks for as long as the system likes.
std::string read_file_patiently(const std::filesystem::path& path, std::size_t max_bytes,
                                const ReadPatience& patience);

// What `read` returns or throws. `read` must own all that it uses, since it may go on after this
// has thrown, until the process ends; it is given a question whether it was left behind.
using LeavableRead = std::function<std::string(const std::function<bool()>& is_left)>;
std::string read_patiently(const std::string& name, LeavableRead read,
                           const ReadPatience& patience);

}  // namespace longhaul
