#include "tools/flags/cache_method_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sizes.h"
#include "base/spelling.h"

namespace longhaul {
namespace {

// --- Values in words ---

template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;

const Words<SinkPositions>& words_of(SinkPositions) {
  static const Words<SinkPositions> words = {{"cache", SinkPositions::kInCache},
                                             {"text", SinkPositions::kAbsolute}};
  return words;
}

const Words<PoolKind>& words_of(PoolKind) {
  static const Words<PoolKind> words = {
      {"avg", PoolKind::kAverage}, {"max", PoolKind::kMax}, {"none", PoolKind::kNone}};
  return words;
}
const Words<GroupScore>& words_of(GroupScore) {
  static const Words<GroupScore> words = {
      {"mean", GroupScore::kMean}, {"max", GroupScore::kMax}, {"each", GroupScore::kEach}};
  return words;
}
const Words<KeepWhen>& words_of(KeepWhen) {
  static const Words<KeepWhen> words = {{"document", KeepWhen::kAfterDocument},
                                        {"prompt", KeepWhen::kAfterPrompt},
                                        {"token", KeepWhen::kAfterToken}};
  return words;
}

[[noreturn]] void refuse(std::string_view key, std::string_view said, std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}={}: expected {}", key, said, expected));
}

template <typename T>
T value_of(std::string_view key, const std::string& said) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    const auto count = count_from(said);
    if (!count) refuse(key, said, "a whole number, such as 2048 or 2K");
    return *count;
  } else if constexpr (std::is_same_v<T, double>) {
    double value = 0;
    const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), value);
    if (error != std::errc() || end != said.data() + said.size())
      refuse(key, said, "a number, such as 0.5");
    return value;
  } else {
    std::vector<std::string_view> names;
    for (const auto& [word, value] : words_of(T{})) {
      if (word == said) return value;
      names.push_back(word);
    }
    refuse(key, said, fmt::format("{}", fmt::join(names, " or ")));
  }
}

template <typename T>
std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::int64_t>) {
    return std::to_string(value);
  } else if constexpr (std::is_same_v<T, double>) {
    return fmt::format("{}", value);
  } else {
    for (const auto& [word, meaning] : words_of(T{})) {
      if (meaning == value) return std::string(word);
    }
    return "?";
  }
}

// --- Methods in words: a name, and the keys of its parameters ---

template <typename Method, typename T>
struct Field {
  std::string_view key;
  T Method::*member;
};

constexpr auto fields_of(const DenseMethod&) { return std::tuple<>(); }
constexpr auto fields_of(const DmcMethod&) { return std::tuple<>(); }
constexpr auto fields_of(const StreamingMethod&) {
  using M = StreamingMethod;
  return std::tuple(Field<M, std::int64_t>{"sink", &M::sink},
                    Field<M, std::int64_t>{"window", &M::window},
                    Field<M, SinkPositions>{"positions", &M::positions});
}
constexpr auto fields_of(const WindowMethod&) {
  using M = WindowMethod;
  return std::tuple(Field<M, std::int64_t>{"window", &M::window});
}
constexpr auto fields_of(const RazorMethod&) {
  using M = RazorMethod;
  return std::tuple(Field<M, std::int64_t>{"sink", &M::sink},
                    Field<M, std::int64_t>{"window", &M::window});
}
constexpr auto fields_of(const SlideMethod&) {
  using M = SlideMethod;
  return std::tuple(Field<M, std::int64_t>{"sink", &M::sink},
                    Field<M, std::int64_t>{"cap", &M::cap},
                    Field<M, std::int64_t>{"slide", &M::slide},
                    Field<M, SinkPositions>{"positions", &M::positions});
}

template <typename M>
constexpr auto fields_of_budget() {
  return std::tuple(
      Field<M, std::int64_t>{"capacity", &M::capacity}, Field<M, double>{"ratio", &M::ratio},
      Field<M, std::int64_t>{"window", &M::window}, Field<M, std::int64_t>{"kernel", &M::kernel},
      Field<M, PoolKind>{"pool", &M::pool}, Field<M, GroupScore>{"group", &M::group},
      Field<M, KeepWhen>{"after", &M::after});
}
constexpr auto fields_of(const SnapKvMethod&) { return fields_of_budget<SnapKvMethod>(); }
constexpr auto fields_of(const PyramidKvMethod&) {
  using M = PyramidKvMethod;
  return std::tuple_cat(fields_of_budget<M>(),
                        std::tuple(Field<M, std::int64_t>{"beta", &M::beta}));
}
constexpr auto fields_of(const AdaKvMethod&) {
  using M = AdaKvMethod;
  return std::tuple_cat(fields_of_budget<M>(), std::tuple(Field<M, double>{"floor", &M::floor}));
}
constexpr auto fields_of(const TovaMethod&) {
  using M = TovaMethod;
  return std::tuple(Field<M, std::int64_t>{"capacity", &M::capacity},
                    Field<M, double>{"ratio", &M::ratio}, Field<M, KeepWhen>{"after", &M::after});
}
constexpr auto fields_of(const KeyDiffMethod&) {
  using M = KeyDiffMethod;
  return std::tuple(Field<M, std::int64_t>{"capacity", &M::capacity},
                    Field<M, double>{"ratio", &M::ratio}, Field<M, std::int64_t>{"sink", &M::sink},
                    Field<M, std::int64_t>{"recent", &M::recent},
                    Field<M, KeepWhen>{"after", &M::after});
}

constexpr auto fields_of(const H2oMethod&) {
  using M = H2oMethod;
  return std::tuple(Field<M, std::int64_t>{"capacity", &M::capacity},
                    Field<M, std::int64_t>{"recent", &M::recent});
}
constexpr auto fields_of(const FastGenMethod&) {
  using M = FastGenMethod;
  return std::tuple(Field<M, double>{"threshold", &M::threshold},
                    Field<M, double>{"frequent", &M::frequent},
                    Field<M, double>{"local", &M::local}, Field<M, std::int64_t>{"sink", &M::sink},
                    Field<M, KeepWhen>{"after", &M::after});
}
constexpr auto fields_of(const QuestMethod&) {
  using M = QuestMethod;
  return std::tuple(Field<M, std::int64_t>{"budget", &M::budget},
                    Field<M, std::int64_t>{"page", &M::page},
                    Field<M, std::int64_t>{"dense", &M::dense});
}

struct NameOf {
  std::string_view operator()(const DenseMethod&) const { return "dense"; }
  std::string_view operator()(const StreamingMethod&) const { return "streaming"; }
  std::string_view operator()(const WindowMethod&) const { return "window"; }
  std::string_view operator()(const SlideMethod&) const { return "infinite"; }
  std::string_view operator()(const SnapKvMethod&) const { return "snapkv"; }
  std::string_view operator()(const PyramidKvMethod&) const { return "pyramidkv"; }
  std::string_view operator()(const AdaKvMethod&) const { return "adakv"; }
  std::string_view operator()(const TovaMethod&) const { return "tova"; }
  std::string_view operator()(const H2oMethod&) const { return "h2o"; }
  std::string_view operator()(const QuestMethod&) const { return "quest"; }
  std::string_view operator()(const RazorMethod&) const { return "razor"; }
  std::string_view operator()(const FastGenMethod&) const { return "fastgen"; }
  std::string_view operator()(const DmcMethod&) const { return "dmc"; }
  std::string_view operator()(const KeyDiffMethod&) const { return "keydiff"; }
};

// Names that mean the same.
const std::map<std::string_view, std::string_view, std::less<>> kOtherNames = {
    {"streamingllm", "streaming"}, {"streaming-llm", "streaming"}, {"sliding", "window"}};

template <typename Visit, std::size_t... kIndex>
void for_each_method(const Visit& visit, std::index_sequence<kIndex...>) {
  (visit(std::variant_alternative_t<kIndex, CacheMethod>{}), ...);
}
template <typename Visit>
void for_each_method(const Visit& visit) {
  for_each_method(visit, std::make_index_sequence<std::variant_size_v<CacheMethod>>());
}

// ", did you mean ...?" where one of them is near.
std::string suggestion(std::string_view said, const std::vector<std::string_view>& known) {
  const std::string meant = nearly(said, known);
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

using Settings = std::vector<std::pair<std::string, std::string>>;

Settings settings_in(std::string_view text) {
  const std::string_view text_given = text;
  Settings settings;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t at = part.find('=');
    require(at != std::string_view::npos && at > 0, fmt::format("'{}' is no key=value", part));
    const std::string_view key = part.substr(0, at);
    require(std::none_of(settings.begin(), settings.end(),
                         [&](const auto& before) { return before.first == key; }),
            fmt::format("'{}': {} is there twice; give it once", text_given, key));
    settings.emplace_back(key, part.substr(at + 1));
  }
  return settings;
}

template <typename Method>
Method with_settings(Method method, const Settings& settings) {
  std::vector<std::string_view> keys;
  std::apply([&](const auto&... field) { (keys.push_back(field.key), ...); }, fields_of(method));
  for (const auto& [key, said] : settings) {
    bool known = false;
    const auto set = [&](const auto& field) {
      if (field.key != key) return;
      using T = std::remove_reference_t<decltype(method.*field.member)>;
      method.*field.member = value_of<T>(key, said);
      known = true;
    };
    std::apply([&](const auto&... field) { (set(field), ...); }, fields_of(method));
    if (!known) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has no parameter {}; {}{}", NameOf{}(method), key,
                              keys.empty() ? "it has none"
                                           : fmt::format("it has {}", fmt::join(keys, ", ")),
                              suggestion(key, keys)));
    }
  }
  return method;
}

template <typename Method>
std::string text_with_fields(const Method& method) {
  std::string text(NameOf{}(method));
  char joint = ':';
  const auto add = [&](const auto& field) {
    text +=
        fmt::format("{}{}={}", std::exchange(joint, ','), field.key, text_of(method.*field.member));
  };
  std::apply([&](const auto&... field) { (add(field), ...); }, fields_of(method));
  return text;
}

}  // namespace

CacheMethod parse_cache_method(std::string_view text) {
  std::string_view name = text.substr(0, text.find(':'));
  const Settings settings =
      settings_in(name.size() == text.size() ? "" : text.substr(name.size() + 1));
  const auto other = kOtherNames.find(name);
  if (other != kOtherNames.end()) name = other->second;
  std::optional<CacheMethod> found;
  std::vector<std::string_view> names;
  for_each_method([&](const auto& method) {
    names.push_back(NameOf{}(method));
    if (names.back() == name) found = with_settings(method, settings);
  });
  if (found) return *found;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("there is no cache method '{}'; there are {}{}", name,
                          fmt::join(names, ", "), suggestion(name, names)));
}

std::string to_text(const CacheMethod& method) {
  return std::visit([](const auto& m) { return text_with_fields(m); }, method);
}

std::string cache_method_help() {
  std::vector<std::string> texts;
  for_each_method([&](const auto& method) { texts.push_back(text_with_fields(method)); });
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace longhaul
