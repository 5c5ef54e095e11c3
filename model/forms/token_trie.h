// The tokens of a vocabulary as a tree over their bytes, so that tokens with a common beginning are
// looked at together. Immutable; any number of threads may read it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace longhaul::forms {

class TokenTrie {
 public:
  // token_bytes[id]: what the token adds to a text. Tokens without bytes are not in the tree: they
  // are never part of a form.
  explicit TokenTrie(const std::vector<std::string>& token_bytes);

  std::int64_t vocab_size() const { return vocab_size_; }
  std::int32_t longest_token() const { return longest_; }  // in bytes

  // Nodes stand in the order in which a walk meets them: children behind their parent, in order of
  // bytes. The root, which no byte leads to, is not one of them.
  std::int32_t n_nodes() const { return static_cast<std::int32_t>(nodes_.size()); }
  struct Node {
    std::int32_t end = 0;  // the first node that is not below this one
    std::int32_t first_token = 0;
    std::uint16_t depth = 0;  // bytes from the root; 1 for its children
    std::uint8_t byte = 0;    // that leads here
  };
  const Node& node(std::int32_t i) const { return nodes_[static_cast<std::size_t>(i)]; }
  // The tokens that end at a node: several where the vocabulary spells the same bytes twice.
  std::span<const std::int32_t> tokens_at(std::int32_t i) const;
  std::span<const Node> nodes() const { return nodes_; }

 private:
  std::int64_t vocab_size_;
  std::int32_t longest_ = 0;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> tokens_;  // by bytes, then by id
};

}  // namespace longhaul::forms
