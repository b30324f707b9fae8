package ai.rapids.cudf;

/** A stand-in; see {@link StandIn}. */
public abstract class MemoryBuffer implements AutoCloseable {
  /** Told of each {@link #close}, with how many users there are still. */
  public interface EventHandler {
    void onClosed(int refCount);
  }

  protected final long address;
  protected final long length;
  private final Runnable free;
  private int refCount = 1;
  private EventHandler eventHandler;

  /** Without {@code free} it is a view, which nobody needs to close. */
  MemoryBuffer(long address, long length, Runnable free) {
    this.address = address;
    this.length = length;
    this.free = free;
    if (free != null) {
      StandIn.BUFFERS.incrementAndGet();
    }
  }

  public final long getLength() {
    return length;
  }

  public final long getAddress() {
    return address;
  }

  public abstract MemoryBuffer slice(long offset, long len);

  final void checkSlice(long offset, long len) {
    if (refCount <= 0 || offset < 0 || len < 0 || offset + len > length) {
      throw new IllegalStateException("a slice of " + len + " bytes from " + offset + " on of " + this);
    }
  }

  @Override
  public synchronized void close() {
    if (free == null) {
      return;
    }
    refCount--;
    if (refCount == 0) {
      StandIn.BUFFERS.decrementAndGet();
      free.run();
    } else if (refCount < 0) {
      throw new IllegalStateException("Close called too many times " + this);
    }
    if (eventHandler != null) {
      eventHandler.onClosed(refCount);
    }
  }

  public synchronized EventHandler setEventHandler(EventHandler newHandler) {
    EventHandler before = eventHandler;
    eventHandler = newHandler;
    return before;
  }

  public synchronized void incRefCount() {
    if (refCount <= 0) {
      throw new IllegalStateException("used after it was closed: " + this);
    }
    refCount++;
  }

  public synchronized int getRefCount() {
    return refCount;
  }

  @Override
  public String toString() {
    return getClass().getSimpleName() + " of " + length + " bytes, " + refCount + " users";
  }
}
