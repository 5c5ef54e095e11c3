// std::source_location for clang before 15, which lacks the builtin that libstdc++ wants for it.
// Included ahead of everything in fuzz builds (cmake/LonghaulFlags.cmake); nothing else uses it.
#pragma once
#include <version>
#if defined(__cplusplus) && defined(__clang__) && __clang_major__ < 15
#include <cstdint>

namespace std {  // NOLINT: stands in for a missing part of the standard library
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(),
                                           const char* function = __builtin_FUNCTION(),
                                           uint_least32_t line = __builtin_LINE()) noexcept {
    source_location here;
    here.file_ = file;
    here.function_ = function;
    here.line_ = line;
    return here;
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr const char* function_name() const noexcept { return function_; }
  constexpr uint_least32_t line() const noexcept { return line_; }
  constexpr uint_least32_t column() const noexcept { return 0; }

 private:
  const char* file_ = "";
  const char* function_ = "";
  uint_least32_t line_ = 0;
};
}  // namespace std
#endif
