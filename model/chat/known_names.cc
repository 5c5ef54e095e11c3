#include "model/chat/known_names.h"

#include <algorithm>

namespace longhaul::chat {
namespace {

constexpr std::string_view kFilterNames[] = {
    "abs",      "batch",  "capitalize", "center",     "count",      "d",        "default",
    "dictsort", "e",      "escape",     "first",      "float",      "format",   "indent",
    "int",      "items",  "join",       "last",       "length",     "list",     "lower",
    "map",      "max",    "min",        "reject",     "rejectattr", "replace",  "reverse",
    "round",    "safe",   "select",     "selectattr", "sort",       "string",   "sum",
    "title",    "tojson", "trim",       "unique",     "upper",      "wordcount"};

constexpr std::string_view kTests[] = {
    "!=",        "<",        "<=",       "==",          "=",        ">",       ">=",
    "boolean",   "callable", "defined",  "divisibleby", "eq",       "equalto", "even",
    "false",     "float",    "ge",       "greaterthan", "gt",       "in",      "integer",
    "iterable",  "le",       "lessthan", "lower",       "lt",       "mapping", "ne",
    "none",      "number",   "odd",      "sameas",      "sequence", "string",  "true",
    "undefined", "upper"};

// Those that change a list or dict are known too: Hugging Face's sandbox refuses them when they are
// called, and so does the evaluator.
constexpr std::string_view kMethodNames[] = {
    "append",  "capitalize", "center",  "changed",   "clear",        "copy",         "count",
    "cycle",   "endswith",   "extend",  "find",      "format",       "get",          "index",
    "insert",  "isalnum",    "isalpha", "isdecimal", "isdigit",      "islower",      "isnumeric",
    "isspace", "isupper",    "items",   "join",      "keys",         "ljust",        "lower",
    "lstrip",  "partition",  "pop",     "popitem",   "removeprefix", "removesuffix", "remove",
    "replace", "reverse",    "rfind",   "rindex",    "rjust",        "rpartition",   "rsplit",
    "rstrip",  "setdefault", "sort",    "split",     "splitlines",   "startswith",   "strip",
    "title",   "update",     "upper",   "values",    "zfill"};

constexpr std::string_view kFunctions[] = {"dict",  "joiner",          "namespace",
                                           "range", "raise_exception", "strftime_now"};

template <std::size_t N>
bool contains(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_known_filter(std::string_view name) { return contains(kFilterNames, name); }
bool is_known_test(std::string_view name) { return contains(kTests, name); }
bool is_known_method(std::string_view name) { return contains(kMethodNames, name); }
bool is_known_function(std::string_view name) { return contains(kFunctions, name); }

}  // namespace longhaul::chat
