// A run's chat template: found, read and checked when the run begins.
#pragma once
#include <cstdint>
#include <filesystem>

#include "coordinator/preparation.h"

namespace longhaul {

// What the command line says of chats.
struct ChatConfig {
  std::filesystem::path chat_template;  // a file; empty: the model's own
  std::int64_t started = 0;             // Unix time when the run began first; 0: now
};

// Puts the template into `preparation`, or the reason why there is none. A template of the model
// that cannot be read is such a reason too, for a run may have no chat requests; one that the user
// chose is an error: throws.
void set_up_chat(const std::filesystem::path& model_folder, const ChatConfig& config,
                 PreparationConfig& preparation);

}  // namespace longhaul
