#include "tests/fault/checkpointed_job.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/file.h"
#include "tests/fault/result_files.h"
#include "worker/snapshot/saved_header.h"

namespace longhaul::test {

// The three documents of RankedJob as one, with prose between.
CheckpointedJob::CheckpointedJob() {
  const std::string prose =
      read_file(example_path("documents/harbour_log.txt"), 1 << 20).substr(0, 12000);
  std::string text;
  for (int i = 0; i < 3; ++i)
    text += read_file(folder() / fmt::format("{}.txt", i), 1 << 20) + prose;
  const std::string all = read_file(folder() / "requests.jsonl", 1 << 20);
  std::string requests;
  std::size_t begin = 0;
  for (int i = 0; i < 8; ++i) {
    const std::size_t end = all.find('\n', begin) + 1;
    std::string line = all.substr(begin, end - begin);
    const std::size_t at = line.find("\"path\":\"") + 8;
    line[at] = 'w';  // of w.txt
    requests += line;
    begin = end;
  }
  replace_file(folder() / "w.txt", text);
  replace_file(folder() / "requests.jsonl", requests);
}

const std::map<std::string, std::string>& CheckpointedJob::undisturbed() {
  static const std::map<std::string, std::string> texts = [this] {
    const std::filesystem::path path = folder() / "undisturbed.jsonl";
    complete(path, {"--checkpoint-every", "never"});
    return texts_of(path);
  }();
  return texts;
}

std::int64_t CheckpointedJob::n_saved() const {
  const auto masters = saved_masters(checkpoints());
  return masters.empty() ? 0 : read_saved_header(masters.front()).n_tokens;
}

void CheckpointedJob::wait_for_more(ChildProcess& process, std::int64_t before) {
  while (process.running() && n_saved() <= before)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::this_thread::sleep_for(std::chrono::milliseconds(random().integer(0, 60)));
}

void CheckpointedJob::expect_whole() const {
  for (const std::filesystem::path& master : saved_masters(checkpoints())) {
    const SavedHeader header = read_saved_header(master);
    for (const WrittenFile& part : header.parts) check_part(header, part);
  }
}

std::int64_t n_read_twice(const std::string& printed) {
  const auto end = printed.find(" of them for the second time");
  if (end == std::string::npos) return -1;
  return std::stoll(printed.substr(printed.rfind(' ', end - 1) + 1));
}

}  // namespace longhaul::test
