// What is known of the terminals that the program writes to.
#pragma once
#include <cstddef>
#include <optional>

namespace longhaul {

// Whether `descriptor` is a terminal on which a line can be written over; with TERM=dumb, or
// without a TERM, none is.
bool is_terminal(int descriptor);

// How wide the terminal is; nothing of a file or a pipe, and of a terminal that does not say it.
std::optional<std::size_t> terminal_columns(int descriptor);

// How wide the lines of standard output may be that people read: kAnyWidth where no terminal says.
std::size_t output_width();

}  // namespace longhaul
