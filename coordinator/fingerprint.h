// What results depend on, as JSON that can be compared: the model's files and the settings of the
// run. A results file belongs to one fingerprint; how many ranks or threads computed it is no part
// of it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/model_folder.h"

namespace longhaul {

// SHA-256 of config.json, generation_config.json and tokenizer.json; of each weights file its name,
// size and the SHA-256 of its header and of samples of every tensor (hashing all of a large model
// would take minutes at every start; `longhaul checksum` does). Small files are hashed whole. The
// same on every machine. Earlier releases took samples without regard to tensors: what they wrote
// of a large file is another text, and find_differences says so.
Json model_fingerprint(const ModelFolder& model);

// SHA-256 of what model_fingerprint says of the weights' files; nullopt where there are none.
std::optional<std::string> weights_sha256(const ModelFolder& model);
// Whether this is what weights_sha256 says of the model, or what it said in earlier releases; true
// where there are no weights.
bool may_be_of_weights(const std::string& sha256, const ModelFolder& model);

struct Difference {
  std::string path;    // "settings.sampling.temperature"
  std::string before;  // its value as text, shortened; "absent" where there is none
  std::string now;
};
// One for each value that is not the same in both.
std::vector<Difference> find_differences(const Json& before, const Json& now);
// "settings.sampling.temperature: was 0, now 0.7", one for each difference.
std::vector<std::string> differences(const Json& before, const Json& now);

}  // namespace longhaul
