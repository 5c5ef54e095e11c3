#include "tests/fault/child_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace longhaul::test {
namespace {

void redirect(const std::filesystem::path& file, int descriptor) {
  const int opened = ::open(file.c_str(), O_WRONLY);
  if (opened < 0 || ::dup2(opened, descriptor) < 0) ::_exit(126);
}

}  // namespace

Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

ChildProcess::ChildProcess(const std::filesystem::path& folder, const Words& arguments,
                           const Words& variables, const Words& launcher)
    : folder_(folder) {
  Words words = launcher;
  words.emplace_back(LONGHAUL_PROGRAM_PATH);
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::filesystem::path out = folder_ / "stdout.txt";
  const std::filesystem::path err = folder_ / "stderr.txt";
  for (const auto& file : {out, err}) std::ofstream(file).close();  // there before it is read
  std::vector<std::string> added = variables;
  pid_ = ::fork();
  if (pid_ < 0) throw_errno("cannot fork for", words.front());
  if (pid_ == 0) {
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    for (std::string& variable : added) ::putenv(variable.data());
    ::execvp(argv.front(), argv.data());
    ::_exit(127);
  }
}

ChildProcess::~ChildProcess() {
  signal(SIGKILL);
  if (!ended_) collect(0);
}

void ChildProcess::collect(int flags) {
  int status = 0;
  if (ended_ || ::waitpid(pid_, &status, flags) != pid_) return;
  ended_ = true;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::running() {
  collect(WNOHANG);
  return !ended_;
}

void ChildProcess::signal(int number) {
  if (running()) ::kill(pid_, number);
}

int ChildProcess::wait() {
  collect(0);
  return status_;
}

Ended ChildProcess::end() {
  const int status = wait();
  return {status, output(), errors()};
}

std::string ChildProcess::output() const { return read_file(folder_ / "stdout.txt", 1 << 24); }
std::string ChildProcess::errors() const { return read_file(folder_ / "stderr.txt", 1 << 24); }

}  // namespace longhaul::test
