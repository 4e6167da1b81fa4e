#include "tar_shards.hpp"

#include <jpeglib.h>
#include <png.h>

#include <array>
#include <condition_variable>
#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

namespace {

constexpr std::size_t kImage = 0;  // leaves
constexpr std::size_t kLabel = 1;
constexpr std::size_t kBlock = 512;  // of a tar file

using Bytes = std::vector<unsigned char>;

// ---------------------------------------------------------------- tar

struct Member {
  std::string name;
  Bytes data;
};

// Returns the sum of the bytes of a header, in which its own field of that sum counts as spaces.
unsigned long sum_of(const std::array<char, kBlock>& header) {
  unsigned long sum = 0;
  for (std::size_t i = 0; i < kBlock; ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

// Reads the next plain file. False at the end.
bool read_member(std::ifstream& tar, const std::string& path, Member& member) {
  std::array<char, kBlock> header{};
  while (tar.read(header.data(), kBlock) && header[0] != '\0') {
    // Fields are octal numbers. A wrong one would be allocated before it is missed.
    const std::string sum_text(header.data() + 148, 8);
    if (std::strtoul(sum_text.c_str(), nullptr, 8) != sum_of(header)) {
      throw std::runtime_error(path + " is damaged, or no tar file");
    }
    const std::string size_text(header.data() + 124, 12);
    const std::size_t size = std::strtoull(size_text.c_str(), nullptr, 8);
    member.name.assign(header.data(), strnlen(header.data(), 100));
    member.data.resize(size);
    if (!tar.read(reinterpret_cast<char*>(member.data.data()), static_cast<std::streamsize>(size))) {
      throw std::runtime_error(path + " is cut off in " + member.name);
    }
    tar.seekg(static_cast<std::streamoff>((kBlock - size % kBlock) % kBlock), std::ios::cur);
    if (header[156] == '0' || header[156] == '\0') {
      return true;
    }
  }
  if (tar.gcount() > 0 && header[0] != '\0' && !tar) {
    throw std::runtime_error(path + " is cut off in a header");
  }
  return false;
}

// ---------------------------------------------------------------- decoding

void decode_png(const Bytes& data, int height, int width, unsigned char* pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  bool fine = png_image_begin_read_from_memory(&image, data.data(), data.size()) != 0;
  image.format = PNG_FORMAT_RGB;
  fine = fine && image.height == static_cast<png_uint_32>(height) && image.width == static_cast<png_uint_32>(width);
  fine = fine && png_image_finish_read(&image, nullptr, pixels, 0, nullptr) != 0;
  const std::string message = image.message;
  png_image_free(&image);
  if (!fine) {
    throw std::runtime_error(message.empty() ? "the image has another size" : message);
  }
}

struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf jump;
  std::array<char, JMSG_LENGTH_MAX> message;
};

// Returns null, or a message. libjpeg leaves by longjmp, so no object with a destructor lives here.
const char* decode_jpeg(const Bytes& data, int height, int width, unsigned char* pixels, JpegErrors& errors) {
  jpeg_decompress_struct jpeg{};
  jpeg.err = jpeg_std_error(&errors.base);
  errors.base.output_message = [](j_common_ptr) {};
  errors.base.error_exit = [](j_common_ptr common) {
    auto* const own = reinterpret_cast<JpegErrors*>(common->err);
    own->base.format_message(common, own->message.data());
    std::longjmp(own->jump, 1);
  };
  if (setjmp(errors.jump) != 0) {
    jpeg_destroy_decompress(&jpeg);
    return errors.message.data();
  }
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, data.data(), data.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  const bool fits = jpeg.output_height == static_cast<JDIMENSION>(height) &&
                    jpeg.output_width == static_cast<JDIMENSION>(width) && jpeg.output_components == 3;
  while (fits && jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels + std::size_t{jpeg.output_scanline} * static_cast<std::size_t>(width) * 3;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_destroy_decompress(&jpeg);
  return fits ? nullptr : "the image has another size";
}

void decode(const Member& member, int height, int width, unsigned char* pixels) {
  if (member.data.size() > 8 && png_sig_cmp(member.data.data(), 0, 8) == 0) {
    decode_png(member.data, height, width, pixels);
    return;
  }
  JpegErrors errors{};
  if (const char* const message = decode_jpeg(member.data, height, width, pixels, errors)) {
    throw std::runtime_error(message);
  }
}

// ---------------------------------------------------------------- threads

struct Job {
  pyecho::Slots<1> slot;
  Member image;
  std::int64_t label;
};

// Threads that decode jobs. The first exception is kept.
class Decoders {
 public:
  Decoders(int threads, int height, int width) : most_(2 * static_cast<std::size_t>(threads)) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this, height, width] { work(height, width); });
    }
  }
  ~Decoders() { finish(); }
  Decoders(const Decoders&) = delete;
  Decoders& operator=(const Decoders&) = delete;

  // Waits while enough jobs are waiting. False once one has failed.
  bool add(Job job) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.size() < most_ || failure_; });
    if (!failure_) {
      jobs_.push_back(std::move(job));
      changed_.notify_all();
    }
    return !failure_;
  }
  // Waits for all jobs.
  void finish() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    for (std::thread& thread : threads_) {
      thread.join();
    }
    threads_.clear();
    jobs_.clear();
  }
  void rethrow() const {
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void work(int height, int width) {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !jobs_.empty() || ending_ || failure_; });
      if (failure_ || jobs_.empty()) {
        return;
      }
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      changed_.notify_all();
      lock.unlock();
      try {
        try {
          decode(job.image, height, width, job.slot.at(kImage));
        } catch (const std::runtime_error& error) {
          throw std::runtime_error(job.image.name + ": " + error.what());
        }
        *job.slot.at<std::int64_t>(kLabel) = job.label;
        job.slot.commit();
      } catch (...) {
        const std::lock_guard again(mutex_);
        failure_ = failure_ ? failure_ : std::current_exception();
        changed_.notify_all();
      }
    }
  }

  const std::size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // these three: guarded by mutex_
  bool ending_ = false;
  std::exception_ptr failure_;
  std::vector<std::thread> threads_;
};

}  // namespace

TarShards::TarShards(std::vector<std::string> paths, int height, int width, int threads)
    : paths_(std::move(paths)), height_(height), width_(width), threads_(threads) {
  if (paths_.empty() || height < 1 || width < 1 || threads < 1) {
    throw std::invalid_argument("TarShards needs paths, a height, a width and threads of at least 1");
  }
}

std::vector<pyecho::Leaf> TarShards::leaves() const {
  return {{"image", "|u1", {height_, width_, 3}}, {"label", "<i8", {}}};
}

void TarShards::feed(const pyecho::Buffer& buffer) const {
  Decoders decoders(threads_, height_, width_);
  bool open = true;
  for (std::size_t i = 0; i < paths_.size() && open; ++i) {
    std::ifstream tar(paths_[i], std::ios::binary);
    if (!tar) {
      throw std::runtime_error(paths_[i] + " cannot be opened");
    }
    Member image;
    Member member;
    while (open && read_member(tar, paths_[i], member)) {
      const std::size_t dot = member.name.rfind('.');
      if (member.name.substr(dot + 1) != "cls") {
        if (!image.name.empty()) {
          break;
        }
        image = std::exchange(member, {});
        continue;
      }
      if (image.name.substr(0, image.name.rfind('.')) != member.name.substr(0, dot)) {
        throw std::runtime_error(paths_[i] + ": " + member.name + " does not follow the image of its name");
      }
      const std::string text(member.data.begin(), member.data.end());
      char* end = nullptr;
      const std::int64_t label = std::strtoll(text.c_str(), &end, 10);
      if (end == text.c_str()) {
        throw std::runtime_error(paths_[i] + ": " + member.name + " holds no number");
      }
      // Reserved here, one after the other, so the order is that of the files, whichever decoder is faster.
      auto slot = buffer.reserve();
      open = slot && decoders.add({std::move(slot), std::exchange(image, {}), label});
    }
    if (open && !image.name.empty()) {
      throw std::runtime_error(paths_[i] + ": " + image.name + " is not followed by its label (.cls)");
    }
  }
  decoders.finish();
  decoders.rethrow();
}
