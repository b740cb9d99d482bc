// geglu: the gated block of a transformer (GeGLU, no biases), forward and backward, eager and
// fused. The study workload: six products that fusing cannot make faster, and the pointwise work
// between them, which it can.
#include "cli/block.h"
#include "nn/glu.h"

namespace sinter {
namespace {

class Geglu : public cli::Block {
 public:
  void add_flags(cli::Flags& to) override {
    to.number("batch", batch_, 1, 1'000'000, "sequences").standard =
        "64 on cuda and as a model, else 4";
    to.number("seq", seq_, 1, 1'000'000, "tokens of a sequence");
    to.number("dim", dim_, 1, 1'000'000, "features of a token");
    to.number("hidden", hidden_, 1, 1'000'000, "width of gate and up");
    to.choice("gelu", gelu_, {"tanh", "erf"}, "form of the gate");
  }
  // A step that a card runs in milliseconds takes cores seconds.
  void suit(Device device) override {
    if (!batch_) batch_ = device.type == Device::Type::cuda ? 64 : 4;
  }
  std::string name() const override { return "geglu"; }
  std::string workload() const override {
    return str("geglu ", dim_, " -> ", hidden_, ", seq ", seq_, ", gelu ", gelu_);
  }
  std::string describe() const override {
    return str("geglu ", rows(), " x ", dim_, " -> ", hidden_, " -> ", dim_, " gelu ", gelu_);
  }
  int64_t batch() const override { return *batch_; }
  Shape input() const override { return {rows(), dim_}; }
  Shape result() const override { return {rows(), dim_}; }
  std::shared_ptr<nn::Module> make_module(uint64_t seed) const override {
    const nn::Gate gate = gelu_ == "tanh" ? nn::Gate::gelu_tanh : nn::Gate::gelu;
    auto glu = std::make_shared<nn::Glu>(dim_, hidden_, dim_, gate);
    glu->init_parameters(seed);
    return glu;
  }
  double forward_flops() const override { return 6.0 * double(rows() * dim_ * hidden_); }
  std::string suits_emulator() const override { return "--batch 2 --seq 32 --dim 64 --hidden 96"; }
  cli::Json facts() const override { return {{"gelu", gelu_}, {"dim", dim_}, {"hidden", hidden_}}; }

 private:
  // The tokens of a sequence are rows: the block sees [batch * seq, dim].
  int64_t rows() const { return *batch_ * seq_; }

  std::optional<int64_t> batch_;
  int64_t seq_ = 128, dim_ = 768, hidden_ = 3072;
  std::string gelu_ = "tanh";
};

}  // namespace
}  // namespace sinter

int main(int argc, char** argv) {
  sinter::cli::App app("geglu",
      "geglu: a gated block, forward and backward, eager and fused: what fusing changes where "
      "products take the time.");
  sinter::Geglu geglu;
  app.add("geglu",
      "Runs a gated block (GeGLU) eager and fused, interleaved: what became fewer, how long it "
      "takes, and that the numbers are the same.",
      [&](sinter::cli::App& a, sinter::cli::Command& command) { add_block(a, command, geglu); });
  return app.main(argc, argv);
}
