// A queue in one vector: constant time for each element, and no allocation while it fits the memory it has had, which
// is that of 16 elements at first.
#pragma once

#include <cstddef>
#include <vector>

namespace pyecho {

template <class T>
class Fifo {
 public:
  Fifo() { elements_.reserve(16); }

  void push_back(T element) { elements_.push_back(element); }
  [[nodiscard]] bool empty() const noexcept { return front_ == elements_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return elements_.size() - front_; }
  [[nodiscard]] const T& front() const noexcept { return elements_[front_]; }
  void pop_front() noexcept {
    if (++front_ > size()) {  // at most as many elements move as were popped since the last time
      elements_.erase(elements_.begin(), elements_.begin() + static_cast<std::ptrdiff_t>(front_));
      front_ = 0;
    }
  }
  void clear() noexcept {
    elements_.clear();
    front_ = 0;
  }

 private:
  std::vector<T> elements_;
  std::size_t front_ = 0;  // elements before it were popped
};

}  // namespace pyecho
