// SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 (a batch system's warnings) and SIGHUP (the terminal is
// gone) ask a run to stop after the current step; a second SIGINT ends the process at once. SIGHUP
// stays ignored where it is (nohup).
#pragma once

namespace longhaul {

void install_stop_signals();
// For ranks whose coordinator is another process, which asks them whether a stop was requested and
// tells people; they never end by themselves.
void hand_on_stop_signals();
// Set by a signal, or by request_stop(): another rank was told to stop.
bool stop_requested();
void request_stop();

}  // namespace longhaul
