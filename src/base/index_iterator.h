// Iterators of lists that make their items when asked.
#pragma once

#include <compare>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace tdbg::base {

/// Walks `List` by `list[i]`, which returns by value. Borrows the list object itself, not only what it views.
template <typename List>
class IndexIterator {
 public:
  using value_type = std::remove_cvref_t<decltype(std::declval<const List&>()[size_t{0}])>;
  using reference = value_type;
  using difference_type = ptrdiff_t;
  using iterator_category = std::random_access_iterator_tag;
  struct pointer {
    value_type item;
    const value_type* operator->() const { return &item; }
  };

  IndexIterator() = default;
  IndexIterator(const List* list, size_t at) : list_(list), at_(static_cast<ptrdiff_t>(at)) {}

  reference operator*() const { return (*list_)[static_cast<size_t>(at_)]; }
  pointer operator->() const { return {**this}; }
  reference operator[](difference_type n) const { return *(*this + n); }
  IndexIterator& operator++() { return *this += 1; }
  IndexIterator& operator--() { return *this += -1; }
  IndexIterator operator++(int) { return std::exchange(*this, *this + 1); }
  IndexIterator operator--(int) { return std::exchange(*this, *this + -1); }
  IndexIterator& operator+=(difference_type n) {
    at_ += n;
    return *this;
  }
  IndexIterator& operator-=(difference_type n) { return *this += -n; }
  friend IndexIterator operator+(IndexIterator it, difference_type n) { return it += n; }
  friend IndexIterator operator+(difference_type n, IndexIterator it) { return it += n; }
  friend IndexIterator operator-(IndexIterator it, difference_type n) { return it += -n; }
  friend difference_type operator-(const IndexIterator& a, const IndexIterator& b) { return a.at_ - b.at_; }
  friend bool operator==(const IndexIterator& a, const IndexIterator& b) { return a.at_ == b.at_; }
  friend auto operator<=>(const IndexIterator& a, const IndexIterator& b) { return a.at_ <=> b.at_; }

 private:
  const List* list_ = nullptr;
  ptrdiff_t at_ = 0;
};

}  // namespace tdbg::base
