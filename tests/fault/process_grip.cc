#include "tests/fault/process_grip.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>

namespace longhaul::test {
namespace {

namespace fs = std::filesystem;

// Another process' open file, as one of ours; -1 with errno when that is not possible.
int borrow(pid_t process, int descriptor) {
#if defined(SYS_pidfd_open) && defined(SYS_pidfd_getfd)
  const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  if (pidfd < 0) return -1;
  const auto ours = static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd, descriptor, 0));
  ::close(pidfd);
  return ours;
#else
  static_cast<void>(process), static_cast<void>(descriptor);
  errno = ENOSYS;
  return -1;
#endif
}

// Calls visit(socket) for each TCP/IPv4 socket of a process, with a descriptor of ours. False when
// that is not allowed.
bool each_socket(pid_t process, const std::function<void(int socket)>& visit) {
  bool is_allowed = true;
  std::error_code gone;
  fs::directory_iterator at("/proc/" + std::to_string(process) + "/fd", gone);
  for (fs::directory_iterator end; !gone && at != end; at.increment(gone)) {
    std::error_code closed;
    if (fs::read_symlink(at->path(), closed).string().rfind("socket:", 0) != 0) continue;
    const int socket = borrow(process, std::atoi(at->path().filename().c_str()));
    if (socket < 0) {
      if (errno == EPERM || errno == ENOSYS) is_allowed = false;
      continue;
    }
    int family = 0;
    int type = 0;
    socklen_t size = sizeof family;
    ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size);
    ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size);
    if (family == AF_INET && type == SOCK_STREAM) visit(socket);
    ::close(socket);
  }
  return is_allowed;
}

using Address = int (*)(int, sockaddr*, socklen_t*);

// Of this end (getsockname) or of the other (getpeername); 0 without one.
std::uint16_t port_of(int socket, Address address) {
  sockaddr_in found{};
  socklen_t size = sizeof found;
  if (address(socket, reinterpret_cast<sockaddr*>(&found), &size) != 0) return 0;
  return ntohs(found.sin_port);
}

int local_port(int socket) {
  return port_of(socket, [](int s, sockaddr* a, socklen_t* n) { return ::getsockname(s, a, n); });
}
int remote_port(int socket) {
  return port_of(socket, [](int s, sockaddr* a, socklen_t* n) { return ::getpeername(s, a, n); });
}

}  // namespace

Grip close_connection(pid_t client, pid_t server) {
  std::set<std::pair<int, int>> ends;  // of the server's connections: its port, the other's
  bool is_allowed = each_socket(server, [&](int socket) {
    if (remote_port(socket) != 0) ends.emplace(local_port(socket), remote_port(socket));
  });
  bool closed = false;
  is_allowed &= each_socket(client, [&](int socket) {
    if (!closed && ends.contains({remote_port(socket), local_port(socket)}))
      closed = ::shutdown(socket, SHUT_RDWR) == 0;
  });
  if (closed) return Grip::kDone;
  return is_allowed ? Grip::kFoundNone : Grip::kNoRight;
}

HeldThread::HeldThread(pid_t process) : process_(process) {
  if (::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) != 0) return;
  int status = 0;
  held_ = ::ptrace(PTRACE_INTERRUPT, process, nullptr, nullptr) == 0 &&
          ::waitpid(process, &status, __WALL) == process && WIFSTOPPED(status);
}

HeldThread::~HeldThread() {
  if (held_) ::ptrace(PTRACE_DETACH, process_, nullptr, nullptr);
}

void HeldThread::look_for_death() {
  int status = 0;
  if (held_ && ::waitpid(process_, &status, WNOHANG | __WALL) == process_ && !WIFSTOPPED(status)) {
    held_ = false;
  }
}

}  // namespace longhaul::test
