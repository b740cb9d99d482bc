// Note [Occupancy]
//   A block is let in when the multiprocessor has room for all that it holds until it ends:
//     threads        in whole warps of 32
//     registers      allocated to a warp in units of 256, from the quarter of the multiprocessor in
//                    which it runs; no warp is split
//     shared memory  static, dynamic and 1 KiB of the system's, in units of 128 bytes
//     blocks         so many at most
//   The room is that of the table "Technical Specifications per Compute Capability" in the CUDA
//   programming guide. The units are those of the calculator that the toolkit has as source
//   (cuda_occupancy.h) and Nsight Compute as a page; the 1 KiB is the programming guide's, since
//   compute capability 8.0. Shared memory is as large as it can be made: the driver shapes it to
//   the kernel.
#include "profiler/occupancy.h"

#include <algorithm>
#include <climits>
#include <cmath>

namespace sinter::profiler {
namespace {

// Of a multiprocessor.
struct Room {
  int capability, threads, blocks, shared_bytes;
};
constexpr Room kRooms[] = {{80, 2048, 32, 164 << 10}, {86, 1536, 16, 100 << 10},
    {89, 1536, 24, 100 << 10}, {90, 2048, 32, 228 << 10}, {100, 2048, 32, 228 << 10},
    {120, 1536, 24, 100 << 10}};
constexpr int kWarp = 32, kQuarters = 4, kRegistersOfQuarter = 16 << 10, kRegisterUnit = 256;
constexpr int kSystemShared = 1 << 10, kSharedUnit = 128;

constexpr int in_units(int n, int unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

std::optional<Occupancy> occupancy(const Footprint& launch, const Card& card) {
  const Room* const room = std::ranges::find(kRooms, card.capability, &Room::capability);
  const auto threads = Footprint::volume(launch.block), grid = Footprint::volume(launch.grid);
  if (room == std::end(kRooms) || card.multiprocessors <= 0 || threads <= 0 || grid <= 0 ||
      !launch.registers || !launch.static_shared || !launch.dynamic_shared)
    return {};
  const int warps = in_units(int(threads), kWarp) / kWarp;
  const int warp_registers = in_units(*launch.registers * kWarp, kRegisterUnit);
  const int shared =
      in_units(*launch.static_shared + *launch.dynamic_shared + kSystemShared, kSharedUnit);
  struct Limit {
    const char* name;
    int blocks;
  };
  const Limit limits[] = {{"threads", room->threads / kWarp / warps}, {"blocks", room->blocks},
      {"registers", warp_registers > 0 ? kQuarters * (kRegistersOfQuarter / warp_registers) / warps
                                       : INT_MAX},
      {"shared memory", room->shared_bytes / shared}};
  Occupancy out{.blocks = std::ranges::min_element(limits, {}, &Limit::blocks)->blocks};
  if (out.blocks == 0) return {};
  for (const Limit& limit : limits) {
    if (limit.blocks > out.blocks) continue;
    out.limit += (out.limit.empty() ? "" : ", ") + std::string(limit.name);
  }
  const double of_each = double(grid) / card.multiprocessors, room_warps = room->threads / kWarp;
  out.share = out.blocks * warps / room_warps;
  out.waves = of_each / out.blocks;
  out.tail = out.waves - std::ceil(out.waves) + 1;
  out.filled = std::min<double>(of_each, out.blocks) * double(threads) / room->threads;
  return out;
}

}  // namespace sinter::profiler
