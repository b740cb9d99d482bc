// A program of one block of a network: forward, or forward and backward from a random gradient of
// its result, eager and fused. Nothing is updated. What a step costs is said before it takes any;
// then, as compare does for a Job: parity of the result and of every gradient, the table, the
// headline.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/app.h"
#include "nn/module.h"

namespace sinter::cli {

class Block {
 public:
  Block() = default;
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Of its sizes.
  virtual void add_flags(Flags& to) = 0;
  // Sizes that were not given are made such that suit the device.
  virtual void suit(Device) {}
  virtual std::string name() const = 0;      // begins the names of files: "geglu"
  virtual std::string workload() const = 0;  // "geglu 768 -> 3072, seq 128, gelu tanh"
  virtual std::string describe() const = 0;  // "geglu 512 x 768 -> 3072 -> 768 gelu tanh"
  virtual int64_t batch() const = 0;
  virtual Shape input() const = 0;
  virtual Shape result() const = 0;
  // In f32 on the CPU, the same at each call.
  virtual std::shared_ptr<nn::Module> make_module(uint64_t seed) const = 0;
  virtual double forward_flops() const = 0;              // of its products
  virtual std::string suits_emulator() const = 0;        // flags: "--batch 2 --dim 64"
  virtual Json facts() const { return Json::object(); }  // of its sizes, for --json
};

void add_block(App& app, Command& command, Block& block);

}  // namespace sinter::cli
