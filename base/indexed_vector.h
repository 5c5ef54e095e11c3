// A vector that takes only the ids it is meant for: ring[Rank] does not compile where ring[RingPos]
// is meant.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace longhaul {

// Of T, indexed by Index (an Id) from 0 on. operator[] is unchecked as std::vector's is; at()
// throws std::out_of_range.
template <typename Index, typename T>
class IndexedVector {
 public:
  using value_type = T;
  using reference = typename std::vector<T>::reference;
  using const_reference = typename std::vector<T>::const_reference;
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  IndexedVector() = default;
  explicit IndexedVector(std::size_t n, const T& value = T()) : values_(n, value) {}
  explicit IndexedVector(std::vector<T> values) : values_(std::move(values)) {}
  IndexedVector(std::initializer_list<T> values) : values_(values) {}

  reference operator[](Index i) { return values_[static_cast<std::size_t>(i.value)]; }
  const_reference operator[](Index i) const { return values_[static_cast<std::size_t>(i.value)]; }
  reference at(Index i) { return values_.at(static_cast<std::size_t>(i.value)); }
  const_reference at(Index i) const { return values_.at(static_cast<std::size_t>(i.value)); }
  reference front() { return values_.front(); }
  const_reference front() const { return values_.front(); }
  reference back() { return values_.back(); }
  const_reference back() const { return values_.back(); }

  std::size_t size() const { return values_.size(); }
  std::int64_t n() const { return static_cast<std::int64_t>(values_.size()); }
  bool empty() const { return values_.empty(); }
  IdRange<Index> ids() const { return IdRange<Index>(n()); }
  iterator begin() { return values_.begin(); }
  iterator end() { return values_.end(); }
  const_iterator begin() const { return values_.begin(); }
  const_iterator end() const { return values_.end(); }

  void push_back(T value) { values_.push_back(std::move(value)); }
  void reserve(std::size_t n) { values_.reserve(n); }
  void resize(std::size_t n) { values_.resize(n); }
  void assign(std::size_t n, const T& value) { values_.assign(n, value); }
  void pop_back() { values_.pop_back(); }
  void clear() { values_.clear(); }
  // Where order does not matter: as the vector that it is.
  const std::vector<T>& values() const { return values_; }

  bool operator==(const IndexedVector&) const = default;

 private:
  std::vector<T> values_;
};

}  // namespace longhaul
