// The model of a card (measure/card.h), against its formula by hand.
#include "measure/card.h"

#include <gtest/gtest.h>

#include "autograd/autograd.h"
#include "capture/step.h"
#include "ops/ops.h"

namespace sinter::measure {
namespace {

// The graph of one product [m, k] x [k, n], f32.
capture::Graph product(int64_t m, int64_t n, int64_t k) {
  capture::Step step([](const Tensors& in) { return Tensors{matmul(in[0], in[1])}; }, {});
  const Tensors in{Tensor::full({m, k}, 1), Tensor::full({k, n}, 1)};
  for (int i = 0; i < 2; ++i) step(in);
  return step.captured()->recorded;
}
LaunchShape shape(int64_t blocks, int threads) {
  return {.kernel = "k", .grid = {blocks}, .block = threads};
}

TEST(CardModel, KnowsItsCards) {
  EXPECT_TRUE(card_of("h100") && card_of("a100"));
  EXPECT_FALSE(card_of("none"));
}

TEST(CardModel, ArithmeticOfTheMultiprocessorsThatHaveBlocks) {
  const Card card = *card_of("h100");
  const capture::Graph graph = product(512, 512, 512);
  const double alone = 2.0 * 512 * 512 * 512 * 1e-6 / card.f32_tflops,
               idle = card.gap_us + card.start_us;
  const auto us = [&](const std::vector<LaunchShape>& launches) {
    return modelled_us(card, graph, launches, 1e6).at(0) - idle;
  };
  EXPECT_NEAR(us({shape(132, 256)}), alone, 1e-9);
  EXPECT_NEAR(us({shape(66, 256)}), 2 * alone, 1e-9);
  EXPECT_NEAR(us({shape(132, 64)}), 4 * alone, 1e-9) << "two warps for four schedulers";
  EXPECT_NEAR(us({shape(133, 256)}), alone * 264 / 133, 1e-9) << "a second wave for one block";
  EXPECT_NEAR(us({}), alone, 1e-9) << "without its shape a launch fills the card";
}

TEST(CardModel, BytesOfTheCacheOrOfTheMemory) {
  const Card card = *card_of("a100");
  const capture::Graph graph = product(1024, 1, 1024);  // 4.2 MB for 2.1 MFLOP
  const double kb = static_cast<double>(graph.cost(graph.nodes[0]).bytes()) * 1e-3,
               idle = card.gap_us + card.start_us;
  EXPECT_NEAR(modelled_us(card, graph, {}, 30e6)[0] - idle, kb / card.l2_gbs, 1e-9);
  EXPECT_NEAR(modelled_us(card, graph, {}, 60e6)[0] - idle, kb / card.memory_gbs, 1e-9);
}

}  // namespace
}  // namespace sinter::measure
