// The keywords of JSON Schema: which are understood, and for which kind of value. Part of
// json_schema.cc.
#pragma once
#include <initializer_list>
#include <string_view>

#include "base/json.h"

namespace longhaul::forms {

enum class JsonKind { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

// Throws for the first keyword that is neither understood nor a description.
void check_keywords(const JsonField& schema, bool is_root);
// Throws unless, besides descriptions and definitions, only `allowed` stand there.
void check_stands_alone(const JsonField& schema, std::initializer_list<std::string_view> allowed);

// The value of `type`, one of them.
JsonKind kind_named(const JsonField& name);
// Whether the schema has a keyword that speaks of values of this kind.
bool speaks_of(const JsonField& schema, JsonKind kind);
// Whether `value` is of the kind; an integer is also a number.
bool is_of_kind(const Json& value, JsonKind kind);

// A format's regular expression; throws by name for one that is not supported.
std::string_view format_pattern(const JsonField& format);

}  // namespace longhaul::forms
