#include "tools/job/stop_signal.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

namespace longhaul {
namespace {

volatile std::sig_atomic_t requested = 0;
volatile std::sig_atomic_t n_interrupts = 0;

extern "C" void on_stop_signal(int signal) {
  requested = 1;
  if (signal != SIGINT) return;
  n_interrupts = n_interrupts + 1;
  if (n_interrupts > 1) ::_exit(128 + SIGINT);
  constexpr std::string_view kText =
      "\nlonghaul: stopping after the current step; interrupt again to quit at once\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
}

extern "C" void on_signal_of_follower(int) { requested = 1; }

void handle_stop_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaction(signal, &action, nullptr);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

void install_stop_signals() { handle_stop_signals(on_stop_signal); }
void hand_on_stop_signals() { handle_stop_signals(on_signal_of_follower); }
void request_stop() { requested = 1; }

bool stop_requested() { return requested != 0; }

}  // namespace longhaul
