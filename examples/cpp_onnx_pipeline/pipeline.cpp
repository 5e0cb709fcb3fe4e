// A pipeline without Python: ONNX Runtime classifies images of 8 × 8 pixels, and each inference is on record.
//
//   pipeline MODEL [COUNT]      COUNT inferences, then one that must fail; the configuration comes from the environment
//
// An inference is a request that a model serves: its record has the model, its tensors, the duration and the outcome. If
// the process dies within one, the record says so. What the pipeline found in an image is an event with the same ids, and
// ONNX Runtime's own log goes into the same files.

#include <onnxruntime_c_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <inferlog.hpp>
#include <inferlog/onnxruntime_logger.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t pixels = 64;

INFERLOG_EVENT(classified, "pipeline.classified", inferlog::field<std::uint64_t>{"class"},
               inferlog::field<double>{"probability"}, inferlog::field<double>{"run_s"});

const OrtApi* const api = OrtGetApiBase()->GetApi(ORT_API_VERSION);

// A failure of ONNX Runtime, and the name of its kind.
struct failure : std::runtime_error {
  failure(const char* kind_, const char* message) : std::runtime_error(message), kind(kind_) {}
  std::string kind;
};

void check(OrtStatus* status) {
  if (!status) return;
  const char* const kinds[] = {"OK",         "FAIL",              "INVALID_ARGUMENT", "NO_SUCHFILE",
                               "NO_MODEL",   "ENGINE_ERROR",      "RUNTIME_EXCEPTION", "INVALID_PROTOBUF",
                               "MODEL_LOADED", "NOT_IMPLEMENTED", "INVALID_GRAPH",    "EP_FAIL"};
  const auto code = static_cast<std::size_t>(api->GetErrorCode(status));
  const failure what(code < std::size(kinds) ? kinds[code] : "onnxruntime", api->GetErrorMessage(status));
  api->ReleaseStatus(status);
  throw what;
}

// An object of ONNX Runtime, which `make` makes and `release` frees.
template <typename T, typename Make>
std::unique_ptr<T, void (*)(T*)> owned(void (*release)(T*), Make&& make) {
  T* made = nullptr;
  check(make(&made));
  return {made, release};
}

// Type and size of an element, in the words of KServe's protocol.
std::pair<const char*, std::uint64_t> element(ONNXTensorElementDataType type) {
  switch (type) {
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: return {"FP32", 4};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: return {"FP64", 8};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: return {"INT64", 8};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: return {"INT32", 4};
    case ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: return {"UINT8", 1};
    default: return {"", 0};
  }
}

// A tensor as the record shows it; the shape must stay as long as the result is used.
inferlog_tensor described(const char* name, const OrtValue* value, std::vector<std::int64_t>& shape) {
  const auto info = owned<OrtTensorTypeAndShapeInfo>(
      api->ReleaseTensorTypeAndShapeInfo, [&](auto made) { return api->GetTensorTypeAndShape(value, made); });
  ONNXTensorElementDataType type{};
  std::size_t rank = 0, count = 0;
  check(api->GetTensorElementType(info.get(), &type));
  check(api->GetDimensionsCount(info.get(), &rank));
  check(api->GetTensorShapeElementCount(info.get(), &count));
  shape.resize(rank);
  check(api->GetDimensions(info.get(), shape.data(), rank));
  const auto [datatype, bytes] = element(type);
  return {inferlog::text_of(name), inferlog::text_of(datatype), shape.data(), rank, count * bytes};
}

class Pipeline {
 public:
  Pipeline(const inferlog::log& log, const char* path)
      : log_(log),
        classified_(log, true),
        environment_(owned<OrtEnv>(api->ReleaseEnv,
                                   [&](auto made) {
                                     return api->CreateEnvWithCustomLogger(inferlog::onnxruntime_logger,
                                                                           inferlog::onnxruntime_parameter(log),
                                                                           ORT_LOGGING_LEVEL_INFO, "pipeline", made);
                                   })),
        memory_(owned<OrtMemoryInfo>(api->ReleaseMemoryInfo, [](auto made) {
          return api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, made);
        })),
        session_(nullptr, api->ReleaseSession) {
    const auto options = owned<OrtSessionOptions>(api->ReleaseSessionOptions, api->CreateSessionOptions);
    check(api->SetIntraOpNumThreads(options.get(), 1));
    session_ = owned<OrtSession>(api->ReleaseSession, [&](auto made) {
      return api->CreateSession(environment_.get(), path, options.get(), made);
    });
    const auto metadata = owned<OrtModelMetadata>(api->ReleaseModelMetadata, [&](auto made) {
      return api->SessionGetModelMetadata(session_.get(), made);
    });
    OrtAllocator* allocator = nullptr;
    char* name = nullptr;
    std::int64_t version = 0;
    check(api->GetAllocatorWithDefaultOptions(&allocator));
    check(api->ModelMetadataGetGraphName(metadata.get(), allocator, &name));
    name_ = name;
    check(api->AllocatorFree(allocator, name));
    check(api->ModelMetadataGetVersion(metadata.get(), &version));
    version_ = std::to_string(version);
  }

  // Classifies one image. Throws `failure`; the request's record has its kind.
  void classify(std::vector<float>& image) {
    const inferlog_model model{inferlog::text_of(name_), inferlog::text_of(version_), inferlog::text_of("cpu"), 1, 0, {}};
    inferlog_request_start start{};
    start.model = &model;
    inferlog::request request(log_, start);
    try {
      run(request, image);
      request.end();
    } catch (const failure& what) {
      request.end(INFERLOG_END_FAILED, what.kind);
      throw;
    }
  }

 private:
  void run(const inferlog::request& request, std::vector<float>& image) {
    const std::array<std::int64_t, 2> shape{1, static_cast<std::int64_t>(image.size())};
    const auto input = owned<OrtValue>(api->ReleaseValue, [&](auto made) {
      return api->CreateTensorWithDataAsOrtValue(memory_.get(), image.data(), image.size() * sizeof(float), shape.data(),
                                                 shape.size(), ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, made);
    });
    std::vector<std::int64_t> taken, returned;
    const inferlog_tensor inputs = described(input_name, input.get(), taken);
    request.tensors(&inputs, 1, nullptr, 0);
    const OrtValue* const given[] = {input.get()};
    const auto began = std::chrono::steady_clock::now();
    const auto output = owned<OrtValue>(api->ReleaseValue, [&](auto made) {
      return api->Run(session_.get(), nullptr, &input_name, given, 1, &output_name, 1, made);
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const inferlog_tensor outputs = described(output_name, output.get(), returned);
    request.tensors(nullptr, 0, &outputs, 1);
    float* probabilities = nullptr;
    check(api->GetTensorMutableData(output.get(), reinterpret_cast<void**>(&probabilities)));
    const float* const best = std::max_element(probabilities, probabilities + returned.back());
    classified_.emit(request, inferlog::info, static_cast<std::uint64_t>(best - probabilities), *best, took.count());
  }

  static constexpr const char* input_name = "image";
  static constexpr const char* output_name = "probabilities";
  const inferlog::log& log_;
  classified classified_;
  std::unique_ptr<OrtEnv, void (*)(OrtEnv*)> environment_;
  std::unique_ptr<OrtMemoryInfo, void (*)(OrtMemoryInfo*)> memory_;
  std::unique_ptr<OrtSession, void (*)(OrtSession*)> session_;
  std::string name_, version_;
};

}  // namespace

int main(int count, char** arguments) try {
  if (count < 2) {
    std::fprintf(stderr, "usage: %s MODEL [COUNT]\n", arguments[0]);
    return 2;
  }
  const inferlog::log log;
  Pipeline pipeline(log, arguments[1]);
  const int inferences = count > 2 ? std::atoi(arguments[2]) : 100;
  std::vector<float> image(pixels);
  for (int number = 0; number < inferences; number++) {
    for (std::size_t at = 0; at < image.size(); at++)
      image[at] = static_cast<float>((at * 7 + static_cast<std::size_t>(number)) % 16) / 16;
    pipeline.classify(image);
  }
  std::vector<float> half(pixels / 2);
  try {
    pipeline.classify(half);
  } catch (const failure& what) {
    std::printf("%d images are classified; half an image is refused: %s\n", inferences, what.kind.c_str());
    return 0;
  }
  return 1;
} catch (const std::exception& what) {
  std::fprintf(stderr, "%s\n", what.what());
  return 1;
}
