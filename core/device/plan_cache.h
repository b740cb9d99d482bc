// The plans of a library's calls, by all that they depend on. A server of many sizes would make
// them for good: beyond so many the one that was not used for longest goes, as of Step's keys. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

namespace sinter {

template <class Key, class Plan> class PlanCache {
 public:
  explicit PlanCache(size_t most = 1024) : most_(most) {}

  // nullptr: there is none. It stays where it is until others are added.
  Plan* find(const Key& key) {
    const auto found = plans_.find(key);
    if (found == plans_.end()) return nullptr;
    found->second.used = ++clock_;
    return found->second.plan.get();
  }
  // REQUIRES: there is none. may_go(plan): may that be the one to go?
  template <class MayGo> Plan* add(const Key& key, std::unique_ptr<Plan> plan, MayGo&& may_go) {
    auto oldest = plans_.end();
    for (auto it = plans_.begin(); plans_.size() >= most_ && it != plans_.end(); ++it) {
      const bool older = oldest == plans_.end() || it->second.used < oldest->second.used;
      if (older && may_go(*it->second.plan)) oldest = it;
    }
    if (oldest != plans_.end()) plans_.erase(oldest);
    return plans_.emplace(key, Entry{std::move(plan), ++clock_}).first->second.plan.get();
  }
  void clear() { plans_.clear(); }
  size_t size() const { return plans_.size(); }

 private:
  struct Entry {
    std::unique_ptr<Plan> plan;
    uint64_t used;
  };
  const size_t most_;
  std::map<Key, Entry> plans_;
  uint64_t clock_ = 0;
};

}  // namespace sinter
