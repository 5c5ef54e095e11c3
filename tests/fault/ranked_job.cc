#include "tests/fault/ranked_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "base/kernel_text.h"
#include "tests/fault/result_files.h"

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

constexpr int kDocuments = 3;

Words split(const std::string& text, char separator) {
  Words words;
  std::istringstream in(text);
  for (std::string word; std::getline(in, word, separator);) words.push_back(word);
  return words;
}

bool has_line(const std::string& text, const std::string& line, char separator) {
  const Words lines = split(text, separator);
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// Records that the example model finds surely: names that share no word, so that a text does not
// hang on the last bits of a sum.
constexpr std::array<std::string_view, 24> kNames = {
    "amber falcon",   "silver river",   "golden castle",   "crimson garden", "violet lantern",
    "azure mirror",   "scarlet anchor", "ivory badger",    "copper beacon",  "bronze bridge",
    "emerald canyon", "cobalt cedar",   "jade comet",      "coral compass",  "indigo cottage",
    "maroon dolphin", "rapid dragon",   "noble eagle",     "frozen ember",   "gentle engine",
    "silent feather", "eager forest",   "hidden fountain", "ancient glacier"};

// Prose of the example document, without its own records, with eight of ours.
std::string document(int number) {
  const Words sentences = split(read_file(example_path("documents/harbour_log.txt"), 1 << 20), '.');
  std::string text;
  std::size_t at = static_cast<std::size_t>(number) * 60;
  for (std::size_t record = 0; record < kNames.size() / kDocuments; ++record) {
    for (int i = 0; i < 3; ++at) {
      if (sentences[at].find("code") != std::string::npos) continue;
      text += sentences[at] + ".";
      ++i;
    }
    const std::size_t name = record * kDocuments + static_cast<std::size_t>(number);
    text += fmt::format(" The access code of {} is {}.", kNames[name], 104729 + 37813 * name);
  }
  return text;
}

}  // namespace

pid_t process_of_rank(pid_t mpirun, int rank) {
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (has_line(kernel_text(entry.path() / "status"), fmt::format("PPid:\t{}", mpirun), '\n') &&
        has_line(kernel_text(entry.path() / "environ"),
                 fmt::format("OMPI_COMM_WORLD_RANK={}", rank), '\0')) {
      return std::stoi(name);
    }
  }
  return -1;
}

RankedJob::RankedJob() {
  static_assert(kRequests == kNames.size());
  for (int i = 0; i < kDocuments; ++i)
    replace_file(folder() / fmt::format("{}.txt", i), document(i));
  std::string requests;
  for (std::size_t i = 0; i < kRequests; ++i) {
    requests += fmt::format(
        R"({{"custom_id":"request-{}","method":"POST","url":"/v1/completions","body":)"
        R"({{"prompt":"\nQuestion: What is the access code of {}?\nAnswer:","max_tokens":12,)"
        R"("documents":[{{"path":"{}.txt"}}]}}}})"
        "\n",
        i, kNames[i], i % kDocuments);
  }
  replace_file(folder() / "requests.jsonl", requests);
}

Words RankedJob::command(const fs::path& output, const Words& more) const {
  Words words = {"run",
                 "-m",
                 example_path("model").string(),
                 "--head-profile",
                 example_path("profile").string(),
                 "-i",
                 (folder() / "requests.jsonl").string(),
                 "-o",
                 output.string(),
                 "--parallel",
                 "2",
                 "--chunk-len",
                 "256",
                 "--threads",
                 "1",
                 "--no-progress"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::unique_ptr<ChildProcess> RankedJob::start_mpirun(int n_ranks, const fs::path& output,
                                                      const Words& more) const {
  return std::make_unique<ChildProcess>(folder(), command(output, more), mpirun_variables(),
                                        mpirun(n_ranks));
}

void RankedJob::complete(const fs::path& output, const Words& more) {
  ChildProcess process(folder(), command(output, more));
  EXPECT_EQ(process.wait(), 0) << process.errors();
}

const std::map<std::string, std::string>& RankedJob::undisturbed_texts() {
  static const std::map<std::string, std::string> texts = [this] {
    const fs::path output = folder() / "undisturbed.jsonl";
    complete(output, {});
    return texts_of(output);
  }();
  return texts;
}

void RankedJob::wait_for_lines(ChildProcess& process, const fs::path& output,
                               std::int64_t n_lines) {
  while (process.running() && count_lines(output) < n_lines)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(random().integer(0, 50)));
}

void RankedJob::wait_for_message(ChildProcess& process, const std::string& text) {
  while (process.running() && process.errors().find(text) == std::string::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace longhaul::test
