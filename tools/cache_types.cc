#include "tools/cache_types.h"

#include <CLI/CLI.hpp>

namespace longhaul {

void add_cache_type_options(CLI::App& app, CacheTypeFlags& flags, const std::string& group) {
  const auto types = CLI::IsMember({"auto", "f32", "bf16", "int8", "int4", "q8_0", "q4_0", "q4_1"});
  app.add_option("--cache-type-k,--ctk", flags.k,
                 "Type of cached keys: f32, bf16, int8 (q8_0), int4 (q4_0, q4_1); auto: as the "
                 "weights")
      ->check(types)
      ->capture_default_str()
      ->group(group);
  app.add_option("--cache-type-v,--ctv", flags.v, "Type of cached values")
      ->check(types)
      ->capture_default_str()
      ->group(group);
}

KvType cache_type(const std::string& name, DType weight_dtype) {
  if (name == "auto") return natural_kv_type(weight_dtype);
  if (name == "q8_0") return KvType::kInt8;
  if (name == "q4_0" || name == "q4_1") return KvType::kInt4;
  return *kv_type_from(name);
}

}  // namespace longhaul
