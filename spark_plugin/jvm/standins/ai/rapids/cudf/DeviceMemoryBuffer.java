package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class DeviceMemoryBuffer extends BaseDeviceMemoryBuffer {
  DeviceMemoryBuffer(long address, long length, Runnable free) {
    super(address, length, free);
  }

  public static DeviceMemoryBuffer allocate(long bytes) {
    return allocate(bytes, Cuda.DEFAULT_STREAM);
  }

  public static DeviceMemoryBuffer allocate(long bytes, Cuda.Stream stream) {
    return Rmm.alloc(bytes, stream);
  }

  @Override
  public final synchronized DeviceMemoryBuffer slice(long offset, long len) {
    checkSlice(offset, len);
    incRefCount();
    return new DeviceMemoryBuffer(address + offset, len, this::close);
  }
}
