package kolumn;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * What a worker says while it decodes on a device: a byte, the size of what follows, and that. Some commands are answered; what they mean
 * is in `DeviceCommands`.
 */
final class Commands {
  private static final String ANSWERED = "AGYTI";
  private static final String OTHERS = "FMDUCKLRBNW";
  private static final String ENDS = "EX";
  private static final int PART = 1 << 12;

  private final Pipes channel;
  private char current;
  private int unread;
  private boolean isAwaited;
  private boolean isBegun;

  Commands(Pipes channel) {
    this.channel = channel;
  }

  static boolean isAnswered(char command) {
    return ANSWERED.indexOf(command) >= 0;
  }

  static boolean isEnd(char command) {
    return ENDS.indexOf(command) >= 0;
  }

  /** The next command; what was not read of the one before is left out. */
  char next() throws IOException {
    while (unread > 0) {
      part(Math.min(unread, PART));
    }
    unread = 5;
    ByteBuffer head = part(5);
    char found = (char) head.get();
    int size = head.getInt();
    if (size < 0 || (ANSWERED + OTHERS + ENDS).indexOf(found) < 0) {
      throw new IOException("a command " + (int) found + " of " + size + " bytes is none");
    }
    unread = size;
    current = found;
    isAwaited = isAnswered(found);
    isBegun = false;
    return found;
  }

  char current() {
    return current;
  }

  /** Bytes of the command that were not read yet. */
  int unread() {
    return unread;
  }

  /** The next bytes of the command; they are there until more is read. */
  ByteBuffer part(int size) throws IOException {
    demand(size);
    ByteBuffer found = channel.take(size);
    unread -= size;
    return found;
  }

  ByteBuffer rest() throws IOException {
    return part(unread);
  }

  /** As many of the command's bytes as there is room for. */
  void readTo(ByteBuffer target) throws IOException {
    demand(target.remaining());
    while (target.hasRemaining()) {
      int size = channel.read(target);
      if (size < 0) {
        throw new EOFException("the connection ended");
      }
      unread -= size;
    }
  }

  private void demand(int size) throws IOException {
    if (size > unread) {
      throw new IOException("a command has " + unread + " bytes more, not " + size);
    }
  }

  /** A whole answer, its status first. */
  void answer(ByteBuffer bytes) throws IOException {
    answer(bytes, true);
  }

  /** A part of an answer. */
  void answer(ByteBuffer bytes, boolean isLast) throws IOException {
    isBegun = true;
    channel.write(bytes);
    isAwaited = !isLast;
  }

  void answerStop() throws IOException {
    answer(ByteBuffer.wrap(new byte[] {'S'}));
  }

  /** Stops the worker if it waits for an answer; whether it has not ended yet. */
  boolean stop() throws IOException {
    if (isAwaited && isBegun) {
      throw new IOException("an answer was sent in part");
    }
    if (isAwaited) {
      answerStop();
    }
    return !isEnd(current);
  }
}
