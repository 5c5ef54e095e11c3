// stdin, stdout and stderr as whoever started the program left them. What stdout does not take is
// an error with a status of its own; what stderr does not take is not (base/print_stderr.h).
#pragma once
#include <string_view>

namespace longhaul {

// Where one of the three was closed, nothing else gets its number: a file of results that did would
// get what is printed. Reading from it and writing to it go on failing. First thing in main.
void hold_standard_streams();

// For what people watch: a row of a table, an answer that grows. Throws kIo.
void print_now(std::string_view text);

// The exit status of a program that is about to end with `status`: kExitEnvironment, which is told,
// where all went well but for stdout. Nothing is told where its reader has left (| head).
int status_with_output(int status);

}  // namespace longhaul
