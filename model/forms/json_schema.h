// JSON Schemas (2020-12 and drafts 4 to 7, where these agree) as languages.
//
// Understood: true, false, type, enum, const, properties, required, additionalProperties, items,
// prefixItems, minItems, maxItems, minLength, maxLength, pattern, format (date, time, date-time,
// uuid, ipv4, email, hostname), minimum, maximum, exclusiveMinimum and exclusiveMaximum (numbers),
// anyOf, oneOf (read as anyOf), allOf of one schema, $ref into the same document. Words that only
// describe (title, description, default, examples, ...) and names that begin with "x-" are passed
// over; every other keyword is refused by name, with the way to it.
//
// The language is a part of what the schema allows, so every answer in the form is valid:
//   * members come in the order of `properties`, then those that only `required` names;
//   * members that no one named come only where additionalProperties says so, or where an object is
//     described no further; such a name may come twice;
//   * without `type`, the kinds are those that the other keywords speak of;
//   * `integer` is written without point or exponent, numbers with bounds without exponent;
//   * strings with a pattern or format spell each character in one way only.
#pragma once
#include <string_view>

#include "model/forms/expressions.h"

namespace longhaul::forms {

// Throws kCorruptData with the way to what is wrong or not supported; kUnsupported for what is too
// large. Rules are open: give them levels.
ExpressionId parse_json_schema(Expressions& expressions, std::string_view text);

}  // namespace longhaul::forms
