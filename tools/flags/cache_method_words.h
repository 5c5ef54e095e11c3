// Cache methods as users write them: NAME[:key=value,...], such as streaming:sink=4,window=1K.
#pragma once
#include <string>
#include <string_view>

#include "model/heads/cache_method.h"

namespace longhaul {

// Throws kInvalidArgument for a name, a key or a value that there is not, saying which there are
// and what may have been meant; the parameters' sense is checked where the model is known
// (policy_of).
CacheMethod parse_cache_method(std::string_view text);

// As parse_cache_method reads it, every parameter said.
std::string to_text(const CacheMethod& method);

// The names with their parameters and what these are when not said, for help texts.
std::string cache_method_help();

}  // namespace longhaul
