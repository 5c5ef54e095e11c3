#include "tools/flags/method_flag.h"

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "tools/flags/cache_method_words.h"

namespace longhaul {

CLI::Option* add_method_flag(CLI::App& app, const std::string& name,
                             std::optional<CacheMethod>& value, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name, [&value](const std::string& said) { value = parse_cache_method(said); }, help)
      ->type_name("METHOD")
      ->check(CLI::Validator(
          [](std::string& said) {
            try {
              parse_cache_method(said);
              return std::string();
            } catch (const Error& error) {
              return std::string(error.what());
            }
          },
          "NAME[:key=value,...]"));
}

}  // namespace longhaul
