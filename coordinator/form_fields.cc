#include "coordinator/form_fields.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "base/error.h"

namespace longhaul {
namespace {

using forms::FormKind;
using forms::FormSource;

struct Wanted {
  JsonField field;
  FormSource source;
};

// A schema is an object, or a text that holds one.
FormSource schema_of(const JsonField& field) {
  return {FormKind::kJsonSchema,
          field.json().is_string() ? field.as_string() : to_text(field.json())};
}

FormSource choice_of(const JsonField& field) {
  for (std::size_t i = 0; i < field.size(); ++i) field.at(i).as_string();
  return {FormKind::kChoice, to_text(field.json())};
}

void refuse_members_but(const JsonField& field, std::string_view known) {
  for (const auto& [name, value] : std::get<JsonObject>(field.json().value())) {
    if (name == "type" || name == known || value.is_null()) continue;
    field.at(name).fail(known.empty()
                            ? std::string("has no meaning beside this type")
                            : fmt::format("has no meaning beside this type; \"{}\" has", known));
  }
}

// A schema beside "json_object" is llama.cpp's way to give one.
std::optional<FormSource> response_format(const JsonField& field) {
  const JsonField type = field.at("type");
  if (type.as_string() == "text") {
    refuse_members_but(field, "");
    return std::nullopt;
  }
  if (type.as_string() == "json_object") {
    refuse_members_but(field, "schema");
    if (const auto schema = field.find("schema")) return schema_of(*schema);
    return FormSource{FormKind::kJsonObject, ""};
  }
  if (type.as_string() == "json_schema") {
    refuse_members_but(field, "json_schema");
    return schema_of(field.at("json_schema").at("schema"));
  }
  type.fail(fmt::format("\"{}\" is not supported; supported are text, json_object, json_schema",
                        type.as_string()));
}

// vLLM's newer spelling of the guided_... fields: one object with one of them.
void add_structured_outputs(const JsonField& field, std::vector<Wanted>& wanted) {
  if (!field.json().is_object()) field.fail("expected an object");
  for (const auto& [name, value] : std::get<JsonObject>(field.json().value())) {
    if (value.is_null()) continue;
    const JsonField member = field.at(name);
    if (name == "json") {
      wanted.push_back({member, schema_of(member)});
    } else if (name == "regex") {
      wanted.push_back({member, {FormKind::kRegex, member.as_string()}});
    } else if (name == "choice") {
      wanted.push_back({member, choice_of(member)});
    } else if (name == "json_object") {
      if (member.as_bool()) wanted.push_back({member, {FormKind::kJsonObject, ""}});
    } else {
      member.fail("not supported; supported are json, regex, choice, json_object");
    }
  }
}

std::vector<Wanted> wanted_forms(const JsonField& body) {
  std::vector<Wanted> wanted;
  if (const auto field = body.find("response_format")) {
    if (auto source = response_format(*field)) wanted.push_back({*field, std::move(*source)});
  }
  if (const auto field = body.find("guided_json")) wanted.push_back({*field, schema_of(*field)});
  if (const auto field = body.find("guided_regex")) {
    wanted.push_back({*field, {FormKind::kRegex, field->as_string()}});
  }
  if (const auto field = body.find("guided_choice")) wanted.push_back({*field, choice_of(*field)});
  if (const auto field = body.find("structured_outputs")) add_structured_outputs(*field, wanted);
  return wanted;
}

// Requests of a file mostly share a form: it is checked once.
void check(const Wanted& wanted) {
  thread_local FormSource faultless;
  if (wanted.source == faultless && !faultless.text.empty()) return;
  try {
    forms::check_form(wanted.source);
  } catch (const Error& error) {
    wanted.field.fail(error.what());
  }
  faultless = wanted.source;
}

}  // namespace

std::optional<FormSource> parse_form(const JsonField& body) {
  std::vector<Wanted> wanted = wanted_forms(body);
  if (wanted.empty()) return std::nullopt;
  if (wanted.size() > 1) {
    wanted[1].field.fail(fmt::format("a second form beside {}", wanted[0].field.path()));
  }
  check(wanted.front());
  return std::move(wanted.front().source);
}

}  // namespace longhaul
