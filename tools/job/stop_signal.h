// SIGINT, SIGTERM and SIGUSR1 (a batch system's warning) ask a run to stop after the current step;
// a second SIGINT ends the process at once.
#pragma once

namespace longhaul {

void install_stop_signals();
// For ranks whose coordinator is another process, which gets the same signals.
void ignore_stop_signals();
bool stop_requested();

}  // namespace longhaul
