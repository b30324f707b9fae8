/* The native methods of kolumn.Driver: calls of CUDA's driver and of nvCOMP, and nothing else. What they mean is written in Driver.java.

   Both libraries are looked for when they are first needed, so this one loads anywhere. Everything is asked for on the stream that CUDA
   keeps for each thread, where RAPIDS' Java asks too. Plain C, compiled by `make jar` for processors that nobody here may have. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* JNI without a JDK's header. An environment is the address of a table of functions, whose order the JNI specification fixes ("Interface
   Function Table" in its chapter 4): the numbers below are those that it prints, and each signature is that of its text. */
typedef int32_t jint;
typedef int64_t jlong;
typedef void *object; /* a reference: class, string, array */
typedef void ***Java;
#define JAVA(env, number, returned, ...) ((returned (*)(Java, __VA_ARGS__)) (*(env))[number])
#define NEW_STRING(env, bytes) JAVA(env, 167, object, const char *)(env, bytes)
#define STRING_BYTES(env, string) JAVA(env, 169, const char *, object, void *)(env, string, NULL)
#define RELEASE_STRING(env, string, bytes) JAVA(env, 170, void, object, const char *)(env, string, bytes)
#define LENGTH(env, array) JAVA(env, 171, jint, object)(env, array)
#define GET_BYTES(env, array, count, to) JAVA(env, 200, void, object, jint, jint, void *)(env, array, 0, count, to)
#define GET_LONGS(env, array, count, to) JAVA(env, 204, void, object, jint, jint, jlong *)(env, array, 0, count, to)
#define SET_INT(env, array, from) JAVA(env, 211, void, object, jint, jint, const jint *)(env, array, 0, 1, from)
#define SET_LONG(env, array, from) JAVA(env, 212, void, object, jint, jint, const jlong *)(env, array, 0, 1, from)
#define METHOD(returned, name) __attribute__((visibility("default"))) returned Java_kolumn_Driver_##name

/* CUDA's driver: https://docs.nvidia.com/cuda/cuda-driver-api. Handles are pointers, addresses on the device 64 bits. */
enum { FINE = 0, OUT_OF_MEMORY = 2, NOT_THERE = -1, MULTIPROCESSORS = 16, PORTABLE = 1 };
#define AT(handle) ((void *) (intptr_t) (handle)) /* a handle or an address, as Java has it */
#define STREAM AT(2) /* CU_STREAM_PER_THREAD */
#define FUNCTIONS(F) \
  F(cuInit, (unsigned)) \
  F(cuGetErrorName, (int, const char **)) \
  F(cuGetErrorString, (int, const char **)) \
  F(cuCtxGetCurrent, (void **)) \
  F(cuCtxSetCurrent, (void *)) \
  F(cuCtxGetDevice, (int *)) \
  F(cuDeviceGet, (int *, int)) \
  F(cuDeviceGetAttribute, (int *, int, int)) \
  F(cuDevicePrimaryCtxRetain, (void **, int)) \
  F(cuModuleLoadData, (void **, const void *)) \
  F(cuModuleGetFunction, (void **, void *, const char *)) \
  F(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
  F(cuMemcpyHtoDAsync_v2, (uint64_t, const void *, size_t, void *)) \
  F(cuMemcpyDtoHAsync_v2, (void *, uint64_t, size_t, void *)) \
  F(cuMemcpyDtoDAsync_v2, (uint64_t, uint64_t, size_t, void *)) \
  F(cuMemsetD8Async, (uint64_t, unsigned char, size_t, void *)) \
  F(cuStreamSynchronize, (void *)) \
  F(cuMemHostRegister_v2, (void *, size_t, unsigned)) \
  F(cuMemHostUnregister, (void *))
#define DECLARE(name, arguments) static int (*name) arguments;
FUNCTIONS(DECLARE)
#define CALL(name, ...) (name == NULL ? NOT_THERE : name(__VA_ARGS__))

static char missing[256] = "CUDA's driver was not looked for"; /* what NOT_THERE means */

/* This method and the next one are synchronized in Java. */
METHOD(jint, open)(Java env, object class) {
  static int found;
  if (found) return FINE;
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) {
    snprintf(missing, sizeof missing, "no CUDA driver: %s", dlerror());
    return NOT_THERE;
  }
#define FIND(name, arguments) \
  if ((*(void **) &name = dlsym(library, #name)) == NULL) { \
    snprintf(missing, sizeof missing, "libcuda.so.1 has no " #name ": its driver is too old"); \
    return NOT_THERE; \
  }
  FUNCTIONS(FIND)
  snprintf(missing, sizeof missing, "neither libnvcomp.so.6 nor libnvcomp.so.5 was found");
  int status = cuInit(0);
  found = status == FINE;
  return status;
}

METHOD(jint, attach)(Java env, object class) {
  static void *primary; /* held once, for as long as the process lives */
  void *current = NULL, *retained;
  int device, status = CALL(cuCtxGetCurrent, &current);
  if (status != FINE || current != NULL) return status;
  if (primary == NULL) {
    if ((status = cuDeviceGet(&device, 0)) != FINE || (status = cuDevicePrimaryCtxRetain(&retained, device)) != FINE) return status;
    primary = retained;
  }
  return cuCtxSetCurrent(primary);
}

METHOD(jint, loadModule)(Java env, object class, object image, object module) {
  jint size = LENGTH(env, image);
  char *bytes = calloc((size_t) size + 1, 1); /* PTX has to end with a zero */
  void *loaded = NULL;
  if (bytes == NULL) return OUT_OF_MEMORY;
  GET_BYTES(env, image, size, bytes);
  jint status = CALL(cuModuleLoadData, &loaded, bytes);
  jlong handle = (intptr_t) loaded;
  free(bytes);
  SET_LONG(env, module, &handle);
  return status;
}

METHOD(jint, getFunction)(Java env, object class, jlong module, object name, object function) {
  const char *bytes = STRING_BYTES(env, name);
  void *found = NULL;
  if (bytes == NULL) return OUT_OF_MEMORY;
  jint status = CALL(cuModuleGetFunction, &found, AT(module), bytes);
  jlong handle = (intptr_t) found;
  RELEASE_STRING(env, name, bytes);
  SET_LONG(env, function, &handle);
  return status;
}

METHOD(jint, launch)(Java env, object class, jlong function, jint grid, jint block, object args) {
  jint count = LENGTH(env, args);
  jlong *values = malloc(((size_t) count + 1) * (sizeof *values + sizeof(void *)));
  if (values == NULL) return OUT_OF_MEMORY;
  void **places = (void **) (values + count);
  GET_LONGS(env, args, count, values);
  for (jint i = 0; i < count; i++) places[i] = values + i;
  jint status = CALL(cuLaunchKernel, AT(function), grid, 1, 1, block, 1, 1, 0, STREAM, places, NULL);
  free(values);
  return status;
}

METHOD(jint, copyToDevice)(Java env, object class, jlong target, jlong source, jlong size) {
  return CALL(cuMemcpyHtoDAsync_v2, target, AT(source), size, STREAM);
}

METHOD(jint, copyToHost)(Java env, object class, jlong target, jlong source, jlong size) {
  return CALL(cuMemcpyDtoHAsync_v2, AT(target), source, size, STREAM);
}

METHOD(jint, copyOnDevice)(Java env, object class, jlong target, jlong source, jlong size) {
  return CALL(cuMemcpyDtoDAsync_v2, target, source, size, STREAM);
}

METHOD(jint, setZero)(Java env, object class, jlong target, jlong size) {
  return CALL(cuMemsetD8Async, target, 0, size, STREAM);
}

METHOD(jint, synchronize)(Java env, object class) {
  return CALL(cuStreamSynchronize, STREAM);
}

METHOD(jint, lock)(Java env, object class, jlong address, jlong size) {
  return CALL(cuMemHostRegister_v2, AT(address), size, PORTABLE);
}

METHOD(jint, unlock)(Java env, object class, jlong address) {
  return CALL(cuMemHostUnregister, AT(address));
}

METHOD(jint, multiprocessors)(Java env, object class, object found) {
  int device, count = 0, status = CALL(cuCtxGetDevice, &device);
  if (status == FINE) status = cuDeviceGetAttribute(&count, MULTIPROCESSORS, device);
  SET_INT(env, found, &count);
  return status;
}

METHOD(object, explain)(Java env, object class, jint code) {
  const char *name = NULL, *meaning = NULL;
  char text[512];
  if (code == NOT_THERE) return NEW_STRING(env, missing);
  if (cuGetErrorName != NULL) cuGetErrorName(code, &name);
  if (cuGetErrorString != NULL) cuGetErrorString(code, &meaning);
  if (name == NULL || meaning == NULL) name = "CUDA error", meaning = "unknown to the driver";
  snprintf(text, sizeof text, "%s (%d): %s", name, code, meaning);
  return NEW_STRING(env, text);
}

/* nvCOMP, versions 5 and 6, as kernels/machine/nvcomp.py calls it. */
typedef struct { int64_t words[8]; } Options; /* any of the nvcompBatched*DecompressOpts_t: zeros mean the defaults */
typedef int (*Temporary5)(size_t, size_t, Options, size_t *, size_t);
typedef int (*Temporary6)(size_t, size_t, Options, size_t *, size_t, void *);
typedef int (*Inflate)(void *, void *, void *, void *, size_t, void *, size_t, void *, Options, void *, void *);
static void *codecs; /* the library; once set it stays */

static void *codec(jint kind, const char *what) {
  static const char *const libraries[] = {"libnvcomp.so.6", "libnvcomp.so.5"};
  static const char *const names[] = {NULL, NULL, "Gzip", "Snappy", "LZ4", "Zstd"}; /* by kind of block in kolumn.formats.codecs */
  char name[64];
  if (kind < 2 || kind > 5) return NULL;
  for (int i = 0; i < 4 && codecs == NULL; i++) codecs = dlopen(libraries[i & 1], RTLD_NOW | (i < 2 ? RTLD_NOLOAD : 0));
  snprintf(name, sizeof name, "nvcompBatched%sDecompress%s", names[kind], what);
  return codecs == NULL ? NULL : dlsym(codecs, name);
}

/* Synchronized in Java. */
METHOD(jint, useCodecs)(Java env, object class, object path) {
  const char *bytes = STRING_BYTES(env, path);
  if (bytes == NULL) return OUT_OF_MEMORY;
  if (codecs == NULL && (codecs = dlopen(bytes, RTLD_NOW)) == NULL) snprintf(missing, sizeof missing, "no nvCOMP: %s", dlerror());
  RELEASE_STRING(env, path, bytes);
  return codecs == NULL ? NOT_THERE : FINE;
}

METHOD(jlong, temporaryBytes)(Java env, object class, jint kind, jlong count, jlong largest, jlong total) {
  Options options = {{0}};
  size_t bytes = 0;
  int status;
  void *query = codec(kind, "GetTempSize");
  if (query != NULL) {
    status = ((Temporary6) query)(count, largest, options, &bytes, total, NULL);
  } else if ((query = codec(kind, "GetTempSizeAsync")) != NULL) {
    status = ((Temporary5) query)(count, largest, options, &bytes, total);
  } else {
    return INT64_MIN;
  }
  return status == FINE ? (jlong) bytes : -1 - (jlong) status;
}

METHOD(jint, inflate)(Java env, object class, jint kind, jlong sources, jlong sizes, jlong rooms, jlong outSizes, jlong count,
                      jlong temporary, jlong temporaryBytes, jlong targets, jlong statuses) {
  Options options = {{0}};
  Inflate run = (Inflate) codec(kind, "Async");
  if (run == NULL) return NOT_THERE;
  return run(AT(sources), AT(sizes), AT(rooms), AT(outSizes), count, AT(temporary), temporaryBytes, AT(targets), options, AT(statuses),
             STREAM);
}
