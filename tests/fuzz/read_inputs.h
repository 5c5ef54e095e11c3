// One function for each format that comes from outside: reads a whole input and uses what was read,
// as the program would. Shared by the tests of bad inputs and the fuzz targets. Throws only
// longhaul::Error.
#pragma once
#include <string_view>

namespace longhaul::test {

// What the readers call their input in errors.
inline constexpr std::string_view kInputName = "fuzzed-input";

void read_safetensors(std::string_view bytes);
void read_hf_config(std::string_view bytes);
void read_generation_config(std::string_view bytes);
void read_weight_index(std::string_view bytes);
void read_head_profile_tsv(std::string_view bytes);
void read_head_profile_config(std::string_view bytes);
void read_tokenizer(std::string_view bytes);
void read_requests(std::string_view bytes);
void read_chat_template(std::string_view bytes);
void read_form(std::string_view bytes);

}  // namespace longhaul::test
