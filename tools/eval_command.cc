#include "tools/eval_command.h"

#include <CLI/CLI.hpp>

#include <vector>

#include "tools/job/exit_status.h"
#include "tools/methods_command.h"
#include "tools/needle_command.h"
#include "tools/perplexity_command.h"

namespace longhaul {

Command add_eval_command(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "eval",
      "Measure a model: records found in long documents, cache methods, perplexity over position");
  app->require_subcommand(1);
  const std::vector<Command> commands = {add_eval_methods_command(*app),
                                         add_eval_needle_command(*app),
                                         add_eval_perplexity_command(*app)};
  return {app, [commands]() -> int {
            for (const Command& command : commands) {
              if (command.app->parsed()) return command.run();
            }
            return kExitInternal;
          }};
}

}  // namespace longhaul
