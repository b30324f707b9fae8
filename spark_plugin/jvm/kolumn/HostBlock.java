package kolumn;

import java.nio.ByteBuffer;
import org.apache.arrow.memory.util.MemoryUtil;

/** Memory of the host that copies to or from a GPU take place in, page-locked from the first one on if the system does that. */
final class HostBlock implements AutoCloseable {
  final ByteBuffer bytes;
  private final long address;
  private final boolean isMapped;
  private boolean wasTried;
  private boolean isLocked;

  private HostBlock(ByteBuffer bytes, boolean isMapped) {
    this.bytes = bytes;
    this.isMapped = isMapped;
    address = MemoryUtil.getByteBufferAddress(bytes);
  }

  /** A mapping, which goes with the block. */
  static HostBlock mapped(ByteBuffer bytes) {
    return new HostBlock(bytes, true);
  }

  static HostBlock of(int size, int alignment) {
    return new HostBlock(ByteBuffer.allocateDirect(size + alignment).alignedSlice(alignment).limit(size).slice(), false);
  }

  /** Where the first byte is. The thread has the GPU's context. */
  long address() {
    if (!wasTried) {
      wasTried = true;
      isLocked = Driver.lock(address, bytes.capacity()) == 0;
    }
    return address;
  }

  /** Nothing is copied any more. Any thread may do this, one that never used the GPU, too. */
  @Override
  public void close() {
    if (isLocked && (Driver.here() != 0 || Driver.unlock(address) != 0)) {
      // It would be locked still where something else is mapped next.
      return;
    }
    isLocked = false;
    if (isMapped) {
      Unmap.now(bytes);
    }
  }
}
