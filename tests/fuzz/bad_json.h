// Bad inputs for readers of JSON: what is wrong with the text (cut off, nested too deep, a key
// twice, broken UTF-8, no number) and what is wrong with the fields that a reader uses (another
// type, an absurd size).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tests/fuzz/bad_inputs.h"

namespace longhaul::test {

// A field that the reader must check. `path` goes through objects by key and through lists by
// number, separated by '/'. A field that an input does not have is passed over.
struct CheckedField {
  std::string path;
  // The kinds of values that may be right: i integer (any size within reason), n number, s string,
  // b true or false, l list, o object, 0 null (also: missing), m minus one.
  std::string kinds;
};

// What is wrong with the text as JSON.
void add_bad_json_text(std::string_view good, std::vector<BadInput>& bad);

// Every checked field with values of wrong kinds and, where it is a number, of absurd sizes; and
// without the field, where it must be there.
void add_bad_json_fields(std::string_view good, const std::vector<CheckedField>& fields,
                         std::vector<BadInput>& bad);

// The same as trees, for formats that wrap JSON: {what, the changed tree}.
std::vector<std::pair<std::string, Json>> bad_trees(const Json& good,
                                                    const std::vector<CheckedField>& fields);

}  // namespace longhaul::test
