#include "tests/unit/eval/xml_check.h"

#include <cctype>
#include <set>
#include <vector>

namespace longhaul::test {
namespace {

class XmlReader {
 public:
  explicit XmlReader(std::string_view text) : text_(text) {}

  std::string problem() {
    if (take("<?xml")) {
      const std::size_t end = text_.find("?>", at_);
      if (end == std::string_view::npos) return complain("the declaration does not end");
      at_ = end + 2;
    }
    skip_space();
    while (at_ < text_.size()) {
      if (text_[at_] == '<') {
        read_tag();
      } else {
        read_character(/*ends=*/"<");
      }
      if (!problem_.empty()) return problem_;
      if (open_.empty()) skip_space();
    }
    if (!open_.empty()) return complain(open_.back() + " is not closed");
    return n_roots_ == 1 ? "" : complain("there must be one root");
  }

 private:
  std::string complain(const std::string& what) {
    if (problem_.empty()) problem_ = what + " at byte " + std::to_string(at_);
    return problem_;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  std::string read_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '-'))
      ++at_;
    if (at_ == begin) complain("a name is missing");
    return std::string(text_.substr(begin, at_ - begin));
  }
  // One character of text or of an attribute's value, or an entity.
  void read_character(std::string_view ends) {
    if (open_.empty()) complain("text outside the root");
    if (text_[at_] == '&') {
      for (const std::string_view entity : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"}) {
        if (take(entity)) return;
      }
      complain("an unknown entity");
      return;
    }
    const char c = text_[at_];
    if (c == '<' && ends != "<") complain("a bare <");
    if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') complain("a control byte");
    ++at_;
  }
  void read_attribute(std::set<std::string>& names) {
    if (!names.insert(read_name()).second) complain("an attribute is there twice");
    if (!take("=\"")) {
      complain("an attribute without a quoted value");
      return;
    }
    while (problem_.empty() && at_ < text_.size() && text_[at_] != '"') read_character("\"");
    if (!take("\"")) complain("a value does not end");
  }
  void read_tag() {
    if (take("</")) {
      const std::string name = read_name();
      if (open_.empty() || open_.back() != name) {
        complain("</" + name + "> closes nothing");
        return;
      }
      open_.pop_back();
      if (!take(">")) complain("a closing tag does not end");
      return;
    }
    ++at_;
    if (open_.empty()) ++n_roots_;
    open_.push_back(read_name());
    std::set<std::string> names;
    while (problem_.empty()) {
      skip_space();
      if (take(">")) return;
      if (take("/>")) {
        open_.pop_back();
        return;
      }
      read_attribute(names);
    }
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::string> open_;
  int n_roots_ = 0;
  std::string problem_;
};

}  // namespace

std::string xml_problem(std::string_view text) { return XmlReader(text).problem(); }

}  // namespace longhaul::test
