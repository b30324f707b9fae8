/* A libcuda.so.1 and a libnvcomp.so for tests: device memory is memory that this process shares with one of Python, and every call is asked
   of that process first (`kit.own_libcuda`), which counts it, checks it, runs kernels, and says what it returns. Compiled without NVCOMP it
   is the driver, with NVCOMP=5 or 6 that version of nvCOMP. */

#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FINE, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE = 100, INVALID_IMAGE = 200, INVALID_CONTEXT, UNKNOWN = 999 };

static int server = -1;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static int all(ssize_t (*step)(int, void *, size_t), void *bytes, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t some = step(server, (char *) bytes + done, size - done);
    if (some <= 0) return 0;
    done += some;
  }
  return 1;
}

static ssize_t give(int socket, void *bytes, size_t size) {
  return send(socket, bytes, size, MSG_NOSIGNAL);
}

static int connected(void) {
  struct sockaddr_un place = {.sun_family = AF_UNIX};
  const char *path = getenv("KOLUMN_STANDIN_SOCKET");
  if (server >= 0) return 1;
  if (path == NULL || strlen(path) >= sizeof place.sun_path) return 0;
  strcpy(place.sun_path, path);
  server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (server >= 0 && connect(server, (struct sockaddr *) &place, sizeof place) == 0) return 1;
  close(server);
  server = -1;
  return 0;
}

/* A call: a line of its name and numbers, the last of which is the size of what follows. The answer: what it returns, and what it found. */
static int ask(int64_t *found, const void *more, size_t size, const char *format, ...) {
  char line[1024];
  int64_t answer[2] = {NO_DEVICE, 0};
  va_list numbers;
  va_start(numbers, format);
  int length = vsnprintf(line, sizeof line - 32, format, numbers);
  va_end(numbers);
  length += snprintf(line + length, 32, " %zu\n", size);
  pthread_mutex_lock(&turn);
  if (connected() && !(all(give, line, length) && all(give, (void *) more, size) && all(read, answer, sizeof answer))) answer[0] = UNKNOWN;
  pthread_mutex_unlock(&turn);
  if (found != NULL) *found = answer[1];
  return answer[0];
}

#define ASK(...) ask(NULL, NULL, 0, __VA_ARGS__)
#define N(value) ((long long) (intptr_t) (value))

#ifndef NVCOMP

static int initialized;
static __thread void *context;

static int usable(void) {
  return !initialized ? NOT_INITIALIZED : context == NULL ? INVALID_CONTEXT : FINE;
}
#define USE(...) \
  int status = usable(); \
  if (status == FINE) status = ASK(__VA_ARGS__)

int cuInit(unsigned flags) {
  int64_t address, size;
  int status = initialized ? FINE : ask(&address, NULL, 0, "cuInit %u", flags);
  if (status != FINE || initialized) return status;
  if ((status = ask(&size, NULL, 0, "size")) != FINE) return status;
  int file = open(getenv("KOLUMN_STANDIN_MEMORY"), O_RDWR | O_CLOEXEC);
  void *wanted = (void *) (intptr_t) address;
  void *mapped = mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, file, 0);
  close(file);
  if (mapped != wanted) return OUT_OF_MEMORY;
  initialized = 1;
  return FINE;
}

static const struct { int code; const char *name, *meaning; } errors[] = {
  {FINE, "CUDA_SUCCESS", "no error"},
  {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
  {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
  {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
  {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
  {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
  {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
  {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
  {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
  {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"},
  {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"},
  {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

int cuGetErrorName(int code, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) *text = errors[i].name;
  return *text == NULL ? INVALID_VALUE : FINE;
}

int cuGetErrorString(int code, const char **text) {
  *text = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].code == code) *text = errors[i].meaning;
  return *text == NULL ? INVALID_VALUE : FINE;
}

int cuCtxGetCurrent(void **found) {
  *found = context;
  return initialized ? FINE : NOT_INITIALIZED;
}

int cuCtxSetCurrent(void *wanted) {
  context = wanted;
  return ASK("cuCtxSetCurrent %lld", N(wanted));
}

int cuCtxGetDevice(int *device) {
  *device = 0;
  return usable();
}

int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return ASK("cuDeviceGet %d", ordinal);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  int64_t found;
  int status = ask(&found, NULL, 0, "cuDeviceGetAttribute %d %d", attribute, device);
  *value = found;
  return status;
}

int cuDevicePrimaryCtxRetain(void **found, int device) {
  *found = (void *) 0xC0;
  return ASK("cuDevicePrimaryCtxRetain %d", device);
}

int cuModuleLoadData(void **module, const void *image) {
  const Elf64_Ehdr *elf = image;
  int64_t found = 0;
  int status = usable(), isElf = memcmp(image, ELFMAG, SELFMAG) == 0;
  size_t size = isElf ? elf->e_shoff + (size_t) elf->e_shnum * elf->e_shentsize : strlen(image);
  if (status == FINE) status = ask(&found, image, size, "cuModuleLoadData");
  *module = (void *) (intptr_t) found;
  return status;
}

/* A handle of a function is its number times 256, and how many parameters it has: nobody else says that to a launch. */
int cuModuleGetFunction(void **function, void *module, const char *name) {
  int64_t found = 0;
  int status = usable();
  if (status == FINE) status = ask(&found, name, strlen(name), "cuModuleGetFunction %lld", N(module));
  *function = (void *) (intptr_t) found;
  return status;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz, unsigned shared,
                   void *stream, void **given, void **extra) {
  int64_t values[256];
  int status = usable();
  for (int i = 0; i < (N(function) & 255); i++) values[i] = *(int64_t *) given[i];
  if (status == FINE && (y != 1 || z != 1 || ty != 1 || tz != 1 || shared != 0 || extra != NULL)) status = INVALID_VALUE;
  if (status != FINE) return status;
  return ask(NULL, values, 8 * (N(function) & 255), "cuLaunchKernel %lld %u %u %lld", N(function), x, threads, N(stream));
}

int cuMemcpyHtoDAsync_v2(uint64_t target, const void *source, size_t size, void *stream) {
  USE("cuMemcpyHtoDAsync_v2 %lld %zu %lld", N(target), size, N(stream));
  if (status == FINE) memcpy((void *) target, source, size);
  return status;
}

int cuMemcpyDtoHAsync_v2(void *target, uint64_t source, size_t size, void *stream) {
  USE("cuMemcpyDtoHAsync_v2 %lld %zu %lld", N(source), size, N(stream));
  if (status == FINE) memcpy(target, (void *) source, size);
  return status;
}

int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void *stream) {
  USE("cuMemcpyDtoDAsync_v2 %lld %lld %zu %lld", N(target), N(source), size, N(stream));
  if (status == FINE) memmove((void *) target, (void *) source, size);
  return status;
}

int cuMemsetD8Async(uint64_t target, unsigned char value, size_t size, void *stream) {
  USE("cuMemsetD8Async %lld %zu %lld", N(target), size, N(stream));
  if (status == FINE) memset((void *) target, value, size);
  return status;
}

int cuStreamSynchronize(void *stream) {
  USE("cuStreamSynchronize %lld", N(stream));
  return status;
}

int cuMemHostRegister_v2(void *address, size_t size, unsigned flags) {
  USE("cuMemHostRegister_v2 %lld %zu %u", N(address), size, flags);
  return status;
}

int cuMemHostUnregister(void *address) {
  USE("cuMemHostUnregister %lld", N(address));
  return status;
}

/* Of the stand-ins for RAPIDS' Java, whose pool this is: spark_plugin/jvm/standins. */
int64_t Java_ai_rapids_cudf_StandIn_allocate(void *env, void *class, int64_t size) {
  int64_t address = 0;
  return cuInit(0) == FINE && ask(&address, NULL, 0, "allocate %lld", N(size)) == FINE ? address : 0;
}

void Java_ai_rapids_cudf_StandIn_free(void *env, void *class, int64_t address, int64_t size) {
  ASK("free %lld %lld", N(address), N(size));
}

#else

typedef struct { int64_t words[8]; } Options;

static int inflate(int kind, void *sources, void *sizes, void *rooms, void *outSizes, size_t count, void *temporary, size_t bytes,
                   void *targets, Options options, void *statuses, void *stream) {
  for (int i = 0; i < 8; i++)
    if (options.words[i] != 0) return 10; /* nvcompErrorInvalidValue */
  return ASK("inflate %d %lld %lld %lld %lld %zu %lld %zu %lld %lld %lld", kind, N(sources), N(sizes), N(rooms), N(outSizes), count,
             N(temporary), bytes, N(targets), N(statuses), N(stream));
}

#if NVCOMP == 6
#define QUERY(codec) nvcompBatched##codec##DecompressGetTempSize(size_t count, size_t largest, Options options, size_t *bytes, size_t total, void *s)
#else
#define QUERY(codec) nvcompBatched##codec##DecompressGetTempSizeAsync(size_t count, size_t largest, Options options, size_t *bytes, size_t total)
#endif
#define CODEC(kind, codec) \
  int QUERY(codec) { \
    return ask((int64_t *) bytes, NULL, 0, "temporary %d %zu %zu %zu", kind, count, largest, total); \
  } \
  int nvcompBatched##codec##DecompressAsync(void *sources, void *sizes, void *rooms, void *outSizes, size_t count, void *temporary, \
                                            size_t bytes, void *targets, Options options, void *statuses, void *stream) { \
    return inflate(kind, sources, sizes, rooms, outSizes, count, temporary, bytes, targets, options, statuses, stream); \
  }
CODEC(2, Gzip)
CODEC(3, Snappy)
CODEC(4, LZ4)
CODEC(5, Zstd)

#endif
