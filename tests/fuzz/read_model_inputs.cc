// Readers of what a model consists of, with uses of what they return (read_inputs.h).
#include <cstddef>

#include "base/error.h"
#include "model/head_profile.h"
#include "model/hf_config.h"
#include "model/rope_frequencies.h"
#include "model/safetensors.h"
#include "model/weight_index.h"
#include "tests/fuzz/read_inputs.h"

namespace longhaul::test {
namespace {

// Keeps the compiler from dropping what is computed only to be looked at by the sanitizers.
template <typename T>
void use(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

constexpr std::string_view kGoodProfileConfig = R"({"sink_size": 4, "recent_size": 8})";

void use_profile(const HeadProfile& profile) {
  use(describe(choose_roles(profile, std::nullopt)));
  for (const double ratio : {0.0, 0.25, 0.5, 1.0}) use(choose_roles(profile, ratio));
}

}  // namespace

void read_safetensors(std::string_view bytes) {
  const std::span file(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  const auto header = SafetensorsFile::parse_header(file, kInputName);
  unsigned sum = 0;
  for (const auto& [name, entry] : header.entries) {
    // Touches every byte that the header gives to a tensor.
    for (const std::byte b :
         file.subspan(header.data_offset + entry.begin, entry.end - entry.begin)) {
      sum += std::to_integer<unsigned>(b);
    }
  }
  use(sum);
}

void read_hf_config(std::string_view bytes) {
  const HfConfig config = parse_hf_config(bytes, kInputName);
  config.spec.validate();
  use(rope_frequencies(config.spec));
}

void read_generation_config(std::string_view bytes) {
  use(parse_generation_config(bytes, kInputName));
}

void read_weight_index(std::string_view bytes) { use(parse_weight_index(bytes, kInputName)); }

void read_head_profile_tsv(std::string_view bytes) {
  use_profile(parse_head_profile(bytes, kInputName, kGoodProfileConfig, "good"));
}

void read_head_profile_config(std::string_view bytes) {
  use_profile(parse_head_profile("0.5\t1\n0\t0.25\n", "good", bytes, kInputName));
}

}  // namespace longhaul::test
