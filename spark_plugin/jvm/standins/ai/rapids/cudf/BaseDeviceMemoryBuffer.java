package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public abstract class BaseDeviceMemoryBuffer extends MemoryBuffer {
  BaseDeviceMemoryBuffer(long address, long length, Runnable free) {
    super(address, length, free);
  }
}
