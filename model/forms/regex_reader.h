// The characters of a regular expression, and what its escapes and classes stand for. Part of
// regex.cc.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/forms/code_points.h"

namespace longhaul::forms {

class RegexReader {
 public:
  // Throws kInvalidArgument for what is no UTF-8 and for more than 64 KiB.
  RegexReader(std::string_view pattern, Spelling spelling);

  bool at_end() const { return at_ == characters_.size(); }
  // The character `ahead` of the next one; kNone behind the end.
  std::uint32_t peek(std::size_t ahead = 0) const;
  std::uint32_t take();
  bool take_if(char c);
  bool take_if(std::string_view text);
  void skip(std::size_t n) { at_ += n; }

  // What follows a backslash, which was taken.
  CodePointSet escape(bool in_class);
  // What follows a '[', up to its ']'.
  CodePointSet character_class();
  CodePointSet dot() const;
  // A count at `ahead`, which it moves behind it.
  std::optional<std::int64_t> number_ahead(std::size_t& ahead) const;

  [[noreturn]] void refuse(std::string_view reason) const;   // kUnsupported
  [[noreturn]] void mistake(std::string_view reason) const;  // kInvalidArgument

  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

 private:
  CodePointSet named_class(std::uint32_t name) const;
  std::uint32_t hexadecimal(std::size_t n_digits);
  std::uint32_t unicode_escape();
  void class_item(std::vector<CodePointRange>& ranges);
  [[noreturn]] void fail(ErrorCode code, std::string_view reason) const;

  std::vector<std::uint32_t> characters_;
  std::size_t at_ = 0;
  Spelling spelling_;
};

}  // namespace longhaul::forms
