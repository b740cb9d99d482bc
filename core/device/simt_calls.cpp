// What kernels call, by way of kernel_simt.h: on behalf of the running thread.
#include "core/device/kernel.h"  // Fault
#include "core/device/simt_worker.h"
#include "core/error.h"

namespace sinter::simt {
namespace {

FiberThread& running() {
  SINTER_ASSERT(current, "a kernel function was called outside a kernel");
  return *static_cast<FiberThread*>(current->owner);
}

}  // namespace

void block_sync(const Where& where) {
  FiberThread& me = running();
  me.worker->block_sync(me, Operation::block_sync, where);
}

const LaneSlot* warp_meet(
    Operation operation, const LaneSlot& mine, uint32_t& present, const Where& where) {
  FiberThread& me = running();
  return me.worker->warp_meet(me, operation, mine, present, where);
}

bool ticket(uint32_t* counter, uint32_t n, const Where& where) {
  FiberThread& me = running();
  return me.worker->ticket(me, counter, n, where);
}

void cp_async16(const AsyncCopy& copy) {
  FiberThread& me = running();
  ++me.worker->counts.sum.cp_async;
  me.copies.push_back(copy);
}

void cp_async_commit() {
  FiberThread& me = running();
  me.group_ends.push_back(me.copies.size());
}

std::span<const AsyncCopy> cp_async_landing(int groups_left) {
  FiberThread& me = running();
  me.copies.erase(me.copies.begin(), me.copies.begin() + ptrdiff_t(me.landed));
  for (size_t& end : me.group_ends) end -= me.landed;
  me.landed = 0;
  if (const auto landing = ptrdiff_t(me.group_ends.size()) - groups_left; landing > 0) {
    me.landed = me.group_ends[size_t(landing - 1)];
    me.group_ends.erase(me.group_ends.begin(), me.group_ends.begin() + landing);
  }
  return {me.copies.data(), me.landed};
}

void count_device(Access access, const void* address, size_t bytes, const Where& where) {
  FiberThread& me = running();
  me.worker->counts.access(access == Access::write ? Space::device_write : Space::device_read,
      me.view, address, bytes, where);
}
void count_shared(const void* address, size_t bytes, const Where& where) {
  FiberThread& me = running();
  me.worker->counts.access(Space::shared, me.view, address, bytes, where);
}

void fail(std::string_view message) { throw Error(Error::Kind::state, std::string(message)); }
void fail_bounds(const char* what, int64_t index, int64_t count) {
  fail(cat(what, " out of bounds: element ", index, " of ", count,
      count > 0 ? cat("; allowed 0..", count - 1) : "; the operand is empty or absent"));
}
void fail_shared(size_t wanted) {
  fail(cat("shared() too large: ", wanted, " bytes; launched with ", current->shared_bytes));
}
void fail_absent(int lane, const Where& where) {
  fail(cat("lane ", lane, ", which has left the kernel or never was, is needed at ",
      where.file_name(), ":", where.line()));
}
void fail_poison(const char* what, int64_t index) {
  throw Error(Error::Kind::state, cat("read of ", what, " that was never written: element ", index),
      "a missing barrier, wait or store");
}
void fail_alignment(const char* what, int64_t index, size_t bytes) {
  fail(cat(what, " not aligned: element ", index, "; a vector access needs a multiple of ", bytes,
      " bytes"));
}
void fail_fault(uint32_t fault, int64_t index, int64_t value, int64_t count) {
  const bool label = fault == uint32_t(Fault::label_out_of_range);
  throw Error(Error::Kind::data, cat(label ? "label out of range: " : "index out of range: ", value,
                                     label ? " in row " : " at item ", index, "; ", count,
                                     label ? " classes" : " rows", " are 0..", count - 1));
}

}  // namespace sinter::simt
