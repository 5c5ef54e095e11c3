#include "tools/eval/needle_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace longhaul {
namespace {

using Words = std::vector<std::string_view>;

Words split(std::string_view text, char separator) {
  Words words;
  while (true) {
    const std::size_t end = text.find(separator);
    words.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return words;
    text.remove_prefix(end + 1);
  }
}

const Words& adjectives() {
  static const Words words = split(
      "amber silver golden crimson violet azure scarlet ivory copper bronze emerald cobalt jade "
      "coral indigo maroon olive pearl ruby topaz silent gentle hidden frozen ancient hollow brave "
      "clever distant eager fierce humble lonely mighty noble patient quiet rapid rusty savage "
      "shiny simple solar stormy sunny swift tiny velvet wild wooden",
      ' ');
  return words;
}

const Words& nouns() {
  static const Words words = split(
      "falcon river castle garden lantern mirror anchor badger beacon bridge canyon cedar comet "
      "compass cottage dolphin dragon eagle ember engine feather forest fountain glacier hammer "
      "harbor island jaguar kettle ladder lion lotus maple meadow mountain otter panther pebble "
      "phoenix planet rabbit raven rocket salmon shadow spider thunder tiger tower tunnel turtle "
      "valley violin walrus willow window wizard",
      ' ');
  return words;
}

// What the made-up prose is about; the words of keys do not occur in it.
struct Grammar {
  Words people = split(
      "the keeper|the clerk|a sailor|the surveyor|her brother|the night watch|an old teacher|"
      "the doctor|two pilots|the cook",
      '|');
  Words actions = split(
      "wrote down|counted|forgot|measured|asked about|carried away|repaired|looked for|painted "
      "over|sent for|argued about|left behind",
      '|');
  Words things = split(
      "the barometer readings|a crate of lamp oil|the ferry timetable|three letters from the "
      "mainland|the broken pump|the map of the shallows|a box of nails|the minutes of the last "
      "meeting|the spare keys|a pair of oars|the weather report|the ledger of the port",
      '|');
  Words places = split(
      "on the landing stage|behind the chapel|at the upper quarry|in the records room|beside the "
      "old railway|near the salt works|under the signal mast|in the long gallery|by the north road|"
      "on the flood plain",
      '|');
  Words moments = split(
      "before sunrise|late in the afternoon|after the storm|during the second week of March|at the "
      "end of the shift|on a Sunday|when the fog lifted|shortly after noon|in the first "
      "frost|while "
      "the tide was out",
      '|');
  Words remarks = split(
      "Nothing else was said about it.|The matter was not raised again.|It took most of the day.|"
      "Nobody could explain why.|The report was signed and put away.|This had happened once "
      "before.|The wind turned to the west.|Supper was late.|The figures did not agree.|A copy was "
      "kept.",
      '|');
};

std::string capitalised(std::string text) {
  if (!text.empty() && 'a' <= text[0] && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

std::string sentence(RandomDraws& draws) {
  static const Grammar grammar;
  const auto any = [&](const Words& words) { return words[draws.below(words.size())]; };
  // Drawn one after the other: the order in which a call's arguments are evaluated is open.
  const std::string_view who = any(grammar.people), did = any(grammar.actions),
                         what = any(grammar.things), where = any(grammar.places),
                         when = any(grammar.moments), remark = any(grammar.remarks);
  const std::size_t number = 2 + draws.below(898);
  switch (draws.below(5)) {
    case 0:
      return capitalised(fmt::format("{}, {} {} {}.", when, who, did, what));
    case 1:
      return capitalised(fmt::format("{} {} {} {}.", who, did, what, where));
    case 2:
      return fmt::format("There were {} sheets {}, and {} {} them {}.", number, where, who, did,
                         when);
    case 3:
      return capitalised(fmt::format("{}, {} {} {} again.", where, who, did, what));
    default:
      return std::string(remark);
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos;
       at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
}

bool is_space(char c) { return c == ' ' || ('\t' <= c && c <= '\r'); }

}  // namespace

std::vector<NeedleRecord> make_records(RandomDraws& draws, std::size_t count, int n_digits,
                                       NameWords words) {
  require(n_digits >= 1, fmt::format("values of {} digits", n_digits));
  const std::size_t n_first = adjectives().size();
  const std::size_t n_second = nouns().size();
  const std::size_t most =
      words == NameWords::kNeverShared ? std::min(n_first, n_second) : n_first * n_second;
  require(count <= most,
          fmt::format("{} records in one document: at most {} names {}", count, most,
                      words == NameWords::kNeverShared ? "without shared words exist" : "exist"));
  std::vector<std::size_t> names;  // first * n_second + second
  if (words == NameWords::kNeverShared) {
    const auto first = draws.sample(n_first, count);
    const auto second = draws.sample(n_second, count);
    for (std::size_t i = 0; i < count; ++i) names.push_back(first[i] * n_second + second[i]);
  } else {
    names = draws.sample(n_first * n_second, count);
  }
  std::vector<NeedleRecord> records;
  for (const std::size_t name : names) {
    NeedleRecord record;
    record.key = fmt::format("{} {}", adjectives()[name / n_second], nouns()[name % n_second]);
    for (int i = 0; i < n_digits; ++i)
      record.value += static_cast<char>('0' + static_cast<int>(draws.below(10)));
    records.push_back(std::move(record));
  }
  return records;
}

std::string fill_template(std::string_view text, const NeedleRecord& record) {
  std::string out(text);
  replace_all(out, "\\n", "\n");
  replace_all(out, "\\t", "\t");
  replace_all(out, "{key}", record.key);
  replace_all(out, "{value}", record.value);
  return out;
}

std::string made_up_prose(RandomDraws& draws, std::size_t n_characters) {
  std::string text;
  while (text.size() < n_characters) {
    if (!text.empty()) text += draws.below(8) == 0 ? "\n\n" : " ";
    text += sentence(draws);
  }
  return text;
}

std::string normalised_spaces(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_space(c)) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

bool is_exact_match(std::string_view answer, std::string_view expected) {
  while (!answer.empty() && is_space(answer.front())) answer.remove_prefix(1);
  return normalised_spaces(answer.substr(0, answer.find('\n'))) == normalised_spaces(expected);
}

}  // namespace longhaul
