// The flags --cache-type-k and --cache-type-v, which several commands have.
#pragma once
#include <string>

#include "base/kv_type.h"
#include "tools/cli_app.h"

namespace longhaul {

struct CacheTypeFlags {
  std::string k = "auto";
  std::string v = "auto";
};

void add_cache_type_options(CLI::App& app, CacheTypeFlags& flags, const std::string& group);

// A checked name; "auto" is what a model with these weights computes, and q8_0, q4_0 and q4_1 are
// llama.cpp's names for types of so many bits.
KvType cache_type(const std::string& name, DType weight_dtype);

}  // namespace longhaul
