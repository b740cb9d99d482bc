// 05_train_digits [EPOCHS]: a network learns to read digits. Its steps run fused, 20 of them are
// profiled, and all is saved after each epoch. Started again, it goes on from that file, and comes
// to the same weights, bit for bit. 04_train_by_hand shows what a Trainer does, without one.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "nn/mlp.h"
#include "profiler/session.h"
#include "train/trainer.h"

using namespace sinter;

int main(int argc, char** argv) {
  const int64_t epochs = argc > 1 ? std::atoll(argv[1]) : 5;
  const Dataset data = load_dataset({.what = "synthetic", .val = 0, .limit = 6000});
  Batches train(data.train, {.size = 64}), test(data.test, {.size = 500, .shuffle = false});
  nn::Mlp model({784, 64, 10});
  nn::Adam optimizer(model.named_parameters(), {.lr = 0.003});
  Trainer trainer(model, optimizer);

  if (trainer.resume("digits.safetensors", train)) std::puts("digits.safetensors goes on");
  profiler::Session session({.schedule = {1, 3, 20}, .title = "CPU fused", .mode = "fused"});
  while (trainer.epoch() < epochs) {
    const double loss = trainer.fit(train, [&] { session.step(); });
    const double accuracy = 100 * trainer.evaluate(test).accuracy();
    std::printf("epoch %d  loss %.2f  test %.1f %%\n", int(trainer.epoch()), loss, accuracy);
    trainer.save("digits.safetensors");
  }
  if (session.done()) std::ofstream("profile.txt") << session.finish().table();
}
