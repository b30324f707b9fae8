package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public class DeviceMemoryBufferView extends BaseDeviceMemoryBuffer {
  DeviceMemoryBufferView(long address, long lengthInBytes) {
    super(address, lengthInBytes, null);
  }

  @Override
  public final synchronized DeviceMemoryBufferView slice(long offset, long len) {
    checkSlice(offset, len);
    return new DeviceMemoryBufferView(address + offset, len);
  }
}
