// Reads images out of tar files, decoded by several threads straight into the slots of a buffer of pyecho's.
//
//     TarShards shards({"train-000.tar", ...}, 224, 224, 4);
//     shards.feed(buffer);              // all examples of one pass, in the order of the files
//
// An example is a pair of files of one name, as WebDataset has them: NAME.png or NAME.jpg (the image), and NAME.cls
// (its class as text).
#pragma once

#include <cstdint>
#include <pyecho/pyecho.hpp>
#include <string>
#include <vector>

class TarShards {
 public:
  // All images have this size, in pixels.
  TarShards(std::vector<std::string> paths, int height, int width, int threads);

  // Returns what an example is made of: the image (height, width, 3) of uint8, and the label, an int64.
  [[nodiscard]] std::vector<pyecho::Leaf> leaves() const;
  // Puts all examples of one pass. Returns early if the consumer has closed or stopped the buffer. Throws
  // std::runtime_error, which names the file, and pyecho::Error. No slot is open when it returns or throws.
  void feed(const pyecho::Buffer& buffer) const;

 private:
  std::vector<std::string> paths_;
  int height_;
  int width_;
  int threads_;
};
