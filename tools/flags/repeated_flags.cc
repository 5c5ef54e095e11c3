#include "tools/flags/repeated_flags.h"

#include <CLI/CLI.hpp>

namespace longhaul {

void let_last_values_win(CLI::App& program) {
  for (CLI::Option* option : program.get_options())
    if (option->get_items_expected_max() == 1) option->take_last();
  for (CLI::App* below : program.get_subcommands([](CLI::App*) { return true; }))
    let_last_values_win(*below);
}

}  // namespace longhaul
